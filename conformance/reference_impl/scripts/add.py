"""Script calls that add jobs, and those of schedulers and repeat keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from conformance.protocol import keys as names
from conformance.protocol.job_fields import TELEMETRY_METADATA
from conformance.reference_impl.connection.connection import flat_mapping, maybe_text, text
from conformance.reference_impl.errors import script_error
from conformance.reference_impl.js_values import is_number, milliseconds, truthy
from conformance.reference_impl.packing import pack, pack_known
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptCalls, is_refusal

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
_KEYS_OF_SCRIPT: Final[Mapping[str, Sequence[str]]] = {
    "addStandardJob": _STANDARD_KEYS,
    "addDelayedJob": _DELAYED_KEYS,
    "addPrioritizedJob": _PRIORITIZED_KEYS,
    "addParentJob": _PARENT_KEYS,
}
_ITERATION_KEYS: Final = (
    *(names.REPEAT, names.DELAYED, names.WAIT, names.PAUSED, names.META),
    *(names.PRIORITIZED, names.MARKER, names.ID_COUNTER, names.EVENTS, names.PRIORITY_COUNTER),
)
_REMOVAL_KEYS: Final = (names.REPEAT, names.DELAYED, names.EVENTS)
_NEW_WITH_EACH_JOB: Final = frozenset({"jobId", TELEMETRY_METADATA})
"""Options that differ for nearly every job, so caching their packed form would not pay."""

_PARTS_OF_LEGACY_KEY: Final = 3
"""A repeat key with this number of parts or more contains its options as text."""


@dataclass(slots=True)
class AddArguments:
    """Arguments of a script that stores a job.

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


@dataclass(frozen=True)
class SchedulerIteration:
    """The next job of a scheduler.

    `due` is its Unix ms, None if the script computes it from `every`; `options` are under their stored names;
    `producer` is the id of the job whose fetch makes it.
    """

    scheduler_id: str
    due: int | None
    data: str
    options: Mapping[str, Any]
    producer: str | None = None


class AddScripts(ScriptCalls):
    """Adding jobs."""

    @cached_property
    def _shared_keys(self) -> Mapping[str, tuple[str, ...]]:
        """Full keys by script, made once."""
        return {script: tuple(self._keys.keys(*key_names)) for script, key_names in _KEYS_OF_SCRIPT.items()}

    async def add_job(self, job: AddArguments) -> str:
        """Store a job and return its id. Raises ScriptError: missing-parent, parent-replaced."""
        reply = await self._runner.run(self.add_call(job))
        if is_refusal(reply):
            # Node.js reports `addJob` for every add script, whichever one ran.
            raise script_error(reply, command="addJob", parent=job.parent_key)
        return text(reply)

    async def add_jobs(self, jobs: Sequence[AddArguments]) -> list[str]:
        """Store jobs in one pipeline and return their ids. A refusal is the id of its job, as in Node.

        Raises the first error that Redis itself replied.
        """
        replies = await self._runner.run_pipeline([self.add_call(job) for job in jobs])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        # As in Node.js (`Queue.addBulk`), a negative code is not raised: one bad job must not hide the stored ones.
        return [text(reply) for reply in replies]

    def add_call(self, job: AddArguments) -> EvalCommand:
        """Return the script call for a job, not sent yet."""
        script = _placement(job)
        keys = self._keys
        facts = [
            keys.base,
            job.job_id or "",
            job.name,
            job.timestamp,
            job.parent_key,
            # Nil, not an empty string: the script would SADD into a key with the name "".
            f"{job.parent_key}:{names.DEPENDENCIES}" if job.parent_key else None,
            job.parent,
            job.scheduler_id,
            keys.deduplication(job.deduplication_id) if job.deduplication_id else None,
        ]
        return EvalCommand(script, self._shared_keys[script], (pack(facts), job.data, _packed_options(job.options)))


class ScheduleScripts(ScriptCalls):
    """Schedulers."""

    async def add_job_scheduler(
        self, first: SchedulerIteration, schedule: Mapping[str, Any], template: Mapping[str, Any]
    ) -> tuple[str, int]:
        """Store a scheduler and its first job; returns the job's id and its delay (ms).

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

    async def update_job_scheduler(self, following: SchedulerIteration) -> str | None:
        """Store the job that follows `producer`; returns its id.

        None if the scheduler is gone, or has made that job already.
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
        """Return the record and the next Unix ms of a scheduler; None for what does not exist."""
        reply = await self._run("getJobScheduler", self._keys.keys(names.REPEAT), scheduler_id)
        record, following = (*reply, None, None)[:2] if reply else (None, None)
        return (None if record is None else flat_mapping(record)), maybe_text(following)

    async def add_repeatable_job(self, key: str, due: int, schedule: Mapping[str, Any], legacy_key: str) -> str:
        """Store a repeat key with its next Unix ms; returns the key that is in use."""
        keys = self._keys.keys(names.REPEAT, names.DELAYED)
        return text(
            await self._run("addRepeatableJob", keys, due, pack(schedule), legacy_key, key, self._keys.base),
        )

    async def update_repeatable_job_millis(self, key: str, due: int, legacy_key: str) -> str:
        """Set the next Unix ms of a repeat key; returns the key that is in use, empty without one."""
        return text(
            await self._run("updateRepeatableJobMillis", self._keys.keys(names.REPEAT), due, key, legacy_key),
        )

    async def remove_repeatable(self, legacy_job_id: str, legacy_key: str, key: str) -> bool:
        """Forget a repeat key and its delayed job; False where there was none."""
        # A key of this form is already the concatenation of its options; a custom key needs it computed.
        concatenated = key if key.count(":") + 1 >= _PARTS_OF_LEGACY_KEY else legacy_key
        keys = self._keys.keys(*_REMOVAL_KEYS)
        return not await self._run("removeRepeatable", keys, legacy_job_id, concatenated, key, self._keys.base)


def _packed_options(options: dict[str, Any]) -> bytes:
    dated = _with_dates(options)
    return pack_known(dated) if _NEW_WITH_EACH_JOB.isdisjoint(dated) else pack(dated)


def _with_dates(options: dict[str, Any]) -> dict[str, Any]:
    """Dates of the option `repeat` are stored as Unix ms."""
    repeat = options.get("repeat")
    if repeat is None or not isinstance(repeat, Mapping):
        return options
    # msgpack has no date that the scripts can read: Lua's cmsgpack refuses extension types.
    dates = {name: milliseconds(repeat[name]) for name in ("startDate", "endDate") if truthy(repeat.get(name))}
    return {**options, "repeat": {**repeat, **dates}}


def _placement(job: AddArguments) -> str:
    """Which script stores the job (upstream `scripts.ts`, `addJob`)."""
    delay = job.options.get("delay")
    # First: a parent with a delay waits for its children, and is delayed only when they have finished.
    if job.waits_for_children:
        return "addParentJob"
    # Before priority: the script that promotes a delayed job puts it into its priority class.
    if is_number(delay) and delay > 0:
        return "addDelayedJob"
    if truthy(job.options.get("priority")):
        return "addPrioritizedJob"
    return "addStandardJob"
