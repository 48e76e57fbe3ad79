"""Who holds a job: the lock, the claim that takes it, and the stalled check that takes it back.

A lock is a token with a time to live; its owner has to renew it. A worker asks for the next job, or gets it with the
reply to the job that it has just finished. First the delayed jobs that are due are let in. Then the rate limit, pause
and the queue-wide concurrency may say no. Then the waiting jobs come, the next one at the right end of `wait`, and
after them those with a priority.

The stalled check finds jobs whose worker has gone, and with it the renewal of the lock. One check marks all active
jobs, the next takes back those that are still marked and have no lock. So two checks are needed, and between two checks
of the same queue some time must pass, for any caller.
"""

from __future__ import annotations

import json

from conformance.driver.ops import worker as ops
from conformance.driver.ops.base import Flag, Ids, MaybeJob
from conformance.model.calls import script_error
from conformance.model.dispatch import CallContext, operation
from conformance.model.events import MAX_EVENTS_FIELD, emit, note_limit, trim
from conformance.model.job_objects import hold, maybe_job, view_of
from conformance.model.limits import count_start, limited_for, max_starts
from conformance.model.order import is_held_back, mark_work, promote_due, put_waiting, remove_first
from conformance.model.schedulers import continue_schedule
from conformance.model.state import ModelState, QueueState
from conformance.protocol.scripts import ErrorCode

NO_LOCK_TOKEN = "0"
"""A worker with this token takes no lock, and needs none."""
LOCK_DURATION_MS = 30_000
"""A worker's lockDuration where its options do not say."""
STALLED_INTERVAL_MS, MOST_STALLS = 30_000, 1
"""A worker's stalledInterval and maxStalledCount where its options do not say."""
STALLED_REASON = "job stalled more than allowable limit"


def take_lock(state: ModelState, queue: QueueState, job: str, token: str, duration_ms: float) -> None:
    """Lock a job, even if another worker has it locked."""
    if token != NO_LOCK_TOKEN:
        queue.locks[job] = state.expiring(token, duration_ms)


def give_back_lock(queue: QueueState, job: str, token: str) -> None:
    """Only the owner may end its work on a job. Raises CallFailure for others, and where the lock is gone."""
    if token == NO_LOCK_TOKEN:
        return
    lock = queue.locks.get(job)
    if lock is None:
        script_error(ErrorCode.MISSING_LOCK)
    if lock.value != token:
        script_error(ErrorCode.LOCK_MISMATCH)
    del queue.locks[job]
    queue.stalled.discard(job)


def extend_lock(state: ModelState, queue: QueueState, job: str, token: str, duration_ms: int) -> bool:
    """The owner lets its lock live on; the job does not count as stalled then."""
    lock = queue.locks.get(job)
    if lock is None or lock.value != token:
        return False
    queue.locks[job] = state.expiring(token, duration_ms)
    queue.stalled.discard(job)
    return True


@operation(ops.ExtendLock)
def _extend_lock(context: CallContext, op: ops.ExtendLock) -> Flag:
    return Flag(value=extend_lock(context.state, context.queue, op.job, op.token, op.duration_ms))


@operation(ops.ExtendLocks)
def _extend_locks(context: CallContext, op: ops.ExtendLocks) -> Ids:
    """The ids that could not be renewed, in the order given."""
    pairs = zip(op.jobs, op.tokens, strict=False)
    return Ids(
        ids=[job for job, token in pairs if not extend_lock(context.state, context.queue, job, token, op.duration_ms)]
    )


def next_job(context: CallContext, token: str) -> str | int:
    """The id of the job that the worker has now; else for how long (ms) it is rate limited, 0: it is not."""
    queue, limiter = context.queue, context.handle.options.get("limiter")
    # Before the limits, as in the script: due jobs are promoted even while nothing may start.
    promote_due(context.state, queue, context.now_ms)
    limited_ms = limited_for(context.state, queue, max_starts(queue, limiter))
    if limited_ms > 0 or is_held_back(queue):
        return limited_ms
    job = _take(queue)
    if job is None:
        return 0
    # Only for a job that starts: an empty fetch must not use up the rate limit.
    count_start(context.state, queue, limiter)
    _start(context, job, token)
    return job


def _take(queue: QueueState) -> str | None:
    """Move the next job to `active`. If there is none, the counter of priorities restarts."""
    job = queue.wait.pop() if queue.wait else queue.prioritized.pop_first()
    if job is None:
        # The script deletes `pc` when a fetch finds no job: priorities restart at 1.
        queue.priority_counter = None
    else:
        queue.active.insert(0, job)
    return job


def _start(context: CallContext, job: str, token: str) -> None:
    """Lock the job and write down its start; the marker is set for the next worker, even if nothing is left."""
    queue = context.queue
    take_lock(context.state, queue, job, token, context.handle.option("lockDuration", LOCK_DURATION_MS))
    emit(context.state, queue, "active", jobId=job, prev="waiting")
    fields = queue.hash(job)
    fields["processedOn"] = str(context.now_ms)
    if context.handle.options.get("name"):
        fields["pb"] = context.handle.options["name"]
    fields["ats"] = str(int(fields.get("ats", 0)) + 1)
    mark_work(queue)


def hand_over(context: CallContext, job: str, token: str) -> MaybeJob:
    """Give a claimed job to the user. A scheduler's iteration makes the next one now."""
    seen = view_of(context.queue, job)
    hold(context, job, token)
    continue_schedule(context, job)
    return maybe_job(seen)


@operation(ops.GetNextJob)
def _get_next_job(context: CallContext, op: ops.GetNextJob) -> MaybeJob:
    """A paused worker, and one that waits for the end of the rate limit, does not even ask."""
    worker = context.handle
    if worker.paused or worker.limited_until_ms > context.now_ms:
        return maybe_job(None)
    found = next_job(context, op.token)
    if isinstance(found, str):
        worker.limited_until_ms = 0
        return hand_over(context, found, op.token)
    worker.limited_until_ms = context.now_ms + found if found > 0 else 0
    return maybe_job(None)


@operation(ops.CheckStalled)
def _check_stalled(context: CallContext, _: ops.CheckStalled) -> Ids:
    queue, state, worker = context.queue, context.state, context.handle
    # The throttle is a key with a time to live, so it holds for the checks of all workers.
    if queue.stalled_check is not None:
        return Ids(ids=[])
    queue.stalled_check = state.expiring(str(context.now_ms), worker.option("stalledInterval", STALLED_INTERVAL_MS))
    note_limit(queue)
    trim(state, queue, int(queue.meta[MAX_EVENTS_FIELD]))
    # Those of the last check: a job needs two checks in a row without renewal to be recovered.
    suspects = _in_order(state, queue)
    queue.stalled.clear()
    recovered = [job for job in suspects if _recover(state, queue, job, worker.option("maxStalledCount", MOST_STALLS))]
    # Last: jobs that were just recovered are no longer active and must not be marked.
    queue.stalled.update(queue.active)
    return Ids(ids=recovered)


def _in_order(state: ModelState, queue: QueueState) -> list[str]:
    """Redis sorts sets of numbers; the order of other sets is unknown, which matters if several are stalled."""
    if all(job.isdecimal() for job in queue.stalled):
        # Redis keeps a small set of integers as an intset, which is sorted.
        return sorted(queue.stalled, key=int)
    if sum(job not in queue.locks and job in queue.active for job in queue.stalled) > 1:
        state.determined = False
    return sorted(queue.stalled)


def _recover(state: ModelState, queue: QueueState, job: str, most_stalls: float) -> bool:
    """Recover a job without lock as the next one, regardless of its priority. A job that stalls too often fails."""
    if job in queue.locks or not remove_first(queue.active, job):
        return False
    fields = queue.hash(job)
    stalls = int(fields.get("stc", 0)) + 1
    fields["stc"] = str(stalls)
    if stalls > most_stalls and not json.loads(fields.get("opts", "{}")).get("repeat"):
        fields["defa"] = STALLED_REASON
    # The next to run: it was started before all jobs that wait.
    put_waiting(queue, job, "right")
    emit(state, queue, "waiting", jobId=job, prev="active")
    emit(state, queue, "stalled", jobId=job)
    return True
