"""Times in the iterations of job schedulers, whose ids contain the time they are for. Part of the worker-clock rule."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from conformance.observe.rules.base import CLOCK_TOLERANCE_MS, canonical_json, map_texts, with_fields
from conformance.observe.rules.delays import UNTIL_OWN_TIME, iteration_time
from conformance.observe.tables import Job, Scheduler, Snapshot, as_number, parsed_json

OFFSET = "<offset>"
_ITERATION = re.compile(r"repeat:(?P<scheduler>.+):(?P<ms>\d{12,14})")


def masked_iteration(job: Job) -> dict[str, str | None]:
    """The options of an iteration with its clock times masked; nothing for other jobs."""
    own_time = iteration_time(job.id)
    opts = parsed_json(job.fields.get("opts"))
    if own_time is None or "rjk" not in job.fields or not isinstance(opts, dict):
        return {}
    masked = {name: _masked_option(name, value, job, own_time) for name, value in opts.items()}
    return {"opts": canonical_json(masked)} if masked != opts else {}


def _masked_option(name: str, value: Any, job: Job, own_time: int) -> Any:
    """One option: times in relation to the job's fields, the offset in relation to `every`."""
    number = as_number(value)
    if name == "repeat" and isinstance(value, dict):
        return _masked_offset(value)
    if name == "prevMillis" and number == own_time:
        return "<own time>"
    timestamp = job.number("timestamp")
    if name == "timestamp" and number is not None and timestamp is not None:
        return "<timestamp>" if abs(number - timestamp) <= CLOCK_TOLERANCE_MS else value
    if name == "delay" and number is not None and timestamp is not None:
        # The hash field `delay` is cleared when the iteration becomes due, the option stays.
        return UNTIL_OWN_TIME if abs(timestamp + number - own_time) <= CLOCK_TOLERANCE_MS else value
    return value


def _masked_offset(record: Mapping[str, Any]) -> dict[str, Any]:
    """An offset within its period tells only when the scheduler was started."""
    offset, every = as_number(record.get("offset")), as_number(record.get("every"))
    if offset is not None and every is not None and 0 <= offset < every:
        return {**record, "offset": OFFSET}
    return dict(record)


def rename_iterations(masked: Snapshot, raw: Snapshot) -> Snapshot:
    """Replace the times in iteration ids by their number per scheduler, everywhere, and the schedulers' next times."""
    labels = _labels(raw)
    schedulers = tuple(_masked_scheduler(row, labels) for row in masked.schedulers)
    masked = replace(masked, schedulers=schedulers)
    if not labels:
        return masked
    longest_first = sorted(labels, key=lambda job_id: (-len(job_id), job_id))
    known = re.compile("(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\d)")
    return map_texts(masked, lambda text: known.sub(lambda found: labels[found.group()], text))


def _labels(snapshot: Snapshot) -> dict[str, str]:
    """The ids of all iterations, each with its time replaced by `<time N>`, counted per scheduler from the earliest."""
    times: dict[str, set[int]] = defaultdict(set)
    for job_id in _known_ids(snapshot):
        found = _ITERATION.fullmatch(job_id)
        if found:
            times[found["scheduler"]].add(int(found["ms"]))
    return {
        f"repeat:{scheduler}:{ms}": f"repeat:{scheduler}:<time {number}>"
        for scheduler, known in times.items()
        for number, ms in enumerate(sorted(known), start=1)
    }


def _known_ids(snapshot: Snapshot) -> Iterator[str]:
    yield from (job.id for job in snapshot.jobs)
    yield from (member.job for member in snapshot.memberships)
    yield from (event.job for event in snapshot.events)


def _masked_scheduler(row: Scheduler, labels: Mapping[str, str]) -> Scheduler:
    """The next time is that of an iteration; the record's offset is masked like the iteration's."""
    number = as_number(row.next)
    label = labels.get(f"repeat:{row.id}:{number:.0f}") if number is not None else None
    fields = row.fields
    if fields is not None:
        fields = with_fields(fields, {"offset": _offset_text(fields)})
    return replace(row, next=label.rpartition(":")[2] if label else row.next, fields=fields)


def _offset_text(fields: Mapping[str, str]) -> str | None:
    masked = _masked_offset(fields).get("offset")
    return masked if masked == OFFSET else None
