"""Whether jobs are the same in two stores: the one place that decides it. No Spark.

`JobEquality` decides a bucket at a time, by nothing but the numbers that were written for each row when the store was
read: which jobs are certainly the same, and certainly pass all checks. A job that is wrongly left undecided costs time;
a job that is wrongly called the same would be a bug. Two different texts have the same 64-bit digest once in 10^19
pairs. `unequal_jobs` decides about the rows of all others, by the gate's canonical rules. Property tests compare both
with the explanation (`reports.diff.explanation`): a job is the same if nothing is listed for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from conformance.checkers.production import ADDED_TOLERANCE_MS
from conformance.observe.canonical import ALL_RULES
from conformance.observe.canonical_rules import (
    CLOCK_TOLERANCE_MS,
    GENERATED_UUIDS,
    LOCK_TOKEN,
    OWN_PREFIX,
    PLAUSIBLE_SINCE_MS,
)
from conformance.observe.diff import as_read
from conformance.observe.differences import same
from conformance.observe.tables import Event, Membership, Snapshot
from conformance.protocol.states import DELAY_FACTOR, JOB_CONTAINERS, PRIORITY_FACTOR
from reports.diff.hidden_values import HiddenCounts, canonical_pair
from reports.diff.values import DiffSettings, DiffSide, SnapshotPair
from reports.snapshot.digests.library import histories
from reports.snapshot.digests.records import (
    GOOD,
    HAS_FINISHED,
    HAS_PROCESSED,
    HAS_REASON,
    HAS_RESULT,
    IS_ADDED,
    IS_ODD,
    JOB_RECORD,
    UNKNOWN,
    USUAL,
    Flags,
    Keys,
    Positions,
    flags,
)
from reports.snapshot.digests.rows import CONTAINERS, OTHER_CONTAINER, DigestTables, is_of
from reports.snapshot.rows import JobRows, snapshot_of

UNDERSTOOD = frozenset({
    "opts-parsed-json", "own-prefix", "generated-uuids", "lock-token", "lock-ttl", "dedup-ttl", "limiter-ttl",
    "stalled-check-ttl", "stream-ids", "stack-trace-text", "library-version", "worker-clock", "iteration-ids",
    "worker-traces",
})  # fmt: skip
"""Rules that digests were made for. With any other rule, no job is certain."""

Numbers = npt.NDArray[np.float64]

_MASKED = {
    "opts-parsed-json": ("opts",),
    "stack-trace-text": ("stacktrace",),
    "worker-clock": ("timestamp", "processed", "finished", "score"),
}
"""Rules, and the columns of jobs in which they hide that values differ."""

_STORED = (
    *("jobs", "members", "container", "score", "beside", "events.content", "events.count"),
    *("texts", "opts", "stacktrace", "timestamp", "processed", "finished", "flags"),
)
"""The columns that are all equal only if every row of a job holds the same bytes."""

_TIMED = [CONTAINERS.index(each.key) for each in JOB_CONTAINERS if each.score in {"time", "due time"}]
_DELAYED, _PRIORITIZED, _COMPLETED, _FAILED, _WITH_CHILDREN, _STALLED = (
    CONTAINERS.index(name) for name in ("delayed", "prioritized", "completed", "failed", "waiting-children", "stalled")
)
_NO_KEYS: Keys = np.empty(0, np.uint64)


def _column(rows: pa.Table | None, name: str, kind: Any) -> Any:
    """A column as an array; empty without this table."""
    return np.empty(0, kind) if rows is None else rows.column(name).to_numpy()


def _owned(rows: pa.Table | None) -> pa.Table | None:
    """The digests of rows that belong to a job."""
    if rows is None or "is_owned" not in rows.column_names:
        return rows
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
    def _keys(self) -> Mapping[str, Keys]:
        """The keys of the jobs of the rows of each table but events."""
        tables = ("jobs", "memberships", "logs", "dependencies")
        return {table: _column(_owned(self.tables.get(table)), "key", np.uint64) for table in tables}

    @cached_property
    def keys(self) -> Keys:
        """Of everything that belongs to a job, whether there is a hash or not."""
        return np.unique(np.concatenate([*self._keys.values(), self._events["key"]]))

    @cached_property
    def _places(self) -> Mapping[str, Positions]:
        """The positions of the keys of each table, and of the events, among all keys."""
        keys = {**self._keys, "events": self._events["key"]}
        return {table: np.searchsorted(self.keys, found) for table, found in keys.items()}

    @cached_property
    def _rows(self) -> Mapping[str, Positions]:
        """The row of each job in the tables that have one for it."""
        tables = ("jobs", "memberships")
        return {table: self._spread(table, np.arange(len(self._keys[table])), UNKNOWN) for table in tables}

    @cached_property
    def jobs(self) -> Positions:
        """How many hashes each has: two mean that two jobs share a number."""
        return np.bincount(self._places["jobs"], minlength=len(self.keys))

    @cached_property
    def members(self) -> Positions:
        """In how many containers each is."""
        return np.bincount(self._places["memberships"], minlength=len(self.keys))

    def _spread(self, table: str, values: Any, absent: Any) -> Any:
        """Values of the rows of a table as a column of all."""
        found = np.full(len(self.keys), absent, values.dtype)
        found[self._places[table]] = values
        return found

    def _taken(self, table: str, name: str, kind: Any, absent: Any) -> Any:
        values, rows = _column(self.tables.get(table), name, kind), self._rows[table]
        if not len(values):
            return np.full(len(rows), absent, kind)
        return np.where(rows == UNKNOWN, kind(absent), values[rows])

    def job(self, name: str, absent: int = 0) -> Any:
        """A column about hashes."""
        return self._taken("jobs", name, JOB_RECORD[name].type, absent)

    def has(self, flag: int) -> Flags:
        """Whether the hash has a flag."""
        found: Flags = (self.job("flags") & flag) != 0
        return found

    def time(self, name: str) -> Positions:
        """A field as a time that the server's clock has reached; UNKNOWN for everything else."""
        found = self.job(name, UNKNOWN)
        latest = self.facts.taken_ms + CLOCK_TOLERANCE_MS
        return np.where((found >= PLAUSIBLE_SINCE_MS) & (found <= latest), found, UNKNOWN)

    @cached_property
    def times(self) -> tuple[Positions, Positions, Positions]:
        """When each job was added, became active, and ended."""
        return self.time("timestamp"), self.time("processed"), self.time("finished")

    @cached_property
    def container(self) -> npt.NDArray[np.uint8]:
        """The container of each job, the last one where there are several."""
        found: npt.NDArray[np.uint8] = self._taken("memberships", "container", np.uint8, OTHER_CONTAINER)
        return found

    @cached_property
    def score(self) -> Numbers:
        """Its score there; less than any other where there is none."""
        scores = self._taken("memberships", "score", np.float64, -np.inf)
        found: Numbers = np.where(np.isnan(scores), -np.inf, scores)
        return found

    @cached_property
    def is_alone(self) -> Flags:
        """Neither logs nor children belong to it."""
        return ~np.isin(self.keys, np.concatenate([self._keys["logs"], self._keys["dependencies"]]))

    @cached_property
    def beside(self) -> Keys:
        """The logs and the children of each job, in any order."""
        found = np.zeros(len(self.keys), np.uint64)
        for table in ("logs", "dependencies"):
            np.add.at(found, self._places[table], _column(_owned(self.tables.get(table)), "content", np.uint64))
        return found

    def event(self, name: str, absent: int = 0) -> Any:
        """A column about the events of each job."""
        return self._spread("events", self._events[name], absent)

    def column(self, name: str) -> Any:
        """A column of the hash, of the events (`events.count`), or a property of each job."""
        if name in (JOB_RECORD.names or ()):
            return self.job(name)
        return self.event(name.removeprefix("events.")) if name.startswith("events.") else getattr(self, name)

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
        delay = self.job("delay", UNKNOWN).astype(np.int64)
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
        start = self.job("priority", UNKNOWN).astype(np.float64) * PRIORITY_FACTOR
        in_priority = (self.score >= start) & (self.score < start + PRIORITY_FACTOR)
        found: Flags = good & ((self.container != _PRIORITIZED) | in_priority)
        return found

    @cached_property
    def _added_in_time(self) -> Flags:
        added_ms = self.event("added_ms", UNKNOWN)
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
class JobEquality:
    """Which jobs of a bucket are the same on both sides, by their digests."""

    left: JobDigests
    right: JobDigests
    settings: DiffSettings

    @cached_property
    def _common(self) -> tuple[Keys, tuple[Positions, Positions]]:
        keys, left, right = np.intersect1d(self.left.keys, self.right.keys, assume_unique=True, return_indices=True)
        return keys, (left, right)

    def _both(self, name: str) -> tuple[Any, Any]:
        """A column of the jobs that both sides have."""
        left, right = (
            side.column(name)[rows] for side, rows in zip((self.left, self.right), self._common[1], strict=True)
        )
        return left, right

    def _equal(self, *names: str) -> Flags:
        """Whether all of these columns are equal."""
        found = np.ones(len(self._common[0]), np.bool_)
        for name in names:
            left, right = self._both(name)
            found &= left == right
        return found

    def _all(self, name: str) -> Flags:
        left, right = self._both(name)
        found: Flags = left & right
        return found

    @cached_property
    def certain(self) -> Flags:
        """Which of the jobs that both have are certainly the same."""
        unmasked = [name for rule, names in _MASKED.items() if not self.settings.has_rule(rule) for name in names]
        same = self._all("is_usual") & self._equal("texts", "container", *unmasked)
        same &= self._equal("score") | self._both("is_timed")[0]
        found: Flags = (same | self._all("is_only_events")) & self._same_events | self._identical
        return found & ({rule.name for rule in ALL_RULES} <= UNDERSTOOD)

    @cached_property
    def _identical(self) -> Flags:
        """Jobs of which every row holds the same bytes on both sides, so that each rule and check finds the same."""
        jobs, members, container = (self._both(name)[0] for name in ("jobs", "members", "container"))
        # Of several rows for one key, the columns show only one.
        is_known = (jobs <= 1) & (members <= 1) & ((members == 0) | (container != OTHER_CONTAINER))
        # A text that names a key means something else under another prefix.
        has_same_prefix = self.settings.expected.prefix == self.settings.actual.prefix
        found: Flags = self._equal(*_STORED) & self._knows_ids & is_known & has_same_prefix
        return found

    @cached_property
    def _knows_ids(self) -> Flags:
        """Whether the events say all that is compared of them: the digests of usual ones have no stream ids."""
        found: Flags = (self._both("events.count")[0] == 0) | self.settings.has_rule("stream-ids")
        return found

    @cached_property
    def _same_events(self) -> Flags:
        left, right = self._both("events.flags")
        same = self._equal("events.content", "events.count") & self._knows_ids & (((left | right) & IS_ODD) == 0)
        is_trimmed = self.left.in_queues(self.settings.trimmed)[self._common[1][0]]
        found: Flags = same | (is_trimmed & ((left & right & IS_ADDED) == 0))
        return found

    @cached_property
    def wanted(self) -> Keys:
        """Sorted keys of all jobs whose rows have to be compared: they may differ, or fail a check."""
        keys = self._common[0]
        unsure = np.union1d(np.setxor1d(self.left.keys, self.right.keys, assume_unique=True), keys[~self.certain])
        unsound = np.concatenate([side.keys[~side.is_sound] for side in (self.left, self.right)])
        # A check finds the same on both sides if the bytes are the same.
        unsound = unsound[~np.isin(unsound, keys[self._identical])]
        return np.union1d(unsure, unsound)

    def hidden(self) -> Counter[str]:
        """How many values of the jobs that are not compared differ and are hidden, by rule."""
        found: Counter[str] = Counter()
        # Of a job that is gone nothing is compared but events, of which nothing is hidden.
        same = self.certain & self._all("is_usual") & ~np.isin(self._common[0], self.wanted)
        for rule, names in _MASKED.items():
            found[rule] += sum(int((same & ~self._equal(name)).sum()) for name in names)
        return +found


JobKey: TypeAlias = tuple[str, str]
"""Queue and id of a job."""


def unequal_jobs(
    left: Mapping[str, list[Any]], right: Mapping[str, list[Any]], settings: DiffSettings, hidden: HiddenCounts
) -> Iterator[tuple[JobKey, SnapshotPair]]:
    """The canonical rows of each job that is not the same on both sides. `left`, `right`: rows by table.

    Counts of values that rules hide are added to `hidden`. The rule about the prefix is skipped if no text has one.
    """
    raw = [_in_order(rows, facts) for rows, facts in zip((left, right), settings.sides, strict=True)]
    starts = [f"{facts.prefix}:" for facts in settings.sides]
    is_needed = any(_mentions(side, start) for side in raw for start in starts)
    rules = settings.rules(GENERATED_UUIDS.name, LOCK_TOKEN.name, *([] if is_needed else [OWN_PREFIX.name]))
    sides = canonical_pair(raw, rules, settings.context, hidden)
    groups = [grouped(side) for side in sides]
    read: list[Mapping[JobKey, JobRows]] = []
    for key in sorted(groups[0].keys() | groups[1].keys()):
        canonical = _rows_of(key, groups, settings)
        if _alike(*canonical):
            continue
        # Only now, because most buckets have no such job.
        read = read or [grouped(side) for side in as_read(raw[0], raw[1], rules, settings.context)]
        as_they_were = _rows_of(key, read, settings)
        if not _alike(*as_they_were):
            (expected, actual), (left_read, right_read) = (map(_snapshot, both) for both in (canonical, as_they_were))
            yield key, SnapshotPair(expected=expected, actual=actual, as_read=(left_read, right_read))


def _rows_of(
    key: JobKey, groups: Sequence[Mapping[JobKey, JobRows]], settings: DiffSettings
) -> tuple[JobRows, JobRows]:
    """The rows of a job on both sides."""
    expected, actual = groups[0].get(key, {}), groups[1].get(key, {})
    return _with_whole_histories(expected, actual) if key[0] in settings.trimmed else (expected, actual)


def _in_order(rows: Mapping[str, list[Any]], facts: DiffSide) -> Snapshot:
    """All rows, events in the order of the stream. Positions mean nothing within a job."""
    tables = {**rows, "memberships": [_without_position(row) for row in rows.get("memberships", ())]}
    pairs = ((table, row) for table, listed in tables.items() for row in listed)
    snapshot = snapshot_of(facts.prefix, facts.taken_ms, pairs)
    return replace(snapshot, events=tuple(sorted(snapshot.events, key=stream_order)))


def _without_position(row: Membership) -> Membership:
    return row if row.position is None else replace(row, position=None)


def _mentions(snapshot: Snapshot, text: str) -> bool:
    """Whether any value of any row contains a text."""
    return (
        any(text in value for job in snapshot.jobs for value in job.fields.values())
        or any(text in value for event in snapshot.events for _, value in event.fields)
        or any(text in row.text for row in snapshot.logs)
        or bool(snapshot.dependencies)
    )


def stream_order(event: Event) -> tuple[int, ...]:
    """A sort key that puts stream ids in the order of the stream."""
    return tuple(int(part) for part in event.id.split("-") if part.isdecimal())


def grouped(snapshot: Snapshot) -> Mapping[JobKey, JobRows]:
    """The rows of each job, in an order that does not depend on how they were read; that of events means something."""
    groups: defaultdict[JobKey, JobRows] = defaultdict(dict)
    for row in snapshot.jobs:
        groups[row.queue, row.id]["jobs"] = [row]
    for member in snapshot.memberships:
        groups[member.queue, member.job].setdefault("memberships", []).append(member)
    for child in snapshot.dependencies:
        groups[child.queue, child.parent].setdefault("dependencies", []).append(child)
    for line in snapshot.logs:
        groups[line.queue, line.job].setdefault("logs", []).append(line)
    for event in snapshot.events:
        groups[event.queue, event.job].setdefault("events", []).append(event)
    for group in groups.values():
        for table, rows in group.items():
            if table != "events" and len(rows) > 1:
                rows.sort(key=repr)
    return groups


def _alike(expected: Any, actual: Any) -> bool:
    """Equality of rows and values; approximate times may be a little apart."""
    if expected == actual:
        return True
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return expected.keys() == actual.keys() and all(_alike(value, actual[key]) for key, value in expected.items())
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        return len(expected) == len(actual) and all(map(_alike, expected, actual))
    if is_dataclass(expected) and type(expected) is type(actual):
        return all(_alike(getattr(expected, column.name), getattr(actual, column.name)) for column in fields(expected))
    return isinstance(expected, str) and isinstance(actual, str) and same(expected, actual)


def _with_whole_histories(expected: JobRows, actual: JobRows) -> tuple[JobRows, JobRows]:
    """Both sides without events, unless both still have the first event of the job."""
    if all(group.get("events") and group["events"][0].name == "added" for group in (expected, actual)):
        return expected, actual
    without = [{table: rows for table, rows in group.items() if table != "events"} for group in (expected, actual)]
    return without[0], without[1]


def _snapshot(group: JobRows) -> Snapshot:
    return snapshot_of("", 0, ((table, row) for table, rows in group.items() for row in rows))
