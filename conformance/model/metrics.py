"""Metrics: how many jobs were finished in each minute. Kept by workers with the option `metrics`."""

from __future__ import annotations

from conformance.driver.ops import queue as ops
from conformance.model.containers import list_range
from conformance.model.stage import Stage, answers
from conformance.model.state import MetricsRecord, Queue
from conformance.model.texts import parse_int

MINUTE_MS = 60_000


def count_finish(queue: Queue, state: str, most_points: int, now_ms: int) -> None:
    """Count a finished job. A point is written for the minutes before, as soon as another one has begun."""
    record = queue.metrics.setdefault(state, MetricsRecord())
    before = int(record.fields.get("count", 0))
    record.fields["count"] = str(before + 1)
    if "prevTS" not in record.fields:
        record.fields |= {"prevTS": str(now_ms), "prevCount": "0"}
        return
    minutes = min(now_ms // MINUTE_MS - int(record.fields["prevTS"]) // MINUTE_MS, most_points)
    if minutes <= 0:
        return
    record.points.insert(0, str(before - int(record.fields["prevCount"])))
    record.points[:0] = ["0"] * (minutes - 1)
    del record.points[most_points:]
    record.fields |= {"prevTS": str(now_ms), "prevCount": str(before)}


@answers(ops.GetMetrics)
def _get_metrics(stage: Stage, op: ops.GetMetrics) -> ops.Metrics:
    record = stage.queue.metrics.get(op.type, MetricsRecord())
    meta = {name: float(parse_int(record.fields.get(name)) or 0) for name in ("count", "prevTS", "prevCount")}
    points = [float(point) for point in list_range(record.points, op.start, op.end)]
    return ops.Metrics(meta=meta, data=points, count=len(record.points))
