"""Script calls that add jobs: addStandardJob, addDelayedJob, addPrioritizedJob, addParentJob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conformance.protocol import keys as names
from conformance.reference_impl.connection.connection import text
from conformance.reference_impl.encoding.js_date import milliseconds
from conformance.reference_impl.encoding.js_json import is_number, truthy
from conformance.reference_impl.encoding.packing import pack
from conformance.reference_impl.errors import script_error
from conformance.reference_impl.scripts.base import ScriptCalls, is_refusal
from conformance.reference_impl.scripts.runner import ScriptCall

_STANDARD_KEYS: Final = (
    *(names.WAIT, names.PAUSED, names.META, names.ID_COUNTER, names.COMPLETED),
    *(names.DELAYED, names.ACTIVE, names.EVENTS, names.MARKER),
)
_DELAYED_KEYS: Final = (names.MARKER, names.META, names.ID_COUNTER, names.DELAYED, names.COMPLETED, names.EVENTS)
_PRIORITIZED_KEYS: Final = (
    *(names.MARKER, names.META, names.ID_COUNTER, names.PRIORITIZED, names.DELAYED),
    *(names.COMPLETED, names.ACTIVE, names.EVENTS, names.PRIORITY_COUNTER),
)
_PARENT_KEYS: Final = (
    *(names.META, names.ID_COUNTER, names.DELAYED, names.WAITING_CHILDREN, names.COMPLETED, names.EVENTS),
)


@dataclass(frozen=True)
class NewJob:
    """What a script needs to store a job.

    `options` are under their stored names, `parent` is the hash field of that name, `parent_key` the parent's full key.
    `timestamp` is Unix ms. `waits_for_children`: the job is the parent of a flow whose children follow.
    """

    name: str
    data: str
    options: dict[str, Any]
    timestamp: float
    job_id: str | None = None
    parent_key: str | None = None
    parent: dict[str, Any] | None = None
    scheduler_id: str | None = None
    deduplication_id: str | None = None
    waits_for_children: bool = False


class AddScripts(ScriptCalls):
    """Adding jobs."""

    async def add_job(self, job: NewJob) -> str:
        """Store a job and answer its id. Raises ScriptError: missing-parent, parent-replaced."""
        reply = await self._runner.run(self.add_call(job))
        if is_refusal(reply):
            raise script_error(reply, command="addJob", parent=job.parent_key)
        return text(reply)

    async def add_jobs(self, jobs: Sequence[NewJob]) -> list[str]:
        """Store jobs in one pipeline and answer their ids. A refusal is the id of its job, as in Node.

        Raises the first error that Redis itself replied.
        """
        replies = await self._runner.run_pipeline([self.add_call(job) for job in jobs])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return [text(reply) for reply in replies]

    def add_call(self, job: NewJob) -> ScriptCall:
        """Answer the script call for a job, not sent yet."""
        script, key_names = _placement(job)
        keys = self._keys
        facts = [
            keys.base,
            job.job_id or "",
            job.name,
            job.timestamp,
            job.parent_key,
            f"{job.parent_key}:{names.DEPENDENCIES}" if job.parent_key else None,
            job.parent,
            job.scheduler_id,
            keys.deduplication(job.deduplication_id) if job.deduplication_id else None,
        ]
        return ScriptCall(script, keys.keys(*key_names), (pack(facts), job.data, pack(_with_dates(job.options))))


def _with_dates(options: dict[str, Any]) -> dict[str, Any]:
    """Dates of the option `repeat` are stored as Unix ms."""
    repeat = options.get("repeat")
    if not isinstance(repeat, Mapping):
        return options
    dates = {name: milliseconds(repeat[name]) for name in ("startDate", "endDate") if truthy(repeat.get(name))}
    return {**options, "repeat": {**repeat, **dates}}


def _placement(job: NewJob) -> tuple[str, Sequence[str]]:
    """Which script stores the job (upstream `scripts.ts`, `addJob`)."""
    delay = job.options.get("delay")
    if job.waits_for_children:
        return "addParentJob", _PARENT_KEYS
    if is_number(delay) and delay > 0:
        return "addDelayedJob", _DELAYED_KEYS
    if truthy(job.options.get("priority")):
        return "addPrioritizedJob", _PRIORITIZED_KEYS
    return "addStandardJob", _STANDARD_KEYS
