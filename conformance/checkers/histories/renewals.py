"""Workers renew the locks of the jobs that they run, and do so in time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from conformance.checkers.histories.base import CheckStatistics, HistoryCheck, HistoryFinding, Judged
from conformance.checkers.histories.evidence import LOCK, RENEWING, Evidence, JobHistory, RunHistory
from conformance.checkers.histories.history import HistoryLine, ScriptLine

LATEST_RENEWAL = 0.7
"""The share of a lock's life within which it must be renewed. BullMQ checks every quarter of a life, and renews locks
that are older than a quarter, so at most half a life passes; the rest is a margin for a busy machine (upstream
`classes/lock-manager.ts`)."""
# Three waits are enough that being late in all of them is not chance.
OFTEN = 3
ANSWERS_MEANWHILE = 20
"""A process that got this many answers from Redis while a renewal was due was not starved, however busy the machine."""
LOCKS_LEFT = 2
"""Locks that expire while none is renewed: from this number on it is not chance."""


def _renewals(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """The lock of a running job is renewed again and again, long before it expires, as the tap sees it.

    Every claim and renewal asks for a lock of the configured duration.
    Not judged: the time in which a fault is on, until the tap sees the worker again; and the time after the job was
    taken away. A worker that tries to renew a lost lock has done its part.
    """
    wire = _ScriptTimes(evidence)
    if not wire.any:
        return
    yield from _other_durations(evidence)
    expired: defaultdict[tuple[str, str], list[_Gap]] = defaultdict(list)
    waits: defaultdict[tuple[str, str], list[_Gap]] = defaultdict(list)
    for run, until_ms in _judged_runs(evidence, wire):
        worker = run.started.process, run.started.queue
        statistics.count()
        renewed = [at for at in wire.renewed_ms(run) if run.started.at_ms <= at <= until_ms]
        statistics.seen["locks renewed three times"] += len(renewed) >= OFTEN
        for gap in _gaps(evidence, wire, run, until_ms):
            yield from _too_long(evidence, gap, statistics)
            if gap.for_ms >= evidence.bounds.lock_ms:
                expired[worker].append(gap)
        waits[worker] += _whole_waits(evidence, wire, run, until_ms)
    for gaps in expired.values():
        yield from _never(evidence, wire, gaps)
    for gaps in waits.values():
        if gaps:
            yield from _always_late(evidence, wire, gaps)


def _other_durations(evidence: Evidence) -> Iterator[HistoryFinding]:
    """One finding for each process, script and duration: all later calls have the same mistake."""
    lock_ms = evidence.bounds.lock_ms
    wrong: dict[tuple[str, str, float], ScriptLine] = {}
    for line in evidence.history.lines:
        if isinstance(line, ScriptLine) and line.lock_ms is not None and line.lock_ms != lock_ms:
            wrong.setdefault((line.process, line.script, line.lock_ms), line)
    for (process, name, asked_ms), line in wrong.items():
        message = f"{name} of {process} asked for a lock of {asked_ms:g} ms, and {lock_ms:g} ms were configured"
        yield HistoryFinding(message=message, job=f"{line.queue}:{line.claimed or line.job}", lines=(line,))


def _judged_runs(evidence: Evidence, wire: _ScriptTimes) -> Iterator[tuple[RunHistory, float]]:
    """The runs that last long enough to need a renewal, each with the time (ms) until which one can be required."""
    # By identity, because two runs of a job may be equal in all other fields.
    jobs = {id(start): job for job in evidence.jobs for start in job.starts}
    for run in evidence.runs:
        job = jobs.get(id(run.started))
        if job is not None and (evidence.may_be_lost(job) or _lock_may_be_gone(evidence, job, run)):
            continue
        # The tap stops before the history does: after its last line a renewal may just not have been recorded.
        until_ms = min(run.ended_ms, _taken_away_ms(job, run) if job is not None else run.ended_ms, wire.last_ms)
        # A run that is shorter than the latest renewal needs none.
        if until_ms - run.started.at_ms > LATEST_RENEWAL * evidence.bounds.lock_ms:
            yield run, until_ms


def _attempts_ms(wire: _ScriptTimes, run: RunHistory, until_ms: float) -> list[float]:
    return [at for at in wire.tried_to_renew_ms(run) if run.started.at_ms <= at <= until_ms]


def _gaps(evidence: Evidence, wire: _ScriptTimes, run: RunHistory, until_ms: float) -> Iterator[_Gap]:
    """The times between two renewals of a run, the start and the end of the run included."""
    times = [run.started.at_ms, *_attempts_ms(wire, run, until_ms), until_ms]
    return (_gap(evidence, wire, run, since, then) for since, then in pairwise(times))


def _whole_waits(evidence: Evidence, wire: _ScriptTimes, run: RunHistory, until_ms: float) -> Iterator[_Gap]:
    """The gaps that ended with a renewal and were not shortened by a fault; the first starts with the claim."""
    times = [run.started.at_ms, *_attempts_ms(wire, run, until_ms)]
    for since, then in pairwise(times):
        if then != until_ms and _gap(evidence, wire, run, since, then).since_ms == since:
            # A busy machine delivers the start of the run late; the lock lives since the claim.
            yield _Gap(run, wire.claimed_ms(run) if since == run.started.at_ms else since, then)


def _lock_may_be_gone(evidence: Evidence, job: JobHistory, run: RunHistory) -> bool:
    """Whether Redis may have evicted the lock, and so refuses its renewal, or an older run of the job has ended it."""
    return job.loses_renewal(run.started, run.ended_ms) or evidence.deleted(LOCK, run.started.at_ms, run.ended_ms)


@dataclass(frozen=True, slots=True)
class _Gap:
    """A time (ms) without renewal of a run's lock, as far as a renewal can be required."""

    run: RunHistory
    since_ms: float
    until_ms: float

    @property
    def for_ms(self) -> float:
        """Its length; not positive if no renewal can be required."""
        return self.until_ms - self.since_ms


def _gap(evidence: Evidence, wire: _ScriptTimes, run: RunHistory, since: float, until: float) -> _Gap:
    """The time between two renewals; if a fault was on, it starts when the tap saw the worker again."""
    hurt = [
        window.ended_ms
        for window in evidence.windows
        # A fault of another process does not explain why this one does not renew.
        if window.hurts(run.started.process) and window.touches(since, until)
    ]
    # After a fault the client first has to reconnect; its first answer shows that it has.
    return _Gap(run, max(since, wire.first_after_ms(run, max(hurt))) if hurt else since, until)


def _too_long(evidence: Evidence, gap: _Gap, statistics: CheckStatistics) -> Iterator[HistoryFinding]:
    """A finding if a lock was not renewed for too long. CPU time that the worker had to wait for does not count."""
    who = gap.run.started
    # Waiting for CPU is added to the bound instead of excusing the gap: a short wait does not explain a long gap.
    allowed = LATEST_RENEWAL * evidence.bounds.lock_ms + evidence.waited_ms(who.process, gap.since_ms, gap.until_ms)
    statistics.keep_maximum("longest without renewal (ms)", gap.for_ms)
    if gap.for_ms > allowed:
        message = (
            f"{who.process} did not renew the lock for {gap.for_ms:.0f} ms, which is more than {allowed:.0f} ms; "
            f"it lives for {evidence.bounds.lock_ms:g} ms"
        )
        yield HistoryFinding(message=message, job=f"{who.queue}:{who.job}", lines=_lines_of(gap.run))


def _never(evidence: Evidence, wire: _ScriptTimes, expired: Sequence[_Gap]) -> Iterator[HistoryFinding]:
    """A finding if a worker renews no lock any more although it does other work: no busy machine explains that."""
    who = expired[0].run.started
    since = min(gap.since_ms for gap in expired)
    answers = _answers_when_due(evidence, wire, expired)
    renews = any(at > since for at in wire.any_renewal_ms(who.process, who.queue))
    # All three: several locks, a process that had CPU time, and no renewal afterwards. Each alone may be chance.
    if len(expired) >= LOCKS_LEFT and answers >= ANSWERS_MEANWHILE and not renews:
        message = (
            f"{who.process} has let {len(expired)} locks of {who.queue} expire and renewed none since then; "
            f"when that was due Redis answered {answers} of its calls"
        )
        lines = tuple(line for gap in expired[:3] for line in _lines_of(gap.run))
        yield HistoryFinding(message=message, job=f"{who.queue}:{who.job}", lines=lines)


def _always_late(evidence: Evidence, wire: _ScriptTimes, waits: Sequence[_Gap]) -> Iterator[HistoryFinding]:
    """A finding if a worker renews, but never in time: no busy machine explains that either.

    Only whole waits count: one that a fault interrupted may seem short.
    """
    who = waits[0].run.started
    late = [gap for gap in waits if gap.for_ms > LATEST_RENEWAL * evidence.bounds.lock_ms]
    answers = _answers_when_due(evidence, wire, late)
    # Even one renewal in time shows that the timer works, and then the rest is the machine's fault.
    if len(late) == len(waits) >= OFTEN and answers >= ANSWERS_MEANWHILE:
        message = (
            f"{who.process} has renewed locks of {who.queue} {len(late)} times and never sooner than after "
            f"{min(gap.for_ms for gap in late):.0f} ms of the {evidence.bounds.lock_ms:g} ms that they live; "
            f"when that was due Redis answered {answers} of its calls"
        )
        lines = tuple(line for gap in late[:3] for line in _lines_of(gap.run))
        yield HistoryFinding(message=message, job=f"{who.queue}:{who.job}", lines=lines)


def _answers_when_due(evidence: Evidence, wire: _ScriptTimes, late: Sequence[_Gap]) -> int:
    """How many calls of a worker Redis answered while its renewals were due."""
    due_after_ms = LATEST_RENEWAL * evidence.bounds.lock_ms
    return len(
        # A set, because two gaps may overlap and count the same answer twice.
        {
            at
            for gap in late
            for at in wire.answered_ms(gap.run.started.process, gap.since_ms + due_after_ms, gap.until_ms)
        }
    )


def _lines_of(run: RunHistory) -> tuple[HistoryLine, ...]:
    return (run.started, run.ended) if run.ended is not None else (run.started,)


def _taken_away_ms(job: JobHistory, run: RunHistory) -> float:
    """When another worker got the job, or it went back to wait: from then on there is no lock to renew."""
    later = (
        event.at_ms
        for event in job.events
        if event.name in {"stalled", "waiting", "completed", "failed", "removed"} and event.at_ms > run.started.at_ms
    )
    # The first of these events: it ends this run's hold on the job, whichever worker caused it.
    return next(later, run.ended_ms)


class _ScriptTimes:
    """Times (ms) of the scripts that the tap saw: answers per process, claims, renewals and refused renewals."""

    def __init__(self, evidence: Evidence) -> None:
        lines = [line for line in evidence.history.lines if isinstance(line, ScriptLine)]
        self.any = bool(lines)
        self.last_ms = max((line.at_ms for line in lines), default=0.0)
        self._accepted: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._answered: defaultdict[str, list[float]] = defaultdict(list)
        self._claimed: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        self._renewed: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        self._refused: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        for line in lines:
            if line.accepted:
                self._accepted[line.process, line.queue].append(line.at_ms)
                self._answered[line.process].append(line.at_ms)
                self._claimed[line.process, line.queue, line.claimed].append(line.at_ms)
            if line.script in RENEWING:
                self._add(line)

    def _add(self, line: ScriptLine) -> None:
        # When it was sent, not when it was answered: only the sending is the client's part.
        sent_ms = line.sent_ms if line.sent_ms is not None else line.at_ms
        for job in line.jobs or [line.job]:
            self._renewed[line.process, line.queue, job].append(sent_ms)
        for job in line.refused:
            self._refused[line.process, line.queue, job].append(sent_ms)

    def first_after_ms(self, run: RunHistory, at_ms: float) -> float:
        """When the worker of a run was first answered after a time; infinite if it never was."""
        answered = self._accepted[run.started.process, run.started.queue]
        return next((heard for heard in answered if heard > at_ms), float("inf"))

    def claimed_ms(self, run: RunHistory) -> float:
        """When the process of a run got its job; the start of the run if the tap saw no claim."""
        began_ms = run.started.at_ms
        # The last claim before the run, because a job may have been claimed several times.
        return max((at for at in self._claimed[_whose(run)] if at <= began_ms), default=began_ms)

    def answered_ms(self, process: str, since_ms: float, until_ms: float) -> Sequence[float]:
        """When a process was answered within an interval, about any of its queues."""
        answered = self._answered[process]
        return answered[bisect_right(answered, since_ms) : bisect_right(answered, until_ms)]

    def any_renewal_ms(self, process: str, queue: str) -> Iterator[float]:
        """When a process renewed, or tried to renew, the lock of any job of a queue."""
        for attempts in (self._renewed, self._refused):
            for (who, of, _), times in attempts.items():
                if (who, of) == (process, queue):
                    yield from times

    def renewed_ms(self, run: RunHistory) -> list[float]:
        """When the process of a run renewed the lock of its job."""
        return sorted(self._renewed.get(_whose(run), []))

    def tried_to_renew_ms(self, run: RunHistory) -> list[float]:
        """When the process renewed the lock, or tried to and got the reply that the lock is gone."""
        return sorted([*self._renewed.get(_whose(run), []), *self._refused.get(_whose(run), [])])


def _whose(run: RunHistory) -> tuple[str, str, str]:
    return run.started.process, run.started.queue, run.started.job


RENEWAL_CHECKS = (HistoryCheck(name="renewals", predicate=_renewals, least_seen={"locks renewed three times": 1}),)
