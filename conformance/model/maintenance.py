"""Calls about whole queues: pause and resume, drain, clean, obliterate, retry and promote in bulk, trim events."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from conformance.driver.ops import queue as ops
from conformance.driver.ops.base import Count, Flag, Ids, Nothing
from conformance.model.calls import Failure, NotModelled
from conformance.model.containers import SortedSet
from conformance.model.events import emit, emit_within_limit, trim
from conformance.model.order import is_held_back, is_paused, mark_next_delay, mark_work, push, waiting_list
from conformance.model.removing import is_current_iteration, iteration_ids, remove_in_bulk
from conformance.model.stage import Stage, answers
from conformance.model.state import Queue, World

CLEANED_AT_ONCE = 10_000


@answers(ops.Pause)
def _pause(stage: Stage, _: ops.Pause) -> Nothing:
    pause(stage.world, stage.queue)
    return Nothing()


def pause(world: World, queue: Queue) -> None:
    """Park the waiting jobs in `paused`, and wake nobody any more. The event comes also where nothing changes."""
    if queue.wait:
        queue.paused, queue.wait = queue.wait, []
    queue.meta["paused"] = "1"
    queue.marker.clear()
    emit(world, queue, "paused")


@answers(ops.Resume)
def _resume(stage: Stage, _: ops.Resume) -> Nothing:
    """Let the parked jobs wait again, and wake a worker, or tell when the next delayed job is due."""
    queue = stage.queue
    parked = bool(queue.paused)
    if parked:
        queue.wait, queue.paused = queue.paused, []
    queue.meta.pop("paused", None)
    if parked or len(queue.prioritized):
        mark_work(queue)
    else:
        mark_next_delay(queue)
    emit(stage.world, queue, "resumed")
    return Nothing()


@answers(ops.IsPaused)
def _is_paused(stage: Stage, _: ops.IsPaused) -> Flag:
    return Flag(value=is_paused(stage.queue))


@answers(ops.Drain)
def _drain(stage: Stage, op: ops.Drain) -> Nothing:
    """Remove what waits, except for the current iterations of schedulers. No events; markers stay."""
    queue = stage.queue
    kept = iteration_ids(queue)
    _drain_list(stage.world, queue, queue.wait, kept)
    _drain_list(stage.world, queue, queue.paused, kept)
    for container in (queue.delayed, queue.prioritized) if op.delayed else (queue.prioritized,):
        _remove_all(stage.world, queue, container, kept)
    return Nothing()


def _drain_list(world: World, queue: Queue, items: list[str], kept: set[str]) -> None:
    """Upstream cuts off as many entries at the left as it removed jobs, wherever those stood in the list."""
    gone = [job for job in items if job not in kept]
    for job in gone:
        remove_in_bulk(world, queue, job, hard=True)
    del items[: len(gone)]


def _remove_all(world: World, queue: Queue, container: SortedSet, kept: AbstractSet[str] = frozenset()) -> None:
    gone = [job for job in container.members() if job not in kept]
    for job in gone:
        remove_in_bulk(world, queue, job, hard=True)
    for job in gone:
        container.remove(job)


@answers(ops.Clean)
def _clean(stage: Stage, op: ops.Clean) -> Ids:
    """Remove old jobs of one state, in batches; every batch tells how many went."""
    most = op.limit or CLEANED_AT_ONCE
    gone: list[str] = []
    until = stage.now_ms - op.grace_ms
    while True:
        container = stage.queue.container(op.type)
        clean = _clean_list if isinstance(container, list) else _clean_set
        batch = clean(stage, container, op.type, until, most)  # type: ignore[arg-type]  # chosen by its type
        gone += batch
        emit(stage.world, stage.queue, "cleaned", count=str(len(batch)))
        if len(batch) < most or op.limit:
            return Ids(ids=gone)


def _clean_list(stage: Stage, items: list[str], state: str, until: int, most: int) -> list[str]:
    """Only the last entries of a list are looked at; active jobs have to be without a lock."""
    queue = stage.queue
    gone: list[str] = []
    for job in items[-most:]:
        free = state != "active" or job not in queue.locks
        if free and _is_old(queue, job, ("finishedOn", "processedOn", "timestamp"), until):
            remove_in_bulk(stage.world, queue, job, hard=True)
            gone.append(job)
    items[:] = [job for job in items if job not in gone]
    return gone


def _clean_set(stage: Stage, container: SortedSet, state: str, until: int, most: int) -> list[str]:
    """Finished jobs by the time of their finish; others in their order, as far as their score is not negative."""
    queue = stage.queue
    if state in {"completed", "failed"}:
        gone = container.between(0, until)[:most]
    else:
        fields = ("processedOn", "timestamp") if state == "delayed" else ("timestamp",)
        gone = [job for job in container.between(0)[:most] if _is_old(queue, job, fields, until)]
    for job in gone:
        remove_in_bulk(stage.world, queue, job, hard=True)
    for job in gone:
        container.remove(job)
    return gone


def _is_old(queue: Queue, job: str, fields: tuple[str, ...], until: int) -> bool:
    """Times are compared as texts; the current iteration of a scheduler is never old."""
    if is_current_iteration(queue, job):
        return False
    time = next((value for name in fields if (value := queue.field(job, name)) is not None), None)
    return time is None or time <= str(until)


@answers(ops.Obliterate)
def _obliterate(stage: Stage, op: ops.Obliterate) -> Nothing:
    """Remove the queue; it is paused first, and stays so where active jobs forbid the rest.

    Left over: jobs that wait for children, the rate limiter, markers, locks of jobs that are not active.
    """
    queue, world = stage.queue, stage.world
    if op.count <= 0:
        raise NotModelled("obliterate with count 0 never ends")
    pause(world, queue)
    if queue.active and not op.force:
        raise Failure("other", "Cannot obliterate queue with active jobs")
    for job in queue.active:
        queue.locks.pop(job, None)
    _obliterate_list(world, queue, queue.active)
    _remove_all(world, queue, queue.delayed)
    queue.scheduler_times.clear()
    queue.scheduler_records.clear()
    _remove_all(world, queue, queue.completed)
    _obliterate_list(world, queue, queue.paused)
    for container in (queue.prioritized, queue.failed):
        _remove_all(world, queue, container)
    queue.events.clear()
    queue.stalled.clear()
    queue.meta.clear()
    queue.metrics.clear()
    queue.stalled_check = queue.id_counter = queue.priority_counter = None
    return Nothing()


def _obliterate_list(world: World, queue: Queue, items: list[str]) -> None:
    for job in items:
        remove_in_bulk(world, queue, job, hard=True)
    items.clear()


@answers(ops.RetryJobs)
def _retry_jobs(stage: Stage, op: ops.RetryJobs) -> Nothing:
    """Let all finished jobs of a state wait again, the oldest first."""
    until = stage.now_ms if op.timestamp is None else op.timestamp
    value = "failedReason" if op.state == "failed" else "returnvalue"
    _bulk_to_wait(stage, op.state, op.count, until, ("finishedOn", "processedOn", value))
    return Nothing()


@answers(ops.PromoteJobs)
def _promote_jobs(stage: Stage, op: ops.PromoteJobs) -> Nothing:
    """Let all delayed jobs wait now; their field `delay` stays."""
    _bulk_to_wait(stage, "delayed", op.count, float("inf"), ())
    return Nothing()


def _bulk_to_wait(stage: Stage, state: str, count: int, until: float, forgotten: tuple[str, ...]) -> None:
    """Batch by batch into `wait`, whatever the priorities."""
    if count <= 0:
        raise NotModelled("a batch of 0 jobs never ends")
    queue = stage.queue
    source = queue.container(state)
    assert isinstance(source, SortedSet)
    held_back = is_held_back(queue)
    jobs = source.between(0, until)
    for job in jobs:
        for name in forgotten:
            queue.jobs.get(job, {}).pop(name, None)
        emit_within_limit(stage.world, queue, "waiting", jobId=job, prev=state)
        source.remove(job)
        push(waiting_list(queue), job, "left")
    if jobs and not held_back:
        mark_work(queue)


@answers(ops.TrimEvents)
def _trim_events(stage: Stage, op: ops.TrimEvents) -> Count:
    return Count(count=trim(stage.world, stage.queue, op.max_length))
