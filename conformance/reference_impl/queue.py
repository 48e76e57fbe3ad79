"""The queue: adding jobs, reading and controlling them (upstream `src/classes/queue.ts` and `queue-getters.ts`)."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, Literal

from redis.exceptions import ResponseError

from conformance.protocol import keys as names
from conformance.protocol.job_fields import DEFAULT_MAX_EVENTS
from conformance.protocol.keys import DEPENDENCIES, LOGS, NAMED_WORKER_INFIX, PROCESSED
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.protocol.states import JOB_TYPES, LIST_CONTAINERS, PENDING_TYPES, container_of
from conformance.reference_impl import js_values
from conformance.reference_impl.connection.connection import maybe_text, text, texts
from conformance.reference_impl.job_scheduler import JobScheduler
from conformance.reference_impl.jobs import dependencies, options
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.jobs.options import check_progress
from conformance.reference_impl.js_values import stringify, truthy
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

VERSION: Final = f"bullmq:{BULLMQ_VERSION}"
"""The library version that this client writes to `meta`: it behaves exactly as this BullMQ version."""

_LARGEST_CLEAN: Final = 10_000
"""Jobs that one call of cleanJobsInSet removes at most."""

_LARGEST_SAFE_INTEGER: Final = 2**53 - 1

_NO_CLIENT_LIST: Final = re.compile("unknown command ['`]\\s*client\\s*['`]", re.IGNORECASE)


_PROMETHEUS_HEAD: Final = (
    "# HELP bullmq_job_count Number of jobs in the queue by state",
    "# TYPE bullmq_job_count gauge",
)


class Queue(QueueBase[QueueEvent]):
    """A queue: add jobs, read them, control them.

    `meta` (event limit and version) is written before the first command, unless
    `opts["skipMetasUpdate"]`. Local events: waiting, paused, resumed, removed, cleaned, progress, and those of
    QueueBase.
    """

    EVENTS: ClassVar[Mapping[str, int]] = {
        **QueueBase.EVENTS,
        "waiting": 1,
        "paused": 0,
        "resumed": 0,
        "removed": 1,
        "cleaned": 2,
        "progress": 2,
    }

    async def close(self) -> None:
        """Close the connection when the calls that are under way have ended."""
        with self.trace(SpanKind.INTERNAL, "close"):
            try:
                await self.connection.until_idle()
            finally:
                await super().close()

    async def getVersion(self) -> str | None:
        """Return the library that last opened the queue, as `<library>:<version>`."""
        return maybe_text(await self.connection.command("HGET", self.keys.key(names.META), "version"))

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

    async def addJobLog(self, job_id: str, row: str, keepLogs: int | None = None) -> int:
        """Append a log row to a job; returns how many are kept."""
        return await Job.addJobLog(self, job_id, row, keepLogs)

    async def updateJobProgress(self, job_id: str, progress: Any) -> None:
        """Set the progress of a job, any JSON value. Raises InvalidArgument where the policy forbids it."""
        check_progress(self.opts, progress)
        progress_text = stringify(progress)
        with self.trace(SpanKind.INTERNAL, "updateJobProgress") as span:
            span.setAttributes({attributes.JOB_ID: job_id, attributes.JOB_PROGRESS: progress_text})
            await self.scripts.update_progress(job_id, progress_text)
            self.emit("progress", job_id, progress)

    async def pause(self) -> None:
        """No worker takes a job until resume."""
        with self.trace(SpanKind.INTERNAL, "pause"):
            await self.waitUntilReady()
            await self.scripts.pause(pause=True)
            self.emit("paused")

    async def resume(self) -> None:
        """Workers take jobs again."""
        with self.trace(SpanKind.INTERNAL, "resume"):
            await self.waitUntilReady()
            await self.scripts.pause(pause=False)
            self.emit("resumed")

    async def isPaused(self) -> bool:
        """Whether the whole queue is paused."""
        return bool(await self.connection.command("HEXISTS", self.keys.key(names.META), "paused"))

    async def remove(self, job_id: str, opts: Mapping[str, Any] | None = None) -> int:
        """Remove a job: 1 done (also for a job that does not exist), 0 locked. Raises ScriptError: scheduler-job."""
        remove_children = (opts or {}).get("removeChildren", True)
        with self.trace(SpanKind.INTERNAL, "remove") as span:
            chosen = stringify({"removeChildren": remove_children})
            span.setAttributes({attributes.JOB_ID: job_id, attributes.JOB_OPTIONS: chosen})
            removed = await self.scripts.remove_job(job_id, remove_children=remove_children)
            if removed:
                self.emit("removed", job_id)
            return int(removed)

    async def drain(self, delayed: bool = False) -> None:
        """Remove the waiting jobs, with `delayed` also the delayed ones."""
        with self.trace(SpanKind.INTERNAL, "drain") as span:
            span.setAttributes({attributes.QUEUE_DRAIN_DELAY: delayed})
            await self.scripts.drain(delayed=delayed)

    async def clean(self, grace: float, limit: int, type: str = "completed") -> list[str]:  # noqa: A002 - BullMQ's name
        """Remove up to `limit` jobs (0: all) of a state that are older than `grace` ms; returns their ids."""
        most = limit or math.inf
        with self.trace(SpanKind.INTERNAL, "clean") as span:
            removed = await self._clean(container_of(type), self.clock.now_ms() - grace, most)
            span.setAttributes(
                {
                    attributes.QUEUE_GRACE: grace,
                    attributes.JOB_TYPE: type,
                    attributes.QUEUE_CLEAN_LIMIT: most,
                    attributes.JOB_IDS: removed,
                }
            )
            return removed

    async def obliterate(
        self, opts: Mapping[str, Any] | bool | None = None, *, force: bool = False, count: int = 1000
    ) -> None:
        """Pause and delete the whole queue, `count` jobs at a time.

        `opts` are Node's {force, count}, or `force` alone. Raises BullMQError for active jobs unless `force`.
        """
        given = {"force": opts} if isinstance(opts, bool) else opts or {}
        chosen = {"force": force, "count": count, **given}
        with self.trace(SpanKind.INTERNAL, "obliterate"):
            # First: workers must not start the jobs that are about to be deleted.
            await self.pause()
            while await self.scripts.obliterate(count=chosen["count"], force=bool(chosen["force"])):
                pass

    async def retryJobs(self, opts: Mapping[str, Any] | None = None) -> None:
        """Put finished jobs back to wait: `state` (failed), `count` per round (1000), finished by `timestamp` (now)."""
        chosen = opts or {}
        state: Literal["completed", "failed"] = chosen.get("state") or "failed"
        count, latest = chosen.get("count") or 1000, chosen.get("timestamp")
        with self.trace(SpanKind.PRODUCER, "retryJobs") as span:
            span.setAttributes({attributes.QUEUE_OPTIONS: stringify(dict(chosen))})
            while await self.scripts.move_jobs_to_wait(state, count, self.clock.now_ms() if latest is None else latest):
                pass

    async def promoteJobs(self, opts: Mapping[str, Any] | None = None) -> None:
        """Put all delayed jobs to wait, `count` per round (1000)."""
        chosen = opts or {}
        with self.trace(SpanKind.INTERNAL, "promoteJobs") as span:
            span.setAttributes({attributes.QUEUE_OPTIONS: stringify(dict(chosen))})
            while await self.scripts.move_jobs_to_wait("delayed", chosen.get("count") or 1000):
                pass

    async def trimEvents(self, maxLength: int) -> int:
        """Shorten the event stream to about this length; returns the number of removed entries."""
        command = ("XTRIM", self.keys.key(names.EVENTS), "MAXLEN", "~", maxLength)
        with self.trace(SpanKind.INTERNAL, "trimEvents") as span:
            span.setAttributes({attributes.QUEUE_EVENT_MAX_LENGTH: maxLength})
            return int(await self.connection.command(*command))

    async def setGlobalConcurrency(self, concurrency: int) -> None:
        """At most this many jobs are active at a time, over all workers."""
        await self.connection.command("HSET", self._meta, "concurrency", concurrency)

    async def removeGlobalConcurrency(self) -> None:
        """No limit on active jobs."""
        await self.connection.command("HDEL", self._meta, "concurrency")

    async def getGlobalConcurrency(self) -> int | float | None:
        """Return the limit on active jobs, None without one."""
        return _number(await self.connection.command("HGET", self._meta, "concurrency"))

    async def setGlobalRateLimit(self, max_jobs: int, duration: int) -> None:
        """At most `max_jobs` starts per `duration` ms, over all workers."""
        await self.connection.command("HSET", self._meta, "max", max_jobs, "duration", duration)

    async def removeGlobalRateLimit(self) -> None:
        """No queue-wide rate limit."""
        await self.connection.command("HDEL", self._meta, "max", "duration")

    async def getGlobalRateLimit(self) -> dict[str, int | float] | None:
        """`max` and `duration` (ms), None where one of them is not set."""
        max_jobs, duration = map(_number, await self.connection.command("HMGET", self._meta, "max", "duration"))
        return {"max": max_jobs, "duration": duration} if max_jobs is not None and duration is not None else None

    async def rateLimit(self, expireTimeMs: int) -> None:
        """Start no job for this number of ms; only workers with a limit of their own obey."""
        await self.connection.command("SET", self._limiter, _LARGEST_SAFE_INTEGER, "PX", expireTimeMs)

    async def removeRateLimitKey(self) -> int:
        """Forget the current rate window; returns the number of keys removed."""
        return int(await self.connection.command("DEL", self._limiter))

    async def getRateLimitTtl(self, maxJobs: int | None = None) -> int:
        """Ms until the next start is allowed; -2 if no window is open and no limit is known."""
        return await self.scripts.get_rate_limit_ttl(maxJobs)

    async def isMaxed(self) -> bool:
        """Whether the queue-wide concurrency is used up."""
        return await self.scripts.is_maxed()

    async def getDeduplicationJobId(self, deduplication_id: str) -> str | None:
        """Id of the job that owns a deduplication id."""
        key = self.keys.deduplication(deduplication_id)
        return maybe_text(await self.connection.command("GET", key))

    async def removeDeduplicationKey(self, deduplication_id: str) -> int:
        """Free a deduplication id; returns the number of keys removed."""
        with self.trace(SpanKind.INTERNAL, "removeDeduplicationKey") as span:
            span.setAttributes({attributes.DEDUPLICATION_KEY: deduplication_id})
            return await self._free(deduplication_id)

    async def getDebounceJobId(self, debounce_id: str) -> str | None:
        """Older name of getDeduplicationJobId."""
        return await self.getDeduplicationJobId(debounce_id)

    async def removeDebounceKey(self, debounce_id: str) -> int:
        """Older name of removeDeduplicationKey."""
        with self.trace(SpanKind.INTERNAL, "removeDebounceKey") as span:
            span.setAttributes({attributes.JOB_KEY: debounce_id})
            return await self._free(debounce_id)

    async def removeDeprecatedPriorityKey(self) -> int:
        """Delete the key `priority` of versions before 4.0; returns the number of keys removed."""
        return int(await self.connection.command("DEL", self.toKey("priority")))

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

    async def getJob(self, job_id: str) -> Job | None:
        """Return a job, or None where its hash does not exist."""
        return await Job.fromId(self, job_id)

    async def getJobs(
        self, types: Sequence[str] | str, start: int = 0, end: int = -1, asc: bool = False
    ) -> list[Job | None]:
        """Jobs of these states, by rank within each; None for an id without a hash."""
        job_ids = await self.getRanges(sanitize_types(types), start, end, asc)
        # All at once: they share one socket and arrive in order, so this costs one round trip instead of one per job.
        return list(await asyncio.gather(*(Job.fromId(self, job_id) for job_id in job_ids)))

    async def getRanges(self, types: Sequence[str], start: int = 0, end: int = 1, asc: bool = False) -> list[str]:
        """Ids of jobs of these states, each id once."""
        ranges = await self.scripts.get_ranges(types, start, end, asc=asc)
        found: dict[str, None] = {}
        for state, job_ids in zip(types, ranges, strict=True):
            # Lists hold the oldest job at their right end.
            is_reversed = asc and container_of(state) in LIST_CONTAINERS
            found |= dict.fromkeys(reversed(job_ids) if is_reversed else job_ids)
        return list(found)

    async def getWaiting(self, start: int = 0, end: int = -1) -> list[Job | None]:
        """Return waiting jobs, the next to run first."""
        return await self.getJobs(["waiting"], start, end, asc=True)

    async def getWaitingChildren(self, start: int = 0, end: int = -1) -> list[Job | None]:
        """Jobs that wait for their children, longest first."""
        return await self.getJobs(["waiting-children"], start, end, asc=True)

    async def getActive(self, start: int = 0, end: int = -1) -> list[Job | None]:
        """Jobs that workers hold, longest first."""
        return await self.getJobs(["active"], start, end, asc=True)

    async def getDelayed(self, start: int = 0, end: int = -1) -> list[Job | None]:
        """Delayed jobs, the next due first."""
        return await self.getJobs(["delayed"], start, end, asc=True)

    async def getPrioritized(self, start: int = 0, end: int = -1) -> list[Job | None]:
        """Jobs with a priority, the next to run first."""
        return await self.getJobs(["prioritized"], start, end, asc=True)

    async def getCompleted(self, start: int = 0, end: int = -1) -> list[Job | None]:
        """Completed jobs, latest first."""
        return await self.getJobs(["completed"], start, end, asc=False)

    async def getFailed(self, start: int = 0, end: int = -1) -> list[Job | None]:
        """Failed jobs, latest first."""
        return await self.getJobs(["failed"], start, end, asc=False)

    async def getJobCounts(self, *types: str) -> dict[str, int]:
        """Return the number of jobs by state; `waiting` includes `paused`, and no types mean all states."""
        states = sanitize_types(types)
        return dict(zip(states, await self.scripts.get_counts(states), strict=True))

    async def getJobCountByTypes(self, *types: str) -> int:
        """Sum of the counts of these states."""
        return sum((await self.getJobCounts(*types)).values())

    async def count(self) -> int:
        """Return the number of jobs that no worker has taken yet."""
        return await self.getJobCountByTypes(*PENDING_TYPES)

    async def getWaitingCount(self) -> int:
        """Return the number of jobs that wait, in a paused queue too."""
        return await self.getJobCountByTypes("waiting")

    async def getActiveCount(self) -> int:
        """Return the number of jobs that workers hold."""
        return await self.getJobCountByTypes("active")

    async def getDelayedCount(self) -> int:
        """Return the number of delayed jobs."""
        return await self.getJobCountByTypes("delayed")

    async def getPrioritizedCount(self) -> int:
        """Return the number of waiting jobs with a priority."""
        return await self.getJobCountByTypes("prioritized")

    async def getWaitingChildrenCount(self) -> int:
        """Return the number of jobs that wait for their children."""
        return await self.getJobCountByTypes("waiting-children")

    async def getCompletedCount(self) -> int:
        """Return the number of completed jobs."""
        return await self.getJobCountByTypes("completed")

    async def getFailedCount(self) -> int:
        """Return the number of failed jobs."""
        return await self.getJobCountByTypes("failed")

    async def exportPrometheusMetrics(self, globalVariables: Mapping[str, str] | None = None) -> str:
        """Return the counts of all states in the text format of Prometheus, with further labels if wanted."""
        labels = "".join(f', {name}="{value}"' for name, value in (globalVariables or {}).items())
        counts = await self.getJobCounts()
        gauges = [
            f'bullmq_job_count{{queue="{self.name}", state="{state}"{labels}}} {counts[state]}' for state in counts
        ]
        return "\n".join([*_PROMETHEUS_HEAD, *gauges])

    async def getCountsPerPriority(self, priorities: Sequence[int]) -> dict[str, int]:
        """Return the number of waiting jobs by priority; 0 are those without one."""
        unique = list(dict.fromkeys(priorities))
        counts = await self.scripts.get_counts_per_priority(unique)
        return {str(priority): count for priority, count in zip(unique, counts, strict=True)}

    async def getJobState(self, job_id: str) -> str:
        """Return `waiting`, `active`, ..., or `unknown`."""
        return await self.scripts.get_state(job_id)

    async def getDependencies(
        self, parent_id: str, kind: Literal["processed", "pending"], start: int = 0, end: int = -1
    ) -> dict[str, Any]:
        """Page through the children of a job.

        `items`: `{id}` per pending child (its full key), with `v` (its parsed result, or `err` where that is not JSON)
        per processed one; `jobs`: the children's hashes; `total`: how many there are. Redis gives no order.
        """
        suffix = PROCESSED if kind == "processed" else DEPENDENCIES
        return await dependencies.read_range(self.scripts, self.keys.of_job(parent_id, suffix), start, end)

    async def getJobLogs(self, job_id: str, start: int = 0, end: int = -1, asc: bool = True) -> dict[str, Any]:
        """Return `logs`: rows by rank, from the newest on unless `asc`; `count`: how many there are in all."""
        key = self.keys.of_job(job_id, LOGS)
        first, last = (start, end) if asc else (-(end + 1), -(start + 1))
        # Together: a row that is added between two reads would make the count wrong.
        rows, count = await self.connection.together([("LRANGE", key, first, last), ("LLEN", key)])
        logs = texts(rows)
        return {"logs": logs if asc else logs[::-1], "count": int(count)}

    async def getMetrics(self, kind: Literal["completed", "failed"], start: int = 0, end: int = -1) -> dict[str, Any]:
        """Finished jobs per minute, newest minute first."""
        meta, points, count = await self.scripts.get_metrics(kind, start, end)
        total, previous_time, previous_count = (js_values.parse_int(maybe_text(value)) or 0 for value in meta)
        return {
            "meta": {"count": total, "prevTS": previous_time, "prevCount": previous_count},
            "data": [float(text(point)) for point in points],
            "count": count,
        }

    async def getWorkers(self) -> list[dict[str, str]]:
        """Return connected workers as CLIENT LIST shows them; `name` is the queue's, `rawname` the connection's."""
        unnamed = self.client_name()

        def is_worker(name: str) -> bool:
            return name == unnamed or name.startswith(f"{unnamed}{NAMED_WORKER_INFIX}")

        return await self._clients(is_worker)

    async def getWorkersCount(self) -> int:
        """Return the number of connected workers."""
        return len(await self.getWorkers())

    async def getQueueEvents(self) -> list[dict[str, str]]:
        """Return connected event readers, in the same form."""
        reader = self.client_name(names.EVENT_READER_SUFFIX)
        return await self._clients(lambda name: name == reader)

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

    async def _clean(self, container: str, latest: float, most: float) -> list[str]:
        batch = min(_LARGEST_CLEAN, most)
        removed: list[str] = []
        while len(removed) < most:
            job_ids = await self.scripts.clean_jobs_in_set(container, latest, batch)
            self.emit("cleaned", job_ids, container)
            removed += job_ids
            # A short batch was the last one; another call would only return nothing.
            if len(job_ids) < batch:
                break
        return removed

    async def _free(self, deduplication_id: str) -> int:
        return int(await self.connection.command("DEL", self.keys.deduplication(deduplication_id)))

    async def _clients(self, wanted: Any) -> list[dict[str, str]]:
        try:
            lines = await self.connection.client_lines()
        except ResponseError as error:
            if not _NO_CLIENT_LIST.search(str(error)):
                raise
            # As Node.js does, with a provider that does this.
            return [{"name": "GCP does not support client list"}]
        found = []
        for line in lines:
            client = _client(line)
            if wanted(client.get("name", "")):
                found.append({**client, "name": self.name, "rawname": client["name"]})
        return found

    def _opening(self) -> Callable[[], Awaitable[None]] | None:
        return None if self.opts.get("skipMetasUpdate") else self._write_meta

    def _wait_unsent_s(self) -> float:
        return self.policy.wait_unsent_s

    async def _write_meta(self) -> None:
        events = (self.opts.get("streams") or {}).get("events") or {}
        limit = events.get("maxLen", DEFAULT_MAX_EVENTS)
        fields = ("opts.maxLenEvents", limit, "version", VERSION)
        # As in Node.js a refusal is ignored here; the operation itself then raises.
        with contextlib.suppress(ResponseError):
            # `at_once`, because this runs inside the opening that other commands wait for.
            await self.connection.at_once("HMSET", self.keys.key(names.META), *fields)

    def _default_options(self) -> dict[str, Any]:
        """Defaults of every job of this queue; a job id is never one of them."""
        defaults = dict(self.opts.get("defaultJobOptions") or {})
        defaults.pop("jobId", None)
        return defaults

    @property
    def _meta(self) -> str:
        return self.keys.key(names.META)

    @property
    def _limiter(self) -> str:
        return self.keys.key(names.LIMITER)


def sanitize_types(types: Sequence[str] | str) -> list[str]:
    """States for getters: each once, `waiting` together with `paused`; all states if none is given."""
    given = [types] if isinstance(types, str) else list(types)
    if not given:
        return list(JOB_TYPES)
    return list(dict.fromkeys([*given, *(["paused"] if "waiting" in given else [])]))


def _client(line: str) -> Mapping[str, str]:
    pairs = (word.partition("=") for word in line.split(" "))
    return {name: value for name, _, value in pairs}


def _number(reply: bytes | None) -> int | float | None:
    """Return a number of `meta`: an integer, unless another client has stored a fraction."""
    number = float(reply) if reply else None
    return int(number) if number is not None and number.is_integer() else number
