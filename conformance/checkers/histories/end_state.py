"""What is there at the end: every acknowledged job is kept, once, and a queue at rest is tidy."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from conformance.checkers.base import SnapshotView
from conformance.checkers.histories.base import NO_SNAPSHOT, CheckStatistics, HistoryCheck, HistoryFinding, Undecided
from conformance.checkers.histories.evidence import CallHistory, Evidence, JobHistory
from conformance.checkers.histories.history import Fail, Info, Ok
from conformance.checkers.snapshot_checks import check_snapshot
from conformance.observe.tables import Snapshot

MARKERS = frozenset({"base-marker", "marker-members", "delay-marker"})
ABOUT_THE_PAST = {"event-jobs": "a loss took the beginning of the stream", "id-counter": "a loss took the counter back"}
"""Snapshot checks that speak about what came before, and so not after a loss."""
ABOUT_CLOCKS = {"times-in-order": "a clock was off"}
TIMES = ("timestamp", "processedOn", "finishedOn")
NOT_OF_REDIS = ("crash.", "worker.", "producer.", "network.", "clock.", "machine.")
"""Beginnings of the names of faults that leave Redis itself alone."""
HELD = frozenset({"active", "stalled", "waiting-children"})
"""Containers that a queue at rest has no jobs in."""


def _conservation(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """Every acknowledged job that is still there is in exactly one state."""
    if evidence.snapshot is None:
        yield NO_SNAPSHOT
        return
    view = SnapshotView(evidence.snapshot)
    for job in _acknowledged(evidence):
        if (job.queue, job.id) not in view.jobs or evidence.may_be_lost(job):
            continue  # the business of `durability`
        statistics.count()
        states = view.states.get((job.queue, job.id), [])
        if len(states) != 1:
            where = " and ".join(states) or "in no state at all"
            yield HistoryFinding(message=f"acknowledged, and at the end {where}", job=job.label, lines=tuple(job.lines))
    for queue, job_id in view.states:
        if (queue, job_id) not in view.jobs and not evidence.rollbacks:
            yield HistoryFinding(message="its id is in a container, and there is no such job", job=f"{queue}:{job_id}")


def _durability(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """An acknowledged job is there, or its options or a call removed it, or a fault may have lost what is known of it.

    What may be lost depends on how Redis keeps its data, and every fault says it: nothing, what was written since some
    time, or everything.
    """
    if evidence.snapshot is None:
        yield NO_SNAPSHOT
        return
    there = {(job.queue, job.id): job.fields.get("name") for job in evidence.snapshot.jobs}
    allowed = 0
    for job in _acknowledged(evidence):
        statistics.count()
        if there.get((job.queue, job.id)) == job.name or _removed(evidence, job):
            continue
        if evidence.may_be_lost(job):
            allowed += 1
        else:
            op = evidence.calls_by_job[job.name].invocation.op if job.name in evidence.calls_by_job else "nobody"
            message = f"acknowledged by {op}, and gone"
            yield HistoryFinding(message=message, job=job.label, lines=tuple(job.lines))
    statistics.facts["lost"] = allowed


def _indeterminate(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """A call that was answered happened once, one that failed never, and one that nobody knows about at most once.

    addBulk is a pipeline and no transaction: when it fails, some of its jobs may be there. Of a flow all jobs are
    there, or none.
    """
    kept = _names_kept(evidence)
    for call in evidence.calls.values():
        if call.invocation.op == "flow.add":
            yield from _halves(evidence, call, kept)
        for planned in call.invocation.jobs:
            jobs = evidence.by_name.get(planned.name, [])
            if any(evidence.may_be_lost(job) for job in jobs):
                continue
            statistics.count()
            added = max(sum(_was_added(job) for job in jobs), kept[planned.queue, planned.name])
            if added > _most(call):
                lines = tuple(line for job in jobs for line in job.lines)
                answer = (call.completion,) if call.completion else ()
                yield HistoryFinding(
                    message=f"{call.invocation.op} was answered {_answered(call)}, and there are {added} such jobs",
                    job=f"{planned.queue}:{planned.name}",
                    lines=(call.invocation, *answer, *lines),
                )


def _halves(evidence: Evidence, call: CallHistory, kept: Counter[tuple[str, str]]) -> Iterator[HistoryFinding]:
    """A flow of which only a part was added, while Redis itself was well: it refuses scripts of an EXEC one by one."""
    jobs = call.invocation.jobs
    histories = [job for planned in jobs for job in evidence.by_name.get(planned.name, [])]
    until = call.completion.at_ms if call.completion is not None else math.inf
    hurt = any(
        window.touches(call.invocation.at_ms, until) and not window.fault.startswith(NOT_OF_REDIS)
        for window in evidence.windows
    )
    if hurt or any(evidence.may_be_lost(job) or evidence.may_be_removed(job) for job in histories):
        return
    there = [
        planned.name
        for planned in jobs
        if kept[planned.queue, planned.name] or any(_was_added(job) for job in evidence.by_name.get(planned.name, []))
    ]
    if there and len(there) < len(jobs):
        message = f"of the {len(jobs)} jobs of a flow {len(there)} were added: {', '.join(there)}"
        yield HistoryFinding(message=message, job=jobs[0].name, lines=(call.invocation,))


def _names_kept(evidence: Evidence) -> Counter[tuple[str, str]]:
    """How many jobs of each queue and name are in Redis at the end."""
    jobs = evidence.snapshot.jobs if evidence.snapshot is not None else ()
    return Counter((job.queue, job.fields.get("name", "")) for job in jobs)


def _acknowledged(evidence: Evidence) -> Iterator[JobHistory]:
    return (job for job in evidence.jobs if job.acknowledged_ms is not None)


def _removed(evidence: Evidence, job: JobHistory) -> bool:
    """By its own options, or by somebody who asked for it later."""
    ended = {event.name for event in job.events}
    if "removed" in ended or (job.planned is not None and not job.planned.kept and "completed" in ended):
        return True
    return evidence.may_be_removed(job)


def _was_added(job: JobHistory) -> bool:
    return any(event.name == "added" for event in job.events)


def _most(call: CallHistory) -> int:
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
    """Wake-up markers are there where work waits, and tell no later time than the first delayed job's."""
    yield from _tidiness(evidence, statistics, markers=True)


def _orphans(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """At rest nothing is active, locked or suspected, and every invariant of a single snapshot holds."""
    yield from _tidiness(evidence, statistics, markers=False)
    if evidence.snapshot is None or not any(phase.name == "quiescent" for phase in evidence.phases):
        return
    for lock in evidence.snapshot.locks:
        yield HistoryFinding(message=f"still locked by {lock.token}", job=f"{lock.queue}:{lock.job}")
    for_good = waiting_for_good(evidence.snapshot)
    for row in evidence.snapshot.memberships:
        if row.container in HELD and (row.queue, row.job) not in for_good:
            yield HistoryFinding(message=f"still in {row.container}", job=f"{row.queue}:{row.job}")


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


def _tidiness(
    evidence: Evidence, statistics: CheckStatistics, *, markers: bool
) -> Iterator[HistoryFinding | Undecided]:
    if evidence.snapshot is None:
        yield NO_SNAPSHOT
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

    A call that it held up carries the time of its beginning: a worker that asked before a job was there may get it.
    """
    jobs = evidence.snapshot.jobs if evidence.snapshot is not None else ()
    job = next(job for job in jobs if f"{job.queue}:{job.id}" == key)
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


REST_CHECKS = (HistoryCheck(name="markers", predicate=_markers), HistoryCheck(name="orphans", predicate=_orphans))
