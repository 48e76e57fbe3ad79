"""The life of a job: why it runs again, whose finish counts, its counters, its transitions, its children."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping

from conformance.checkers.base import SnapshotView
from conformance.checkers.histories.base import (
    NO_REST,
    NO_SNAPSHOT,
    CheckStatistics,
    HistoryCheck,
    HistoryFinding,
    Undecided,
)
from conformance.checkers.histories.evidence import ROUNDING_MS, Evidence, JobHistory, RunHistory
from conformance.checkers.histories.history import RunEnded, ScriptLine, StreamEventLine
from conformance.checkers.histories.stalls import Stall, worker_of_claim
from conformance.observe.tables import parsed_json
from conformance.protocol.scripts import ENDS_JOBS
from conformance.protocol.states import WAITING_CONTAINERS

NO_LOCK_CHECK = "0"
"""The token with which a script skips the lock check (upstream `includes/removeLock.lua`)."""
FINAL = frozenset({"completed", "failed"})
PUTS_ITSELF_BACK = frozenset({"waits", "delays"})
"""Kinds of job whose processor moves them out of active without ending the attempt."""
ALLOWED: Mapping[str, frozenset[str]] = {
    "added": frozenset({""}),
    "waiting": frozenset({"added", "delayed", "active", "failed", "completed", "waiting-children"}),
    "delayed": frozenset({"added", "active", "delayed"}),
    "waiting-children": frozenset({"added", "active"}),
    "active": frozenset({"waiting"}),
    "completed": frozenset({"active"}),
    "failed": frozenset({"active"}),
    "removed": frozenset({"added", "waiting", "delayed", "active", "failed", "completed", "waiting-children"}),
}
"""The states in which a job may be before each event; the event's name is the state after it."""
CONTAINERS: Mapping[str, frozenset[str]] = {
    "waiting": WAITING_CONTAINERS,
    "removed": frozenset(),
}
"""The containers of a job after the event; by default the one of the event's name."""


def _duplicate_runs(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """A job runs again only after its run has failed, or after it has stalled rightly.

    It stalls rightly if its lock can have expired, by the clock of Redis, and if a fault of its worker explains that:
    the worker did not receive the job, was dead or frozen, could not reach Redis, or was starved of CPU for a quarter
    of the lock's life. A fault of another process explains nothing.
    """
    for job in evidence.certain():
        statistics.count()
        yield from _unreasonable_runs(evidence, job)
        started, claimed = len(job.starts), sum(event.name == "active" for event in job.events)
        # A claim whose reply was lost has no run, so there may be fewer runs than claims, but never more.
        if started > claimed > 0:
            message = f"{started} runs started, and Redis reported {claimed} claims"
            yield HistoryFinding(message=message, job=job.label, lines=tuple(job.lines))


def _unreasonable_runs(evidence: Evidence, job: JobHistory) -> Iterator[HistoryFinding]:
    """Walk through the life of a job; `reason` is why it may be claimed (again), empty if it must not be."""
    claimed: StreamEventLine | None = None
    reason = "added"
    for line in job.lines:
        if isinstance(line, RunEnded) and line.outcome != "complete":
            reason = line.outcome
        if not isinstance(line, StreamEventLine):
            continue
        if line.name == "stalled" and claimed is not None:
            if problem := Stall(evidence, job, claimed, line).problem:
                yield HistoryFinding(message=problem, job=job.label, lines=tuple(job.lines))
            reason = "stalled"
        elif line.name == "waiting" and line.fields.get("prev") in FINAL:
            reason = "retried"
        elif line.name == "active":
            # Excused if a fault of its worker was on: then events may be missing, and with them the reason.
            if not reason and not _is_excused(evidence, job, claimed, line):
                message = "claimed again, although its run had neither failed nor stalled"
                yield HistoryFinding(message=message, job=job.label, lines=tuple(job.lines))
            claimed, reason = line, ""


def _is_excused(evidence: Evidence, job: JobHistory, claimed: StreamEventLine | None, event: StreamEventLine) -> bool:
    """Whether a fault of its worker was on between the claim and the event."""
    if claimed is None:
        return False
    process = worker_of_claim(job, claimed)
    return evidence.excused(claimed.at_ms, event.at_ms, process=process, margin_ms=ROUNDING_MS)


def _tokens(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """Only the worker that claimed a job last can end its run; a refused call changes nothing.

    No two runs have the same token at a time: it would not show which of them may end its job.
    The stored value is that of the last run. Calls that were in flight at the same time may be served in any order.
    """
    seen = False
    yield from _shared_tokens(evidence)
    for job in evidence.certain():
        scripts = [line for line in job.lines if isinstance(line, ScriptLine)]
        if not scripts:
            continue
        seen = True
        statistics.count()
        yield from _foreign_ends(job, scripts)
        yield from _unsent_ends(job, scripts)
    if not seen:
        yield Undecided("nothing was recorded on the wire")


def _shared_tokens(evidence: Evidence) -> Iterator[HistoryFinding]:
    """Runs that start while a run of another job with the same token goes on; one finding for each worker."""
    running: dict[tuple[str, str, str], RunHistory] = {}
    opened = _openings(evidence)
    named: set[tuple[str, str]] = set()
    for run in evidence.runs:
        start = run.started
        key = (start.process, start.queue, start.token)
        before, running[key] = running.get(key), run
        if before is None or before.ended_ms <= start.at_ms or key[:2] in named:
            continue
        # The runs of a process that has died since then never end.
        times = opened[key[:2]]
        if bisect_right(times, before.started.at_ms) == bisect_right(times, start.at_ms):
            named.add(key[:2])
            message = f"{start.process} has claimed it with the token of job {before.started.job}, which still runs"
            yield HistoryFinding(message=message, job=f"{start.queue}:{start.job}", lines=(before.started, start))


def _openings(evidence: Evidence) -> defaultdict[tuple[str, str], list[float]]:
    """When the workers of each process and queue were opened."""
    opened: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for line in evidence.handles:
        if line.role == "worker" and line.change == "opened":
            opened[line.process, line.queue].append(line.at_ms)
    return opened


def _foreign_ends(job: JobHistory, scripts: list[ScriptLine]) -> Iterator[HistoryFinding]:
    holder: ScriptLine | None = None
    for line in scripts:
        if line.claimed == job.id and line.accepted:
            # The last accepted claim, because a recovered job has a new owner with a new token.
            holder = line
        elif holder and line.job == job.id and line.accepted and line.script in ENDS_JOBS and line.token:
            foreign = line.token not in {holder.token, NO_LOCK_CHECK}
            # Only calls that were sent after the claim was confirmed: calls in flight together may be served in any
            # order.
            if foreign and line.sent_ms is not None and line.sent_ms > holder.at_ms:
                message = f"{line.script} of {line.token} was accepted, although {holder.token} had claimed the job"
                yield HistoryFinding(message=message, job=job.label, lines=(holder, line))


def _unsent_ends(job: JobHistory, scripts: list[ScriptLine]) -> Iterator[HistoryFinding]:
    """Every end in the stream has a call that Redis accepted, or whose answer was lost."""
    ends = [event for event in job.events if event.name in FINAL]
    calls = [line for line in scripts if line.script == "moveToFinished" and line.job == job.id]
    # A call without an answer may still have been executed by Redis.
    possible = [line for line in calls if line.accepted or line.fate not in {"answered", "answered-by-tap"}]
    if len(ends) > len(possible):
        message = f"Redis reports {len(ends)} ends, and only {len(possible)} calls can have caused them"
        yield HistoryFinding(message=message, job=job.label, lines=(*calls, *ends))
    for event in ends:
        value = parsed_json(event.fields.get("returnvalue"))
        token = value.get("token") if isinstance(value, dict) else None
        if token and token not in {line.token for line in possible}:
            message = f"the value is that of {token}, whose call to finish was not accepted"
            yield HistoryFinding(message=message, job=job.label, lines=(*calls, event))


def _counters(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """`ats`, `stc` and `atm` of a job equal the claims, stalls and ended attempts in the stream."""
    if evidence.snapshot is None:
        yield NO_SNAPSHOT
        return
    # Counters of jobs that still move would not belong to the same moment as the stream.
    if not evidence.at_rest:
        yield NO_REST
        return
    hashes = {(job.queue, job.id): job for job in evidence.snapshot.jobs}
    for job in evidence.certain():
        stored, events = hashes.get((job.queue, job.id)), job.events
        # Without the first event, claims may be missing from the count.
        if stored is None or not events or events[0].name != "added":
            continue
        statistics.count()
        claims = sum(event.name == "active" for event in events)
        stalls = sum(event.name == "stalled" for event in events)
        least, most = _attempts(job, stalls)
        for field, low, high in (("ats", claims, claims), ("stc", stalls, stalls), ("atm", least, most)):
            number = stored.number(field) or 0
            if not low <= number <= high:
                expected = f"{low}" if low == high else f"{low} to {high}"
                message = f"{field} is {number:g}, and the stream shows {expected}"
                yield HistoryFinding(message=message, job=job.label, lines=tuple(job.lines))


def _attempts(job: JobHistory, stalls: int) -> tuple[int, int]:
    """How many attempts ended, at least and at most: a job that puts itself back has not ended its attempt."""
    ended = sum(event.name in FINAL for event in job.events)
    back = sum(_is_return(event, before) for before, event in zip(job.events, job.events[1:], strict=False))
    # A recovered job goes back to wait as well, but its attempt does not count.
    most = ended + back - stalls
    puts_itself_back = job.planned is not None and job.planned.kind in PUTS_ITSELF_BACK
    return (ended if puts_itself_back else most), most


def _is_return(event: StreamEventLine, before: StreamEventLine) -> bool:
    """Whether the event brings a job back from active."""
    if event.name == "waiting":
        return event.fields.get("prev") == "active"
    return event.name == "delayed" and before.name in {"active", "progress"}


RUN_CHECKS = (
    HistoryCheck(name="duplicate-runs", predicate=_duplicate_runs, least=20),
    HistoryCheck(name="tokens", predicate=_tokens, least=20),
    HistoryCheck(name="counters", predicate=_counters, least=20),
)


def _events(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """The events of a job are existing transitions, each from the state the last one led to, and agree with the end.

    A `stalled` directly follows the return to wait that it is about.
    """
    view = SnapshotView(evidence.snapshot) if evidence.snapshot is not None and evidence.at_rest else None
    if view is None:
        yield Undecided("the last events could not be compared with a snapshot")
    for job in evidence.certain():
        if not job.events:
            continue
        statistics.count()
        yield from _check_transitions(job)
        if view is not None:
            yield from _check_end(job, view)


def _check_transitions(job: JobHistory) -> Iterator[HistoryFinding]:
    # A stream that starts later than the job does not show from which state it comes.
    state = "" if job.events[0].name == "added" else "?"
    before: StreamEventLine | None = None
    for event in job.events:
        if event.name == "stalled" and (before is None or before.fields.get("prev") != "active"):
            yield HistoryFinding(message="`stalled` without a return to wait", job=job.label, lines=tuple(job.events))
        if event.name not in ALLOWED:
            continue
        prev = event.fields.get("prev")
        if state != "?" and state not in ALLOWED[event.name]:
            message = f"`{event.name}` of a job that is {state or 'not there'}"
            yield HistoryFinding(message=message, job=job.label, lines=tuple(job.events))
        # `prev` is what the script saw, so it must be the state that the events lead to.
        elif event.name == "waiting" and prev and state not in {"?", prev}:
            message = f"`waiting` from {prev}, and the job was {state}"
            yield HistoryFinding(message=message, job=job.label, lines=tuple(job.events))
        state, before = event.name, event


def _check_end(job: JobHistory, view: SnapshotView) -> Iterator[HistoryFinding]:
    transitions = [event.name for event in job.events if event.name in ALLOWED]
    states = view.states.get((job.queue, job.id), [])
    # Without exactly one state, other invariants have found something already.
    if not transitions or len(states) != 1 or transitions[-1] == "added":
        return
    expected = CONTAINERS.get(transitions[-1], frozenset({transitions[-1]}))
    if states[0] not in expected:
        message = f"the last event is `{transitions[-1]}`, and the job is in {states[0]}"
        yield HistoryFinding(message=message, job=job.label, lines=tuple(job.events[-3:]))


def _parents(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """A parent leaves waiting-children once, after its last child has completed, and has the values of all children."""
    families: dict[str, list[str]] = {}
    for planned in evidence.planned.values():
        if planned.parent:
            families.setdefault(planned.parent, []).append(planned.name)
    for parent, children in families.items():
        jobs = [job for name in (parent, *children) for job in evidence.by_name.get(name, [])]
        parents = evidence.by_name.get(parent, [])
        # With two jobs of a name it is unknown to which of them the children belong.
        if len(parents) != 1 or any(evidence.may_be_lost(job) for job in jobs):
            continue
        statistics.count()
        yield from _release(parents[0], [job for job in jobs if job is not parents[0]], len(children))
        yield from _processed(evidence, parents[0], children)


def _release(parent: JobHistory, children: list[JobHistory], expected: int) -> Iterator[HistoryFinding]:
    releases = [
        event for event in parent.events if event.name == "waiting" and event.fields.get("prev") == "waiting-children"
    ]
    ends = [event for child in children for event in child.events if event.name == "completed"]
    lines = tuple(sorted((*releases, *ends), key=lambda event: event.at_ms))
    if len(releases) > 1:
        yield HistoryFinding(message=f"left waiting-children {len(releases)} times", job=parent.label, lines=lines)
    elif releases and sum(_was_done(child, releases[0].at_ms) for child in children) < expected:
        yield HistoryFinding(
            message=f"left waiting-children before its {expected} children had completed", job=parent.label, lines=lines
        )
    elif not releases and len(ends) == expected and any(event.name == "waiting-children" for event in parent.events):
        yield HistoryFinding(
            message="still waits although all its children have completed", job=parent.label, lines=lines
        )


def _was_done(child: JobHistory, at_ms: float) -> bool:
    """Whether it had completed by then, or was about to: one script stores its end and releases the parent."""
    return any(
        line.at_ms <= at_ms
        for line in child.lines
        if (isinstance(line, StreamEventLine) and line.name == "completed")
        or (isinstance(line, RunEnded) and line.outcome == "complete")
    )


def _processed(evidence: Evidence, parent: JobHistory, children: list[str]) -> Iterator[HistoryFinding]:
    """A completed parent has the values of all its children."""
    if evidence.snapshot is None or not any(event.name == "completed" for event in parent.events):
        return
    rows = [row for row in evidence.snapshot.dependencies if (row.queue, row.parent) == (parent.queue, parent.id)]
    values = sum(row.kind == "processed" for row in rows)
    # Without any row the parent's keys may have been removed with it.
    if rows and values != len(children):
        message = f"has {values} values of its {len(children)} children"
        yield HistoryFinding(message=message, job=parent.label, lines=tuple(parent.events))


TRANSITION_CHECKS = (
    HistoryCheck(name="events", predicate=_events, least=20),
    HistoryCheck(name="parents", predicate=_parents, least=2),
)
