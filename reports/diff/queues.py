"""Compare what belongs to queues and not to jobs: locks, settings, counters, schedulers, foreign keys. No Spark.

All rows of one group come to one place, with the jobs that rules need to see beside them. What the comparison says
about those is dropped: they are compared elsewhere. A group marked `whole` is a complete queue, compared just as the
gate does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from conformance.observe.diff import diff
from conformance.observe.tables import Lock, Snapshot
from reports.diff.jobs import stream_order
from reports.diff.settings import Settings
from reports.diff.table import Pair, batch_of_rows, row_of
from reports.snapshot.rows import decoded, narrowed, snapshot_of
from reports.snapshot.schema import ARROW

WHOLE = "whole"
SHARED = "shared"

_ABOUT_JOBS = ("job", "membership", "event", "log", "dependency")
"""Where differences begin that are found job by job."""

GroupKey: TypeAlias = tuple[str, str]
"""Queue and name of the group."""


def comparer(settings: Settings) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function from all rows of some groups (columns `side`, `group`) to their differences."""

    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [row for key, sides in _groups(batches).items() for row in compare_group(key, sides, settings)]
        yield batch_of_rows(rows)

    return compare


def compare_group(
    key: GroupKey, sides: tuple[list[tuple[str, Any]], list[tuple[str, Any]]], settings: Settings
) -> Iterator[tuple[str, ...]]:
    """The differences of one group; its rows are pairs of table and row."""
    queue, group = key
    raw = [snapshot_of(facts.prefix, facts.taken_ms, rows) for rows, facts in zip(sides, settings.sides, strict=True)]
    raw = [replace(side, events=tuple(sorted(side.events, key=stream_order))) for side in raw]
    for expected, actual in _alike(*raw, whole=group == WHOLE):
        pair = Pair(expected=settings.canonical(expected), actual=settings.canonical(actual))
        for found in diff(pair.expected, pair.actual):
            if _is_wanted(found.where, group):
                yield row_of(found, pair, queue)


def _is_wanted(where: str, group: str) -> bool:
    """In a whole queue everything but the order in which parallel workers happened to write; else what is no job's."""
    if group == WHOLE:
        return where != "event.order"
    return where.partition(".")[0] not in _ABOUT_JOBS


def _alike(expected: Snapshot, actual: Snapshot, *, whole: bool) -> Iterator[tuple[Snapshot, Snapshot]]:
    """The two snapshots; locks that only one side has come apart from the others.

    The rule about tokens numbers them, and one lock too few would give all that follow another number.
    """
    if whole or {_holder(lock) for lock in expected.locks} == {_holder(lock) for lock in actual.locks}:
        yield expected, actual
        return
    common = {_holder(lock) for lock in expected.locks} & {_holder(lock) for lock in actual.locks}
    sides = (expected, actual)
    yield tuple(replace(side, locks=_locks(side, common, inside=True)) for side in sides)  # type: ignore[misc]
    yield tuple(_only_locks(side, _locks(side, common, inside=False)) for side in sides)  # type: ignore[misc]


def _locks(side: Snapshot, common: set[GroupKey], *, inside: bool) -> tuple[Lock, ...]:
    return tuple(lock for lock in side.locks if (_holder(lock) in common) == inside)


def _only_locks(side: Snapshot, locks: tuple[Lock, ...]) -> Snapshot:
    """These locks with the jobs beside them, and nothing that has been compared already."""
    bare = Snapshot(prefix=side.prefix, taken_ms=side.taken_ms, jobs=side.jobs, memberships=side.memberships)
    return replace(bare, locks=locks)


def _holder(lock: Lock) -> GroupKey:
    return lock.queue, lock.job


def _groups(
    batches: Iterable[pa.RecordBatch],
) -> Mapping[GroupKey, tuple[list[tuple[str, Any]], list[tuple[str, Any]]]]:
    """The rows of each group by side, lists in the order of their positions."""
    groups: defaultdict[GroupKey, tuple[list[tuple[str, Any]], list[tuple[str, Any]]]] = defaultdict(lambda: ([], []))
    for batch in batches:
        columns = {name: decoded(batch.column(name)) for name in (*ARROW.names, "side", "group", "owner")}
        for values in zip(*columns.values(), strict=True):
            wide = dict(zip(columns, values, strict=True))
            groups[wide["owner"], wide["group"]][wide["side"]].append((wide["table"], narrowed(wide)))
    for sides in groups.values():
        for rows in sides:
            rows.sort(key=lambda pair: getattr(pair[1], "position", None) or 0)
    return groups
