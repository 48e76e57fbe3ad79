"""Jobs of two snapshots that are certainly the same, and jobs that certainly pass all checks. No Spark.

Both are decided a bucket at a time, by nothing but the numbers that were written for each row when the store was read.
A job that is wrongly left undecided costs time; a job that is wrongly called the same would be a bug. Property tests
compare both with the rules and the checks. Two different texts have the same 64-bit digest once in 10^19 pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from conformance.observe.canonical import ALL_RULES
from conformance.observe.canonical_rules import CLOCK_TOLERANCE_MS, PLAUSIBLE_SINCE_MS
from conformance.protocol.states import DELAY_FACTOR, JOB_CONTAINERS, PRIORITY_FACTOR
from reports.diff.values import DiffSettings, DiffSide
from reports.snapshot.digests.library import histories
from reports.snapshot.digests.records import (
    GOOD,
    HAS_FINISHED,
    HAS_PROCESSED,
    HAS_REASON,
    HAS_RESULT,
    IS_ADDED,
    IS_ODD,
    UNKNOWN,
    USUAL,
    Flags,
    Keys,
    Positions,
    flags,
)
from reports.snapshot.digests.rows import CONTAINERS, OTHER_CONTAINER, DigestTables, is_of

UNDERSTOOD = frozenset({
    "opts-parsed-json", "own-prefix", "generated-uuids", "lock-token", "lock-ttl", "dedup-ttl", "limiter-ttl",
    "stalled-check-ttl", "stream-ids", "stack-trace-text", "library-version", "worker-clock", "iteration-ids",
    "worker-traces",
})  # fmt: skip
"""Rules that digests were made for. With any other rule, no job is certain."""

ADDED_TOLERANCE_MS = 60_000
"""How far a job's timestamp may be from when Redis took its event `added`: other clocks, large batches."""

Numbers = npt.NDArray[np.float64]

_MASKED = {
    "opts-parsed-json": ("opts",),
    "stack-trace-text": ("stacktrace",),
    "worker-clock": ("timestamp", "processed", "finished"),
}
"""Rules, and the columns of jobs in which they hide that values differ."""

_TIMED = [CONTAINERS.index(each.key) for each in JOB_CONTAINERS if each.score in {"time", "due time"}]
_DELAYED, _PRIORITIZED, _COMPLETED, _FAILED, _WITH_CHILDREN, _STALLED = (
    CONTAINERS.index(name) for name in ("delayed", "prioritized", "completed", "failed", "waiting-children", "stalled")
)
_NO_KEYS: Keys = np.empty(0, np.uint64)


def _column(rows: pa.Table | None, name: str, kind: Any) -> Any:
    """A column as an array; empty where there is no such table."""
    return np.empty(0, kind) if rows is None else rows.column(name).to_numpy()


def _owned(rows: pa.Table | None) -> pa.Table | None:
    """The digests of rows that belong to a job."""
    if rows is None:
        return None
    is_owned = rows.column("is_owned")
    return rows if pc.all(is_owned).as_py() in (True, None) else rows.filter(is_owned)


@dataclass(frozen=True)
class JobDigests:
    """All that is known of the jobs of one side, by key, in the order of `keys`."""

    tables: DigestTables
    facts: DiffSide

    @property
    def has_loose_events(self) -> bool:
        """Whether there are events that belong to no job."""
        rows = self.tables.get("events")
        return rows is not None and not flags(rows.column("is_owned")).all()

    @cached_property
    def _events(self) -> Any:
        rows = _owned(self.tables.get("events"))
        kinds = {"key": np.uint64, "content": np.uint64, "added_ms": np.int64, "flags": np.uint32}
        return histories(*(_column(rows, name, kind) for name, kind in kinds.items()))

    @cached_property
    def _job_keys(self) -> Keys:
        found: Keys = _column(self.tables.get("jobs"), "key", np.uint64)
        return found

    @cached_property
    def _member_keys(self) -> Keys:
        found: Keys = _column(self.tables.get("memberships"), "key", np.uint64)
        return found

    @cached_property
    def _beside(self) -> Keys:
        """Keys of jobs that have logs, or children."""
        parts = [_column(_owned(self.tables.get(table)), "key", np.uint64) for table in ("logs", "dependencies")]
        return np.unique(np.concatenate(parts))

    @cached_property
    def keys(self) -> Keys:
        """Of everything that belongs to a job, whether there is a hash or not."""
        return np.unique(np.concatenate([self._job_keys, self._member_keys, self._events["key"], self._beside]))

    @cached_property
    def _job_places(self) -> Positions:
        return np.searchsorted(self.keys, self._job_keys)

    @cached_property
    def _member_places(self) -> Positions:
        return np.searchsorted(self.keys, self._member_keys)

    @cached_property
    def _event_places(self) -> Positions:
        found: Positions = np.searchsorted(self.keys, self._events["key"])
        return found

    @cached_property
    def jobs(self) -> Positions:
        """How many hashes each has: two mean that two jobs share a number."""
        return np.bincount(self._job_places, minlength=len(self.keys))

    @cached_property
    def members(self) -> Positions:
        """In how many containers each is."""
        return np.bincount(self._member_places, minlength=len(self.keys))

    @cached_property
    def _job_rows(self) -> Positions:
        found: Positions = self._spread(self._job_places, np.arange(len(self._job_keys)), UNKNOWN)
        return found

    @cached_property
    def _member_rows(self) -> Positions:
        found: Positions = self._spread(self._member_places, np.arange(len(self._member_keys)), UNKNOWN)
        return found

    def _spread(self, places: Positions, values: Any, absent: Any) -> Any:
        """Values of some as a column of all."""
        found = np.full(len(self.keys), absent, values.dtype)
        found[places] = values
        return found

    def _taken(self, table: str, name: str, rows: Positions, kind: Any, absent: Any) -> Any:
        values = _column(self.tables.get(table), name, kind)
        if not len(values):
            return np.full(len(rows), absent, kind)
        return np.where(rows == UNKNOWN, kind(absent), values[rows])

    def job(self, name: str, kind: Any = np.uint64, absent: Any = 0) -> Any:
        """A column about hashes."""
        return self._taken("jobs", name, self._job_rows, kind, absent)

    @cached_property
    def flags(self) -> npt.NDArray[np.uint32]:
        """Flags of the hash."""
        found: npt.NDArray[np.uint32] = self.job("flags", np.uint32)
        return found

    def has(self, flag: int) -> Flags:
        """Whether the hash has a flag."""
        found: Flags = (self.flags & flag) != 0
        return found

    def time(self, name: str) -> Positions:
        """A field as a time that the server's clock has reached; UNKNOWN for everything else."""
        found = self.job(name, np.int64, UNKNOWN)
        latest = self.facts.taken_ms + CLOCK_TOLERANCE_MS
        return np.where((found >= PLAUSIBLE_SINCE_MS) & (found <= latest), found, UNKNOWN)

    @cached_property
    def times(self) -> tuple[Positions, Positions, Positions]:
        """When each job was added, became active, and ended."""
        return self.time("timestamp"), self.time("processed"), self.time("finished")

    @cached_property
    def container(self) -> npt.NDArray[np.uint8]:
        """The container of each job, the last one where there are several."""
        found: npt.NDArray[np.uint8] = self._taken(
            "memberships", "container", self._member_rows, np.uint8, OTHER_CONTAINER
        )
        return found

    @cached_property
    def score(self) -> Numbers:
        """Its score there; no number where there is none."""
        found: Numbers = self._taken("memberships", "score", self._member_rows, np.float64, np.nan)
        return found

    @cached_property
    def is_alone(self) -> Flags:
        """Neither logs nor children belong to it."""
        beside = np.searchsorted(self.keys, self._beside)
        found: Flags = self._spread(beside, np.zeros(len(beside), np.bool_), absent=True)
        return found

    @cached_property
    def beside(self) -> Keys:
        """The logs and the children of each job, in any order."""
        found = np.zeros(len(self.keys), np.uint64)
        for table in ("logs", "dependencies"):
            rows = _owned(self.tables.get(table))
            places = np.searchsorted(self.keys, _column(rows, "key", np.uint64))
            np.add.at(found, places, _column(rows, "content", np.uint64))
        return found

    def event(self, name: str, kind: Any, absent: Any = 0) -> Any:
        """A column about the events of each job."""
        found = self._events
        return self._spread(self._event_places, found[name].astype(kind), absent)

    @cached_property
    def event_flags(self) -> npt.NDArray[np.uint32]:
        """Flags of its events together."""
        found: npt.NDArray[np.uint32] = self.event("flags", np.uint32)
        return found

    @cached_property
    def _times_in_order(self) -> Flags:
        added, active, finished = self.times
        since = np.where(self.has(HAS_PROCESSED), active, added)
        good: Flags = added != UNKNOWN
        good &= ~self.has(HAS_PROCESSED) | ((active != UNKNOWN) & (active >= added - CLOCK_TOLERANCE_MS))
        good &= ~self.has(HAS_FINISHED) | ((finished != UNKNOWN) & (finished >= since - CLOCK_TOLERANCE_MS))
        return good

    @cached_property
    def is_timed(self) -> Flags:
        """Whether its score is a time."""
        return np.isin(self.container, _TIMED)

    @cached_property
    def _is_due(self) -> Flags:
        delay = self.job("delay", np.int32, UNKNOWN).astype(np.int64)
        due = (self.times[0] + delay).astype(np.float64) * DELAY_FACTOR
        found: Flags = (delay != UNKNOWN) & (self.score >= due) & (self.score < due + DELAY_FACTOR)
        return found

    @cached_property
    def _score_follows(self) -> Flags:
        is_finished = np.isin(self.container, [_COMPLETED, _FAILED])
        follows = np.where(is_finished, self.score == self.times[2], (self.container == _DELAYED) & self._is_due)
        found: Flags = ~self.is_timed | follows
        return found

    @cached_property
    def is_usual(self) -> Flags:
        """Jobs of which the rules make what their digests say."""
        one = (self.jobs == 1) & (self.members == 1) & (self.container != OTHER_CONTAINER)
        found: Flags = one & self.has(USUAL) & self.is_alone & self._times_in_order & self._score_follows
        return found

    @cached_property
    def is_only_events(self) -> Flags:
        """Nothing is left of the job but its events."""
        found: Flags = (self.jobs == 0) & (self.members == 0) & self.is_alone
        return found

    @cached_property
    def is_sound(self) -> Flags:
        """Jobs that certainly break no check, and events, of which none is about jobs that are gone."""
        one = (self.jobs == 1) & (self.members == 1) & self.is_alone & self.has(USUAL) & self.has(GOOD)
        found: Flags = self.is_only_events | (one & self._times_in_order & self._is_where_it_says & self._added_in_time)
        return found

    @cached_property
    def _is_where_it_says(self) -> Flags:
        is_finished = np.zeros(len(self.keys), np.bool_)
        good = ~np.isin(self.container, [_WITH_CHILDREN, _STALLED, OTHER_CONTAINER])
        for container, result in ((_COMPLETED, HAS_RESULT), (_FAILED, HAS_REASON)):
            here = self.container == container
            is_finished |= here
            good &= ~here | (self.has(result) & (self.score == self.times[2]))
        good &= is_finished == self.has(HAS_FINISHED)
        good &= (self.container != _DELAYED) | self._is_due
        start = self.job("priority", np.int32, UNKNOWN).astype(np.float64) * PRIORITY_FACTOR
        in_priority = (self.score >= start) & (self.score < start + PRIORITY_FACTOR)
        found: Flags = good & ((self.container != _PRIORITIZED) | in_priority)
        return found

    @cached_property
    def _added_in_time(self) -> Flags:
        added_ms = self.event("added_ms", np.int64, UNKNOWN)
        found: Flags = (added_ms == UNKNOWN) | (np.abs(added_ms - self.times[0]) <= ADDED_TOLERANCE_MS)
        return found

    def in_queues(self, queues: Collection[str]) -> Flags:
        """Whether a key belongs to one of these queues."""
        found = [
            _column(rows.filter(pa.array(is_of(rows, queues))), "key", np.uint64)
            for rows in self.tables.values()
            if queues
        ]
        return np.isin(self.keys, np.concatenate([_NO_KEYS, *found]))


@dataclass(frozen=True)
class DigestPrefilter:
    """Both sides of a bucket, by their digests."""

    left: JobDigests
    right: JobDigests
    settings: DiffSettings

    @property
    def _sides(self) -> tuple[JobDigests, JobDigests]:
        return self.left, self.right

    @cached_property
    def _common(self) -> tuple[Keys, tuple[Positions, Positions]]:
        keys, left, right = np.intersect1d(self.left.keys, self.right.keys, assume_unique=True, return_indices=True)
        return keys, (left, right)

    def _both(self, name: str) -> tuple[Any, Any]:
        """A property of the jobs that both sides have."""
        left, right = (getattr(side, name)[rows] for side, rows in zip(self._sides, self._common[1], strict=True))
        return left, right

    def _equal(self, name: str) -> Flags:
        left, right = self._both(name)
        found: Flags = left == right
        return found

    def _all(self, name: str) -> Flags:
        left, right = self._both(name)
        found: Flags = left & right
        return found

    def _jobs_equal(self, name: str) -> Flags:
        left, right = (side.job(name)[rows] for side, rows in zip(self._sides, self._common[1], strict=True))
        found: Flags = left == right
        return found

    @cached_property
    def _same_scores(self) -> Flags:
        left, right = self._both("score")
        found: Flags = (left == right) | (np.isnan(left) & np.isnan(right))
        return found

    @cached_property
    def certain(self) -> Flags:
        """Which of the jobs that both have are certainly the same."""
        same = self._all("is_usual") & self._jobs_equal("texts") & self._equal("container")
        for flag in (HAS_PROCESSED, HAS_FINISHED):
            left, right = (side.has(flag)[rows] for side, rows in zip(self._sides, self._common[1], strict=True))
            same &= left == right
        same &= self._same_scores | self._both("is_timed")[0]
        for rule, names in _MASKED.items():
            for name in () if self.settings.has_rule(rule) else names:
                same &= self._jobs_equal(name)
        if not self.settings.has_rule("worker-clock"):
            same &= self._same_scores
        found: Flags = (same | self._all("is_only_events")) & self._same_events | self._identical
        return found & ({rule.name for rule in ALL_RULES} <= UNDERSTOOD)

    @cached_property
    def _identical(self) -> Flags:
        """Jobs of which every row holds the same bytes on both sides, so that each rule and check finds the same."""
        same = self._equal("jobs") & self._equal("members") & self._equal("beside") & self._identical_events
        # Of several rows for one key, the columns below show only one.
        same &= (self._both("jobs")[0] <= 1) & (self._both("members")[0] <= 1)
        for name in ("texts", "opts", "stacktrace", "timestamp", "processed", "finished"):
            same &= self._jobs_equal(name)
        is_known = (self._both("members")[0] == 0) | (self._both("container")[0] != OTHER_CONTAINER)
        same &= self._equal("flags") & self._equal("container") & self._same_scores & is_known
        # A text that names a key means something else under another prefix.
        return same & (self.settings.expected.prefix == self.settings.actual.prefix)

    @cached_property
    def _identical_events(self) -> Flags:
        left, right = (
            (side.event("content", np.uint64)[rows], side.event("count", np.uint32)[rows])
            for side, rows in zip(self._sides, self._common[1], strict=True)
        )
        same: Flags = (left[0] == right[0]) & (left[1] == right[1])
        # The digests of usual events have no ids.
        return same if self.settings.has_rule("stream-ids") else same & (left[1] == 0)

    @cached_property
    def _same_events(self) -> Flags:
        left, right = (
            (side.event("content", np.uint64)[rows], side.event("count", np.uint32)[rows], side.event_flags[rows])
            for side, rows in zip(self._sides, self._common[1], strict=True)
        )
        is_plain = ((left[2] | right[2]) & IS_ODD) == 0
        same: Flags = (left[0] == right[0]) & (left[1] == right[1]) & is_plain
        if not self.settings.has_rule("stream-ids"):
            # The digests of events have no ids.
            same &= left[1] == 0
        is_trimmed, _ = (
            side.in_queues(self.settings.trimmed)[rows] for side, rows in zip(self._sides, self._common[1], strict=True)
        )
        have_beginning = (left[2] & right[2] & IS_ADDED) != 0
        found: Flags = same | (is_trimmed & ~have_beginning)
        return found

    @cached_property
    def wanted(self) -> Keys:
        """Sorted keys of all jobs whose rows have to be compared: they may differ, or fail a check."""
        keys = self._common[0]
        unsure = np.union1d(np.setxor1d(self.left.keys, self.right.keys, assume_unique=True), keys[~self.certain])
        unsound = np.concatenate([side.keys[~side.is_sound] for side in self._sides])
        # A check finds the same on both sides if the bytes are the same.
        unsound = unsound[~np.isin(unsound, keys[self._identical])]
        return np.union1d(unsure, unsound)

    def hidden(self) -> Counter[str]:
        """How many values of the jobs that are not compared differ and are hidden, by rule."""
        found: Counter[str] = Counter()
        # Of a job that is gone nothing is compared but events, of which nothing is hidden.
        same = self.certain & self._all("is_usual") & ~np.isin(self._common[0], self.wanted)
        for rule, names in _MASKED.items():
            for name in names:
                found[rule] += int((same & ~self._jobs_equal(name)).sum())
        found["worker-clock"] += int((same & ~self._same_scores).sum())
        return +found
