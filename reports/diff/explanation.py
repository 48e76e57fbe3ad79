"""Differences between jobs, and between queues, of two stores: the gate's own comparison, as rows. No Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from conformance.checkers.table import StoreCheck
from conformance.observe.canonical_rules import GENERATED_UUIDS
from conformance.observe.diff import as_read, confirmed, diff
from conformance.observe.differences import Difference, severity_of
from conformance.observe.tables import TABLES, Lock, Snapshot
from reports.diff.checks import ABOUT_ALL_JOBS, JOB_CHECKS, KEY_CHECKS, broken_jobs, judged, one_sided
from reports.diff.equality import stream_order, unequal_jobs
from reports.diff.expiry import with_same_moments, without_ended
from reports.diff.hidden_values import HiddenCounts, canonical_pair
from reports.diff.pairing import paired_by_content
from reports.diff.queue_groups import EXAMPLES, GroupKey
from reports.diff.values import DIFFERENCE_COLUMNS, DiffSettings, SnapshotPair, batch_of_rows
from reports.snapshot.digests.rows import JOB_TABLES
from reports.snapshot.folders import Folder
from reports.snapshot.rows import Tables, rows_by_table, snapshot_of

_BY_KIND = {
    "missing-job": "missing",
    "extra-job": "extra",
    "missing-key": "missing",
    "extra-key": "extra",
    "no-state": "no-state",
    "two-states": "two-states",
    "wrong-state": "wrong-state",
    "wrong-type": "type",
    "missing-lock": "lock",
    "extra-lock": "lock",
    "missing-member": "member",
    "extra-member": "member",
    "wrong-order": "order",
    "wrong-event-order": "order",
    "missing-event": "transition-without-event",
    "extra-event": "event-without-transition",
    "missing-field": "field",
    "extra-field": "field",
    "wrong-value": "field",
    "event-field": "field",
    "ttl": "ttl",
}


def explained(pair: SnapshotPair) -> list[Difference]:
    """The differences in canonical form that are also differences as read."""
    return confirmed(diff(pair.expected, pair.actual), *pair.as_read)


def class_of(found: Difference, pair: SnapshotPair) -> str:
    """The semantic class of a difference, from its kind and from what else the actual side has of the job."""
    queue, _, job = found.key.partition(":")
    has_job = pair.actual.job(queue, job) is not None
    states = pair.actual.containers_of(queue, job)
    if found.where in {"job", "membership.state"} and states and not has_job:
        return "dangling"
    if found.kind == "missing-job" and _has_left_something(pair.actual, queue, job):
        return "orphan"
    if found.kind == "extra-lock":
        return "orphan" if not has_job else "lock" if "active" in states else "stale-lock"
    if found.kind in {"extra-key", "extra-member"} and found.where.startswith(("log", "dependency")) and not has_job:
        return "orphan"
    if found.where.startswith("lock.") and found.kind != "ttl":
        return "lock"
    return _BY_KIND[found.kind]


def _has_left_something(side: Snapshot, queue: str, job: str) -> bool:
    """Whether there are logs, or sets of children, of a job."""
    owners = {(row.queue, row.job) for row in side.logs} | {(row.queue, row.parent) for row in side.dependencies}
    return (queue, job) in owners


def difference_row(found: Difference, pair: SnapshotPair, queue: str = "") -> tuple[str, ...]:
    """A difference as a row. `queue`: needed if the key does not start with it."""
    name, _, job = found.key.partition(":")
    states = pair.expected.containers_of(name, job) or pair.actual.containers_of(name, job)
    return (
        class_of(found, pair),
        found.kind,
        found.severity,
        found.where,
        queue or name,
        ",".join(states),
        found.key,
        found.field,
        found.expected,
        found.actual,
    )


def differences_between(
    expected_rows: Tables, actual_rows: Tables, settings: DiffSettings, hidden: HiddenCounts
) -> Iterator[tuple[str, ...]]:
    """The differences of jobs of which all rows are given; what rules hide is added to `hidden`.

    Only those that are not equal are explained.
    """
    left, right = (rows_by_table(rows) for rows in (expected_rows, actual_rows))
    unequal: set[str] = set()
    for (queue, job), pair in unequal_jobs(left, right, settings, hidden):
        unequal.add(f"{queue}:{job}")
        yield from (difference_row(found, pair, queue) for found in explained(pair))
    pairs = zip((expected_rows, actual_rows), settings.sides, strict=True)
    expected, actual = (list(broken_jobs(tables, facts)) for tables, facts in pairs)
    yield from one_sided(expected, actual, unequal)


WHOLE = "whole"
GENERATED = "generated"
"""A group: jobs of a large queue with generated ids, and the rows that name them (`reports.diff.generated_ids`)."""


def kind_of(group: str) -> str:
    """The content of a group; if there are several of a kind, they are numbered (`generated-3`)."""
    return group.partition("-")[0]


_ABOUT_JOBS = ("job", "membership", "event", "log", "dependency")
"""The beginnings of locators that the comparison by job covers."""


def compare_group(
    key: GroupKey,
    sides: tuple[list[tuple[str, Any]], list[tuple[str, Any]]],
    settings: DiffSettings,
    hidden: HiddenCounts,
) -> Iterator[tuple[str, ...]]:
    """The differences of one group; its rows are pairs of table and row. Adds values that rules hide to `hidden`.

    All rows of a group are in one task, together with the jobs that rules need. Differences of
    those jobs are dropped: they are compared elsewhere. A group marked `whole` is a complete queue, one marked
    `generated` has complete jobs; if a stream was trimmed, it is unknown which of their events both sides still have.
    """
    queue, group = key
    raw = [snapshot_of(facts.prefix, facts.taken_ms, rows) for rows, facts in zip(sides, settings.sides, strict=True)]
    raw = [replace(side, events=tuple(sorted(side.events, key=stream_order))) for side in raw]
    raw = list(without_ended(raw[0], raw[1], settings, hidden))
    if group == EXAMPLES:
        yield from _broken_on_one_side(raw, ABOUT_ALL_JOBS, set())
        return
    if kind_of(group) == GENERATED and queue in settings.trimmed:
        raw = [replace(side, events=()) for side in raw]
    checks = _CHECKS.get(kind_of(group))
    counted = _NOT_OF_JOBS if checks is None else TABLES
    if checks is not None:
        raw = paired_by_content(raw, settings, hidden, counted)
    unequal: set[str] = set()
    labelled = with_same_moments(raw[0], raw[1], settings, hidden)
    rules = settings.rules(*([] if checks is None else [GENERATED_UUIDS.name]))
    for both in _matching_parts(*labelled, whole=checks is not None):
        expected, actual = canonical_pair(both, rules, settings.context, hidden, counted)
        pair = SnapshotPair(expected=expected, actual=actual, as_read=as_read(*both, rules, settings.context))
        for found in explained(pair):
            if _is_wanted(found.where, has_jobs=checks is not None):
                unequal.add(found.key)
                yield difference_row(found, pair, queue)
    yield from _broken_on_one_side(raw, KEY_CHECKS if checks is None else checks, unequal)


_CHECKS = {WHOLE: (*JOB_CHECKS, *KEY_CHECKS, *ABOUT_ALL_JOBS), GENERATED: (*JOB_CHECKS, *KEY_CHECKS)}
"""The locators that a group with jobs is checked for; every other group has single keys."""


_NOT_OF_JOBS = tuple(table for table in TABLES if table not in JOB_TABLES)


def _broken_on_one_side(
    raw: Sequence[Snapshot], checks: Sequence[StoreCheck], unequal: set[str]
) -> Iterator[tuple[str, ...]]:
    expected, actual = (list(judged(side, checks)) for side in raw)
    yield from one_sided(expected, actual, unequal)


def _is_wanted(where: str, *, has_jobs: bool) -> bool:
    """For complete jobs everything but the order in which parallel workers wrote; else only what belongs to no job."""
    if has_jobs:
        return where != "event.order"
    return where.partition(".")[0] not in _ABOUT_JOBS


def _matching_parts(expected: Snapshot, actual: Snapshot, *, whole: bool) -> Iterator[tuple[Snapshot, Snapshot]]:
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
    """These locks with their jobs, without what has been compared already."""
    bare = Snapshot(prefix=side.prefix, taken_ms=side.taken_ms, jobs=side.jobs, memberships=side.memberships)
    return replace(bare, locks=locks)


def _holder(lock: Lock) -> GroupKey:
    return lock.queue, lock.job


DifferenceRow: TypeAlias = "Mapping[str, str]"
"""A difference by column."""

DifferenceRows: TypeAlias = "list[DifferenceRow]"

RETYPED = "wrong-type"
ABOUT_ALL = tuple(f"invariant.{check.name}" for check in ABOUT_ALL_JOBS)
"""Locators of findings about all jobs of a queue together."""

PRESENCE = frozenset({"missing-job", "extra-job"})
"""Kinds of differences of a job that only one side has."""


def by_column(values: Sequence[str]) -> DifferenceRow:
    """Name the values of a row by their columns."""
    return dict(zip(DIFFERENCE_COLUMNS, values, strict=True))


def unexplained(by_queue: Iterable[DifferenceRow], uneven: Collection[str], retyped: Collection[str]) -> DifferenceRows:
    """Leave out what another difference explains.

    `uneven`: queues with a missing or extra job, which explains markers and counters. `retyped`: jobs in whose place
    the other side has a key of another type; their difference reports the key.
    """
    return [
        row
        for row in by_queue
        if not (_follows_presence(row) and row["queue"] in uneven)
        and not (row["locator"].startswith("unknown.") and row["key"] in retyped)
    ]


def _follows_presence(row: DifferenceRow) -> bool:
    """Whether a missing or extra job explains it."""
    locator = row["locator"]
    return locator.startswith(("marker", "counter")) or locator in ABOUT_ALL


def with_types(by_job: Iterable[DifferenceRow], foreign: Mapping[str, str]) -> DifferenceRows:
    """The differences of jobs. If the other side has a key of another type in place of a hash, the type differs.

    `foreign`: the types of such keys, by queue and name.
    """
    return [_with_type(row, foreign) for row in by_job]


def _with_type(row: DifferenceRow, foreign: Mapping[str, str]) -> DifferenceRow:
    if row["kind"] not in PRESENCE or row["key"] not in foreign:
        return row
    types = ("hash", foreign[row["key"]])
    expected, actual = types if row["kind"] == "missing-job" else types[::-1]
    severity = severity_of("job", RETYPED)
    return {**row, "class": "type", "kind": RETYPED, "severity": severity, "expected": expected, "actual": actual}


def write_difference_rows(rows: Sequence[DifferenceRow], folder: Folder, name: str) -> None:
    """Write differences as a Parquet file of this name; nothing if there are none. Raises OSError."""
    if rows:
        batch = batch_of_rows([[row[column] for column in DIFFERENCE_COLUMNS] for row in rows])
        folder.write_table(f"{name}.zstd.parquet", pa.Table.from_batches([batch]), compression="zstd")
