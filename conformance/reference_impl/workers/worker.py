"""The consumer's side of a queue (upstream `src/classes/worker.ts`)."""

from __future__ import annotations

import asyncio
import math
import signal
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from conformance.protocol.keys import LIMITER, NAMED_WORKER_INFIX
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.connection import Connection, is_connection_problem
from conformance.reference_impl.emitter import accepted_arguments
from conformance.reference_impl.errors import BullMQError, Closed, InvalidArgument, RateLimitError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.js_values import is_number, stringify
from conformance.reference_impl.observation import LengthMeter, observe_worker
from conformance.reference_impl.option_types import AnyOptions, ClientOptions, WorkerEvent, WorkerOptions
from conformance.reference_impl.queue_base import QueueBase, refuse_outside_of_a_loop
from conformance.reference_impl.scripts.move import FetchReply
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.telemetry import attributes
from conformance.reference_impl.telemetry.interface import SpanKind
from conformance.reference_impl.telemetry.job_context import metadata_of
from conformance.reference_impl.telemetry.tracing import UNTRACED, TracedBlock
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.job_runner import JobRunner, Processor
from conformance.reference_impl.workers.lifecycle import Lifecycle, WorkerState
from conformance.reference_impl.workers.locks import LockKeeper, StalledChecker
from conformance.reference_impl.workers.loop import WorkerLoop
from conformance.reference_impl.workers.running_worker import DEFAULT_OPTIONS, Result, check_options, describe
from conformance.reference_impl.workers.sandbox import Sandbox
from conformance.reference_impl.workers.shortcut import SKIPPED, QuickCompletion, SkippedMethods
from conformance.reference_impl.workers.signals import event_of_signals
from conformance.reference_impl.workers.time_limit import limited


class Worker(QueueBase[WorkerEvent]):
    """Processes the jobs of a queue.

    A processor is a function, or the text `module:function`: then each running job has a separate process
    (`workers.sandbox`), which ends with the worker. With a processor the worker starts at once (this needs a running
    event loop), unless `opts["autorun"]` is false. Without one, or without autorun, fetch jobs with getNextJob and
    finish them with the methods of Job; then there is no stalled check and no lock renewal. Local events: active,
    completed, failed, stalled, drained, paused, resumed, closed, error, heartbeat, heartbeatFailed,
    stalledCheckSkipped, and those of QueueBase.

    A job is processed at least once, and again if its worker dies or loses its lock: processors must be idempotent (see
    the docstring of the package). Raises InvalidArgument for options out of range, with the texts of Node.js, and for a
    processor that cannot be called with a job, or a job and its token.
    """

    EVENTS: ClassVar[Mapping[str, int]] = {
        **QueueBase.EVENTS,
        "active": 2,
        "completed": 3,
        "failed": 3,
        "progress": 2,
        "stalled": 2,
        "drained": 0,
        "paused": 0,
        "resumed": 0,
        "closing": 1,
        "heartbeat": 2,
        "heartbeatFailed": 2,
        "stalledCheckSkipped": 0,
    }

    def __init__(
        self,
        name: str,
        processor: Processor | str | None = None,
        opts: WorkerOptions | ClientOptions | AnyOptions | None = None,
        *,
        scripts: ScriptTexts | str | Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, {**DEFAULT_OPTIONS, **(opts or {})}, scripts=scripts, clock=clock)
        check_options(self._opts)
        self.concurrency = self._opts["concurrency"]
        # Half, as in Node.js: one failed renewal must not cost the lock.
        self._opts["lockRenewTime"] = self._opts.get("lockRenewTime") or self._opts["lockDuration"] / 2
        self.id = str(uuid.uuid4())
        """The first half of all lock tokens."""
        self.own_name: str | None = self._opts.get("name")
        self.lifecycle = Lifecycle()
        # A second socket: BZPOPMIN occupies its socket, so finishes and renewals need another one.
        self.blocking_connection = Connection(
            self.address,
            name=self._connection_name(),
            watch=self.link,
            check_version=not self._opts.get("skipVersionCheck"),
        )
        self._sandbox: Sandbox | None = None
        if isinstance(processor, str):
            self._sandbox = Sandbox(processor)
            processor = self._sandbox.process
        if processor is not None:
            processor = limited(with_token(processor), self.policy.job_timeout_s)
        self._processor = observe_worker(self, processor)
        self._fetcher = JobFetcher(self)
        self._locks = LockKeeper(self)
        self._stalled = StalledChecker(self)
        self._lengths = LengthMeter(self, self.opts)
        self._job_runner = JobRunner(self, self._fetcher, self._locks, self._processor)
        self._loop: WorkerLoop | None = None
        self.on("unreachable", self._give_up)
        self._run_task: asyncio.Task[None] | None = None
        self._close_task: asyncio.Task[None] | None = None
        if processor is not None and self.opts["autorun"]:
            self._start()

    @property
    def concurrency(self) -> int:
        """How many jobs run at a time."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, concurrency: int) -> None:
        if not is_number(concurrency) or concurrency < 1 or not math.isfinite(concurrency):
            raise InvalidArgument("concurrency must be a finite number greater than 0")
        self._concurrency = concurrency

    @property
    def closing(self) -> bool:
        """Whether close was called."""
        return self.lifecycle.is_closing

    @property
    def is_open(self) -> bool:
        """Whether the worker takes new jobs."""
        return self.lifecycle.is_open

    @staticmethod
    def RateLimitError() -> RateLimitError:
        """Return the error that a processor throws after rateLimit."""
        return RateLimitError()

    async def waitUntilReady(self) -> None:
        """Open both connections; afterwards `getWorkers` lists this worker."""
        await super().waitUntilReady()
        await self.blocking_connection.ready()

    async def run(self) -> None:
        """Process jobs until pause or close. Raises BullMQError without a processor, or if the worker runs already."""
        if self._processor is None:
            raise BullMQError("No process function is defined.")
        if self.isRunning():
            raise BullMQError("Worker is already running.")
        # Closed or paused between the creation of the task and its first step. Otherwise started before the first
        # await: close called during the connecting must wait for this run to end.
        if not self.lifecycle.apply("start"):
            return
        try:
            self._job_runner.shortcut = self._shortcut()
            self._loop = WorkerLoop(self, self._fetcher, self._job_runner)
            if not await self._is_connected():
                return
            await self._stalled.start()
            # Before the first fetch: every job that is fetched has a lock to renew.
            self._locks.start()
            self._lengths.start()
            await self._loop.run()
        finally:
            self._loop = None
            self.lifecycle.apply("end")

    async def run_until_signal(self, *signals: signal.Signals) -> None:
        """Run until one of these signals arrives (default: SIGTERM and SIGINT), then close after the running jobs.

        A second signal closes by force. Several workers of one event loop may wait: each gets every signal. Needs the
        main thread, and replaces the handlers of these signals until then.
        """
        with event_of_signals(signals or (signal.SIGTERM, signal.SIGINT)) as signalled:
            if self.lifecycle.state is WorkerState.READY:
                self._start()
            await _first_of(signalled.wait(), self.lifecycle.closed.wait())
            # The same event waits for the second signal, which means "by force".
            signalled.clear()
            closing = asyncio.create_task(self.close())
            # Shielded: `_first_of` cancels the loser, and the close must finish either way.
            await _first_of(signalled.wait(), asyncio.shield(closing))
            if signalled.is_set():
                self._abandon()
            # Also after the force: the sockets still have to close.
            await closing

    async def getNextJob(self, token: str, opts: Mapping[str, Any] | None = None) -> Job | None:
        """Fetch one job under this lock token. `block` (default true): wait up to drainDelay (s) for one."""
        block = bool((opts or {}).get("block", True))
        job = await self._fetcher.fetch(token, block=block)
        # The job's trace is known only now, so the span does not include the wait.
        origin = None if job is None else metadata_of(job.opts)
        with self.trace(SpanKind.INTERNAL, "getNextJob", metadata=origin) as span:
            chosen = stringify({"block": block})
            describe(span, self, {attributes.WORKER_OPTIONS: chosen, attributes.JOB_ID: job and job.id})
            return job

    async def nextJobFromJobData(self, fetched: FetchReply | None, token: str) -> Job | None:
        """Convert the job that a finish fetched; it is locked under the token of the finished job."""
        return await self._fetcher.take(fetched, token)

    async def rateLimit(self, expireTimeMs: int) -> None:
        """Limit the queue for this number of ms; the processor throws RateLimitError after it."""
        with self.trace(SpanKind.INTERNAL, "rateLimit") as span:
            span.setAttributes({attributes.WORKER_ID: self.id, attributes.WORKER_RATE_LIMIT: expireTimeMs})
            # 2^53 - 1 is more than any `max`, so the fetch scripts treat the window as full until the TTL ends.
            await self.connection.command("SET", self.keys.key(LIMITER), 2**53 - 1, "PX", expireTimeMs)

    async def extendLocks(self, job_ids: list[str], tokens: list[str], duration: float) -> list[str]:
        """Renew several locks for `duration` ms; returns the ids that could not be renewed."""
        return await self.scripts.extend_locks(job_ids, tokens, duration)

    async def checkStalled(self) -> list[str]:
        """Run one stalled check now; returns the ids of the recovered jobs."""
        return await self._stalled.check()

    async def pause(self, doNotWaitActive: bool = False) -> None:
        """Fetch no more jobs; by default wait for the running ones."""
        with self.trace(SpanKind.INTERNAL, "pause") as span:
            describe(span, self, {attributes.WORKER_DO_NOT_WAIT_ACTIVE: doNotWaitActive})
            if self.isPaused():
                return
            # Before the loop is woken, so that it sees the pause in the same turn.
            self.lifecycle.apply("pause")
            self._stop_loop()
            if not doNotWaitActive:
                await self.lifecycle.without_run.wait()
            self._stalled.stop()
            self.emit("paused")

    def resume(self) -> None:
        """Fetch jobs again."""
        # Also while a pause waits for its jobs.
        if self.isRunning():
            return
        with self.trace(SpanKind.INTERNAL, "resume") as span:
            describe(span, self)
            self.lifecycle.apply("resume")
            if self._processor is not None:
                self._start()
            self.emit("resumed")

    def isPaused(self) -> bool:
        """Whether pause was called, and not resume or close since."""
        return self.lifecycle.state in (WorkerState.PAUSING, WorkerState.PAUSED)

    def isRunning(self) -> bool:
        """Whether the loop runs."""
        return self.lifecycle.has_run

    async def close(self, force: bool = False) -> None:
        """Stop permanently; unless `force`, wait for the running jobs for at most `Policy.close_timeout_s`.

        Jobs that do not end in time are cancelled and stay active; the stalled check of another worker recovers them.
        """
        if self._close_task is None:
            # One task for all callers: closing twice would close the connections under the running jobs.
            self._close_task = asyncio.create_task(self._close(force=force))
        # Shielded: cancelling one of several callers of close must not leave the worker half closed for the others.
        await asyncio.shield(self._close_task)

    async def persist(
        self, act: Callable[[], Awaitable[Result]], *, is_logged_by_job: bool = False, span: TracedBlock = UNTRACED
    ) -> Result:
        """Retry a call while Redis cannot be reached; `span` records each error.

        Raises any other error after an `error` event, and a lost connection if the worker is closing. If the error
        fails a job (`is_logged_by_job`), the job's own log line has it, and only listeners of `error` get it.
        """
        while True:
            try:
                return await act()
            except Exception as error:
                span.recordException(error)
                if not is_connection_problem(error):
                    if self.hears("error") or not is_logged_by_job:
                        self.report(error)
                    raise
                # A lost connection must not keep close waiting; the job stays in active and is recovered as stalled.
                if self.closing:
                    raise
                await self.rest(self.policy.reconnect.first_s)

    async def rest(self, seconds: float) -> None:
        """Sleep for at least this time and until the next connection attempt is due, but at most until close."""
        # At least the pause of the link: otherwise every job of the worker would try at its own pace during an outage.
        ends = [
            asyncio.ensure_future(waiting)
            for waiting in (self.link.until_next_attempt(seconds), self.lifecycle.close_called.wait())
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    def report(self, error: BaseException) -> None:
        """Emit an `error`, unless the worker is paused or closing."""
        if self.is_open:
            self.emit("error", error)

    async def _close(self, *, force: bool) -> None:
        with self.trace(SpanKind.INTERNAL, "close") as span:
            describe(span, self, {attributes.WORKER_FORCE_CLOSE: force})
            await self._close_all(force=force)

    async def _close_all(self, *, force: bool) -> None:
        # Before the loop is woken: a woken loop that still sees an open worker would block again.
        self.lifecycle.apply("close")
        self.emit("closing", "closing queue")
        self._stop_loop()
        if force or not await self._all_ended_in_time():
            self._abandon()
        await self.lifecycle.without_run.wait()
        self._locks.stop()
        self._stalled.stop()
        self._lengths.stop()
        if self._sandbox is not None:
            await self._sandbox.close()
        # After the jobs: their finishing scripts need the connections.
        await self.blocking_connection.close()
        await self.connection.close()
        await self._close_client()
        self.lifecycle.apply("disconnect")
        self.emit("closed")

    async def _all_ended_in_time(self) -> bool:
        """Wait for the running jobs within the limit of the policy; returns whether they ended."""
        timeout_s = self.policy.close_timeout_s
        try:
            await asyncio.wait_for(self.lifecycle.without_run.wait(), timeout_s)
        except TimeoutError:
            self.journal.warning("Worker closed with jobs unfinished", timeout=timeout_s)
            return False
        return True

    async def _is_connected(self) -> bool:
        """Wait for the connections, but not longer than until close; returns whether they are open."""
        # Workers start before Redis does in many deployments: keep trying instead of failing once.
        connecting = asyncio.create_task(self.persist(self.waitUntilReady))
        await _first_of(connecting, self.lifecycle.close_called.wait())
        if self.closing:
            return False
        await connecting
        return True

    async def _give_up(self, _attempts: int, error: BaseException) -> None:
        """Close after the last connection attempt that the policy allows."""
        self.emit("error", error)
        await self.close(force=True)

    def _shortcut(self) -> QuickCompletion | None:
        """Return the shortcut from job to job; None if spans or replaced methods need the long way."""
        parts = (self.connection, self.scripts, self.scripts.runner, self._fetcher, self._fetcher.schedules)
        is_whole = SKIPPED.are_whole(*parts, self._job_runner) and _SKIPPED.are_whole(self)
        is_whole = is_whole and self.telemetry is None
        return QuickCompletion(self, self._fetcher, self._job_runner) if is_whole else None

    def _start(self) -> None:
        refuse_outside_of_a_loop(self, "a processor", "run")
        if self._run_task is not None:
            # Of two starts in one turn of the event loop (paused and resumed at once) the second one runs.
            self._run_task.cancel()
        self._run_task = asyncio.create_task(self._run_and_report())

    async def _run_and_report(self) -> None:
        try:
            await self.run()
        except Exception as error:  # noqa: BLE001 - this task is not awaited
            # Close drops the connections, and that loss is not an error to report.
            if not (self.closing and (is_connection_problem(error) or isinstance(error, Closed))):
                self.emit("error", error)

    def _stop_loop(self) -> None:
        if self._loop is not None:
            self._loop.stop()
        else:
            # Without a loop, `getNextJob` may be blocking on a marker.
            self._fetcher.interrupt()

    def _abandon(self) -> None:
        # Before cancelling: a job must see why it was cancelled, or it would be marked as failed.
        self.lifecycle.apply("abandon")
        if self._loop is not None:
            self._loop.abandon()
        if self._run_task is not None:
            # Also without a loop: the run may still be waiting for its first connection.
            self._run_task.cancel()

    def _connection_name(self) -> str | None:
        """The name by which `getWorkers` finds the worker; BullMQ 5.62.0 does not name connections to a cluster."""
        if self.address.mode == "cluster":
            return None
        return self.client_name(f"{NAMED_WORKER_INFIX}{self.own_name}" if self.own_name else "")


_SKIPPED: Final = SkippedMethods((Worker, "persist"))


def with_token(processor: Processor) -> Processor:
    """Return a processor that can be called with a job and its token. Raises InvalidArgument if it cannot be."""
    takes = accepted_arguments("the processor", processor, 2)
    return processor if takes is None or takes > 1 else lambda job, _token: processor(*[job][:takes])


async def _first_of(*acts: Coroutine[Any, Any, Any] | asyncio.Future[Any]) -> None:
    """Wait until one of these has ended, and cancel the others."""
    tasks = [asyncio.ensure_future(act) for act in acts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
