"""Operations on a worker handle: one step at a time (manual), or answers to its loop (ask)."""

from __future__ import annotations

from typing import Literal

from conformance.driver.ops.base import Flag, Ids, MaybeJob, Nothing, Op, operation

Outcome = Literal["complete", "fail", "unrecoverable", "delay", "wait", "waiting-children", "rate-limit"]


@operation("worker.getNextJob", on="worker", answer=MaybeJob)
class GetNextJob(Op[MaybeJob], frozen=True):
    """Worker.getNextJob(token, {block: false}): claim the next job under this lock token; null if there is none."""

    token: str


@operation("worker.moveToCompleted", on="worker", answer=MaybeJob)
class MoveToCompleted(Op[MaybeJob], frozen=True):
    """Job.moveToCompleted(value, token, fetchNext). The answer is the next job, if one was fetched."""

    job: str
    token: str
    value_raw: str = "null"
    fetch_next: bool = False


@operation("worker.moveToFailed", on="worker", answer=MaybeJob)
class MoveToFailed(Op[MaybeJob], frozen=True):
    """Job.moveToFailed(error, token, fetchNext): the client decides between retry, delay and final failure.

    `unrecoverable`: the error is BullMQ's UnrecoverableError.
    """

    job: str
    token: str
    message: str
    unrecoverable: bool = False
    fetch_next: bool = False


@operation("worker.moveToDelayed", on="worker", answer=Nothing)
class MoveToDelayed(Op[Nothing], frozen=True):
    """Job.moveToDelayed(timestamp, token): `timestamp` is the absolute due time in Unix ms."""

    job: str
    token: str
    timestamp: int


@operation("worker.moveToWait", on="worker", answer=Nothing)
class MoveToWait(Op[Nothing], frozen=True):
    """Job.moveToWait(token)."""

    job: str
    token: str


@operation("worker.moveToWaitingChildren", on="worker", answer=Flag)
class MoveToWaitingChildren(Op[Flag], frozen=True):
    """Job.moveToWaitingChildren(token): true if the job now waits, false if no child was pending."""

    job: str
    token: str


@operation("worker.extendLock", on="worker", answer=Flag)
class ExtendLock(Op[Flag], frozen=True):
    """Job.extendLock(token, duration): false if the token does not own the lock."""

    job: str
    token: str
    duration_ms: int


@operation("worker.extendLocks", on="worker", answer=Ids)
class ExtendLocks(Op[Ids], frozen=True):
    """The worker's renewal of several locks in one call; returns the ids that could not be renewed."""

    jobs: list[str]
    tokens: list[str]
    duration_ms: int


@operation("worker.checkStalled", on="worker", answer=Ids)
class CheckStalled(Op[Ids], frozen=True):
    """One stalled check, now (script moveStalledJobsToWait); returns the recovered ids."""


@operation("worker.pause", on="worker", answer=Nothing)
class PauseWorker(Op[Nothing], frozen=True):
    """Worker.pause(doNotWaitActive)."""

    do_not_wait_active: bool = False


@operation("worker.resume", on="worker", answer=Nothing)
class ResumeWorker(Op[Nothing], frozen=True):
    """Worker.resume."""


@operation("worker.isPaused", on="worker", answer=Flag)
class IsWorkerPaused(Op[Flag], frozen=True):
    """Worker.isPaused."""


@operation("worker.isRunning", on="worker", answer=Flag)
class IsWorkerRunning(Op[Flag], frozen=True):
    """Worker.isRunning."""


@operation("worker.rateLimit", on="worker", answer=Nothing)
class WorkerRateLimit(Op[Nothing], frozen=True):
    """Worker.rateLimit(expireTimeMs)."""

    expire_ms: int


@operation("worker.cancelJob", on="worker", answer=Flag)
class CancelJob(Op[Flag], frozen=True):
    """Worker.cancelJob(id, reason) (5.64 and newer): abort the signal of a processor; false if the job runs elsewhere.

    The driver reports the aborted signal of processor `ask` as event `cancelled`; the job goes on until `resolve`.
    """

    job: str
    reason: str | None = None


@operation("worker.cancelAllJobs", on="worker", answer=Nothing)
class CancelAllJobs(Op[Nothing], frozen=True):
    """Worker.cancelAllJobs(reason) (5.64 and newer): abort the signals of all processors of this worker."""

    reason: str | None = None


@operation("resolve", on="worker", answer=Nothing)
class Resolve(Op[Nothing], frozen=True):
    """End a job of processor `ask`. Answer once the processor has the outcome; the job may move later.

    `complete` returns `value_raw`; `fail` and `unrecoverable` throw `message`; `delay` moves the job to delayed for
    `ms` and throws DelayedError; `wait` and `waiting-children` work accordingly; `rate-limit` limits the worker for
    `ms` and throws RateLimitError.
    """

    job: str
    outcome: Outcome
    value_raw: str = "null"
    message: str = "failed on request"
    ms: int = 0
