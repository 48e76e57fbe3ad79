"""Locks: who holds a job. A lock is a token with a time to live; its owner has to renew it."""

from __future__ import annotations

from conformance.driver.ops import worker as ops
from conformance.driver.ops.base import Flag, Ids
from conformance.model.calls import script_error
from conformance.model.stage import Stage, answers
from conformance.model.state import Queue, World
from conformance.protocol.errors import ErrorCode

NO_LOCK_TOKEN = "0"
"""A worker with this token takes no lock, and needs none."""


def take_lock(world: World, queue: Queue, job: str, token: str, duration_ms: float) -> None:
    """Lock a job, whoever had it locked."""
    if token != NO_LOCK_TOKEN:
        queue.locks[job] = world.expiring(token, duration_ms)


def give_back_lock(queue: Queue, job: str, token: str) -> None:
    """Only the owner may end its work on a job. Raises Failure for others, and where the lock is gone."""
    if token == NO_LOCK_TOKEN:
        return
    lock = queue.locks.get(job)
    if lock is None:
        script_error(ErrorCode.MISSING_LOCK)
    if lock.value != token:
        script_error(ErrorCode.LOCK_MISMATCH)
    del queue.locks[job]
    queue.stalled.discard(job)


def extend(world: World, queue: Queue, job: str, token: str, duration_ms: int) -> bool:
    """The owner lets its lock live on; the job does not count as stalled then."""
    lock = queue.locks.get(job)
    if lock is None or lock.value != token:
        return False
    queue.locks[job] = world.expiring(token, duration_ms)
    queue.stalled.discard(job)
    return True


@answers(ops.ExtendLock)
def _extend_lock(stage: Stage, op: ops.ExtendLock) -> Flag:
    return Flag(value=extend(stage.world, stage.queue, op.job, op.token, op.duration_ms))


@answers(ops.ExtendLocks)
def _extend_locks(stage: Stage, op: ops.ExtendLocks) -> Ids:
    """The ids that could not be renewed, in the order given."""
    pairs = zip(op.jobs, op.tokens, strict=False)
    return Ids(ids=[job for job, token in pairs if not extend(stage.world, stage.queue, job, token, op.duration_ms)])
