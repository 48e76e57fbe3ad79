"""Locks: renewal for a worker's own jobs, and the check for jobs whose worker died."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.telemetry import attributes
from conformance.reference_impl.telemetry.interface import SpanKind
from conformance.reference_impl.workers.running_worker import RunningWorker, describe


@dataclass(slots=True)
class _HeldLock:
    job: Job
    renewed_ms: int


class LockKeeper:
    """Renews, twice per `lockRenewTime`, the locks that were not renewed for half of it.

    Two checks per `lockRenewTime` leave a second chance before a lock expires. A lock belongs to a run, not to a job: a
    worker that lost a job may claim it again while the first run continues, and the end of the first run must not stop
    the renewals of the second (upstream `worker.ts`, `jobsInProgress`).
    Emits `heartbeat` (renewed ids, seconds) and `heartbeatFailed` (id, error). A failure never stops a job.
    """

    def __init__(self, worker: RunningWorker) -> None:
        self._worker = worker
        self._held: dict[tuple[str, str | None], _HeldLock] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to renew, unless the option `skipLockRenewal` is set."""
        if self._task is None and not self._worker.opts.get("skipLockRenewal"):
            self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Stop renewing."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def hold(self, job: Job) -> None:
        """Renew this job's lock from now on."""
        # The script that fetched the job has just set the lock, so it counts as renewed now.
        self._held[job.known_id, job.token] = _HeldLock(job, self._worker.clock.now_ms())

    def release(self, job: Job) -> None:
        """Stop renewing this job's lock."""
        # Released twice if the job failed: before the failing script, and at the end of the run.
        self._held.pop((job.known_id, job.token), None)

    async def _run(self) -> None:
        # By default a quarter of lockDuration, so that a failed renewal can be repeated before the lock expires.
        interval_ms = self._worker.opts["lockRenewTime"] / 2
        while True:
            await asyncio.sleep(interval_ms / 1000)
            due = self._due(interval_ms)
            if due:
                # Awaited, not started: two renewals on their way would report a lost lock twice.
                await self._renew(due)

    def _due(self, interval_ms: float) -> list[Job]:
        now = self._worker.clock.now_ms()
        # Jobs that started within this interval still have a fresh lock.
        due = [held for held in self._held.values() if held.renewed_ms + interval_ms < now]
        # Counted from sending, not from the reply: Redis restarts the TTL when it runs the script, and a slow reply
        # must not delay the next renewal.
        for held in due:
            held.renewed_ms = now
        return [held.job for held in due]

    async def _renew(self, jobs: list[Job]) -> None:
        job_ids = [job.known_id for job in jobs]
        tokens = [job.token or "" for job in jobs]
        # Monotonic, because `heartbeat` reports a duration and the wall clock may be set meanwhile.
        started = time.monotonic()
        try:
            with self._worker.trace(SpanKind.INTERNAL, "extendLocks") as span:
                describe(span, self._worker, {attributes.WORKER_JOBS_TO_EXTEND_LOCKS: job_ids})
                lost = await self._worker.scripts.extend_locks(job_ids, tokens, self._worker.opts["lockDuration"])
        except Exception as error:  # noqa: BLE001 - the next renewal tries again
            # An outage does not emit `error`: `disconnected` has reported it already.
            self._emit_failure(job_ids, error)
            if not is_connection_problem(error):
                self._worker.emit("error", error)
            return
        renewed = list((Counter(job_ids) - Counter(lost)).elements())  # two runs of a job: one of its locks may be lost
        self._worker.emit("heartbeat", renewed, time.monotonic() - started)
        for job_id in lost:
            loss = BullMQError(f"could not renew lock for job {job_id}")
            self._emit_failure([job_id], loss)
            self._worker.emit("error", loss)

    def _emit_failure(self, job_ids: list[str], error: Exception) -> None:
        """Emit only; the jobs continue, because their processors are idempotent and another attempt follows."""
        for job_id in job_ids:
            self._worker.emit("heartbeatFailed", job_id, error)


class StalledChecker:
    """Runs the stalled check of one worker. The key `stalled-check` lets only one worker per interval do the work.

    A check that is due while the last one still runs is skipped: `stalledCheckSkipped`.
    """

    def __init__(self, worker: RunningWorker) -> None:
        self._worker = worker
        self._task: asyncio.Task[None] | None = None
        self._check: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Check now and then every interval, unless the option `skipStalledCheck` is set.

        Returns once the first check is sent, without its reply. The worker fetches only after that, so the first check
        marks only jobs of other workers.
        """
        if self._worker.opts.get("skipStalledCheck"):
            return
        with self._worker.trace(SpanKind.INTERNAL, "startStalledCheckTimer") as span:
            describe(span, self._worker)
            # A worker that is resumed starts the checks again; two timers would check twice per interval.
            self.stop()
            self._check = asyncio.create_task(self._check_and_report())
            self._task = asyncio.create_task(self._run())
            await asyncio.sleep(0)  # lets the new task run until it has sent its command

    def stop(self) -> None:
        """Stop checking."""
        for task in (self._task, self._check):
            if task is not None:
                task.cancel()
        self._task = self._check = None

    async def check(self) -> list[str]:
        """Check once; returns the recovered ids, after a `stalled` event for each."""
        with self._worker.trace(SpanKind.INTERNAL, "moveStalledJobsToWait") as span:
            # Redis throttles: if another worker checked within stalledInterval, the script does nothing and returns no
            # ids.
            recovered = await self._worker.scripts.move_stalled_jobs_to_wait()
            describe(span, self._worker, {attributes.WORKER_STALLED_JOBS: recovered})
            for job_id in recovered:
                span.addEvent("job stalled", {attributes.JOB_ID: job_id})
                self._worker.emit("stalled", job_id, "active")
            return recovered

    async def _run(self) -> None:
        while self._worker.is_open:
            # Started by a timer, not by the end of the last check: a slow reply must not stretch the interval.
            await asyncio.sleep(self._worker.opts["stalledInterval"] / 1000)
            # A check that hangs in an outage would otherwise queue one command per interval.
            if self._check is None or self._check.done():
                self._check = asyncio.create_task(self._check_and_report())
            else:
                self._worker.emit("stalledCheckSkipped")

    async def _check_and_report(self) -> None:
        try:
            await self.check()
        except Exception as error:  # noqa: BLE001 - the next check tries again
            if not is_connection_problem(error):
                self._worker.emit("error", error)
