"""The gate's checks of one store, job by job and queue by queue. No Spark."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec
from packaging.version import Version

from conformance.checkers.base import SnapshotView
from conformance.checkers.snapshot_checks import broken, checks_of
from conformance.checkers.table import StoreCheck
from conformance.findings import Finding
from conformance.observe.tables import Snapshot
from conformance.protocol.scripts import BULLMQ_VERSION
from reports.diff.values import DiffSide
from reports.snapshot.rows import Tables, rows_by_table, snapshot_of

_NOTED_VERSION = re.compile(r"bullmq:(\d+\.\d+\.\d+)")

JOB_CHECKS = checks_of("job")
ABOUT_ALL_JOBS = checks_of("few-jobs")
KEY_CHECKS = checks_of("key")
STORE_CHECKS = checks_of("few-jobs", "key", "odd-key")
"""All checks but those of jobs. They need the settings and markers of the queue."""


def broken_jobs(tables: Tables, facts: DiffSide) -> Iterator[Finding]:
    """The findings about jobs of which all rows are given."""
    rows = ((table, row) for table, listed in rows_by_table(tables).items() for row in listed)
    yield from judged(snapshot_of(facts.prefix, facts.taken_ms, rows), JOB_CHECKS)


def broken_queue(
    rows: Iterable[tuple[str, object]],
    facts: DiffSide,
    checks: Sequence[StoreCheck] = STORE_CHECKS,
) -> Iterator[Finding]:
    """The findings about a queue. `rows`: its single keys, and the jobs that the checks need.

    Of a part of the queue without its settings and markers, only `KEY_CHECKS` can be judged.
    """
    yield from judged(snapshot_of(facts.prefix, facts.taken_ms, rows), checks)


def _without_number(found: Finding) -> Finding:
    """The check has seen one of the jobs that wait, and speaks of one; there may be more."""
    if found.kind != "base-marker":
        return found
    return msgspec.structs.replace(found, actual="jobs wait, nothing is active, and there is no marker")


def judged(snapshot: Snapshot, checks: Sequence[StoreCheck]) -> Iterator[Finding]:
    """Every finding of those of these checks that hold for the version of BullMQ that wrote the snapshot."""
    for check, detail in broken(SnapshotView(snapshot), checks, written_by(snapshot)):
        yield _without_number(check.finding(detail))


def written_by(snapshot: Snapshot) -> str:
    """The newest version of BullMQ that has opened one of the queues; the requirements' own where none is noted.

    Node notes its name and version in a queue's `meta`; the official Python client does not.
    """
    noted = (_NOTED_VERSION.fullmatch(row.fields.get("version", "")) for row in snapshot.metas)
    return str(max((Version(match[1]) for match in noted if match), default=Version(BULLMQ_VERSION)))


BROKEN = "broken"
"""The class of what a store breaks by itself."""


def broken_row(found: Finding) -> tuple[str, ...]:
    """A finding in the columns of a difference; `field` says where exactly the check is broken."""
    queue = found.key.partition(":")[0]
    return (BROKEN, found.kind, found.severity, found.where, queue, "", found.key, found.place, "holds", found.actual)


def one_sided(
    expected: Sequence[Finding], actual: Sequence[Finding], explained: Collection[str]
) -> Iterator[tuple[str, ...]]:
    """Findings of only one side, in the columns of a difference, unless a difference of that key explains them.

    A finding of both sides is not a difference; `check` reports it for each.
    """
    left, right = ({(found.kind, found.place, found.key): found for found in side} for side in (expected, actual))
    for place in sorted(left.keys() ^ right.keys()):
        if place[2] not in explained:
            row = broken_row(right.get(place) or left[place])
            yield row if place in right else (*row[:-2], row[-1], row[-2])
