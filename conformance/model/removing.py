"""Removing jobs: one alone or with its children, whole sets, and finished jobs that are not to be kept.

A locked job is not removed, nor is the current iteration of a scheduler. Removing a parent removes its children too,
unless the caller does not want that. Which finished jobs are kept is said first by the job's own option, then by the
worker's: none, all, a number, or for a time.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as ops
from conformance.driver.ops.base import Count, Flag, Ids, Nothing
from conformance.model.calls import CallFailure, HeldJob, ModelHandle, NotModelled, script_breaks, script_error
from conformance.model.deduplication import release_deduplication
from conformance.model.dispatch import CallContext, operation
from conformance.model.events import emit, emit_within_limit
from conformance.model.job_objects import is_number, job_object
from conformance.model.limits import pause
from conformance.model.order import remove_first
from conformance.model.parents import child_vanished, delete_job_keys, leave_parent
from conformance.model.state import ModelState, QueueState, SortedSet
from conformance.model.texts import number_text
from conformance.protocol.scripts import ErrorCode
from conformance.protocol.states import REMOVAL_LOOKUP

OPTION_OF_STATE = {"completed": "removeOnComplete", "failed": "removeOnFail"}
KEEP_ALL = -1
CLEANED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class RemovalScope:
    """How far a removal goes: `children` too; only those that are `unprocessed`, and not locked ones."""

    children: bool = True
    only_unprocessed: bool = False


def remove_in_bulk(
    state: ModelState, queue: QueueState, job: str, *, hard: bool, free_deduplication: bool = True
) -> None:
    """Remove the keys of a job that its caller takes out of its container. No event."""
    leave_parent(state, queue, job, hard=hard)
    if free_deduplication:
        release_deduplication(queue, job)
    delete_job_keys(queue, job)


def is_current_iteration(queue: QueueState, job: str) -> bool:
    """Whether the job is the one that a scheduler waits for."""
    scheduler = queue.field(job, "rjk")
    time = queue.scheduler_times.score(scheduler) if scheduler is not None else None
    return time is not None and job == f"repeat:{scheduler}:{number_text(time)}"


def iteration_ids(queue: QueueState) -> set[str]:
    """The current iterations of all schedulers."""
    return {f"repeat:{scheduler}:{number_text(time)}" for scheduler, time in queue.scheduler_times.items()}


def is_locked(state: ModelState, queue: QueueState, job: str, *, with_children: bool) -> bool:
    """Whether a job, or any child that it waits for, is locked."""
    if not with_children:
        return job in queue.locks
    found = _search_lock(state, queue, job, frozenset())
    if len(found) > 1:
        state.determined = False
    if found == {"overflow"}:
        script_breaks("stack overflow")
    return bool(found)


def _search_lock(state: ModelState, queue: QueueState, job: str, above: frozenset[str]) -> set[str]:
    """How a search for locks may end, `locked` or `overflow`; empty where there is no lock.

    A job can be made its own ancestor; upstream searches until the stack of Lua overflows then. Which of its children
    is searched first, is unknown.
    """
    key = queue.key(job)
    if job in queue.locks:
        return {"locked"}
    if key in above:
        return {"overflow"}
    children = map(state.locate, queue.children(job).unprocessed)
    return {end for home, child in children for end in _search_lock(state, home, child, above | {key})}


def take_from_container(queue: QueueState, job: str) -> str:
    """Remove a job from its container, and return the name of that container."""
    for name in REMOVAL_LOOKUP:
        container = queue.container(name)
        found = remove_first(container, job) if isinstance(container, list) else container.remove(job)
        if found:
            return name
    return "unknown"


def remove(state: ModelState, queue: QueueState, job: str, scope: RemovalScope, *, above: tuple[str, ...] = ()) -> None:
    """Remove a job, first its children. `above`: the jobs that are being removed with it, its parent at the end.

    Upstream goes round in circles, until the stack of Lua overflows, where finished jobs are each other's children.
    """
    if len(above) > len(set(above)):
        script_breaks("stack overflow")
    if scope.only_unprocessed and (job in queue.locks or job in queue.failed):
        return
    if above:
        child_vanished(state, above[-1], queue.key(job))
    else:
        leave_parent(state, queue, job, hard=False)
    if scope.children:
        remove_children(state, queue, job, scope, above=above)
    previous = take_from_container(queue, job)
    release_deduplication(queue, job)
    if delete_job_keys(queue, job):
        emit_within_limit(state, queue, "removed", jobId=job, prev=previous)


def remove_children(
    state: ModelState, queue: QueueState, job: str, scope: RemovalScope, *, above: tuple[str, ...] = ()
) -> None:
    """Remove a job's children: those that have ended first, unless they are to stay."""
    relations = queue.children(job)
    ended = [*relations.processed, *relations.ignored, *relations.failed.members()]
    path = (*above, queue.key(job))
    _remove_all(state, [] if scope.only_unprocessed else ended, scope, path)
    _remove_all(state, list(queue.children(job).unprocessed), scope, path)


def _remove_all(state: ModelState, keys: list[str], scope: RemovalScope, above: tuple[str, ...]) -> None:
    if len(keys) > 1:
        state.determined = False
    for key in keys:
        home, child = state.locate(key)
        remove(state, home, child, scope, above=above)


def _remove_one(context: CallContext, job: str, *, children: bool) -> bool:
    if is_current_iteration(context.queue, job):
        script_error(ErrorCode.SCHEDULER_JOB)
    if is_locked(context.state, context.queue, job, with_children=children):
        return False
    remove(context.state, context.queue, job, RemovalScope(children=children))
    return True


@operation(ops.Remove)
def _remove(context: CallContext, op: ops.Remove) -> Count:
    return Count(count=int(_remove_one(context, op.job, children=op.remove_children)))


@operation(job_ops.RemoveJob)
def _remove_job(context: CallContext, op: job_ops.RemoveJob) -> Nothing:
    if not _remove_one(context, op.job, children=op.remove_children):
        raise CallFailure("lock-mismatch", "locked by another worker")
    return Nothing()


@operation(job_ops.RemoveUnprocessedChildren)
def _remove_unprocessed(context: CallContext, op: job_ops.RemoveUnprocessedChildren) -> Nothing:
    remove_children(context.state, context.queue, op.job, RemovalScope(only_unprocessed=True))
    return Nothing()


@operation(job_ops.RemoveChildDependency)
def _unlink(context: CallContext, op: job_ops.RemoveChildDependency) -> Flag:
    """A job leaves the parent that its Job object knows; the option `parent` in its hash stays."""
    child = job_object(context, op.job)
    if op.job not in context.queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    if child.parent_key is None or not context.state.exists(child.parent_key):
        script_error(ErrorCode.MISSING_PARENT)
    if not child_vanished(context.state, child.parent_key, context.queue.key(op.job)):
        return Flag(value=False)
    for name in ("parentKey", "parent"):
        context.queue.hash(op.job).pop(name, None)
    child.parent_key = None
    return Flag(value=True)


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """How many jobs are kept (None: not limited), and how old they may be (seconds)."""

    count: float | None = KEEP_ALL
    age_s: float | None = None


def keep_rule(worker: ModelHandle, job: HeldJob, state: str) -> RetentionRule:
    """The rule for a job that ends in this state: `true` keeps none, `false` all, a number that many."""
    option = OPTION_OF_STATE[state]
    asked: Any = job.opts[option] if option in job.opts else worker.options.get(option)
    if asked is None:
        return RetentionRule()
    if isinstance(asked, dict):
        return RetentionRule(asked.get("count"), asked.get("age"))
    if option not in job.opts:
        raise NotModelled(f"the worker's option {option} is not an object")
    if is_number(asked):
        return RetentionRule(asked)
    return RetentionRule(0 if asked else KEEP_ALL)


def drop_superfluous(
    state: ModelState, queue: QueueState, finished: SortedSet, rule: RetentionRule, now_ms: int
) -> None:
    """Remove the finished jobs that are too old, then those that are too many, the oldest first to go. No events."""
    if rule.age_s is not None:
        _drop(state, queue, finished, finished.between(high=now_ms - rule.age_s * 1000))
    if rule.count is not None and rule.count > 0:
        members = finished.members()
        _drop(state, queue, finished, members[: max(len(members) - int(rule.count), 0)])


def _drop(state: ModelState, queue: QueueState, finished: SortedSet, jobs: list[str]) -> None:
    """Newest first: the order matters to parents that are released by it. Deduplication ids stay taken."""
    for job in reversed(jobs):
        remove_in_bulk(state, queue, job, hard=False, free_deduplication=False)
    for job in jobs:
        finished.remove(job)


@operation(ops.Drain)
def _drain(context: CallContext, op: ops.Drain) -> Nothing:
    """Remove what waits, except for the current iterations of schedulers. No events; markers stay."""
    queue = context.queue
    kept = iteration_ids(queue)
    _drain_list(context.state, queue, queue.wait, kept)
    _drain_list(context.state, queue, queue.paused, kept)
    for container in (queue.delayed, queue.prioritized) if op.delayed else (queue.prioritized,):
        _empty_set(context.state, queue, container, kept)
    return Nothing()


def _drain_list(state: ModelState, queue: QueueState, items: list[str], kept: set[str]) -> None:
    """Upstream removes as many entries at the left as it removed jobs, regardless of their places in the list."""
    gone = [job for job in items if job not in kept]
    for job in gone:
        remove_in_bulk(state, queue, job, hard=True)
    del items[: len(gone)]


def _empty_set(
    state: ModelState, queue: QueueState, container: SortedSet, kept: AbstractSet[str] = frozenset()
) -> None:
    gone = [job for job in container.members() if job not in kept]
    for job in gone:
        remove_in_bulk(state, queue, job, hard=True)
    for job in gone:
        container.remove(job)


@operation(ops.Clean)
def _clean(context: CallContext, op: ops.Clean) -> Ids:
    """Remove old jobs of one state, in batches; each has an event with how many went."""
    most = op.limit or CLEANED_AT_ONCE
    gone: list[str] = []
    until = context.now_ms - op.grace_ms
    while True:
        container = context.queue.container(op.type)
        clean = _clean_list if isinstance(container, list) else _clean_set
        batch = clean(context, container, op.type, until, most)  # type: ignore[arg-type]  # chosen by its type
        gone += batch
        emit(context.state, context.queue, "cleaned", count=str(len(batch)))
        if len(batch) < most or op.limit:
            return Ids(ids=gone)


def _clean_list(context: CallContext, items: list[str], state: str, until: int, most: int) -> list[str]:
    """Only checks the last entries of a list; active jobs must be without a lock."""
    queue = context.queue
    gone: list[str] = []
    for job in items[-most:]:
        free = state != "active" or job not in queue.locks
        if free and _is_old(queue, job, ("finishedOn", "processedOn", "timestamp"), until):
            remove_in_bulk(context.state, queue, job, hard=True)
            gone.append(job)
    items[:] = [job for job in items if job not in gone]
    return gone


def _clean_set(context: CallContext, container: SortedSet, state: str, until: int, most: int) -> list[str]:
    """Finished jobs by the time of their finish; others in their order, as far as their score is not negative."""
    queue = context.queue
    if state in {"completed", "failed"}:
        gone = container.between(0, until)[:most]
    else:
        fields = ("processedOn", "timestamp") if state == "delayed" else ("timestamp",)
        gone = [job for job in container.between(0)[:most] if _is_old(queue, job, fields, until)]
    for job in gone:
        remove_in_bulk(context.state, queue, job, hard=True)
    for job in gone:
        container.remove(job)
    return gone


def _is_old(queue: QueueState, job: str, fields: tuple[str, ...], until: int) -> bool:
    """Times are compared as texts; the current iteration of a scheduler is never old."""
    if is_current_iteration(queue, job):
        return False
    time = next((value for name in fields if (value := queue.field(job, name)) is not None), None)
    # Upstream compares texts: "5" is greater than "1795...", so such a job is not old.
    return time is None or time <= str(until)


@operation(ops.Obliterate)
def _obliterate(context: CallContext, op: ops.Obliterate) -> Nothing:
    """Remove the queue; it is paused first, and stays so where active jobs forbid the rest.

    Left over: jobs that wait for children, the rate limiter, markers, locks of jobs that are not active.
    """
    queue, state = context.queue, context.state
    if op.count <= 0:
        raise NotModelled("obliterate with count 0 never ends")
    # Not undone if the rest is refused.
    pause(state, queue)
    if queue.active and not op.force:
        raise CallFailure("other", "Cannot obliterate queue with active jobs")
    for job in queue.active:
        queue.locks.pop(job, None)
    _empty_list(state, queue, queue.active)
    _empty_set(state, queue, queue.delayed)
    queue.scheduler_times.clear()
    queue.scheduler_records.clear()
    _empty_set(state, queue, queue.completed)
    _empty_list(state, queue, queue.paused)
    for container in (queue.prioritized, queue.failed):
        _empty_set(state, queue, container)
    queue.events.clear()
    queue.stalled.clear()
    queue.meta.clear()
    queue.metrics.clear()
    queue.stalled_check = queue.id_counter = queue.priority_counter = None
    return Nothing()


def _empty_list(state: ModelState, queue: QueueState, items: list[str]) -> None:
    for job in items:
        remove_in_bulk(state, queue, job, hard=True)
    items.clear()
