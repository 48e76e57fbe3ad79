"""The loop of a worker: fetches up to `concurrency` jobs, runs them, and blocks only if there is nothing else to do."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

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

LONGEST_PAUSE_MS: Final = 30_000
"""A rate-limited worker fetches again after this time at the latest, so that due delayed jobs are still promoted."""

Processor = Callable[..., Any]
"""The user's function: it gets the job and, if it takes a second argument, the lock token; its result, or that of the
coroutine that it returns, is the job's return value."""


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


JobTask = asyncio.Task[Job | None]
_ALREADY_MOVED = (DelayedError, WaitingError, WaitingChildrenError)


class WorkerLoop:
    """One run of a worker, from start (or resume) to pause or close."""

    def __init__(self, worker: RunningWorker, fetcher: JobFetcher, job_runner: JobRunner) -> None:
        self._worker = worker
        self._fetcher = fetcher
        self._job_runner = job_runner
        self._fetched: deque[Job] = deque()
        self._running: set[JobTask] = set()
        self._waiting: JobTask | None = None
        self._ended: deque[JobTask] = deque()
        self._news = asyncio.Event()
        self._resting = False
        self._fetch_count = 0
        self._refusals = 0
        self._abandoned = False
        self._task: asyncio.Task[Any] | None = None

    async def run(self) -> None:
        """Work until the worker is paused or closes and all its jobs have ended."""
        # Kept to see later whether the whole loop is being cancelled, or only one job.
        self._task = asyncio.current_task()
        # Not only while open: a job that a finish fetched before pause or close holds a lock and must run.
        while self._worker.is_open or self._in_hand:
            await self._fill()
            self._start_fetched()
            await self._settle()

    def stop(self) -> None:
        """Wake the loop, so that it sees that the worker is paused or closing."""
        self._news.set()
        self._fetcher.interrupt()

    def abandon(self) -> None:
        """Cancel the running jobs; they stay in active with their locks."""
        # Set before cancelling: a job must see why it was cancelled, or it would be marked as failed.
        self._abandoned = True
        for task in [*self._running, *([self._waiting] if self._waiting else [])]:
            task.cancel()

    @property
    def _in_hand(self) -> int:
        """The number of running and fetched jobs, plus one for a waiting fetch."""
        # A waiting fetch counts, because it may return a job at any moment: otherwise concurrency is exceeded by one.
        return len(self._running) + len(self._fetched) + (self._waiting is not None)

    def _may_fetch(self) -> bool:
        # Read each time: the user may change the concurrency while the worker runs.
        has_room = self._in_hand < self._worker.concurrency
        return self._worker.is_open and has_room and self._waiting is None and not self._fetcher.rate_limit_ms

    async def _fill(self) -> None:
        """Fetch jobs one by one before starting any; a fetch that has to wait runs in the background."""
        while self._may_fetch():
            # Never awaited here: a blocking read would delay the start of jobs that are already fetched.
            if self._fetcher.would_block:
                self._waiting = self._start_task(self._fetch(block=True))
                return
            job = await self._fetch(block=False)
            if job is None:
                return
            self._fetched.append(job)

    async def _fetch(self, *, block: bool) -> Job | None:
        # A new token for each fetch: with a single one, a run that lost its job could still finish it after this worker
        # has claimed it again.
        token = f"{self._worker.id}:{self._fetch_count}"
        self._fetch_count += 1
        # `persist` has emitted the error; the loop fetches again.
        try:
            job = await self._worker.persist(lambda: self._fetcher.fetch(token, block=block))
        except ValueError:  # a job that cannot be read: Redis works
            return None
        except Exception:  # noqa: BLE001 - Redis refuses (OOM, NOPERM, WRONGTYPE), or the scripts cannot be loaded
            self._refusals += 1
            # As during an outage: without a pause the worker would spin.
            self._fetcher.limit_for(self._worker.policy.reconnect.delay_s(self._refusals) * 1000)
            return None
        self._refusals = 0
        return job

    def _start_fetched(self) -> bool:
        """Start the fetched jobs; returns whether there were any."""
        if self.is_abandoned:
            # Not started: their locks expire, and the stalled check of another worker recovers them.
            self._fetched.clear()
        has_any = bool(self._fetched)
        while self._fetched:
            job = self._fetched.popleft()
            self._running.add(self._start_task(self._job_runner.process(job, self)))
        return has_any

    @property
    def has_room_for_next(self) -> bool:
        """Whether the ending job, which still counts as running, may fetch the next one."""
        # `<=`, because the ending job still counts and its slot is the one to refill.
        return self._in_hand <= self._worker.concurrency

    @property
    def is_abandoned(self) -> bool:
        """Whether the running jobs are cancelled: by `abandon`, or together with the loop when the program ends."""
        return self._abandoned or (self._task is not None and self._task.cancelling() > 0)

    async def _settle(self) -> None:
        """Wait until a job or the waiting fetch ends, the rate limit is over, or the worker is to stop."""
        if self._may_fetch():
            # One turn of the event loop lets the jobs that were just started run before the next fetch.
            await asyncio.sleep(0)
        else:
            await self._rest()
        self._news.clear()
        self._collect_ended()

    async def _rest(self) -> None:
        # Not `asyncio.timeout`, which wakes the loop by cancelling it: a job fetched in that moment would be lost.
        patience_s = self._patience_s()
        alarm = asyncio.get_running_loop().call_later(patience_s, self._news.set) if patience_s is not None else None
        self._resting = True
        try:
            await self._news.wait()
        finally:
            if alarm is not None:
                alarm.cancel()
        self._resting = False

    def _patience_s(self) -> float | None:
        # Without a limit there is no alarm: a job, the waiting fetch or `stop` wakes the loop.
        limit_ms = self._fetcher.rate_limit_ms
        return min(limit_ms, LONGEST_PAUSE_MS) / 1000 if limit_ms else None

    def _start_task(self, act: Coroutine[Any, Any, Job | None]) -> JobTask:
        """Start a task whose end wakes the loop. Unlike `asyncio.wait`, the cost is independent of other tasks."""
        task = asyncio.create_task(act)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: JobTask) -> None:
        """Wake the loop, unless it would only start the job that this one fetched: that is done here."""
        self._ended.append(task)
        if self._resting:
            self._collect_ended()
            # Saves a loop turn per job on the hottest path: a finish that fetched its successor.
            if self._start_fetched() and not self._may_fetch():
                return
        self._news.set()

    def _collect_ended(self) -> None:
        while self._ended:
            self._collect(self._ended.popleft())

    def _collect(self, task: JobTask) -> None:
        self._running.discard(task)
        if task is self._waiting:
            self._waiting = None
        # A cancelled job has no result; it stays in active with its lock.
        job = None if task.cancelled() else task.result()
        if job is not None:
            self._fetched.append(job)


class JobRunner:
    """Runs jobs and finishes them. Each finish may fetch the next job."""

    def __init__(
        self, worker: RunningWorker, fetcher: JobFetcher, locks: LockKeeper, processor: Processor | None
    ) -> None:
        self._worker = worker
        self._fetcher = fetcher
        self._locks = locks
        self._processor = processor

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
        try:
            return await self._complete(job, value, slots, span)
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

    async def _complete(self, job: Job, value: Any, slots: JobSlots, span: TracedBlock) -> Job | None:
        token = job.token or ""
        # `_wants_more` is evaluated per attempt: close may be called while Redis is away; then nothing may be fetched.
        fetched = await self._worker.persist(
            lambda: job.moveToCompleted(value, token, self._wants_more(slots)), is_logged_by_job=True, span=span
        )
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
        fetched = await self._worker.persist(lambda: job.moveToFailed(error, token, self._wants_more(slots)), span=span)
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

    def _wants_more(self, slots: JobSlots) -> bool:
        # A closing or paused worker must not receive a job that it would never start.
        return slots.has_room_for_next and self._worker.is_open
