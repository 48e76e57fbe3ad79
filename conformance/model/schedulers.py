"""Job schedulers: how they are made, continued, read and removed.

Each has one job at a time, its current iteration. Claiming that job makes the next one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from conformance.driver.ops import flow as ops
from conformance.driver.ops.base import Count, Flag, MaybeJob
from conformance.model.adding import NewJobHash, put_delayed, put_to_work, store_job
from conformance.model.calls import NotModelled, script_error
from conformance.model.dispatch import CallContext, operation
from conformance.model.events import emit, emit_within_limit, note_limit
from conformance.model.job_objects import (
    JobOptions,
    check_modelled,
    decode_options,
    encode_options,
    is_number,
    maybe_job,
    read_job,
    view_of_iteration,
)
from conformance.model.order import remove_first, waiting_list
from conformance.model.parents import delete_job_keys
from conformance.model.removing import remove_in_bulk
from conformance.model.schedule import Schedule, check_repeat, every_next, iteration_id
from conformance.model.state import QueueState, list_range
from conformance.model.texts import argument, cjson, lua_true, normalised_json, number_text, parse_int
from conformance.protocol.scripts import ErrorCode

MOST_COLONS = 3
"""Iterations of schedulers with more colons in their id are taken for repeatable jobs of old versions."""


@operation(ops.UpsertJobScheduler)
def _upsert(context: CallContext, op: ops.UpsertJobScheduler) -> MaybeJob:
    check_repeat(op.repeat, context.now_ms)
    schedule = Schedule(
        id=op.id,
        name=op.id if op.name is None else op.name,
        data_raw="{}" if op.data_raw is None else op.data_raw,
        repeat=op.repeat,
        template={**context.handle.option("defaultJobOptions", {}), **(op.opts or {})},
    )
    check_modelled(schedule.template)
    if not is_number(schedule.template.get("priority") or 0):
        raise NotModelled("a priority that is not a number, which schedulers do not refuse")
    if schedule.is_over(context.now_ms):
        return maybe_job(None)
    time = schedule.pattern_time(context.now_ms)
    if time is None and not op.repeat.get("every"):
        return maybe_job(None)
    options = schedule.job_options(time, context.now_ms)
    job, delay = _replace_current(context, schedule, time, options)
    return maybe_job(view_of_iteration(job, schedule.name, schedule.data_raw, options, delay=delay))


def _replace_current(
    context: CallContext, schedule: Schedule, time: float | None, options: JobOptions
) -> tuple[str, float]:
    """Put the scheduler's first iteration, or another one in place of the one that waits, at the time of that one.

    Returns the job's id and its delay (ms).
    """
    queue, every = context.queue, schedule.repeat.get("every")
    note_limit(queue)
    previous = queue.scheduler_times.score(schedule.id)
    offset: float | None = 0
    if every:
        time = every_next(previous, every, context.now_ms, 0, schedule.repeat.get("startDate"))
        offset = time - math.floor(time / every) * every
    assert time is not None
    if previous is not None and _remove_waiting(context, iteration_id(schedule.id, previous)):
        # The pending run keeps its time, even if the period or pattern has changed (5.62.0).
        time, offset = previous, None
    # A finished run of the same time may still be kept under this id.
    time = _free_time(queue, schedule.id, time, every)
    queue.scheduler_times.add(schedule.id, time)
    _write_record(queue, schedule, offset)
    delay = max(time - context.now_ms, 0)
    return _add_iteration(context, schedule, time, encode_options(options)), delay


def _remove_waiting(context: CallContext, job: str) -> bool:
    """Remove an iteration that no worker has yet, without an event."""
    queue = context.queue
    if job not in queue.jobs:
        return False
    in_set = job in queue.delayed or job in queue.prioritized
    if not in_set and not remove_first(waiting_list(queue), job):
        return False
    remove_in_bulk(context.state, queue, job, hard=True)
    if not queue.delayed.remove(job):
        queue.prioritized.remove(job)
    return True


def _free_time(queue: QueueState, scheduler: str, time: float, every: float | None) -> float:
    """The time, or the next one of a period where a job has this id. Raises CallFailure where both are taken."""
    if iteration_id(scheduler, time) not in queue.jobs:
        return time
    if not every:
        script_error(ErrorCode.SCHEDULER_COLLISION)
    if iteration_id(scheduler, time + every) in queue.jobs:
        script_error(ErrorCode.SCHEDULER_SLOTS_BUSY)
    return time + every


def _write_record(queue: QueueState, schedule: Schedule, offset: float | None) -> None:
    """Rewrite the scheduler's record; only the count of iterations stays.

    `offset`: where the runs lie within the period (ms); None leaves it as it is.
    """
    old = queue.scheduler_records.get(schedule.id, {})
    record = {"name": schedule.name}
    for option in ("tz", "limit", "pattern", "startDate", "endDate", "every"):
        value = schedule.repeat.get(option)
        if lua_true(value) and (value or not option.endswith("Date")):
            record[option] = argument(value)
    if offset is not None:
        record["offset"] = number_text(offset)
    elif "offset" in old:
        record["offset"] = old["offset"]
    template = cjson(encode_options(schedule.template))
    if template != "{}":
        record["opts"] = template
    if schedule.data_raw != "{}":
        record["data"] = schedule.data_raw
    queue.scheduler_records[schedule.id] = {**record, "ic": old.get("ic", "1")}


def _add_iteration(context: CallContext, schedule: Schedule, time: float, stored: JobOptions) -> str:
    """Store an iteration. It takes a number, which is not its id."""
    queue, job = context.queue, iteration_id(schedule.id, time)
    queue.id_counter = (queue.id_counter or 0) + 1
    delay = max(time - context.now_ms, 0)
    record = NewJobHash(
        name=schedule.name,
        data_raw=schedule.data_raw,
        options={**stored, "delay": delay, "jobId": job},
        timestamp=context.now_ms,
        links={"rjk": schedule.id},
    )
    store_job(context.state, queue, job, record)
    if delay:
        put_delayed(context.state, queue, job, context.now_ms, delay)
    else:
        put_to_work(context.state, queue, job, record.options)
    return job


def continue_schedule(context: CallContext, job: str) -> None:
    """A worker has claimed a scheduler's iteration: make the next one, unless it was the last.

    The worker knows limit and end date from the job; period, name and data come from the scheduler's record.
    """
    queue = context.queue
    scheduler, claimed = queue.field(job, "rjk"), read_job(queue, job)
    if not scheduler or claimed is None:
        return
    if scheduler.count(":") > MOST_COLONS:
        # Node continues it as a repeatable job, with a key made of its options, which the model does not know.
        if claimed.opts.get("repeat"):
            context.state.determined = False
        return
    schedule = Schedule(
        id=scheduler,
        name=queue.field(job, "name") or "",
        data_raw=normalised_json(queue.field(job, "data") or "{}"),
        repeat=claimed.opts.get("repeat") or {},
        template=claimed.opts,
    )
    if schedule.is_over(context.now_ms):
        return
    time = schedule.pattern_time(context.now_ms)
    if time is not None or schedule.repeat.get("every"):
        _follow(context, schedule, job, time)


def _follow(context: CallContext, schedule: Schedule, job: str, time: float | None) -> None:
    """Add the iteration after this one, if the scheduler still exists and waits for just this job."""
    queue = context.queue
    previous = queue.scheduler_times.score(schedule.id)
    if previous is None:
        return
    options = schedule.job_options(time, context.now_ms)
    record = queue.scheduler_records.setdefault(schedule.id, {})
    every = float(record.get("every") or schedule.repeat.get("every") or 0)
    if every:
        time = every_next(previous, every, context.now_ms, float(record.get("offset", 0)), None)
    # Only the current iteration continues the schedule: a retried older one must not start a second chain.
    if time is None or job != iteration_id(schedule.id, previous):
        return
    note_limit(queue)
    following = iteration_id(schedule.id, time)
    if following in queue.jobs:
        emit_within_limit(context.state, queue, "duplicated", jobId=following)
        return
    queue.scheduler_times.add(schedule.id, time)
    record["ic"] = str(int(record.get("ic", 0)) + 1)
    data = record.get("data") or schedule.data_raw
    if data != "{}":
        record["data"] = data
    known = replace(schedule, name=record.get("name", ""), data_raw=data)
    _add_iteration(context, known, time, encode_options(options))
    queue.hash(job)["nrjid"] = following


@operation(ops.RemoveJobScheduler)
def _remove(context: CallContext, op: ops.RemoveJobScheduler) -> Flag:
    """The current iteration goes too, but only while it is delayed; one that waits for a worker is still run."""
    queue = context.queue
    time = queue.scheduler_times.score(op.id)
    if time is None:
        return Flag(value=False)
    job = iteration_id(op.id, time)
    if queue.delayed.remove(job):
        delete_job_keys(queue, job)
        emit(context.state, queue, "removed", jobId=job, prev="delayed")
    queue.scheduler_times.remove(op.id)
    queue.scheduler_records.pop(op.id, None)
    return Flag(value=True)


@operation(ops.GetJobScheduler)
def _get(context: CallContext, op: ops.GetJobScheduler) -> ops.MaybeScheduler:
    time = context.queue.scheduler_times.score(op.id)
    if time is not None:
        return ops.MaybeScheduler(scheduler=_view(context, op.id, time))
    return ops.MaybeScheduler(scheduler=_of_old_key(op.id) if ":" in op.id else None)


@operation(ops.GetJobSchedulers)
def _get_all(context: CallContext, op: ops.GetJobSchedulers) -> ops.Schedulers:
    """By the time of the current iteration, the latest first unless `asc`."""
    ids = context.queue.scheduler_times.members()
    chosen = list_range(ids if op.asc else ids[::-1], op.start, op.end)
    return ops.Schedulers(
        schedulers=[
            _view(context, scheduler, context.queue.scheduler_times.score(scheduler) or 0) for scheduler in chosen
        ]
    )


@operation(ops.GetJobSchedulersCount)
def _count(context: CallContext, _: ops.GetJobSchedulersCount) -> Count:
    return Count(count=len(context.queue.scheduler_times))


def _view(context: CallContext, scheduler: str, time: float) -> ops.SchedulerView:
    record = context.queue.scheduler_records.get(scheduler, {})
    template: dict[str, Any] = {}
    if "data" in record:
        template["template_data_raw"] = normalised_json(record["data"])
    if "opts" in record:
        template["template_opts"] = decode_options(record["opts"])
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
    """A key with colons that is not a scheduler is parsed in the format of old versions: NAME:ID:END:ZONE:PATTERN."""
    name, _, end, zone, pattern = [*key.split(":", 4), "", "", ""][:5]
    return ops.SchedulerView(
        key=key, name=name, end_date=parse_int(end) or None, tz=zone or None, pattern=pattern or None
    )
