"""Script calls that only read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from conformance.protocol import keys as names
from conformance.protocol.job_fields import container_of
from conformance.reference_impl.connection.connection import text, texts
from conformance.reference_impl.scripts.base import ScriptCalls

ChildKind = Literal["processed", "unprocessed", "ignored", "failed"]
SCAN_ROUNDS = 5
"""How often one call of the script paginate scans, as in Node (upstream `src/classes/scripts.ts`)."""

FINISHED_OK = 1
"""Result of isFinished for a completed job; 2 is a failed one, 0 an unfinished one, -1 a missing one."""


class Page(NamedTuple):
    """Part of a set or hash as the script answers it: members (or field and value), flat job hashes, the size."""

    items: list[Any]
    jobs: list[Any]
    total: int


class ReadScripts(ScriptCalls):
    """Counting and looking."""

    async def get_counts(self, states: Sequence[str]) -> list[int]:
        """Answer the number of jobs per state."""
        reply = await self._run("getCounts", [self._keys.base], *map(container_of, states))
        return [int(count or 0) for count in reply]

    async def get_counts_per_priority(self, priorities: Sequence[int]) -> list[int]:
        """Answer the number of waiting jobs per priority; 0 means those without one."""
        keys = self._keys.keys(names.WAIT, names.PAUSED, names.META, names.PRIORITIZED)
        return [int(count or 0) for count in await self._run("getCountsPerPriority", keys, *priorities)]

    async def get_dependency_counts(self, job_id: str, kinds: Sequence[ChildKind]) -> list[int]:
        """Answer the number of children per way of ending."""
        suffixes = (names.PROCESSED, names.DEPENDENCIES, names.FAILED_CHILDREN, names.UNSUCCESSFUL)
        keys = [self._keys.of_job(job_id, suffix) for suffix in suffixes]
        return [int(count or 0) for count in await self._run("getDependencyCounts", keys, *kinds)]

    async def get_ranges(self, states: Sequence[str], start: int, end: int, *, asc: bool) -> list[list[str]]:
        """Job ids per state, by rank."""
        containers = [container_of(state) for state in states]
        replies = await self._run("getRanges", [self._keys.base], start, end, "1" if asc else "0", *containers)
        return [texts(reply or []) for reply in replies]

    async def get_state(self, job_id: str) -> str:
        """State of a job, `unknown` where it is in no container."""
        keys = self._keys.keys(
            *(names.COMPLETED, names.FAILED, names.DELAYED, names.ACTIVE),
            *(names.WAIT, names.PAUSED, names.WAITING_CHILDREN, names.PRIORITIZED),
        )
        return text(await self._run("getStateV2", keys, job_id))

    async def is_finished(self, job_id: str) -> tuple[int, str | None]:
        """How a job stands (see `FINISHED_OK`), with its return value (JSON), failure reason, or what is wrong."""
        keys = self._keys.keys(names.COMPLETED, names.FAILED, job_id)
        status, *result = await self._run("isFinished", keys, job_id, "1")
        return int(status), text(result[0]) if result and result[0] is not None else None

    async def is_maxed(self) -> bool:
        """Whether the queue-wide concurrency is used up."""
        return bool(await self._run("isMaxed", self._keys.keys(names.META, names.ACTIVE)))

    async def get_rate_limit_ttl(self, max_jobs: int | None) -> int:
        """Ms until the next job may start. Without `max_jobs` the queue's own limit counts."""
        keys = self._keys.keys(names.LIMITER, names.META)
        return int(await self._run("getRateLimitTtl", keys, "0" if max_jobs is None else max_jobs))

    async def get_metrics(self, kind: Literal["completed", "failed"], start: int, end: int) -> tuple[Any, Any, int]:
        """Raw metrics: `[count, prevTS, prevCount]`, the points asked for, and how many points there are."""
        keys = self._keys.keys(f"{names.METRICS}:{kind}", f"{names.METRICS}:{kind}:data")
        meta, points, count = await self._run("getMetrics", keys, start, end)
        return meta, points, int(count)

    async def paginate(self, key: str, start: int, end: int) -> Page:
        """Read elements `start` to `end` (-1: all) of a set or hash, with the job hashes that their ids name.

        One call of the script scans at most five rounds; the cursor that it answers goes into the next call. Raises
        ResponseError for a key of another type.
        """
        size = end - start + 1 if end >= 0 else math.inf
        page, cursor, offset = Page([], [], 0), "0", 0
        while True:
            arguments = (start + len(page.items), end, cursor, offset, SCAN_ROUNDS, 1)
            answered, offset, items, total, jobs = await self._run("paginate", [key], *arguments)
            cursor = text(answered)
            page = Page([*page.items, *items], [*page.jobs, *jobs], int(total))
            if cursor == "0" or len(page.items) >= size:
                return page
