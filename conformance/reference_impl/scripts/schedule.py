"""Script calls of job schedulers, and of the older option `repeat`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.protocol import keys as names
from conformance.reference_impl.connection.connection import flat_mapping, maybe_text, text
from conformance.reference_impl.encoding.packing import pack
from conformance.reference_impl.errors import script_error
from conformance.reference_impl.scripts.base import ScriptCalls, is_refusal

_ITERATION_KEYS: Final = (
    *(names.REPEAT, names.DELAYED, names.WAIT, names.PAUSED, names.META),
    *(names.PRIORITIZED, names.MARKER, names.ID_COUNTER, names.EVENTS, names.PRIORITY_COUNTER),
)
_REMOVAL_KEYS: Final = (names.REPEAT, names.DELAYED, names.EVENTS)
_PARTS_OF_LEGACY_KEY: Final = 3
"""A repeat key with so many parts, or more, is one that spells its options out."""


@dataclass(frozen=True)
class Iteration:
    """The next job of a scheduler.

    `due` is its Unix ms, None where the script reckons it from `every`; `options` are under their stored names;
    `producer` is the id of the job whose fetch brings it about.
    """

    scheduler_id: str
    due: int | None
    data: str
    options: Mapping[str, Any]
    producer: str | None = None


class ScheduleScripts(ScriptCalls):
    """Schedulers."""

    async def add_job_scheduler(
        self, first: Iteration, schedule: Mapping[str, Any], template: Mapping[str, Any]
    ) -> tuple[str, int]:
        """Store a scheduler and its first job; answers the job's id and its delay (ms).

        Raises ScriptError: scheduler-collision.
        """
        name = "addJobScheduler"
        reply = await self._run(
            name,
            self._keys.keys(*_ITERATION_KEYS, names.ACTIVE),
            first.due,
            pack(schedule),
            first.scheduler_id,
            first.data,
            pack(template),
            pack(first.options),
            self._owner.clock.now_ms(),
            self._keys.base,
            self._keys.key(first.producer) if first.producer else "",
        )
        if is_refusal(reply):
            raise script_error(reply, command=name)
        job_id, delay = reply
        return text(job_id), int(delay)

    async def update_job_scheduler(self, following: Iteration) -> str | None:
        """Store the job that follows `producer`; answers its id.

        None where the scheduler is gone, or has gone on already.
        """
        producer = following.producer or ""
        reply = await self._run(
            "updateJobScheduler",
            [
                *self._keys.keys(*_ITERATION_KEYS),
                self._keys.key(producer) if producer else "",
                self._keys.key(names.ACTIVE),
            ],
            following.due,
            following.scheduler_id,
            following.data,
            pack(following.options),
            self._owner.clock.now_ms(),
            self._keys.base,
            producer,
        )
        return maybe_text(reply)

    async def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """Forget a scheduler and its delayed job; False where there was none."""
        keys = self._keys.keys(*_REMOVAL_KEYS)
        return not await self._run("removeJobScheduler", keys, scheduler_id, self._keys.base)

    async def get_job_scheduler(self, scheduler_id: str) -> tuple[dict[str, str] | None, str | None]:
        """Answer the record and the next Unix ms of a scheduler; None for what does not exist."""
        reply = await self._run("getJobScheduler", self._keys.keys(names.REPEAT), scheduler_id)
        record, following = (*reply, None, None)[:2] if reply else (None, None)
        return (None if record is None else flat_mapping(record)), maybe_text(following)

    async def add_repeatable_job(self, key: str, due: int, schedule: Mapping[str, Any], legacy_key: str) -> str:
        """Store a repeat key with its next Unix ms; answers the key that is in use."""
        keys = self._keys.keys(names.REPEAT, names.DELAYED)
        return text(
            await self._run("addRepeatableJob", keys, due, pack(schedule), legacy_key, key, self._keys.base),
        )

    async def update_repeatable_job_millis(self, key: str, due: int, legacy_key: str) -> str:
        """Set the next Unix ms of a repeat key; answers the key that is in use, empty without one."""
        return text(
            await self._run("updateRepeatableJobMillis", self._keys.keys(names.REPEAT), due, key, legacy_key),
        )

    async def remove_repeatable(self, legacy_job_id: str, legacy_key: str, key: str) -> bool:
        """Forget a repeat key and its delayed job; False where there was none."""
        concatenated = key if key.count(":") + 1 >= _PARTS_OF_LEGACY_KEY else legacy_key
        keys = self._keys.keys(*_REMOVAL_KEYS)
        return not await self._run("removeRepeatable", keys, legacy_job_id, concatenated, key, self._keys.base)
