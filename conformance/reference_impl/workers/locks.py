"""Renewing the locks of the jobs that a worker runs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.workers.base import WorkerBase


@dataclass
class _Held:
    job: Job
    renewed_ms: int


class LockKeeper:
    """Renews, twice per `lockRenewTime`, the locks that were not renewed for half of it.

    Emits `heartbeat` (renewed ids, seconds) and `heartbeatFailed` (id, error). A failure never stops a job.
    """

    def __init__(self, worker: WorkerBase) -> None:
        self._worker = worker
        self._held: dict[str, _Held] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to renew, unless the option `skipLockRenewal` says no."""
        if self._task is None and not self._worker.opts.get("skipLockRenewal"):
            self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Renew no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def hold(self, job: Job) -> None:
        """Keep this job's lock alive from now on."""
        self._held[job.known_id] = _Held(job, self._worker.clock.now_ms())

    def release(self, job: Job) -> None:
        """Let this job's lock go."""
        self._held.pop(job.known_id, None)

    async def _run(self) -> None:
        interval_ms = self._worker.opts["lockRenewTime"] / 2
        while True:
            await asyncio.sleep(interval_ms / 1000)
            due = self._due(interval_ms)
            if due:
                await self._renew(due)

    def _due(self, interval_ms: float) -> list[Job]:
        now = self._worker.clock.now_ms()
        due = [held for held in self._held.values() if held.renewed_ms + interval_ms < now]
        for held in due:
            held.renewed_ms = now
        return [held.job for held in due]

    async def _renew(self, jobs: list[Job]) -> None:
        job_ids = [job.known_id for job in jobs]
        tokens = [job.token or "" for job in jobs]
        begun = time.monotonic()
        try:
            lost = await self._worker.scripts.extend_locks(job_ids, tokens, self._worker.opts["lockDuration"])
        except Exception as error:  # noqa: BLE001 - the next renewal tries again
            self._tell_failure(job_ids, error)
            if not is_connection_problem(error):
                self._worker.emit("error", error)
            return
        self._worker.emit("heartbeat", [each for each in job_ids if each not in lost], time.monotonic() - begun)
        for job_id in lost:
            loss = BullMQError(f"could not renew lock for job {job_id}")
            self._tell_failure([job_id], loss)
            self._worker.emit("error", loss)

    def _tell_failure(self, job_ids: list[str], error: Exception) -> None:
        """The jobs go on all the same: another attempt follows, and their processors are idempotent."""
        for job_id in job_ids:
            self._worker.emit("heartbeatFailed", job_id, error)
