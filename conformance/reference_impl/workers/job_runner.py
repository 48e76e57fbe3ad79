"""Running of single jobs: calling the processor, and finishing the job."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from typing import Any, Final, Protocol

from redis.exceptions import NoScriptError

from conformance.reference_impl.errors import (
    RATE_LIMIT_MESSAGE,
    DelayedError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
)
from conformance.reference_impl.jobs.attempts import message_of
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.js_values import stringify
from conformance.reference_impl.scripts.move import FetchReply
from conformance.reference_impl.telemetry import attributes
from conformance.reference_impl.telemetry.interface import SpanKind
from conformance.reference_impl.telemetry.job_context import metadata_of
from conformance.reference_impl.telemetry.tracing import UNTRACED, TracedBlock
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.locks import LockKeeper
from conformance.reference_impl.workers.running_worker import RunningWorker, describe

Processor = Callable[..., Any]
"""The user's function: it gets the job and, if it takes a second argument, the lock token; its result, or that of the
coroutine that it returns, is the job's return value."""

_ALREADY_MOVED: Final = (DelayedError, WaitingError, WaitingChildrenError)


class JobSlots(Protocol):
    """The loop that started a job, as its runner sees it."""

    @property
    def has_room_for_next(self) -> bool:
        """Whether the ending job, which still counts as running, may fetch the next one."""
        ...

    @property
    def is_abandoned(self) -> bool:
        """Whether the jobs are being cancelled from outside, so that another worker has to run them again."""
        ...


class SentCompletion(Protocol):
    """A completion that was sent already, and has its reply."""

    async def fetched(self) -> FetchReply | None:
        """Return what was fetched next. Raises as Job.moveToCompleted does, and NoScriptError."""
        ...


class Shortcut(Protocol):
    """A quicker way to complete a job."""

    def complete(self, job: Job, value: Any, slots: Any) -> bool:
        """Send the completion of a job; False if that must take the long way."""
        ...


class JobRunner:
    """Runs jobs and finishes them. Each finish may fetch the next job."""

    def __init__(
        self, worker: RunningWorker, fetcher: JobFetcher, locks: LockKeeper, processor: Processor | None
    ) -> None:
        self._worker = worker
        self._fetcher = fetcher
        self._locks = locks
        self._processor = processor
        self.shortcut: Shortcut | None = None

    async def process(self, job: Job, slots: JobSlots) -> Job | None:
        """Run one job to its end; returns the job that was fetched in the same call to Redis.

        `slots` decides at the end whether to fetch the next job. Errors go to the `error` listeners.
        """
        if self._worker.telemetry is None:
            return await self._process(job, slots, UNTRACED)
        with self._worker.trace(SpanKind.CONSUMER, "process", metadata=metadata_of(job.opts)) as span:
            started = self._worker.clock.now_ms()
            facts = {attributes.JOB_ID: job.id, attributes.JOB_NAME: job.name}
            describe(span, self._worker, {**facts, attributes.JOB_ATTEMPTS_MADE: job.attemptsMade})
            try:
                return await self._process(job, slots, span)
            finally:
                ended = self._worker.clock.now_ms()
                times = {attributes.JOB_PROCESSED_TIMESTAMP: started, attributes.JOB_FINISHED_TIMESTAMP: ended}
                span.setAttributes(times)

    async def _process(self, job: Job, slots: JobSlots, span: TracedBlock) -> Job | None:
        self._worker.emit("active", job, "waiting")
        # `persist` has emitted the error; the loop continues.
        with contextlib.suppress(Exception):
            reason = self._reason_to_fail_unseen(job)
            if reason is not None:
                return await self._fail(job, UnrecoverableError(reason), slots, span)
            return await self._run(job, slots, span)
        return None

    async def _run(self, job: Job, slots: JobSlots, span: TracedBlock) -> Job | None:
        # Before the processor starts: a processor that blocks the event loop soon leaves no time for it.
        self._locks.hold(job)
        try:
            value = await self._call(job)
        # The program is ending: the job was not judged and stays in active for the stalled check.
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            # Cancelled from outside is not a failed attempt: the job keeps its lock and is recovered as stalled.
            if isinstance(error, asyncio.CancelledError) and slots.is_abandoned:
                raise
            # Anything that a processor throws fails its job, even a cancelled inner task or sys.exit. Renewal stops
            # first: a renewal between the script and its reply would report a lost lock.
            self._locks.release(job)
            return await self._fail(job, error, slots, span)
        finally:
            self._locks.release(job)
        if self.shortcut is not None and self.shortcut.complete(job, value, slots):
            return None
        return await self._end(job, value, slots, span)

    async def conclude(self, job: Job, value: Any, sent: SentCompletion, slots: JobSlots) -> Job | None:
        """Go on after a completion that the shortcut has sent; returns the job that it fetched."""
        with contextlib.suppress(Exception):
            return await self._end(job, value, slots, UNTRACED, sent)
        return None

    async def _end(
        self, job: Job, value: Any, slots: JobSlots, span: TracedBlock, sent: SentCompletion | None = None
    ) -> Job | None:
        try:
            return await self._complete(job, value, slots, span, sent)
        except Exception as error:  # noqa: BLE001 - for example pending children; this fails the attempt
            return await self._fail(job, error, slots, span)

    async def _call(self, job: Job) -> Any:
        if self._processor is None:
            raise UnrecoverableError("No process function is defined.")
        outcome = self._processor(job, job.token or "")
        return await outcome if inspect.isawaitable(outcome) else outcome

    def _reason_to_fail_unseen(self, job: Job) -> str | None:
        """The reason to fail a job without processing it: a failed child, too many stalls or too many starts."""
        # Set by the stalled check or a failed child, whose scripts cannot finish a job that no worker holds.
        if job.deferredFailure:
            return job.deferredFailure
        most = self._worker.opts.get("maxStartedAttempts")
        return "job started more than allowable limit" if most and most < job.attemptsStarted else None

    async def _complete(
        self, job: Job, value: Any, slots: JobSlots, span: TracedBlock, sent: SentCompletion | None = None
    ) -> Job | None:
        token = job.token or ""

        async def complete() -> FetchReply | None:
            nonlocal sent
            if sent is not None:
                completion, sent = sent, None
                # Redis has forgotten the script: nothing ran, so the job is completed now.
                with contextlib.suppress(NoScriptError):
                    return await completion.fetched()
            return await job.moveToCompleted(value, token, self.wants_more(slots))

        # `_wants_more` is evaluated per attempt: close may be called while Redis is away; then nothing may be fetched.
        fetched = await self._worker.persist(complete, is_logged_by_job=True, span=span)
        self._worker.emit("completed", job, value, "active")
        if span.is_recorded:
            span.addEvent("job completed", {attributes.JOB_RESULT: stringify(value)})
        return await self._take(fetched, token)

    async def _fail(self, job: Job, error: BaseException, slots: JobSlots, span: TracedBlock) -> Job | None:
        token = job.token or ""
        # Compared by text, as in Node.js, so that an error from a sandboxed process counts too.
        if message_of(error) == RATE_LIMIT_MESSAGE:
            # The script returns the TTL of the limiter; without it this worker would fetch its own job again at once.
            self._fetcher.limit_for(await self._worker.persist(lambda: job.moveToWait(token), span=span))
            return None
        # The processor moved the job itself, so it is not active any more: another script call would be refused.
        if isinstance(error, _ALREADY_MOVED):
            return None
        fetched = await self._worker.persist(lambda: job.moveToFailed(error, token, self.wants_more(slots)), span=span)
        self._worker.emit("failed", job, error, "active")
        span.addEvent("job failed", {attributes.JOB_FAILED_REASON: message_of(error)})
        # Only moveToFinished fetches the next job; a retry (retryJob, moveToDelayed) returns 0.
        return await self._take(fetched, token) if job.retry_delay is None else None

    async def _take(self, fetched: FetchReply | None, token: str) -> Job | None:
        """Convert the next job. An unreadable one stays in active and does not fail the job that just ended."""
        try:
            return await self._fetcher.take(fetched, token)
        except ValueError as error:
            self._worker.report(error)
            return None

    def wants_more(self, slots: JobSlots) -> bool:
        """Whether the finish of a job is to fetch the next one."""
        # A closing or paused worker must not receive a job that it would never start.
        return slots.has_room_for_next and self._worker.is_open
