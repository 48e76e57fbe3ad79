"""Reading of a queue (upstream `src/classes/queue-getters.ts`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from conformance.protocol import keys as names
from conformance.protocol.keys import DEPENDENCIES, LOGS, NAMED_WORKER_INFIX, PROCESSED
from conformance.protocol.states import JOB_TYPES, LIST_CONTAINERS, PENDING_TYPES, container_of
from conformance.reference_impl import js_values
from conformance.reference_impl.client_list import named_clients
from conformance.reference_impl.connection.connection import maybe_text, text, texts
from conformance.reference_impl.jobs import dependencies
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.metrics import prometheus_text
from conformance.reference_impl.option_types import QueueEvent
from conformance.reference_impl.queue_base import QueueBase


class QueueGetters(QueueBase[QueueEvent]):
    """The part of a queue that reads it."""

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
        return prometheus_text(self.name, await self.getJobCounts(), globalVariables or {})

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

    async def _clients(self, wanted: Callable[[str], bool]) -> list[dict[str, str]]:
        return await named_clients(self.connection, self.name, wanted)


def sanitize_types(types: Sequence[str] | str) -> list[str]:
    """States for getters: each once, `waiting` together with `paused`; all states if none is given."""
    given = [types] if isinstance(types, str) else list(types)
    if not given:
        return list(JOB_TYPES)
    return list(dict.fromkeys([*given, *(["paused"] if "waiting" in given else [])]))
