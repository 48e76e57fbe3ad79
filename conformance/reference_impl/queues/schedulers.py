"""The job schedulers of a queue, and the repeat keys that came before them (upstream `src/classes/queue.ts`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queues.base import QueueBase
from conformance.reference_impl.schedules.job_scheduler import JobScheduler
from conformance.reference_impl.schedules.repeat import Repeat
from conformance.reference_impl.schedules.repeat_strategy import RepeatOptions, refuse_past_end
from conformance.reference_impl.schedules.scheduler_record import SchedulerRecord


class QueueSchedulers(QueueBase):
    """The scheduling part of Queue."""

    @cached_property
    def jobScheduler(self) -> JobScheduler:
        """The schedulers, on this queue's connection."""
        return JobScheduler(self)

    @cached_property
    def repeat(self) -> Repeat:
        """The repeat keys, on this queue's connection."""
        return Repeat(self)

    async def upsertJobScheduler(
        self, jobSchedulerId: str, repeatOpts: RepeatOptions, jobTemplate: Mapping[str, Any] | None = None
    ) -> Job | None:
        """Make or change a scheduler; answers its next job.

        `repeatOpts`: either `pattern` (cron, with seconds if wanted, in the zone `tz`) or `every` (ms); `limit`,
        `startDate`, `endDate`, `immediately`. `jobTemplate`: `name` (the scheduler's id by default), `data` ({}) and
        `opts`. A job that is pending is replaced and keeps its time, even where the times change. None when there is
        no next job. Raises InvalidArgument, and ScriptError: scheduler-collision.
        """
        refuse_past_end(repeatOpts, self.clock.now_ms())
        await self.waitUntilReady()
        template = jobTemplate or {}
        name = template.get("name")
        opts = {**(self.opts.get("defaultJobOptions") or {}), **(template.get("opts") or {})}
        return await self.jobScheduler.upsertJobScheduler(
            jobSchedulerId,
            repeatOpts,
            jobSchedulerId if name is None else name,
            template.get("data", {}),
            opts,
            override=True,
        )

    async def getJobScheduler(self, id: str) -> SchedulerRecord | None:  # noqa: A002 - BullMQ's name
        """Answer a scheduler, or None."""
        return await self.jobScheduler.getScheduler(id)

    async def getJobSchedulers(self, start: int = 0, end: int = -1, asc: bool = False) -> list[SchedulerRecord]:
        """Answer schedulers by rank, the one that is due last first, unless `asc`."""
        return await self.jobScheduler.getJobSchedulers(start, end, asc)

    async def getJobSchedulersCount(self) -> int:
        """Answer the number of schedulers."""
        return await self.jobScheduler.getSchedulersCount()

    async def removeJobScheduler(self, jobSchedulerId: str) -> bool:
        """Forget a scheduler; False where there was none."""
        return await self.jobScheduler.removeJobScheduler(jobSchedulerId)

    async def getRepeatableJobs(self, start: int = 0, end: int = -1, asc: bool = False) -> list[SchedulerRecord]:
        """Answer repeat keys by rank, the one that is due last first, unless `asc`."""
        return await self.repeat.getRepeatableJobs(start, end, asc)

    async def removeRepeatable(self, name: str, repeatOpts: RepeatOptions, jobId: str | None = None) -> bool:
        """Forget what an add with these options made; False where there was nothing."""
        return await self.repeat.removeRepeatable(name, repeatOpts, jobId)

    async def removeRepeatableByKey(self, key: str) -> bool:
        """Forget a repeat key; False where there was none."""
        return await self.repeat.removeRepeatableByKey(key)
