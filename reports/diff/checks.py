"""The gate's checks of one store, job by job and queue by queue. No Spark."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec
from packaging.version import Version

from conformance.checkers.base import (
    InvariantCheck,
    SnapshotView,
    ViolationDetail,
    has_chosen_timestamp,
    is_plausible_ms,
)
from conformance.checkers.jobs import FIELD_CHECKS, FLOW_CHECKS, STATE_CHECKS
from conformance.checkers.queues import QUEUE_CHECKS
from conformance.findings import Finding
from conformance.observe.tables import Deduplication, Snapshot, as_number
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.protocol.versions import in_range
from reports.diff.equality import ADDED_TOLERANCE_MS
from reports.diff.expiry import moment_of
from reports.diff.values import DiffSide
from reports.snapshot.rows import Tables, rows_by_table, snapshot_of

_NOTED_VERSION = re.compile(r"bullmq:(\d+\.\d+\.\d+)")

EARLY_END_MS = 2000
"""How much before the moment asked for a key may end: the timestamp is of another clock than Redis'."""


def _added_in_time(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A job's timestamp is about when Redis took its event `added` (clocks may differ by a minute).

    Not where the user chose the timestamp.
    """
    first: dict[tuple[str, str], int] = {}
    for event in view.snapshot.events:
        if event.name == "added":
            first.setdefault((event.queue, event.job), int(event.id.partition("-")[0]))
    for key, added_ms in sorted(first.items()):
        job = view.jobs.get(key)
        timestamp = job.number("timestamp") if job is not None else None
        # A timestamp in another unit is reported as such.
        if job is None or not is_plausible_ms(timestamp) or timestamp is None or has_chosen_timestamp(job):
            continue
        if abs(timestamp - added_ms) > ADDED_TOLERANCE_MS:
            message = f"timestamp {timestamp:.0f}, and the job was added at {added_ms}"
            yield ViolationDetail(where="job.timestamp", key=":".join(key), message=message, since_ms=added_ms)


def _deduplication_ttl(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A deduplication key lives for as long as its owner asked for, from the moment at which the owner was added.

    It may live longer: a duplicate may have restarted the time (option `extend`).
    """
    for row in view.snapshot.deduplications:
        owner = view.jobs.get((row.queue, row.job))
        ends_ms, timestamp = moment_of(row, view.snapshot), owner.number("timestamp") if owner is not None else None
        asked = _asked_ttl(view, row)
        if ends_ms is None or asked is None or timestamp is None:
            continue
        short_by = timestamp + asked - ends_ms
        if short_by > EARLY_END_MS:
            message = f"the key ends {short_by:.0f} ms before the {asked:.0f} ms that job {row.job!r} asked for"
            yield ViolationDetail(where="dedup.ttl", key=f"{row.queue}:de:{row.id}", message=message)


def _asked_ttl(view: SnapshotView, row: Deduplication) -> float | None:
    owner = view.jobs.get((row.queue, row.job))
    asked = owner.opts.get("de") if owner is not None else None
    return as_number(asked.get("ttl")) if isinstance(asked, dict) else None


ADDED_IN_TIME: InvariantCheck[SnapshotView] = InvariantCheck(
    name="added-in-time", severity="wrong-behaviour", source="includes/storeJob.lua", predicate=_added_in_time
)
DEDUPLICATION_TTL: InvariantCheck[SnapshotView] = InvariantCheck(
    name="deduplication-ttl",
    severity="breaks-others",
    source="includes/deduplicateJob.lua",
    predicate=_deduplication_ttl,
)

_NEEDS_OTHER_JOBS = frozenset({"pending-children"})
_NEEDS_SETTINGS = frozenset({"paused-list", "nothing-parked"})

JOB_CHECKS: tuple[InvariantCheck[SnapshotView], ...] = (
    *(
        check
        for check in (*STATE_CHECKS, *FIELD_CHECKS, *FLOW_CHECKS)
        if check.name not in _NEEDS_OTHER_JOBS | _NEEDS_SETTINGS
    ),
    ADDED_IN_TIME,
)
"""Checks that need no more than what there is of one job.

Not among them: whether a pending child exists, which needs another job, and where a paused queue parks its jobs,
which needs its settings.
"""

_ABOUT_ALL = frozenset({"base-marker", "delay-marker", "id-counter", "priority-counter"}) | _NEEDS_SETTINGS
_ABOUT_ODD_KEYS = frozenset({"no-expiry", "no-unknown-keys"})
_NEEDS_JOBS_OF_AN_ID = frozenset({"kept-back"})
"""Which job has a deduplication id is only in the hashes of all jobs."""

ABOUT_ALL_JOBS: tuple[InvariantCheck[SnapshotView], ...] = tuple(
    check for check in (*QUEUE_CHECKS, *STATE_CHECKS) if check.name in _ABOUT_ALL
)
"""Checks of a queue's markers, counters and lists, for which a few jobs represent all others."""

KEY_CHECKS: tuple[InvariantCheck[SnapshotView], ...] = (
    *(check for check in QUEUE_CHECKS if check.name not in _ABOUT_ALL | _ABOUT_ODD_KEYS | _NEEDS_JOBS_OF_AN_ID),
    DEDUPLICATION_TTL,
)
"""Checks of single keys of a queue, and of the jobs that they name."""

ODD_KEY_CHECKS = tuple(check for check in QUEUE_CHECKS if check.name in _ABOUT_ODD_KEYS)
"""Checks of keys that expire or mean nothing; a comparison names these one by one anyway."""

STORE_CHECKS = (*ABOUT_ALL_JOBS, *KEY_CHECKS, *ODD_KEY_CHECKS)
"""All checks but those of jobs. They need the settings and markers of the queue."""


def broken_jobs(tables: Tables, facts: DiffSide) -> Iterator[Finding]:
    """The findings about jobs of which all rows are given."""
    rows = ((table, row) for table, listed in rows_by_table(tables).items() for row in listed)
    yield from judged(snapshot_of(facts.prefix, facts.taken_ms, rows), JOB_CHECKS)


def broken_queue(
    rows: Iterable[tuple[str, object]],
    facts: DiffSide,
    checks: Sequence[InvariantCheck[SnapshotView]] = STORE_CHECKS,
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


def judged(snapshot: Snapshot, checks: Sequence[InvariantCheck[SnapshotView]]) -> Iterator[Finding]:
    """Every finding of those of these checks that hold for the version of BullMQ that wrote the snapshot."""
    view, version = SnapshotView(snapshot), written_by(snapshot)
    for check in checks:
        if in_range(version, check.bullmq):
            yield from map(_without_number, check.run(view))


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
