"""The option `repeat` of Queue.add, which job schedulers have replaced (upstream `src/classes/repeat.ts`).

Its record is the same hash `repeat:<key>` in the same sorted set. Once fetched, such a job continues as the job of a
scheduler with that id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.protocol import keys as names
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.jobs.record import JobOwner
from conformance.reference_impl.js_values import js_number, truthy
from conformance.reference_impl.recurrence import (
    RepeatMapping,
    RepeatStrategy,
    SchedulerRecord,
    ask_strategy,
    date_of,
    is_over,
    legacy_strategy,
    next_count,
    read_schedulers,
    refuse_past_end,
)

_PARTS_OF_LEGACY_KEY: Final = 3


@dataclass(frozen=True)
class _NextRepeat:
    """The next job: its options, when it is due (Unix ms), its number, and the instant that `due` is based on."""

    name: str
    data: Any
    opts: Mapping[str, Any]
    repeat: RepeatMapping
    due: int
    count: int
    after: int

    @property
    def is_immediate(self) -> bool:
        return truthy(self.repeat.get("immediately"))

    @property
    def offset(self) -> int | None:
        """With `immediately` an interval keeps its distance (ms) to the multiples of `every`."""
        return self.after - self.due if self.is_immediate and truthy(self.repeat.get("every")) else None


class Repeat:
    """The repeat keys of one queue, on the connection of a queue or worker.

    Settings of the owner: `repeatStrategy` replaces the cron patterns and intervals, `repeatKeyHashAlgorithm` (md5)
    makes a key out of the options.
    """

    def __init__(self, owner: JobOwner) -> None:
        self._owner = owner
        settings = owner.opts.get("settings") or {}
        self._strategy: RepeatStrategy = settings.get("repeatStrategy") or legacy_strategy(owner.clock)
        self._algorithm: str = settings.get("repeatKeyHashAlgorithm") or "md5"

    async def add(self, name: str, data: Any, opts: Mapping[str, Any]) -> Job:
        """Add the first job of `opts["repeat"]`. Raises InvalidArgument where the options allow no iteration."""
        refuse_past_end(opts["repeat"], self._owner.clock.now_ms())
        await self._owner.waitUntilReady()
        job = await self.updateRepeatableJob(name, data, opts, override=True)
        if job is None:
            raise InvalidArgument(f"the repeat options of {name} allow no iteration")
        return job

    async def updateRepeatableJob(self, name: str, data: Any, opts: Mapping[str, Any], *, override: bool) -> Job | None:
        """Add the next job of `opts["repeat"]`, and store its key (`override`) or its next time.

        None when there is no next job: the limit is reached, endDate has passed, or the pattern is never due again.
        Raises InvalidArgument.
        """
        repeat = _with_pattern(opts["repeat"])
        now = self._owner.clock.now_ms()
        count = next_count(repeat)
        if count is None or is_over(repeat, now):
            return None
        previous = int(opts.get("prevMillis") or 0)
        due = await ask_strategy(self._strategy, max(previous, now), repeat, name)
        if not due:
            return None
        if not previous and truthy(opts.get("jobId")):
            repeat["jobId"] = opts["jobId"]
        following = _NextRepeat(name, data, opts, repeat, due, count, after=max(previous, now))
        return await self._add_job(following, await self._store(following, override=override))

    async def removeRepeatable(self, name: str, repeat: RepeatMapping, jobId: str | None = None) -> bool:
        """Forget the key that these options make; False where there was none. Its delayed job goes too."""
        concatenated = _concatenated(name, {**repeat, "jobId": jobId})
        key = repeat.get("key")
        own_id = jobId if jobId is not None else repeat.get("jobId")
        legacy_id = self._legacy_job_id(name, "", self._hash(concatenated), own_id, key)
        return await self._owner.scripts.remove_repeatable(
            legacy_id, concatenated, self._hash(concatenated) if key is None else key
        )

    async def removeRepeatableByKey(self, key: str) -> bool:
        """Forget a key as getRepeatableJobs names it; False where there was none."""
        name, own_id, *_ = [*key.split(":"), ""]
        legacy_id = self._legacy_job_id(name, "", self._hash(key), own_id)
        return await self._owner.scripts.remove_repeatable(legacy_id, "", key)

    async def getRepeatableJobs(self, start: int = 0, end: int = -1, asc: bool = False) -> list[SchedulerRecord]:
        """Return repeat keys by rank, the one that is due last first, unless `asc`; schedulers are among them."""
        return await read_schedulers(self._owner, start, end, asc=asc)

    async def _store(self, following: _NextRepeat, *, override: bool) -> str:
        """Write the key's next time; returns the key in use, which may be one of an old version."""
        repeat = following.repeat
        legacy_key = _concatenated(following.name, repeat)
        key = self._hash(legacy_key) if repeat.get("key") is None else str(repeat["key"])
        if not override:
            return await self._owner.scripts.update_repeatable_job_millis(key, following.due, legacy_key)
        schedule = {
            "name": following.name,
            "endDate": date_of(repeat, "endDate"),
            **{option: repeat.get(option) for option in ("tz", "pattern", "every")},
        }
        return await self._owner.scripts.add_repeatable_job(key, following.due, schedule, legacy_key)

    async def _add_job(self, following: _NextRepeat, key: str) -> Job:
        name, data, due = following.name, following.data, following.due
        now = self._owner.clock.now_ms()
        kept = {option: value for option, value in following.repeat.items() if option != "immediately"}
        repeat = {"offset": following.offset, **kept, "count": following.count}
        merged = {
            **following.opts,
            "repeat": repeat,
            "jobId": self._job_id(name, due, key, data),
            "delay": 0 if following.is_immediate else max(due + (repeat["offset"] or 0) - now, 0),
            "timestamp": now,
            "prevMillis": due,
            "repeatJobKey": key,
        }
        return await Job.create(self._owner, name, data, merged)

    def _job_id(self, name: str, due: int, key: str, data: Any) -> str:
        if key.count(":") + 1 < _PARTS_OF_LEGACY_KEY:
            return f"repeat:{key}:{due}"
        own_id = data.get("id") if isinstance(data, Mapping) else None
        return self._legacy_job_id(name, due, self._hash(key), own_id)

    def _legacy_job_id(self, name: str, due: int | str, namespace: str, own_id: Any, key: Any = None) -> str:
        checksum = self._hash(f"{name}{own_id or ''}{namespace}") if key is None else key
        return f"repeat:{checksum}:{due}"

    def _hash(self, text: str) -> str:
        return hashlib.new(self._algorithm, text.encode(), usedforsecurity=False).hexdigest()

    @property
    def _repeat(self) -> str:
        return self._owner.keys.key(names.REPEAT)


def _with_pattern(repeat: RepeatMapping) -> dict[str, Any]:
    """Options with `pattern`, which was called `cron` up to version 3; the key exists even if it is not given."""
    renamed = dict(repeat)
    former = renamed.pop("cron", None)
    if renamed.get("pattern") is None:
        renamed["pattern"] = former
    return renamed


def _concatenated(name: str, repeat: RepeatMapping) -> str:
    """Spell the options out, as the key of old versions; its hash is the key of today."""
    every = repeat.get("every")
    interval = "undefined" if every is None else js_number(every)
    due = repeat.get("pattern") if truthy(repeat.get("pattern")) else interval
    end = date_of(repeat, "endDate")
    parts = (name, repeat.get("jobId") or "", "" if end is None else str(end), repeat.get("tz") or "", due)
    return ":".join(map(str, parts))
