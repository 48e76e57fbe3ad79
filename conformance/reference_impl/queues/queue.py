"""The producer's and operator's side of a queue (upstream `src/classes/queue.ts`)."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from redis.exceptions import RedisError

from conformance.protocol import keys as names
from conformance.protocol.job_fields import container_of
from conformance.protocol.options import DEFAULT_MAX_EVENTS
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.connection import maybe_text
from conformance.reference_impl.encoding.js_json import stringify, truthy
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.jobs.validation import check_progress
from conformance.reference_impl.queues.getters import QueueGetters
from conformance.reference_impl.queues.limits import QueueLimits
from conformance.reference_impl.queues.schedulers import QueueSchedulers
from conformance.reference_impl.schedules.repeat_strategy import refuse_past_end
from conformance.reference_impl.scripts.runner import ScriptTexts

VERSION: Final = "bullmq:5.62.0"
"""What `meta` says about the library that last opened the queue. The reference speaks exactly this version."""

_LARGEST_CLEAN: Final = 10_000
"""Jobs that one call of cleanJobsInSet removes at most."""


class Queue(QueueGetters, QueueLimits, QueueSchedulers):
    """A queue to add jobs to and to control.

    Opening it writes `meta` (event limit and version) before the first operation, unless `opts["skipMetasUpdate"]`.
    """

    def __init__(
        self,
        name: str,
        opts: Mapping[str, Any] | None = None,
        *,
        scripts: ScriptTexts | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, opts, scripts=scripts, clock=clock)
        self._opened = False
        self._opening = asyncio.Lock()

    async def waitUntilReady(self) -> None:
        """Wait until connected and `meta` is written."""
        async with self._opening:
            await super().waitUntilReady()
            if not self._opened and not self.opts.get("skipMetasUpdate"):
                # Node ignores a server that refuses this; the operation itself will say what is wrong.
                with contextlib.suppress(RedisError):
                    await self._write_meta()
            self._opened = True

    async def getVersion(self) -> str | None:
        """Answer the library that last opened the queue, as `<library>:<version>`."""
        await self.waitUntilReady()
        return maybe_text(await self.connection.command("HGET", self.keys.key(names.META), "version"))

    async def add(self, name: str, data: Any, opts: Mapping[str, Any] | None = None) -> Job:
        """Add a job. `data` is any JSON value, or a RawJson. Raises InvalidArgument and ScriptError.

        The option `repeat` is the older form of upsertJobScheduler. Where it allows no iteration Node answers nothing;
        here that is an InvalidArgument.
        """
        given = {**self._default_options(), **(opts or {})}
        if truthy((opts or {}).get("repeat")):
            return await self._add_repeatable(name, data, given)
        options.validate_explicit_id(opts or {})
        await self.waitUntilReady()
        job = await Job.create(self, name, data, given)
        self.emit("waiting", job)
        return job

    async def addBulk(self, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        """Add jobs ({name, data, opts}) in one pipeline. Raises InvalidArgument before any of them is sent."""
        defaults = self._default_options()
        entries = [{**job, "opts": {**defaults, **(job.get("opts") or {})}} for job in jobs]
        await self.waitUntilReady()
        return await Job.createBulk(self, entries)

    async def addJobLog(self, job_id: str, row: str, keepLogs: int | None = None) -> int:
        """Append a log row to a job; answers how many are kept."""
        return await Job.addJobLog(self, job_id, row, keepLogs)

    async def updateJobProgress(self, job_id: str, progress: Any) -> None:
        """Set the progress of a job, any JSON value. Raises InvalidArgument where the policy forbids it."""
        check_progress(self.opts, progress)
        await self.scripts.update_progress(job_id, stringify(progress))

    async def pause(self) -> None:
        """No worker takes a job until resume."""
        await self.waitUntilReady()
        await self.scripts.pause(pause=True)
        self.emit("paused")

    async def resume(self) -> None:
        """Workers take jobs again."""
        await self.waitUntilReady()
        await self.scripts.pause(pause=False)
        self.emit("resumed")

    async def isPaused(self) -> bool:
        """Whether the whole queue is paused."""
        return bool(await self.connection.command("HEXISTS", self.keys.key(names.META), "paused"))

    async def remove(self, job_id: str, opts: Mapping[str, Any] | None = None) -> int:
        """Remove a job: 1 done (also for a job that does not exist), 0 locked. Raises ScriptError: scheduler-job."""
        remove_children = (opts or {}).get("removeChildren", True)
        removed = await self.scripts.remove_job(job_id, remove_children=remove_children)
        if removed:
            self.emit("removed", job_id)
        return int(removed)

    async def drain(self, delayed: bool = False) -> None:
        """Remove the jobs that wait; also the delayed ones if asked to."""
        await self.scripts.drain(delayed=delayed)

    async def clean(self, grace: float, limit: int, type: str = "completed") -> list[str]:  # noqa: A002 - BullMQ's name
        """Remove up to `limit` jobs (0: all) of a state that are older than `grace` ms; answers their ids."""
        container = container_of(type)
        most = limit or math.inf
        batch = min(_LARGEST_CLEAN, most)
        latest = self.clock.now_ms() - grace
        removed: list[str] = []
        while len(removed) < most:
            job_ids = await self.scripts.clean_jobs_in_set(container, latest, batch)
            self.emit("cleaned", job_ids, container)
            removed += job_ids
            if len(job_ids) < batch:
                break
        return removed

    async def obliterate(self, opts: Mapping[str, Any] | None = None) -> None:
        """Pause and delete the whole queue, `count` jobs at a time.

        Raises BullMQError for active jobs unless `force`.
        """
        chosen = {"force": False, "count": 1000, **(opts or {})}
        await self.pause()
        while await self.scripts.obliterate(count=chosen["count"], force=bool(chosen["force"])):
            pass

    async def retryJobs(self, opts: Mapping[str, Any] | None = None) -> None:
        """Put finished jobs back to wait: `state` (failed), `count` per round (1000), finished by `timestamp` (now)."""
        chosen = opts or {}
        state: Literal["completed", "failed"] = chosen.get("state") or "failed"
        count, latest = chosen.get("count") or 1000, chosen.get("timestamp")
        while await self.scripts.move_jobs_to_wait(state, count, self.clock.now_ms() if latest is None else latest):
            pass

    async def promoteJobs(self, opts: Mapping[str, Any] | None = None) -> None:
        """Put all delayed jobs to wait, `count` per round (1000)."""
        count = (opts or {}).get("count") or 1000
        while await self.scripts.move_jobs_to_wait("delayed", count):
            pass

    async def trimEvents(self, maxLength: int) -> int:
        """Shorten the event stream to about this length; answers how many entries went."""
        command = ("XTRIM", self.keys.key(names.EVENTS), "MAXLEN", "~", maxLength)
        return int(await self.connection.command(*command))

    async def _add_repeatable(self, name: str, data: Any, opts: Mapping[str, Any]) -> Job:
        refuse_past_end(opts["repeat"], self.clock.now_ms())
        await self.waitUntilReady()
        job = await self.repeat.updateRepeatableJob(name, data, opts, override=True)
        if job is None:
            raise InvalidArgument(f"the repeat options of {name} allow no iteration")
        return job

    async def _write_meta(self) -> None:
        events = (self.opts.get("streams") or {}).get("events") or {}
        limit = events.get("maxLen", DEFAULT_MAX_EVENTS)
        fields = ("opts.maxLenEvents", limit, "version", VERSION)
        await self.connection.command("HMSET", self.keys.key(names.META), *fields)

    def _default_options(self) -> dict[str, Any]:
        """Defaults of every job of this queue; a job id is never one of them."""
        defaults = dict(self.opts.get("defaultJobOptions") or {})
        defaults.pop("jobId", None)
        return defaults
