"""Control of a queue: pauses, limits and removals (upstream `src/classes/queue.ts`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

from conformance.protocol import keys as names
from conformance.protocol.states import container_of
from conformance.reference_impl.connection.connection import maybe_text
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.jobs.options import check_progress
from conformance.reference_impl.js_values import stringify
from conformance.reference_impl.option_types import QueueEvent
from conformance.reference_impl.queue_base import QueueBase
from conformance.reference_impl.telemetry import attributes
from conformance.reference_impl.telemetry.interface import SpanKind

_LARGEST_CLEAN: Final = 10_000
"""Jobs that one call of cleanJobsInSet removes at most."""

_LARGEST_SAFE_INTEGER: Final = 2**53 - 1


class QueueAdmin(QueueBase[QueueEvent]):
    """The part of a queue that controls it."""

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

    @property
    def _meta(self) -> str:
        return self.keys.key(names.META)

    @property
    def _limiter(self) -> str:
        return self.keys.key(names.LIMITER)


def _number(reply: bytes | None) -> int | float | None:
    """Return a number of `meta`: an integer, unless another client has stored a fraction."""
    number = float(reply) if reply else None
    return int(number) if number is not None and number.is_integer() else number
