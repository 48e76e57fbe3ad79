"""The state at the end: every acknowledged job is kept, once, and a queue at rest is consistent."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from conformance.checkers.base import SnapshotView
from conformance.checkers.histories.base import (
    NO_REST,
    NO_SNAPSHOT,
    CheckStatistics,
    HistoryCheck,
    HistoryFinding,
    Undecided,
)
from conformance.checkers.histories.evidence import CallHistory, Evidence, JobHistory
from conformance.checkers.histories.history import Fail, Info, Ok
from conformance.checkers.snapshot_checks import check_snapshot
from conformance.observe.tables import Snapshot

MARKERS = frozenset({"base-marker", "marker-members", "delay-marker"})
ABOUT_THE_PAST = {"event-jobs": "a loss took the beginning of the stream", "id-counter": "a loss took the counter back"}
"""Snapshot checks that depend on the past, and so do not apply after a loss."""
ABOUT_CLOCKS = {"times-in-order": "a clock was off"}
TIMES = ("timestamp", "processedOn", "finishedOn")
NOT_OF_REDIS = ("crash.", "worker.", "producer.", "network.", "clock.", "machine.")
"""Prefixes of the names of faults that do not touch Redis itself."""
HELD = frozenset({"active", "stalled", "waiting-children"})
"""Containers that a queue at rest has no jobs in."""


def _conservation(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """Every acknowledged job that is still there is in exactly one state."""
    if evidence.snapshot is None:
        yield NO_SNAPSHOT
        return
    # Keys are read one after the other: a job that moves meanwhile may be seen twice, or not at all.
    if evidence.is_moving:
        yield NO_REST
        return
    view = SnapshotView(evidence.snapshot)
    for job in _acknowledged(evidence):
        if (job.queue, job.id) not in view.jobs or evidence.may_be_lost(job):
            continue  # `durability` judges these
        statistics.count()
        states = view.states.get((job.queue, job.id), [])
        if len(states) != 1:
            where = f"in {' and '.join(states)}" if states else "in no state at all"
            yield HistoryFinding(message=f"acknowledged, and at the end {where}", job=job.label, lines=tuple(job.lines))
    for queue, job_id in view.states:
        # After a rollback of Redis, ids may refer to jobs whose hashes were lost.
        if (queue, job_id) not in view.jobs and not evidence.rollbacks:
            yield HistoryFinding(
                message="its id is in a container, but the job does not exist", job=f"{queue}:{job_id}"
            )


def _durability(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """An acknowledged job exists, or its options or a call removed it, or a fault may have lost it.

    Which data may be lost depends on the persistence of Redis. Every fault declares it: nothing, everything written
    since some time, or everything.
    """
    if evidence.snapshot is None:
        yield NO_SNAPSHOT
        return
    there = {(job.queue, job.id): job.fields.get("name") for job in evidence.snapshot.jobs}
    allowed = 0
    for job in _acknowledged(evidence):
        statistics.count()
        # The name is compared as well, because after a loss the counter may give the id to a new job.
        if there.get((job.queue, job.id)) == job.name or _removed(evidence, job):
            continue
        if evidence.may_be_lost(job):
            allowed += 1
        else:
            op = evidence.calls_by_job[job.name].invocation.op if job.name in evidence.calls_by_job else "no call"
            message = f"acknowledged by {op}, and gone"
            yield HistoryFinding(message=message, job=job.label, lines=tuple(job.lines))
    statistics.facts["lost"] = allowed


def _indeterminate(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """A call that succeeded took effect once, one that failed never, and one with an unknown outcome at most once.

    addBulk is a pipeline, not a transaction: if it fails, some of its jobs may exist. A flow is added as a whole or not
    at all.
    """
    kept = _names_kept(evidence)
    for call in evidence.calls.values():
        if call.invocation.op == "flow.add":
            yield from _partial_flow(evidence, call, kept)
        for planned in call.invocation.jobs:
            jobs = evidence.by_name.get(planned.name, [])
            if any(evidence.may_be_lost(job) for job in jobs):
                continue
            statistics.count()
            # Both witnesses count: an event may have been trimmed, and a kept job may have been removed.
            added = max(sum(_was_added(job) for job in jobs), kept[planned.queue, planned.name])
            if added > _most(call):
                lines = tuple(line for job in jobs for line in job.lines)
                answer = (call.completion,) if call.completion else ()
                yield HistoryFinding(
                    message=f"{call.invocation.op} was answered {_answered(call)}, and there are {added} such jobs",
                    job=f"{planned.queue}:{planned.name}",
                    lines=(call.invocation, *answer, *lines),
                )


def _partial_flow(evidence: Evidence, call: CallHistory, kept: Counter[tuple[str, str]]) -> Iterator[HistoryFinding]:
    """A finding if only a part of a flow was added while Redis was healthy.

    During a fault of Redis this can happen: it refuses the scripts inside of an EXEC one by one.
    """
    jobs = call.invocation.jobs
    if _redis_was_hurt(evidence, call) or _may_be_gone(evidence, call):
        return
    added = [
        planned.name
        for planned in jobs
        if kept[planned.queue, planned.name] or any(_was_added(job) for job in evidence.by_name.get(planned.name, []))
    ]
    if added and len(added) < len(jobs):
        message = f"{len(added)} of the {len(jobs)} jobs of a flow were added: {', '.join(added)}"
        yield HistoryFinding(message=message, job=jobs[0].name, lines=(call.invocation,))


def _redis_was_hurt(evidence: Evidence, call: CallHistory) -> bool:
    until_ms = call.completion.at_ms if call.completion is not None else math.inf
    return any(
        window.touches(call.invocation.at_ms, until_ms) and not window.fault.startswith(NOT_OF_REDIS)
        for window in evidence.windows
    )


def _may_be_gone(evidence: Evidence, call: CallHistory) -> bool:
    jobs = (job for planned in call.invocation.jobs for job in evidence.by_name.get(planned.name, []))
    return any(evidence.may_be_lost(job) or evidence.may_be_removed(job) for job in jobs)


def _names_kept(evidence: Evidence) -> Counter[tuple[str, str]]:
    """How many jobs of each queue and name are in Redis at the end."""
    jobs = evidence.snapshot.jobs if evidence.snapshot is not None else ()
    return Counter((job.queue, job.fields.get("name", "")) for job in jobs)


def _acknowledged(evidence: Evidence) -> Iterator[JobHistory]:
    return (job for job in evidence.jobs if job.acknowledged_ms is not None)


def _removed(evidence: Evidence, job: JobHistory) -> bool:
    """Whether its own options or a later call removed it."""
    ended = {event.name for event in job.events}
    if "removed" in ended or (job.planned is not None and not job.planned.kept and "completed" in ended):
        return True
    return evidence.may_be_removed(job)


def _was_added(job: JobHistory) -> bool:
    return any(event.name == "added" for event in job.events)


def _most(call: CallHistory) -> int:
    # A failed addBulk may have added some of its jobs: it is a pipeline and not a transaction.
    return 0 if isinstance(call.completion, Fail) and call.invocation.op != "queue.addBulk" else 1


def _answered(call: CallHistory) -> str:
    if isinstance(call.completion, Ok):
        return "ok"
    return f"{'info' if isinstance(call.completion, Info) else 'fail'}" if call.completion else "not at all"


KEEPING_CHECKS = (
    HistoryCheck(name="conservation", predicate=_conservation, least=20),
    HistoryCheck(name="durability", predicate=_durability, least=20),
    HistoryCheck(name="indeterminate", predicate=_indeterminate, least=20),
)


def _markers(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """If jobs wait, there is a wake-up marker; its time is not later than that of the first delayed job."""
    yield from _tidiness(evidence, statistics, markers=True)


def _orphans(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """At rest no job is active, locked or suspected of stalling, and every invariant of a snapshot holds."""
    yield from _tidiness(evidence, statistics, markers=False)
    # A run that never came to rest may rightly end with active and locked jobs.
    if evidence.snapshot is None or not any(phase.name == "quiescent" for phase in evidence.phases):
        return
    for lock in evidence.snapshot.locks:
        yield HistoryFinding(message=f"still locked by {lock.token}", job=f"{lock.queue}:{lock.job}")
    stuck_parents = permanently_waiting(evidence.snapshot)
    for row in evidence.snapshot.memberships:
        if row.container in HELD and (row.queue, row.job) not in stuck_parents:
            yield HistoryFinding(message=f"still in {row.container}", job=f"{row.queue}:{row.job}")


def permanently_waiting(snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    """Parents (queue and id) that only wait for failed children: BullMQ leaves them there by default.

    If Redis refuses the result of a job, the worker moves the job to failed (upstream `classes/worker.ts`,
    `processJob`).
    """
    failed = {f"{snapshot.prefix}:{row.queue}:{row.job}" for row in snapshot.memberships if row.container == "failed"}
    pending: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for row in snapshot.dependencies:
        if row.kind == "pending":
            pending[row.queue, row.parent].append(row.child)
    return frozenset(parent for parent, children in pending.items() if failed.issuperset(children))


def _tidiness(
    evidence: Evidence, statistics: CheckStatistics, *, markers: bool
) -> Iterator[HistoryFinding | Undecided]:
    if evidence.snapshot is None:
        yield NO_SNAPSHOT
        return
    # A missing marker is what may keep a queue from coming to rest.
    if not markers and evidence.is_moving:
        yield NO_REST
        return
    statistics.count()
    version = evidence.history.header.bullmq
    for violation in check_snapshot(evidence.snapshot, _switched_off(evidence), version=version):
        if violation.kind == "times-in-order" and _held_up(evidence, violation.key):
            continue
        if (violation.kind in MARKERS) == markers:
            yield HistoryFinding(message=f"{violation.kind}: {violation.place}: {violation.actual}", job=violation.key)


def _held_up(evidence: Evidence, key: str) -> bool:
    """Whether a fault was on between those times of a job that are not in order.

    A delayed call carries the time at which it was made: a worker that asked before a job was added may get that job.
    """
    jobs = evidence.snapshot.jobs if evidence.snapshot is not None else ()
    job = next(job for job in jobs if f"{job.queue}:{job.id}" == key)
    times = [time for field in TIMES if (time := job.number(field)) is not None]
    offset = evidence.history.header.unix_offset_ms
    # Every inversion needs its own excuse: one fault does not explain two of them.
    return all(
        evidence.excused(later - offset, earlier - offset, process="")
        for earlier, later in pairwise(times)
        if later < earlier
    )


def _switched_off(evidence: Evidence) -> dict[str, str]:
    """Snapshot checks that do not apply after the faults of this run, with the reasons."""
    lost = ABOUT_THE_PAST if evidence.rollbacks else {}
    skewed = ABOUT_CLOCKS if any(window.skew_ms for window in evidence.windows) else {}
    return {**lost, **skewed}


REST_CHECKS = (HistoryCheck(name="markers", predicate=_markers), HistoryCheck(name="orphans", predicate=_orphans))
