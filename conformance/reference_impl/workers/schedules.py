"""The next iteration of something that repeats: it is made when the one before it is fetched (upstream `worker.ts`)."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.encoding.js_json import truthy
from conformance.reference_impl.errors import BullMQError, InvalidArgument
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.schedules.job_scheduler import JobScheduler
from conformance.reference_impl.schedules.repeat import Repeat
from conformance.reference_impl.workers.base import WorkerBase

_TRIALS: Final = 3
_BETWEEN_TRIALS_S: Final = 2.5
_FIRST_DELAY_MS: Final = 1000
_LONGEST_DELAY_MS: Final = 300_000
_PARTS_OF_LEGACY_KEY: Final = 5
"""A repeat key with so many parts belongs to a version before job schedulers."""


class Schedules:
    """Makes next iterations for one worker."""

    def __init__(self, worker: WorkerBase) -> None:
        self._worker = worker

    @cached_property
    def jobScheduler(self) -> JobScheduler:
        """The schedulers of the queue, on the worker's connection."""
        return JobScheduler(self._worker)

    @cached_property
    def repeat(self) -> Repeat:
        """The repeat keys of the queue, on the worker's connection."""
        return Repeat(self._worker)

    async def continue_from(self, job: Job) -> bool:
        """Make the iteration that follows a job that was just fetched; True where the job may be processed.

        False where that failed: then the job is delayed, so that a schedule never ends by accident, and the `error`
        listeners are told. What cannot be moved stays in active until it is found stalled.
        """
        try:
            await self._try_often(job)
        except Exception as error:  # noqa: BLE001 - it must not end the job that was finished in the same call
            self._worker.emit("error", BullMQError(f"Failed to add repeatable job for next iteration: {error}"))
            await self._put_off(job)
            return False
        return True

    async def _try_often(self, job: Job) -> None:
        for trial in range(1, _TRIALS + 1):
            try:
                await self._continue(job)
            except Exception as error:
                if not is_connection_problem(error):
                    self._worker.report(error)
                    raise
                await self._worker.rest(_BETWEEN_TRIALS_S)
                if trial == _TRIALS:
                    raise
            else:
                return

    async def _continue(self, job: Job) -> None:
        repeat, key = job.opts.get("repeat"), job.repeatJobKey
        if key and len(key.split(":")) < _PARTS_OF_LEGACY_KEY:
            if not isinstance(repeat, dict):
                raise InvalidArgument(f"job {job.id} of scheduler {key} has no repeat options")
            await self.jobScheduler.upsertJobScheduler(
                key, repeat, job.name, job.data, job.opts, override=False, producerId=job.known_id
            )
        elif truthy(repeat):
            await self.repeat.updateRepeatableJob(job.name, job.data, job.opts, override=False)

    async def _put_off(self, job: Job) -> None:
        delay = min(_FIRST_DELAY_MS * 2**job.attemptsStarted, _LONGEST_DELAY_MS)
        try:
            await job.moveToDelayed(self._worker.clock.now_ms() + delay, job.token)
        except Exception as error:  # noqa: BLE001 - the stalled check of some worker will find the job
            self._worker.emit(
                "error",
                BullMQError(
                    f"Failed to move job {job.id} to delayed after scheduling error: {error}. "
                    "Job will become stalled and be retried automatically."
                ),
            )
