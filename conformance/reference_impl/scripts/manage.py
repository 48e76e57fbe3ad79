"""Script calls that control a queue and edit single jobs."""

from __future__ import annotations

import sys
from typing import Final, Literal

from conformance.protocol import keys as names
from conformance.protocol.errors import ErrorCode
from conformance.reference_impl.connection.connection import texts
from conformance.reference_impl.errors import BullMQError, script_error
from conformance.reference_impl.scripts.base import ScriptCalls

_NO_TIME_LIMIT: Final = sys.float_info.max
"""JavaScript's Number.MAX_VALUE."""

_OBLITERATE_TEXTS: Final = {
    -1: "Cannot obliterate non-paused queue",
    -2: "Cannot obliterate queue with active jobs",
}


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
        """Remove all jobs that wait; also the delayed ones if asked to."""
        keys = self._keys.keys(names.WAIT, names.PAUSED, names.DELAYED, names.PRIORITIZED, names.REPEAT)
        await self._run("drain", keys, self._keys.base, "1" if delayed else "0")

    async def clean_jobs_in_set(self, container: str, latest: float, limit: float) -> list[str]:
        """Remove up to `limit` jobs that are not newer than `latest` (Unix ms); answers their ids."""
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
        """Remove the children that nobody works on."""
        keys = self._keys.keys(job_id, names.META)
        await self._run("removeUnprocessedChildren", keys, self._keys.base, job_id)

    async def remove_child_dependency(self, job_id: str, parent_key: str | None) -> bool:
        """Unlink a job from its parent; False when there was no relation."""
        reply = await self._run("removeChildDependency", [self._keys.base], self._keys.key(job_id), parent_key)
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
        """Append a log row and keep the last `keep` ones; answers how many there are."""
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
