"""Removing jobs: one alone or with its children, and whole sets for `drain`, `clean`, `obliterate` and retention.

A locked job is not removed, nor is the current iteration of a scheduler. Removing a parent removes its children too,
unless the caller does not want that.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as ops
from conformance.driver.ops.base import Count, Flag, Nothing
from conformance.model.calls import Failure, script_breaks, script_error
from conformance.model.events import emit_within_limit
from conformance.model.holding import job_object
from conformance.model.order import remove_first
from conformance.model.parents import child_vanished, delete_job_keys, leave_parent
from conformance.model.stage import Stage, answers
from conformance.model.state import Queue, World
from conformance.model.texts import number_text
from conformance.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a removal goes: `children` too; only those that are `unprocessed`, and not locked ones."""

    children: bool = True
    only_unprocessed: bool = False


def remove_in_bulk(world: World, queue: Queue, job: str, *, hard: bool, free_deduplication: bool = True) -> None:
    """Remove the keys of a job that its caller takes out of its container. No event."""
    leave_parent(world, queue, job, hard=hard)
    if free_deduplication:
        release_deduplication(queue, job)
    delete_job_keys(queue, job)


def release_deduplication(queue: Queue, job: str) -> None:
    """Give a removed job's deduplication id free, if it was this job's."""
    name = queue.field(job, "deid")
    owner = queue.deduplications.get(name) if name is not None else None
    if name is not None and owner is not None and owner.value == job:
        del queue.deduplications[name]


def is_current_iteration(queue: Queue, job: str) -> bool:
    """Whether the job is the one that a scheduler waits for."""
    scheduler = queue.field(job, "rjk")
    time = queue.scheduler_times.score(scheduler) if scheduler is not None else None
    return time is not None and job == f"repeat:{scheduler}:{number_text(time)}"


def iteration_ids(queue: Queue) -> set[str]:
    """The current iterations of all schedulers."""
    return {f"repeat:{scheduler}:{number_text(time)}" for scheduler, time in queue.scheduler_times.items()}


def is_locked(world: World, queue: Queue, job: str, *, with_children: bool) -> bool:
    """Whether a job, or any child that it waits for, is locked."""
    if not with_children:
        return job in queue.locks
    found = _search_lock(world, queue, job, frozenset())
    if len(found) > 1:
        world.determined = False
    if found == {"overflow"}:
        script_breaks("stack overflow")
    return bool(found)


def _search_lock(world: World, queue: Queue, job: str, above: frozenset[str]) -> set[str]:
    """How a search for locks may end, `locked` or `overflow`; empty where there is no lock.

    A job can be made its own ancestor; upstream searches until the stack of Lua overflows then. Which of its children
    is searched first, nobody knows.
    """
    key = queue.key(job)
    if job in queue.locks:
        return {"locked"}
    if key in above:
        return {"overflow"}
    children = map(world.locate, queue.children(job).unprocessed)
    return {end for home, child in children for end in _search_lock(world, home, child, above | {key})}


def take_from_container(queue: Queue, job: str) -> str:
    """Take a job out of whatever container it is in, and say which that was."""
    for name in ("completed", "waiting-children", "delayed", "failed", "prioritized", "wait", "paused", "active"):
        container = queue.container(name)
        found = remove_first(container, job) if isinstance(container, list) else container.remove(job)
        if found:
            return name
    return "unknown"


def remove(world: World, queue: Queue, job: str, reach: Reach, *, above: tuple[str, ...] = ()) -> None:
    """Remove a job, first its children. `above`: the jobs that are being removed with it, its parent at the end.

    Upstream goes round in circles, until the stack of Lua overflows, where finished jobs are each other's children.
    """
    if len(above) > len(set(above)):
        script_breaks("stack overflow")
    if reach.only_unprocessed and (job in queue.locks or job in queue.failed):
        return
    if above:
        child_vanished(world, above[-1], queue.key(job))
    else:
        leave_parent(world, queue, job, hard=False)
    if reach.children:
        remove_children(world, queue, job, reach, above=above)
    previous = take_from_container(queue, job)
    release_deduplication(queue, job)
    if delete_job_keys(queue, job):
        emit_within_limit(world, queue, "removed", jobId=job, prev=previous)


def remove_children(world: World, queue: Queue, job: str, reach: Reach, *, above: tuple[str, ...] = ()) -> None:
    """Remove a job's children: those that have ended first, unless they are to stay."""
    family = queue.children(job)
    ended = [*family.processed, *family.ignored, *family.failed.members()]
    family_path = (*above, queue.key(job))
    _remove_all(world, [] if reach.only_unprocessed else ended, reach, family_path)
    _remove_all(world, list(queue.children(job).unprocessed), reach, family_path)


def _remove_all(world: World, keys: list[str], reach: Reach, above: tuple[str, ...]) -> None:
    if len(keys) > 1:
        world.determined = False
    for key in keys:
        home, child = world.locate(key)
        remove(world, home, child, reach, above=above)


def _remove_one(stage: Stage, job: str, *, children: bool) -> bool:
    if is_current_iteration(stage.queue, job):
        script_error(ErrorCode.SCHEDULER_JOB)
    if is_locked(stage.world, stage.queue, job, with_children=children):
        return False
    remove(stage.world, stage.queue, job, Reach(children=children))
    return True


@answers(ops.Remove)
def _remove(stage: Stage, op: ops.Remove) -> Count:
    return Count(count=int(_remove_one(stage, op.job, children=op.remove_children)))


@answers(job_ops.RemoveJob)
def _remove_job(stage: Stage, op: job_ops.RemoveJob) -> Nothing:
    if not _remove_one(stage, op.job, children=op.remove_children):
        raise Failure("lock-mismatch", "locked by another worker")
    return Nothing()


@answers(job_ops.RemoveUnprocessedChildren)
def _remove_unprocessed(stage: Stage, op: job_ops.RemoveUnprocessedChildren) -> Nothing:
    remove_children(stage.world, stage.queue, op.job, Reach(only_unprocessed=True))
    return Nothing()


@answers(job_ops.RemoveChildDependency)
def _unlink(stage: Stage, op: job_ops.RemoveChildDependency) -> Flag:
    """A job leaves the parent that its Job object knows; the option `parent` in its hash stays."""
    child = job_object(stage, op.job)
    if op.job not in stage.queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    if child.parent_key is None or not stage.world.exists(child.parent_key):
        script_error(ErrorCode.MISSING_PARENT)
    if not child_vanished(stage.world, child.parent_key, stage.queue.key(op.job)):
        return Flag(value=False)
    for name in ("parentKey", "parent"):
        stage.queue.hash(op.job).pop(name, None)
    child.parent_key = None
    return Flag(value=True)
