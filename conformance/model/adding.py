"""Adding jobs: one, many, and what all ways of adding have in common.

A job takes a number even if it brings its own id, or turns out to be a duplicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.driver.ops import queue as ops
from conformance.driver.ops.base import Ids, JobRef
from conformance.model.calls import Failure, NotModelled, refuse, script_error
from conformance.model.deduplication import deduplicated
from conformance.model.events import emit_within_limit, note_limit
from conformance.model.new_jobs import NewJob, Record, new_job, parent_fields, store
from conformance.model.options import (
    JobOptions,
    deduplication_id,
    encoded,
)
from conformance.model.order import delay_score, mark_next_delay, put_prioritized, put_waiting
from conformance.model.parents import child_completed
from conformance.model.stage import Stage, answers
from conformance.model.state import Queue, World
from conformance.model.texts import argument, lua_true
from conformance.protocol.errors import DRIVER_CODES, ErrorCode

CODE_NUMBERS = {name: int(code) for code, name in DRIVER_CODES.items()}


def add(world: World, job: NewJob) -> str:
    """Store a job and put it into its first state: the id of the job that is there now.

    Raises Failure where the parent is missing or may not be replaced.
    """
    queue = job.queue
    world.scripts.add(job.script)
    if job.parent_key is not None and not world.exists(job.parent_key):
        script_error(ErrorCode.MISSING_PARENT)
    job_id = job.id or str((queue.id_counter or 0) + 1)
    queue.id_counter = (queue.id_counter or 0) + 1
    note_limit(queue)
    if job.id and job_id in queue.jobs:
        return _duplicate(world, job, job_id)
    stored = encoded(job.options)
    kept = deduplicated(world, queue, job_id, stored.get("de") if deduplication_id(job.options) else None)
    if kept is not None:
        return kept
    links = {} if job.parent_key is None else parent_fields(job)
    record = Record(name=job.name, data_raw=job.data_raw, options=stored, timestamp=job.timestamp, links=links)
    store(world, queue, job_id, record)
    _place(world, job, job_id, stored)
    if job.parent_key is not None:
        _join_parent(world, job.parent_key, queue.key(job_id))
    return job_id


def _place(world: World, job: NewJob, job_id: str, stored: JobOptions) -> None:
    """The first state: parents wait for their children, delayed jobs for their time, all others for a worker."""
    if job.waits_for_children:
        job.queue.waiting_children.add(job_id, job.timestamp)
        emit_within_limit(world, job.queue, "waiting-children", jobId=job_id)
    elif job.is_delayed:
        put_delayed(world, job.queue, job_id, job.timestamp, stored["delay"])
    else:
        put_to_work(world, job.queue, job_id, stored)


def put_delayed(
    world: World, queue: Queue, job_id: str, from_ms: float, delay_ms: float, *, at: tuple[float, float] | None = None
) -> None:
    """Let a job wait for its time, and tell when that is (absolute ms). `at`: score and due time, if known already."""
    score, due = at or delay_score(queue, from_ms, delay_ms)
    queue.delayed.add(job_id, score)
    emit_within_limit(world, queue, "delayed", jobId=job_id, delay=argument(due))
    mark_next_delay(queue)


def put_to_work(world: World, queue: Queue, job_id: str, stored: JobOptions) -> None:
    """Let a new job wait for a worker; `lifo` lets it overtake, but not among jobs with a priority."""
    if stored.get("priority"):
        put_prioritized(queue, job_id, stored["priority"])
    else:
        put_waiting(queue, job_id, "right" if lua_true(stored.get("lifo")) else "left")
    emit_within_limit(world, queue, "waiting", jobId=job_id)


def _join_parent(world: World, parent_key: str, child_key: str) -> None:
    queue, parent = world.locate(parent_key)
    queue.family(parent).unprocessed[child_key] = None


def _duplicate(world: World, job: NewJob, job_id: str) -> str:
    """A job with this id exists: it stays as it is, but may get a parent."""
    queue = job.queue
    known_parent = queue.field(job_id, "parentKey")
    if known_parent is None or known_parent == job.parent_key:
        if job.parent_key is not None:
            _adopt(world, job, job_id)
    elif job.parent_key is not None and world.exists(known_parent):
        script_error(ErrorCode.PARENT_REPLACED)
    emit_within_limit(world, queue, "duplicated", jobId=job_id)
    return job_id


def _adopt(world: World, job: NewJob, job_id: str) -> None:
    """Give an existing job a parent; one that is completed hands its value over at once."""
    assert job.parent_key is not None
    queue = job.queue
    if job_id in queue.completed:
        returned = queue.field(job_id, "returnvalue") or ""
        child_completed(world, job.parent_key, queue.key(job_id), returned, int(job.timestamp))
    else:
        _join_parent(world, job.parent_key, queue.key(job_id))
    queue.hash(job_id).update(parent_fields(job))


def lost_scripts(stage: Stage, needed: set[str]) -> set[str]:
    """The scripts that the handle has used before, and that Redis has forgotten since. It knows all of them now."""
    lost = (needed & stage.handle.known_scripts) - stage.world.scripts
    stage.handle.known_scripts |= needed
    return lost


def with_defaults(stage: Stage, opts: Mapping[str, Any]) -> JobOptions:
    """The job's options over the queue's `defaultJobOptions`; an id is never a default."""
    merged = {**stage.handle.option("defaultJobOptions", {}), **opts}
    if "jobId" not in opts:
        merged.pop("jobId", None)
    return merged


@answers(ops.Add)
def _add(stage: Stage, op: ops.Add) -> JobRef:
    options = with_defaults(stage, op.opts)
    if options.get("repeat"):
        raise NotModelled("the option repeat of add: job schedulers have taken its place")
    job_id = options.get("jobId")
    if job_id is not None and (not isinstance(job_id, str) or job_id == "0" or job_id.startswith("0:")):
        refuse("an id that is no text, or that looks like a marker")
    job = new_job(stage.queue, op.name, op.data_raw, options, stage.now_ms)
    lost_scripts(stage, {job.script})
    return JobRef(id=add(stage.world, job))


@answers(ops.AddBulk)
def _add_bulk(stage: Stage, op: ops.AddBulk) -> Ids:
    """All jobs are checked before the first is sent. What a script refuses shows only as a negative id."""
    jobs = [
        new_job(stage.queue, one.name, one.data_raw, with_defaults(stage, one.opts), stage.now_ms) for one in op.jobs
    ]
    needed = {job.script for job in jobs}
    if lost_scripts(stage, needed) not in (set(), needed):
        # Those whose script was lost are sent once more, behind all others.
        stage.world.determined = False
    ids: list[str] = []
    broken: Failure | None = None
    for job in jobs:
        try:
            ids.append(add(stage.world, job))
        except Failure as failure:
            if failure.code not in CODE_NUMBERS:
                broken = broken or failure
            ids.append(str(CODE_NUMBERS.get(failure.code, 0)))
    if broken is not None:
        raise broken
    return Ids(ids=ids)
