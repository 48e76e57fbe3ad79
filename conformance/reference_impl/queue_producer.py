"""Adding jobs to a queue, and its schedulers (upstream `src/classes/queue.ts`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from conformance.reference_impl.job_scheduler import JobScheduler
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.js_values import truthy
from conformance.reference_impl.known_names import refuse_misspelt
from conformance.reference_impl.option_types import (
    REPEAT_OPTIONS,
    AnyOptions,
    BulkJob,
    JobsOptions,
    JobTemplate,
    QueueEvent,
    RepeatOptions,
    refuse_misspelt_job_options,
)
from conformance.reference_impl.queue_base import QueueBase
from conformance.reference_impl.recurrence import SchedulerRecord, refuse_past_end
from conformance.reference_impl.repeat import Repeat
from conformance.reference_impl.telemetry import attributes
from conformance.reference_impl.telemetry.interface import SpanKind
from conformance.reference_impl.telemetry.job_context import carrying, settled


class QueueProducer(QueueBase[QueueEvent]):
    """The part of a queue that adds jobs."""

    async def add(self, name: str, data: Any, opts: JobsOptions | AnyOptions | None = None) -> Job:
        """Add a job. `data` is any JSON value, or a RawJson. Raises InvalidArgument and ScriptError.

        The option `repeat` is the older form of upsertJobScheduler. If it allows no iteration, this raises
        InvalidArgument, while Node.js returns nothing.
        """
        with self.trace(SpanKind.PRODUCER, "add", f"{self.name}.{name}") as span:
            if opts:
                refuse_misspelt_job_options(opts)
            job = await self._add(name, data, carrying(opts, span.metadata) or {})
            span.setAttributes({attributes.JOB_NAME: name, attributes.JOB_ID: job.id})
            return job

    async def addBulk(self, jobs: Sequence[BulkJob | AnyOptions]) -> list[Job]:
        """Add jobs ({name, data, opts}) in one pipeline. Raises InvalidArgument before any of them is sent."""
        with self.trace(SpanKind.PRODUCER, "addBulk") as span:
            if span.is_recorded:
                job_names = [str(job.get("name")) for job in jobs]
                span.setAttributes({attributes.BULK_NAMES: job_names, attributes.BULK_COUNT: len(jobs)})
            entries = list(self._bulk_entries(jobs, span.metadata))
            await self.waitUntilReady()
            return await Job.createBulk(self, entries)

    @property
    def defaultJobOptions(self) -> dict[str, Any]:
        """A copy of the options that every job of this queue has unless it says otherwise."""
        return dict(self.opts.get("defaultJobOptions") or {})

    @cached_property
    def jobScheduler(self) -> JobScheduler:
        """The schedulers, on this queue's connection."""
        return JobScheduler(self)

    @cached_property
    def repeat(self) -> Repeat:
        """The repeat keys, on this queue's connection."""
        return Repeat(self)

    async def upsertJobScheduler(
        self,
        jobSchedulerId: str,
        repeatOpts: RepeatOptions | AnyOptions,
        jobTemplate: JobTemplate | AnyOptions | None = None,
    ) -> Job | None:
        """Make or change a scheduler; returns its next job.

        `repeatOpts`: either `pattern` (cron, with seconds if wanted, in the zone `tz`) or `every` (ms); `limit`,
        `startDate`, `endDate`, `immediately`. `jobTemplate`: `name` (the scheduler's id by default), `data` ({}) and
        `opts`. A job that is pending is replaced and keeps its time, even if the times change. None if there is no
        next job. Raises InvalidArgument, and ScriptError: scheduler-collision.
        """
        template: Mapping[str, Any] = jobTemplate or {}
        refuse_misspelt(repeatOpts, REPEAT_OPTIONS, what="repeat option")
        refuse_misspelt_job_options(template.get("opts") or {})
        refuse_past_end(repeatOpts, self.clock.now_ms())
        await self.waitUntilReady()
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
        """Return a scheduler, or None."""
        return await self.jobScheduler.getScheduler(id)

    async def getJobSchedulers(self, start: int = 0, end: int = -1, asc: bool = False) -> list[SchedulerRecord]:
        """Return schedulers by rank, the one that is due last first, unless `asc`."""
        return await self.jobScheduler.getJobSchedulers(start, end, asc)

    async def getJobSchedulersCount(self) -> int:
        """Return the number of schedulers."""
        return await self.jobScheduler.getSchedulersCount()

    async def removeJobScheduler(self, jobSchedulerId: str) -> bool:
        """Forget a scheduler; False where there was none."""
        return await self.jobScheduler.removeJobScheduler(jobSchedulerId)

    async def getRepeatableJobs(self, start: int = 0, end: int = -1, asc: bool = False) -> list[SchedulerRecord]:
        """Return repeat keys by rank, the one that is due last first, unless `asc`."""
        return await self.repeat.getRepeatableJobs(start, end, asc)

    async def removeRepeatable(
        self, name: str, repeatOpts: RepeatOptions | AnyOptions, jobId: str | None = None
    ) -> bool:
        """Remove the repeat key that an add with these options made; False if there was none."""
        with self.trace(SpanKind.INTERNAL, "removeRepeatable", f"{self.name}.{name}") as span:
            span.setAttributes({attributes.JOB_NAME: name, attributes.JOB_ID: jobId})
            return await self.repeat.removeRepeatable(name, repeatOpts, jobId)

    async def removeRepeatableByKey(self, key: str) -> bool:
        """Forget a repeat key; False where there was none."""
        with self.trace(SpanKind.INTERNAL, "removeRepeatableByKey") as span:
            span.setAttributes({attributes.JOB_KEY: key})
            return await self.repeat.removeRepeatableByKey(key)

    async def _add(self, name: str, data: Any, opts: Mapping[str, Any]) -> Job:
        given = {**self._default_options(), **opts}
        if truthy(opts.get("repeat")):
            return await self.repeat.add(name, data, given)
        options.validate_explicit_id(opts)
        await self.waitUntilReady()
        job = await Job.create(self, name, data, given)
        self.emit("waiting", job)
        return job

    def _bulk_entries(self, jobs: Sequence[Mapping[str, Any]], metadata: str | None) -> Iterator[Mapping[str, Any]]:
        defaults = self._default_options()
        for job in jobs:
            own = job.get("opts") or {}
            refuse_misspelt_job_options(own)
            yield {**job, "opts": settled({**defaults, **own}, own, metadata)}

    def _default_options(self) -> dict[str, Any]:
        """Defaults of every job of this queue; a job id is never one of them."""
        defaults = dict(self.opts.get("defaultJobOptions") or {})
        defaults.pop("jobId", None)
        return defaults
