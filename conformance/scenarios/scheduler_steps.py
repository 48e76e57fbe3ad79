"""What the scenarios about job schedulers have in common."""

from __future__ import annotations

from conformance.driver.ops.base import JobView
from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle

HOUR_MS = 3_600_000
YEARLY = {"pattern": "0 0 1 1 *", "tz": "UTC"}


def due_of(queue: QueueHandle, scheduler: str = "s") -> int:
    """When the next job is due (Unix ms), as Redis has it."""
    score = queue.redis.score("repeat", scheduler)
    holds(score is not None, f"`repeat` holds the scheduler {scheduler}")
    return int(score or 0)


def current_job(queue: QueueHandle, scheduler: str = "s") -> str:
    """Id of the job that is due next."""
    return f"repeat:{scheduler}:{due_of(queue, scheduler)}"


def made(job: JobView | None) -> JobView:
    """Answer a job that must be there."""
    holds(job is not None, "the answer is the next job")
    assert job is not None
    return job


def claim_next(queue: QueueHandle, worker: WorkerHandle, scheduler: str = "s") -> str:
    """Make the scheduler's next job run now, and claim it."""
    job = current_job(queue, scheduler)
    if queue.redis.state(job) == ["delayed"]:
        queue.promote(job)
    equal(worker.claim_one().id, job, "the scheduler's job is the next to run")
    return job
