"""Claiming: a worker asks for the next job, or gets it with the answer to the job that it has just finished.

First the delayed jobs that are due are let in. Then the rate limit, pause and the queue-wide concurrency may say no.
Then the waiting jobs come, the next one at the right end of `wait`, and after them those with a priority.
"""

from __future__ import annotations

from conformance.driver.ops import worker as ops
from conformance.driver.ops.base import MaybeJob
from conformance.model.events import emit
from conformance.model.holding import hold
from conformance.model.limits import count_start, limited_for, max_starts
from conformance.model.locks import take_lock
from conformance.model.order import is_held_back, mark_work, promote_due
from conformance.model.schedulers import continue_schedule
from conformance.model.stage import Stage, answers
from conformance.model.state import Queue
from conformance.model.views import maybe_job, view_of

LOCK_DURATION_MS = 30_000
"""A worker's lockDuration where its options do not say."""


def next_job(stage: Stage, token: str) -> str | int:
    """The id of the job that the worker has now; else for how long (ms) it is rate limited, 0: it is not."""
    queue, limiter = stage.queue, stage.handle.options.get("limiter")
    promote_due(stage.world, queue, stage.now_ms)
    limited_ms = limited_for(stage.world, queue, max_starts(queue, limiter))
    if limited_ms > 0 or is_held_back(queue):
        return limited_ms
    job = _take(queue)
    if job is None:
        return 0
    count_start(stage.world, queue, limiter)
    _start(stage, job, token)
    return job


def _take(queue: Queue) -> str | None:
    """Move the next job to `active`. Where there is none, the counter of priorities begins again."""
    job = queue.wait.pop() if queue.wait else queue.prioritized.pop_first()
    if job is None:
        queue.priority_counter = None
    else:
        queue.active.insert(0, job)
    return job


def _start(stage: Stage, job: str, token: str) -> None:
    """Lock the job and write down its start; the marker is set for the next worker, even if nothing is left."""
    queue = stage.queue
    take_lock(stage.world, queue, job, token, stage.handle.option("lockDuration", LOCK_DURATION_MS))
    emit(stage.world, queue, "active", jobId=job, prev="waiting")
    fields = queue.hash(job)
    fields["processedOn"] = str(stage.now_ms)
    if stage.handle.options.get("name"):
        fields["pb"] = stage.handle.options["name"]
    fields["ats"] = str(int(fields.get("ats", 0)) + 1)
    mark_work(queue)


def hand_over(stage: Stage, job: str, token: str) -> MaybeJob:
    """Give a claimed job to the user. A scheduler's iteration makes the next one now."""
    seen = view_of(stage.queue, job)
    hold(stage, job, token)
    continue_schedule(stage, job)
    return maybe_job(seen)


@answers(ops.GetNextJob)
def _get_next_job(stage: Stage, op: ops.GetNextJob) -> MaybeJob:
    """A paused worker, and one that was told to wait by the rate limit, does not even ask."""
    worker = stage.handle
    if worker.paused or worker.limited_until_ms > stage.now_ms:
        return maybe_job(None)
    found = next_job(stage, op.token)
    if isinstance(found, str):
        worker.limited_until_ms = 0
        return hand_over(stage, found, op.token)
    worker.limited_until_ms = stage.now_ms + found if found > 0 else 0
    return maybe_job(None)
