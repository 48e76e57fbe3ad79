"""Whether a queue at rest is tidy: markers where they belong, nothing left of those who are gone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from conformance.checkers.histories.base import Finding, HistoryCheck, Tally, Unknown
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.keeping import NO_SNAPSHOT
from conformance.checkers.snapshot_checks import check_snapshot
from conformance.observe.tables import Snapshot

MARKERS = frozenset({"base-marker", "marker-members", "delay-marker"})
ABOUT_THE_PAST = {"event-jobs": "a loss took the beginning of the stream", "id-counter": "a loss took the counter back"}
"""Snapshot checks that speak about what came before, and so not after a loss."""
ABOUT_CLOCKS = {"times-in-order": "a clock was off"}
TIMES = ("timestamp", "processedOn", "finishedOn")
HELD = frozenset({"active", "stalled", "waiting-children"})


def _markers(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """Wake-up markers are there where work waits, and tell no later time than the first delayed job's."""
    yield from _tidiness(evidence, tally, markers=True)


def _orphans(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """At rest nothing is active, locked or suspected, and every invariant of a single snapshot holds."""
    yield from _tidiness(evidence, tally, markers=False)
    if evidence.snapshot is None or not any(phase.name == "quiescent" for phase in evidence.phases):
        return
    for lock in evidence.snapshot.locks:
        yield Finding(message=f"still locked by {lock.token}", job=f"{lock.queue}:{lock.job}")
    for_good = waiting_for_good(evidence.snapshot)
    for row in evidence.snapshot.memberships:
        if row.container in HELD and (row.queue, row.job) not in for_good:
            yield Finding(message=f"still in {row.container}", job=f"{row.queue}:{row.job}")


def waiting_for_good(snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    """Parents (queue and id) that wait for nothing but children that have failed, as BullMQ lets them unless told else.

    After a refusal of Redis a worker takes a job whose result it could not store for failed (upstream
    `classes/worker.ts`, `processJob`).
    """
    failed = {f"{snapshot.prefix}:{row.queue}:{row.job}" for row in snapshot.memberships if row.container == "failed"}
    pending: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for row in snapshot.dependencies:
        if row.kind == "pending":
            pending[row.queue, row.parent].append(row.child)
    return frozenset(parent for parent, children in pending.items() if failed.issuperset(children))


def _tidiness(evidence: Evidence, tally: Tally, *, markers: bool) -> Iterator[Finding | Unknown]:
    if evidence.snapshot is None:
        yield NO_SNAPSHOT
        return
    tally.look()
    for violation in check_snapshot(evidence.snapshot, _switched_off(evidence)):
        if violation.check == "times-in-order" and _held_up(evidence, violation.key):
            continue
        if (violation.check in MARKERS) == markers:
            yield Finding(message=f"{violation.check}: {violation.where}: {violation.message}", job=violation.key)


def _held_up(evidence: Evidence, key: str) -> bool:
    """Whether a fault was on between those times of a job that are not in order.

    A call that it held up carries the time of its beginning: a worker that asked before a job was there may get it.
    """
    jobs = evidence.snapshot.jobs if evidence.snapshot is not None else ()
    job = next(each for each in jobs if f"{each.queue}:{each.id}" == key)
    times = [time for field in TIMES if (time := job.number(field)) is not None]
    offset = evidence.history.header.unix_offset_ms
    return all(
        evidence.excused(later - offset, earlier - offset) for earlier, later in pairwise(times) if later < earlier
    )


def _switched_off(evidence: Evidence) -> dict[str, str]:
    """What cannot be asked of a snapshot after such faults, with the reasons."""
    lost = ABOUT_THE_PAST if evidence.rollbacks else {}
    skewed = ABOUT_CLOCKS if any(window.skew_ms for window in evidence.windows) else {}
    return {**lost, **skewed}


CHECKS = (HistoryCheck(name="markers", predicate=_markers), HistoryCheck(name="orphans", predicate=_orphans))
