"""Compare in bulk what belongs to jobs and to queues, with the gate's own rules and its own comparison. No Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from conformance.checkers.base import InvariantCheck, SnapshotView
from conformance.observe.canonical_rules import GENERATED_UUIDS
from conformance.observe.diff import as_read
from conformance.observe.tables import TABLES, Event, Lock, Membership, Snapshot
from reports.diff.checks import (
    ABOUT_ALL_JOBS,
    JOB_CHECKS,
    KEY_CHECKS,
    broken_jobs,
    judged,
    one_sided,
)
from reports.diff.expiry import with_same_moments, without_ended
from reports.diff.hidden_values import HiddenCounts, canonical_pair
from reports.diff.pairing import paired_by_content
from reports.diff.queue_groups import GroupKey
from reports.diff.values import DiffSettings, DiffSide, SnapshotPair, difference_row
from reports.snapshot.digests.rows import JOB_TABLES
from reports.snapshot.rows import JobRows, Tables, rows_by_table, snapshot_of

JobKey: TypeAlias = tuple[str, str]

_MEANS_PREFIX = "own-prefix"


def differences_between(
    expected_rows: Tables, actual_rows: Tables, settings: DiffSettings, hidden: HiddenCounts
) -> Iterator[tuple[str, ...]]:
    """The differences of jobs of which all rows are given; what rules hide is added to `hidden`.

    Rules are applied to all of them at once; the comparison, which explains, is asked only about those jobs whose
    canonical rows are not equal. Digests have taken out nearly all others (`reports.diff.digest_prefilter`).
    """
    left, right = (rows_by_table(rows) for rows in (expected_rows, actual_rows))
    explained: set[str] = set()
    for key, pair in unequal_jobs(left, right, settings, hidden):
        explained.add(":".join(key))
        yield from _explained(key, pair)
    pairs = zip((expected_rows, actual_rows), settings.sides, strict=True)
    expected, actual = (list(broken_jobs(tables, facts)) for tables, facts in pairs)
    yield from one_sided(expected, actual, explained)


def unequal_jobs(
    left: Mapping[str, list[Any]], right: Mapping[str, list[Any]], settings: DiffSettings, hidden: HiddenCounts
) -> Iterator[tuple[JobKey, SnapshotPair]]:
    """The canonical rows of each job that is not the same on both sides. `left`, `right`: rows by table.

    Counts of values that rules hide are added to `hidden`. The rule about the prefix is skipped if no text has one.
    """
    raw = [_in_order(rows, facts) for rows, facts in zip((left, right), settings.sides, strict=True)]
    unneeded = ["opts-parsed-json"] if _same_options(left, right) else []
    unneeded += [] if any(_mentions(side, f"{side.prefix}:") for side in raw) else [_MEANS_PREFIX]
    rules = settings.rules("generated-uuids", "lock-token", *unneeded)
    sides = canonical_pair(raw, rules, settings.context, hidden)
    groups = [grouped(side) for side in sides]
    read: list[Mapping[JobKey, JobRows]] = []
    for key in sorted(groups[0].keys() | groups[1].keys()):
        expected, actual = _rows_of(key, groups, settings)
        if _comparable(expected) != _comparable(actual):
            # Only now, because most buckets have no such job.
            read = read or [grouped(side) for side in as_read(raw[0], raw[1], rules, settings.context)]
            left_read, right_read = map(_snapshot, _rows_of(key, read, settings))
            yield (
                key,
                SnapshotPair(expected=_snapshot(expected), actual=_snapshot(actual), as_read=(left_read, right_read)),
            )


def _rows_of(
    key: JobKey, groups: Sequence[Mapping[JobKey, JobRows]], settings: DiffSettings
) -> tuple[JobRows, JobRows]:
    """The rows of a job on both sides."""
    expected, actual = groups[0].get(key, {}), groups[1].get(key, {})
    return _with_whole_histories(expected, actual) if key[0] in settings.trimmed else (expected, actual)


def _same_options(left: Mapping[str, list[Any]], right: Mapping[str, list[Any]]) -> bool:
    """Whether both sides have the very same texts in the fields that hold the JSON which Lua wrote.

    The rule about them reads nothing else (`conformance.observe.canonical_rules`), so
    equal texts stay equal without it.
    """
    texts = [
        {(job.queue, job.id): (job.fields.get("opts"), job.fields.get("parent")) for job in side.get("jobs", ())}
        for side in (left, right)
    ]
    return texts[0] == texts[1]


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
    """The rows of each job."""
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
    return groups


def _comparable(group: JobRows) -> JobRows:
    """The same rows in an order that does not depend on how they were read; that of events means something."""
    return {
        table: rows if table == "events" or len(rows) == 1 else sorted(rows, key=repr) for table, rows in group.items()
    }


def _with_whole_histories(expected: JobRows, actual: JobRows) -> tuple[JobRows, JobRows]:
    """Both sides without events, unless both still have the first event of the job."""
    if all(group.get("events") and group["events"][0].name == "added" for group in (expected, actual)):
        return expected, actual
    without = [{table: rows for table, rows in group.items() if table != "events"} for group in (expected, actual)]
    return without[0], without[1]


def _snapshot(group: JobRows) -> Snapshot:
    return snapshot_of("", 0, ((table, row) for table, rows in group.items() for row in rows))


def _explained(key: JobKey, pair: SnapshotPair) -> Iterator[tuple[str, ...]]:
    for found in pair.differences():
        yield difference_row(found, pair, key[0])


WHOLE = "whole"
GENERATED = "generated"
"""A group: jobs of a large queue with generated ids, and the rows that name them (`reports.diff.generated_ids`)."""


def kind_of(group: str) -> str:
    """The content of a group; if there are several of a kind, they are numbered (`generated-3`)."""
    return group.partition("-")[0]


SHARED = "shared"
EXAMPLES = "examples"
"""A group with jobs that represent all others of their queue (`reports.diff.representatives`)."""

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
    explained: set[str] = set()
    labelled = with_same_moments(raw[0], raw[1], settings, hidden)
    rules = settings.rules(*([] if checks is None else [GENERATED_UUIDS.name]))
    for both in _matching_parts(*labelled, whole=checks is not None):
        expected, actual = canonical_pair(both, rules, settings.context, hidden, counted)
        pair = SnapshotPair(expected=expected, actual=actual, as_read=as_read(*both, rules, settings.context))
        for found in pair.differences():
            if _is_wanted(found.where, has_jobs=checks is not None):
                explained.add(found.key)
                yield difference_row(found, pair, queue)
    yield from _broken_on_one_side(raw, KEY_CHECKS if checks is None else checks, explained)


_CHECKS = {WHOLE: (*JOB_CHECKS, *KEY_CHECKS, *ABOUT_ALL_JOBS), GENERATED: (*JOB_CHECKS, *KEY_CHECKS)}
"""The locators that a group with jobs is checked for; every other group has single keys."""


_NOT_OF_JOBS = tuple(table for table in TABLES if table not in JOB_TABLES)


def _broken_on_one_side(
    raw: Sequence[Snapshot], checks: Sequence[InvariantCheck[SnapshotView]], explained: set[str]
) -> Iterator[tuple[str, ...]]:
    expected, actual = (list(judged(side, checks)) for side in raw)
    yield from one_sided(expected, actual, explained)


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
