"""Job schedulers: each has one job at a time, its current iteration. Claiming that job makes the next one."""

from __future__ import annotations

import math
from dataclasses import replace

from conformance.driver.ops import flow as ops
from conformance.driver.ops.base import MaybeJob
from conformance.model.adding import put_delayed, put_to_work
from conformance.model.calls import NotModelled, script_error
from conformance.model.events import emit_within_limit, note_limit
from conformance.model.holding import read_job
from conformance.model.new_jobs import Record, store
from conformance.model.options import JobOptions, check_modelled, encoded, is_number
from conformance.model.order import remove_first, waiting_list
from conformance.model.removing import remove_in_bulk
from conformance.model.schedule import Schedule, check_repeat, every_next, iteration_id
from conformance.model.stage import Stage, answers
from conformance.model.state import Queue
from conformance.model.texts import argument, cjson, lua_true, normalised_json, number_text
from conformance.model.views import maybe_job, view_of_iteration
from conformance.protocol.errors import ErrorCode

MOST_COLONS = 3
"""Iterations of schedulers with more colons in their id are taken for jobs of old versions."""


@answers(ops.UpsertJobScheduler)
def _upsert(stage: Stage, op: ops.UpsertJobScheduler) -> MaybeJob:
    check_repeat(op.repeat, stage.now_ms)
    schedule = Schedule(
        id=op.id,
        name=op.id if op.name is None else op.name,
        data_raw="{}" if op.data_raw is None else op.data_raw,
        repeat=op.repeat,
        template={**stage.handle.option("defaultJobOptions", {}), **(op.opts or {})},
    )
    check_modelled(schedule.template)
    if not is_number(schedule.template.get("priority") or 0):
        raise NotModelled("a priority that is no number, which schedulers do not refuse")
    if schedule.is_over(stage.now_ms):
        return maybe_job(None)
    time = schedule.pattern_time(stage.now_ms)
    if time is None and not op.repeat.get("every"):
        return maybe_job(None)
    options = schedule.job_options(time, stage.now_ms)
    job, delay = _replace_current(stage, schedule, time, options)
    return maybe_job(view_of_iteration(job, schedule.name, schedule.data_raw, options, delay=delay))


def _replace_current(stage: Stage, schedule: Schedule, time: float | None, options: JobOptions) -> tuple[str, float]:
    """Put the scheduler's first iteration, or another one in place of the one that waits, at the time of that one.

    Answers the job's id and its delay (ms).
    """
    queue, every = stage.queue, schedule.repeat.get("every")
    note_limit(queue)
    previous = queue.scheduler_times.score(schedule.id)
    offset: float | None = 0
    if every:
        time = every_next(previous, every, stage.now_ms, 0, schedule.repeat.get("startDate"))
        offset = time - math.floor(time / every) * every
    assert time is not None
    if previous is not None and _remove_waiting(stage, iteration_id(schedule.id, previous)):
        time, offset = previous, None
    time = _free_time(queue, schedule.id, time, every)
    queue.scheduler_times.add(schedule.id, time)
    _write_record(queue, schedule, offset)
    delay = max(time - stage.now_ms, 0)
    return _add_iteration(stage, schedule, time, encoded(options)), delay


def _remove_waiting(stage: Stage, job: str) -> bool:
    """Remove an iteration that no worker has yet, without an event."""
    queue = stage.queue
    if job not in queue.jobs:
        return False
    in_set = job in queue.delayed or job in queue.prioritized
    if not in_set and not remove_first(waiting_list(queue), job):
        return False
    remove_in_bulk(stage.world, queue, job, hard=True)
    if not queue.delayed.remove(job):
        queue.prioritized.remove(job)
    return True


def _free_time(queue: Queue, scheduler: str, time: float, every: float | None) -> float:
    """The time, or the next one of a period where a job has this id. Raises Failure where both are taken."""
    if iteration_id(scheduler, time) not in queue.jobs:
        return time
    if not every:
        script_error(ErrorCode.SCHEDULER_COLLISION)
    if iteration_id(scheduler, time + every) in queue.jobs:
        script_error(ErrorCode.SCHEDULER_SLOTS_BUSY)
    return time + every


def _write_record(queue: Queue, schedule: Schedule, offset: float | None) -> None:
    """Write the scheduler's record anew; of the old one only the count of iterations stays.

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
    template = cjson(encoded(schedule.template))
    if template != "{}":
        record["opts"] = template
    if schedule.data_raw != "{}":
        record["data"] = schedule.data_raw
    queue.scheduler_records[schedule.id] = {**record, "ic": old.get("ic", "1")}


def _add_iteration(stage: Stage, schedule: Schedule, time: float, stored: JobOptions) -> str:
    """Store an iteration. It takes a number, which is not its id."""
    queue, job = stage.queue, iteration_id(schedule.id, time)
    queue.id_counter = (queue.id_counter or 0) + 1
    delay = max(time - stage.now_ms, 0)
    record = Record(
        name=schedule.name,
        data_raw=schedule.data_raw,
        options={**stored, "delay": delay, "jobId": job},
        timestamp=stage.now_ms,
        links={"rjk": schedule.id},
    )
    store(stage.world, queue, job, record)
    if delay:
        put_delayed(stage.world, queue, job, stage.now_ms, delay)
    else:
        put_to_work(stage.world, queue, job, record.options)
    return job


def continue_schedule(stage: Stage, job: str) -> None:
    """A worker has claimed a scheduler's iteration: make the next one, unless it was the last.

    The worker knows limit and end date from the job; period, name and data come from the scheduler's record.
    """
    queue = stage.queue
    scheduler, claimed = queue.field(job, "rjk"), read_job(queue, job)
    if not scheduler or claimed is None or scheduler.count(":") > MOST_COLONS:
        return
    schedule = Schedule(
        id=scheduler,
        name=queue.field(job, "name") or "",
        data_raw=normalised_json(queue.field(job, "data") or "{}"),
        repeat=claimed.opts.get("repeat") or {},
        template=claimed.opts,
    )
    if schedule.is_over(stage.now_ms):
        return
    time = schedule.pattern_time(stage.now_ms)
    if time is not None or schedule.repeat.get("every"):
        _follow(stage, schedule, job, time)


def _follow(stage: Stage, schedule: Schedule, job: str, time: float | None) -> None:
    """Add the iteration after this one, if the scheduler still exists and waits for just this job."""
    queue = stage.queue
    previous = queue.scheduler_times.score(schedule.id)
    if previous is None:
        return
    options = schedule.job_options(time, stage.now_ms)
    record = queue.scheduler_records.setdefault(schedule.id, {})
    every = float(record.get("every") or schedule.repeat.get("every") or 0)
    if every:
        time = every_next(previous, every, stage.now_ms, float(record.get("offset", 0)), None)
    if time is None or job != iteration_id(schedule.id, previous):
        return
    note_limit(queue)
    following = iteration_id(schedule.id, time)
    if following in queue.jobs:
        emit_within_limit(stage.world, queue, "duplicated", jobId=following)
        return
    queue.scheduler_times.add(schedule.id, time)
    record["ic"] = str(int(record.get("ic", 0)) + 1)
    data = record.get("data") or schedule.data_raw
    if data != "{}":
        record["data"] = data
    known = replace(schedule, name=record.get("name", ""), data_raw=data)
    _add_iteration(stage, known, time, encoded(options))
    queue.hash(job)["nrjid"] = following
