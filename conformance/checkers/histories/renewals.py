"""Whether workers keep the locks of the jobs that they run: in time, and at all."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from conformance.checkers.histories.base import CheckStatistics, HistoryCheck, HistoryFinding, Judged
from conformance.checkers.histories.evidence import Evidence, JobHistory, RunHistory
from conformance.checkers.histories.history import HistoryLine, ScriptLine

LATEST_RENEWAL = 0.7
"""The part of a lock's life after which it has to be renewed: BullMQ looks every quarter, and renews what is older than
one, so that half a life passes at most; the rest is for a busy machine (upstream `classes/lock-manager.ts`)."""
OFTEN = 3
RENEWING = frozenset({"extendLocks", "extendLock"})
ANSWERS_MEANWHILE = 20
"""Who got so many answers from Redis while a renewal was due was let run, however busy the machine."""
LOCKS_LEFT = 2
"""So many locks whose whole life passes, and none that is renewed, are no matter of chance."""


def _renewals(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """The lock of a job that runs is renewed long before it expires, over and over, as the tap sees it.

    Not judged: while a fault is on, until the worker is heard of after it, and when the job has been taken away. Who
    tries to renew a lock that is gone has left nothing undone.
    """
    heard = _ScriptTimes(evidence)
    if not heard.any:
        return
    expired: defaultdict[tuple[str, str], list[_LeftAlone]] = defaultdict(list)
    waits: defaultdict[tuple[str, str], list[_LeftAlone]] = defaultdict(list)
    jobs = {id(start): job for job in evidence.jobs for start in job.starts}
    for run in evidence.runs:
        job = jobs.get(id(run.started))
        if job is not None and (evidence.may_be_lost(job) or _lock_may_be_gone(evidence, job, run)):
            continue
        until = min(run.ended_ms, _taken_away_ms(job, run) if job is not None else run.ended_ms, heard.last_ms)
        if until - run.started.at_ms <= LATEST_RENEWAL * evidence.bounds.lock_ms:
            continue
        statistics.count()
        tried = [at for at in heard.tried_to_renew_ms(run) if run.started.at_ms <= at <= until]
        renewed = [at for at in heard.renewed_ms(run) if run.started.at_ms <= at <= until]
        statistics.seen["locks renewed three times"] += len(renewed) >= OFTEN
        times = [run.started.at_ms, *tried, until]
        for since, then in pairwise(times):
            left_alone = _left_alone(evidence, heard, run, since, then)
            yield from _too_long(evidence, left_alone, statistics)
            if left_alone.for_ms >= evidence.bounds.lock_ms:
                expired[run.started.process, run.started.queue].append(left_alone)
            if then != until and left_alone.since_ms == since:
                begun_ms = heard.claimed_ms(run) if since == run.started.at_ms else since
                waits[run.started.process, run.started.queue].append(_LeftAlone(run, begun_ms, then))
    for left in expired.values():
        yield from _never(evidence, heard, left)
    for left in waits.values():
        yield from _always_late(evidence, heard, left)


def _lock_may_be_gone(evidence: Evidence, job: JobHistory, run: RunHistory) -> bool:
    """Whether Redis may have evicted the lock, and so refuses its renewal, or an older run of the job has ended it."""
    return job.loses_renewal(run.started, run.ended_ms) or any(
        window.fault.startswith("evict.") and window.touches(run.started.at_ms, run.ended_ms)
        for window in evidence.windows
    )


@dataclass(frozen=True, slots=True)
class _LeftAlone:
    """A time (ms) in which nobody renewed the lock of a run, as far as that can be asked for."""

    run: RunHistory
    since_ms: float
    until_ms: float

    @property
    def for_ms(self) -> float:
        """How long that was; not positive where nothing can be asked for."""
        return self.until_ms - self.since_ms


def _left_alone(evidence: Evidence, heard: _ScriptTimes, run: RunHistory, since: float, until: float) -> _LeftAlone:
    """Between two renewals; where a fault is on, from when the worker is heard of after it."""
    hurt = [window.ended_ms for window in evidence.windows if window.touches(since, until)]
    return _LeftAlone(run, max(since, heard.first_after_ms(run, max(hurt))) if hurt else since, until)


def _too_long(evidence: Evidence, left: _LeftAlone, statistics: CheckStatistics) -> Iterator[HistoryFinding]:
    """Whether a lock was left alone for too long; who waited for the machine may be late by as much."""
    who = left.run.started
    allowed = LATEST_RENEWAL * evidence.bounds.lock_ms + evidence.waited_ms(who.process, left.since_ms, left.until_ms)
    statistics.keep_maximum("longest without renewal (ms)", left.for_ms)
    if left.for_ms > allowed:
        message = (
            f"{who.process} did not renew the lock for {left.for_ms:.0f} ms, which is more than {allowed:.0f} ms; "
            f"it lives for {evidence.bounds.lock_ms:g} ms"
        )
        yield HistoryFinding(message=message, job=f"{who.queue}:{who.job}", lines=_lines_of(left.run))


def _never(evidence: Evidence, heard: _ScriptTimes, expired: Sequence[_LeftAlone]) -> Iterator[HistoryFinding]:
    """Whether a worker renews nothing any more, which no busy machine explains: it does everything else meanwhile."""
    who = expired[0].run.started
    since = min(left.since_ms for left in expired)
    answers = _answers_when_due(evidence, heard, expired)
    renews = any(at > since for at in heard.any_renewal_ms(who.process, who.queue))
    if len(expired) >= LOCKS_LEFT and answers >= ANSWERS_MEANWHILE and not renews:
        message = (
            f"{who.process} has let {len(expired)} locks of {who.queue} expire and renewed none since then; "
            f"when that was due Redis answered {answers} of its calls"
        )
        lines = tuple(line for left in expired[:3] for line in _lines_of(left.run))
        yield HistoryFinding(message=message, job=f"{who.queue}:{who.job}", lines=lines)


def _always_late(evidence: Evidence, heard: _ScriptTimes, waits: Sequence[_LeftAlone]) -> Iterator[HistoryFinding]:
    """Whether a worker renews, but not once in time, which no busy machine explains either.

    Only whole waits tell: one of which a fault has taken a part may seem short. The first begins with the claim, as the
    tap saw it, because a busy machine tells late of the run.
    """
    who = waits[0].run.started
    late = [left for left in waits if left.for_ms > LATEST_RENEWAL * evidence.bounds.lock_ms]
    answers = _answers_when_due(evidence, heard, late)
    if len(late) == len(waits) >= OFTEN and answers >= ANSWERS_MEANWHILE:
        message = (
            f"{who.process} has renewed locks of {who.queue} {len(late)} times and never sooner than after "
            f"{min(left.for_ms for left in late):.0f} ms of the {evidence.bounds.lock_ms:g} ms that they live; "
            f"when that was due Redis answered {answers} of its calls"
        )
        lines = tuple(line for left in late[:3] for line in _lines_of(left.run))
        yield HistoryFinding(message=message, job=f"{who.queue}:{who.job}", lines=lines)


def _answers_when_due(evidence: Evidence, heard: _ScriptTimes, late: Sequence[_LeftAlone]) -> int:
    """How many calls of a worker Redis answered while renewals of its were due."""
    due_after_ms = LATEST_RENEWAL * evidence.bounds.lock_ms
    return len(
        {
            at
            for left in late
            for at in heard.answered_ms(left.run.started.process, left.since_ms + due_after_ms, left.until_ms)
        }
    )


def _lines_of(run: RunHistory) -> tuple[HistoryLine, ...]:
    return (run.started, run.ended) if run.ended is not None else (run.started,)


def _taken_away_ms(job: JobHistory, run: RunHistory) -> float:
    """When somebody else got the job, or it went back to wait: from then on there is no lock to renew."""
    later = (
        event.at_ms
        for event in job.events
        if event.name in {"stalled", "waiting", "completed", "failed", "removed"} and event.at_ms > run.started.at_ms
    )
    return next(later, run.ended_ms)


class _ScriptTimes:
    """When processes were heard of on the wire, and which locks they renewed, or would have; ms."""

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
        sent_ms = line.sent_ms if line.sent_ms is not None else line.at_ms
        for job in line.jobs or [line.job]:
            self._renewed[line.process, line.queue, job].append(sent_ms)
        for job in line.refused:
            self._refused[line.process, line.queue, job].append(sent_ms)

    def first_after_ms(self, run: RunHistory, at_ms: float) -> float:
        """When the worker of a run was first answered after a time; infinite where it never was."""
        answered = self._accepted[run.started.process, run.started.queue]
        return next((heard for heard in answered if heard > at_ms), float("inf"))

    def claimed_ms(self, run: RunHistory) -> float:
        """When the process of a run got its job; when the run began, where the tap saw no claim."""
        began_ms = run.started.at_ms
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
        """When it did, or asked for it and was told that the lock is gone."""
        return sorted([*self._renewed.get(_whose(run), []), *self._refused.get(_whose(run), [])])


def _whose(run: RunHistory) -> tuple[str, str, str]:
    return run.started.process, run.started.queue, run.started.job


RENEWAL_CHECKS = (HistoryCheck(name="renewals", predicate=_renewals, least_seen={"locks renewed three times": 1}),)
