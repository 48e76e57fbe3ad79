"""Script calls that control a queue, edit single jobs, and count and read."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from conformance.protocol import keys as names
from conformance.protocol.scripts import ErrorCode
from conformance.protocol.states import container_of
from conformance.reference_impl.connection.connection import text, texts
from conformance.reference_impl.errors import BullMQError, script_error
from conformance.reference_impl.scripts.runner import ScriptCalls

_NO_TIME_LIMIT: Final = sys.float_info.max
"""JavaScript's Number.MAX_VALUE."""

_OBLITERATE_TEXTS: Final = {
    -1: "Cannot obliterate non-paused queue",
    -2: "Cannot obliterate queue with active jobs",
}
ChildKind = Literal["processed", "unprocessed", "ignored", "failed"]
SCAN_ROUNDS = 5
"""How often one call of the script paginate scans, as in Node (upstream `src/classes/scripts.ts`)."""

FINISHED_OK = 1
"""Result of isFinished for a completed job; 2 is a failed one, 0 an unfinished one, -1 a missing one."""


class ElementPage(NamedTuple):
    """Part of a set or hash as the script returns it: members (or field and value), flat job hashes, the size."""

    items: list[Any]
    jobs: list[Any]
    total: int


class QueueScripts(ScriptCalls):
    """Controlling a queue."""

    async def pause(self, *, pause: bool) -> None:
        """Pause or resume the whole queue; writes the event even when nothing changes."""
        source, target = (names.WAIT, names.PAUSED) if pause else (names.PAUSED, names.WAIT)
        keys = self._keys.keys(
            *(source, target, names.META, names.PRIORITIZED, names.EVENTS, names.DELAYED, names.MARKER)
        )
        await self._run("pause", keys, "paused" if pause else "resumed")

    async def drain(self, *, delayed: bool) -> None:
        """Remove all waiting jobs, with `delayed` also the delayed ones."""
        keys = self._keys.keys(names.WAIT, names.PAUSED, names.DELAYED, names.PRIORITIZED, names.REPEAT)
        await self._run("drain", keys, self._keys.base, "1" if delayed else "0")

    async def clean_jobs_in_set(self, container: str, latest: float, limit: float) -> list[str]:
        """Remove up to `limit` jobs that are not newer than `latest` (Unix ms); returns their ids."""
        keys = self._keys.keys(container, names.EVENTS, names.REPEAT)
        return texts(await self._run("cleanJobsInSet", keys, self._keys.base, latest, limit, container))

    async def obliterate(self, *, count: int, force: bool) -> bool:
        """Delete up to `count` jobs of a paused queue; True while there is more to do. Raises BullMQError."""
        keys = [self._keys.key(names.META), self._keys.base]
        reply = await self._run("obliterate", keys, count, "force" if force else None)
        if reply in _OBLITERATE_TEXTS:
            raise BullMQError(_OBLITERATE_TEXTS[reply])
        return bool(reply)

    async def move_jobs_to_wait(
        self, state: Literal["completed", "failed", "delayed"], count: int, latest: float = _NO_TIME_LIMIT
    ) -> bool:
        """Move up to `count` jobs whose score is at most `latest` back to wait; True while there may be more."""
        keys = [
            self._keys.base,
            *self._keys.keys(names.EVENTS, state, names.WAIT, names.PAUSED, names.META, names.ACTIVE, names.MARKER),
        ]
        return bool(await self._run("moveJobsToWait", keys, count, latest, state))


class JobScripts(ScriptCalls):
    """Editing single jobs. All raise ScriptError, mostly missing-job."""

    async def remove_job(self, job_id: str, *, remove_children: bool) -> bool:
        """Remove a job; False when it, or a descendant, is locked. A job that does not exist counts as removed."""
        keys = self._keys.keys(job_id, names.REPEAT)
        reply = await self._run_on_job("removeJob", job_id, keys, job_id, 1 if remove_children else 0, self._keys.base)
        return bool(reply)

    async def remove_unprocessed_children(self, job_id: str) -> None:
        """Remove the children that no worker holds."""
        keys = self._keys.keys(job_id, names.META)
        await self._run("removeUnprocessedChildren", keys, self._keys.base, job_id)

    async def remove_child_dependency(self, job_id: str, parent_key: str | None) -> bool:
        """Unlink a job from its parent; False when there was no relation."""
        reply = await self._run("removeChildDependency", [self._keys.base], self._keys.key(job_id), parent_key)
        # Unlike the other scripts, this one returns 1 for "no relation", which is not an error.
        if reply not in (0, 1):
            raise script_error(reply, command="removeChildDependency", job=job_id, parent=parent_key)
        return bool(reply == 0)

    async def update_data(self, job_id: str, data: str) -> None:
        """Replace the data (JSON text)."""
        await self._run_on_job("updateData", job_id, self._keys.keys(job_id), data)

    async def update_progress(self, job_id: str, progress: str) -> None:
        """Set the progress (JSON text) and publish it."""
        keys = self._keys.keys(job_id, names.EVENTS, names.META)
        await self._run_on_job("updateProgress", job_id, keys, job_id, progress)

    async def add_log(self, job_id: str, row: str, keep: int | None) -> int:
        """Append a log row and keep the last `keep` ones; returns how many there are."""
        keys = self._keys.keys(job_id, f"{job_id}:{names.LOGS}")
        return int(await self._run_on_job("addLog", job_id, keys, job_id, row, keep or None))

    async def promote(self, job_id: str) -> None:
        """Move a delayed job to wait (or prioritized) now."""
        keys = self._keys.keys(
            *(names.DELAYED, names.WAIT, names.PAUSED, names.META, names.PRIORITIZED),
            *(names.ACTIVE, names.PRIORITY_COUNTER, names.EVENTS, names.MARKER),
        )
        await self._run_on_job("promote", job_id, keys, self._keys.base, job_id, state="delayed")

    async def change_delay(self, job_id: str, delay: float) -> None:
        """Make a delayed job due `delay` ms from now."""
        keys = self._keys.keys(names.DELAYED, names.META, names.MARKER, names.EVENTS)
        now = self._owner.clock.now_ms()
        await self._run_on_job("changeDelay", job_id, keys, delay, now, job_id, self._keys.key(job_id), state="delayed")

    async def change_priority(self, job_id: str, priority: float, *, lifo: bool) -> None:
        """Give a job another priority and place; `lifo` puts it in front of its equals."""
        keys = self._keys.keys(
            *(names.WAIT, names.PAUSED, names.META, names.PRIORITIZED),
            *(names.ACTIVE, names.PRIORITY_COUNTER, names.MARKER),
        )
        await self._run_on_job("changePriority", job_id, keys, priority, self._keys.base, job_id, 1 if lifo else 0)

    async def reprocess_job(self, job_id: str, state: Literal["completed", "failed"], *, lifo: bool) -> None:
        """Put a finished job back to wait."""
        keys = self._keys.keys(
            *(job_id, names.EVENTS, state, names.WAIT, names.META, names.PAUSED, names.ACTIVE, names.MARKER)
        )
        cleared = "failedReason" if state == "failed" else "returnvalue"
        command = "reprocessJob"
        reply = await self._run(command, keys, job_id, "RPUSH" if lifo else "LPUSH", cleared, state)
        if reply != 1:
            code = reply if isinstance(reply, int) else ErrorCode.MISSING_JOB
            raise script_error(code, command=command, job=job_id, state=state)


class ReadScripts(ScriptCalls):
    """Counting and reading."""

    async def get_counts(self, states: Sequence[str]) -> list[int]:
        """Return the number of jobs per state."""
        reply = await self._run("getCounts", [self._keys.base], *map(container_of, states))
        return [int(count or 0) for count in reply]

    async def get_counts_per_priority(self, priorities: Sequence[int]) -> list[int]:
        """Return the number of waiting jobs per priority; 0 means those without one."""
        keys = self._keys.keys(names.WAIT, names.PAUSED, names.META, names.PRIORITIZED)
        return [int(count or 0) for count in await self._run("getCountsPerPriority", keys, *priorities)]

    async def get_dependency_counts(self, job_id: str, kinds: Sequence[ChildKind]) -> list[int]:
        """Return the number of children per way of ending."""
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
        """Whether a job is finished (see `FINISHED_OK`), with return value (JSON), failure reason or error."""
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

    async def paginate(self, key: str, start: int, end: int) -> ElementPage:
        """Read elements `start` to `end` (-1: all) of a set or hash, with the job hashes that their ids name.

        One call of the script scans at most five rounds; the cursor that it returns goes into the next call. Raises
        ResponseError for a key of another type.
        """
        size = end - start + 1 if end >= 0 else math.inf
        page, cursor, offset = ElementPage([], [], 0), "0", 0
        while True:
            # From where the last call ended: the script forgets everything between two calls.
            arguments = (start + len(page.items), end, cursor, offset, SCAN_ROUNDS, 1)
            position, offset, items, total, jobs = await self._run("paginate", [key], *arguments)
            cursor = text(position)
            page = ElementPage([*page.items, *items], [*page.jobs, *jobs], int(total))
            if cursor == "0" or len(page.items) >= size:
                return page
