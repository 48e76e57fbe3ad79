"""Reading and removing job schedulers."""

from __future__ import annotations

from typing import Any

from conformance.driver.ops import flow as ops
from conformance.driver.ops.base import Count, Flag
from conformance.model.containers import list_range
from conformance.model.events import emit
from conformance.model.options import decoded
from conformance.model.parents import delete_job_keys
from conformance.model.schedule import iteration_id
from conformance.model.stage import Stage, answers
from conformance.model.texts import normalised_json, parse_int


@answers(ops.RemoveJobScheduler)
def _remove(stage: Stage, op: ops.RemoveJobScheduler) -> Flag:
    """The current iteration goes too, but only while it is delayed; one that waits for a worker is still run."""
    queue = stage.queue
    time = queue.scheduler_times.score(op.id)
    if time is None:
        return Flag(value=False)
    job = iteration_id(op.id, time)
    if queue.delayed.remove(job):
        delete_job_keys(queue, job)
        emit(stage.world, queue, "removed", jobId=job, prev="delayed")
    queue.scheduler_times.remove(op.id)
    queue.scheduler_records.pop(op.id, None)
    return Flag(value=True)


@answers(ops.GetJobScheduler)
def _get(stage: Stage, op: ops.GetJobScheduler) -> ops.MaybeScheduler:
    time = stage.queue.scheduler_times.score(op.id)
    if time is not None:
        return ops.MaybeScheduler(scheduler=_view(stage, op.id, time))
    return ops.MaybeScheduler(scheduler=_of_old_key(op.id) if ":" in op.id else None)


@answers(ops.GetJobSchedulers)
def _get_all(stage: Stage, op: ops.GetJobSchedulers) -> ops.Schedulers:
    """By the time of the current iteration, the latest first unless `asc`."""
    ids = stage.queue.scheduler_times.members()
    chosen = list_range(ids if op.asc else ids[::-1], op.start, op.end)
    return ops.Schedulers(schedulers=[_view(stage, one, stage.queue.scheduler_times.score(one) or 0) for one in chosen])


@answers(ops.GetJobSchedulersCount)
def _count(stage: Stage, _: ops.GetJobSchedulersCount) -> Count:
    return Count(count=len(stage.queue.scheduler_times))


def _view(stage: Stage, scheduler: str, time: float) -> ops.SchedulerView:
    record = stage.queue.scheduler_records.get(scheduler, {})
    template: dict[str, Any] = {}
    if "data" in record:
        template["template_data_raw"] = normalised_json(record["data"])
    if "opts" in record:
        template["template_opts"] = decoded(record["opts"])
    return ops.SchedulerView(
        key=scheduler,
        name=record.get("name", ""),
        next=int(time),
        every=parse_int(record.get("every")),
        pattern=record.get("pattern"),
        tz=record.get("tz"),
        limit=parse_int(record.get("limit")),
        start_date=parse_int(record.get("startDate")),
        end_date=parse_int(record.get("endDate")),
        iteration_count=parse_int(record.get("ic")),
        offset=parse_int(record.get("offset")),
        **template,
    )


def _of_old_key(key: str) -> ops.SchedulerView:
    """A key with colons that is no scheduler is read as old versions wrote them: NAME:ID:END:ZONE:PATTERN."""
    name, _, end, zone, pattern = [*key.split(":", 4), "", "", ""][:5]
    return ops.SchedulerView(
        key=key, name=name, end_date=parse_int(end) or None, tz=zone or None, pattern=pattern or None
    )
