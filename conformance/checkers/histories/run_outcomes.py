"""What runs say and what becomes of it: a job ends as its run did, locks are kept meanwhile, and not too many run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from conformance.checkers.histories.base import CheckStatistics, HistoryCheck, HistoryFinding, Judged
from conformance.checkers.histories.evidence import Evidence, JobHistory, RunHistory
from conformance.checkers.histories.history import HandleChanged, HistoryLine, RunEnded, ScriptLine, StreamEventLine

ROUNDING_MS = 2
"""Times in events are whole ms."""
LATEST_RENEWAL = 0.7
"""The part of a lock's life after which it has to be renewed: BullMQ looks every quarter, and renews what is older than
one, so that half a life passes at most; the rest is for a busy machine (upstream `classes/lock-manager.ts`)."""
OFTEN = 3
RENEWING = frozenset({"extendLocks", "extendLock"})


def _outcomes(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """A job is completed only after a run of it has ended so, and fails only after as many runs as it has attempts.

    A result that Redis refuses while a fault is on counts as a failure (upstream `classes/worker.ts`, `processJob`).
    """
    for job in evidence.certain():
        for event in job.events:
            if event.name in {"completed", "failed"}:
                statistics.count()
                ended = [line for line in job.lines if isinstance(line, RunEnded) and line.at_ms <= event.at_ms + 2]
                yield from (_completion if event.name == "completed" else _failure)(evidence, job, event, ended)


def _completion(
    _evidence: Evidence, job: JobHistory, event: StreamEventLine, ended: list[RunEnded]
) -> Iterator[HistoryFinding]:
    if not any(run.outcome in {"complete", "waiting-children"} for run in ended):
        said = f"its runs had ended as: {', '.join(run.outcome for run in ended)}" if ended else "no run had ended"
        yield HistoryFinding(message=f"completed, and {said}", job=job.label, lines=(*job.starts, *ended, event))


def _failure(
    evidence: Evidence, job: JobHistory, event: StreamEventLine, ended: list[RunEnded]
) -> Iterator[HistoryFinding]:
    attempts = job.planned.attempts if job.planned is not None else 1
    since = ended[-1].at_ms if ended else job.lines[0].at_ms
    if evidence.excused(since, event.at_ms, margin_ms=ROUNDING_MS):
        return
    lines: tuple[HistoryLine, ...] = (*job.starts, *ended, event)
    if len(ended) < attempts:
        message = f"failed for good after {len(ended)} of {attempts} attempts"
        yield HistoryFinding(message=message, job=job.label, lines=lines)
    elif ended[-1].outcome == "complete":
        yield HistoryFinding(message="failed, although its run had ended well", job=job.label, lines=lines)


def _worker_concurrency(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """A worker never runs more jobs of a queue at a time than it was told to."""
    most = evidence.bounds.worker_concurrency
    if not most:
        return
    running: defaultdict[tuple[str, str], dict[str, RunHistory]] = defaultdict(dict)
    for at_ms, what in _starts_and_openings(evidence):
        place = (what.process, what.queue) if isinstance(what, HandleChanged) else _place_of(what)
        if isinstance(what, HandleChanged):
            running[place].clear()  # what the one before it still runs is not this one's
            continue
        live = {token: run for token, run in running[place].items() if run.ended_ms > at_ms}
        live[what.started.token + what.started.job] = what
        running[place] = live
        statistics.count()
        statistics.keep_maximum("most at a time", len(live))
        statistics.seen["moments at the limit"] += len(live) == most
        if len(live) > most:
            message = f"{place[0]} runs {len(live)} jobs at a time, allowed are {most}"
            lines = tuple(run.started for run in live.values())
            yield HistoryFinding(message=message, job=f"{place[1]}:{what.started.job}", lines=lines)


def _place_of(run: RunHistory) -> tuple[str, str]:
    return run.started.process, run.started.queue


def _starts_and_openings(evidence: Evidence) -> list[tuple[float, RunHistory | HandleChanged]]:
    """Runs by their beginning, and openings of workers, in the order of their times."""
    opened = [line for line in evidence.handles if line.role == "worker" and line.change == "opened"]
    found: list[tuple[float, RunHistory | HandleChanged]] = [(line.at_ms, line) for line in opened]
    found += [(run.started.at_ms, run) for run in evidence.runs]
    return sorted(found, key=lambda item: item[0])


def _renewals(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """The lock of a job that runs is renewed long before it expires, over and over, as the tap sees it.

    Not judged: while a fault is on, until the worker is heard of after it, and when the job has been taken away. Who
    tries to renew a lock that is gone has left nothing undone.
    """
    heard = _ScriptTimes(evidence)
    if not heard.any:
        return
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
            yield from _gap(evidence, run, _Unrenewed(since, then, heard), statistics)


def _lock_may_be_gone(evidence: Evidence, job: JobHistory, run: RunHistory) -> bool:
    """Whether Redis may have evicted the lock, and so refuses its renewal, or an older run of the job has ended it."""
    return job.loses_renewal(run.started, run.ended_ms) or any(
        window.fault.startswith("evict.") and window.touches(run.started.at_ms, run.ended_ms)
        for window in evidence.windows
    )


@dataclass(frozen=True, slots=True)
class _Unrenewed:
    """A time (ms) in which nobody renewed a lock."""

    since_ms: float
    until_ms: float
    heard: _ScriptTimes


def _gap(
    evidence: Evidence, run: RunHistory, left_alone: _Unrenewed, statistics: CheckStatistics
) -> Iterator[HistoryFinding]:
    """Whether a lock was left alone for too long."""
    since, until = left_alone.since_ms, left_alone.until_ms
    hurt = [window.ended_ms for window in evidence.windows if window.touches(since, until)]
    begun = max(since, left_alone.heard.first_after_ms(run, max(hurt))) if hurt else since
    gap = until - begun
    allowed = LATEST_RENEWAL * evidence.bounds.lock_ms + evidence.waited_ms(run.started.process, begun, until)
    statistics.keep_maximum("longest without renewal (ms)", gap)
    if gap > allowed:
        message = (
            f"{run.started.process} did not renew the lock for {gap:.0f} ms, which is more than {allowed:.0f} ms; "
            f"it lives for {evidence.bounds.lock_ms:g} ms"
        )
        lines: tuple[HistoryLine, ...] = (run.started, run.ended) if run.ended is not None else (run.started,)
        yield HistoryFinding(message=message, job=f"{run.started.queue}:{run.started.job}", lines=lines)


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
        self._renewed: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        self._refused: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        for line in lines:
            if line.accepted:
                self._accepted[line.process, line.queue].append(line.at_ms)
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

    def renewed_ms(self, run: RunHistory) -> list[float]:
        """When the process of a run renewed the lock of its job."""
        return sorted(self._renewed.get(_whose(run), []))

    def tried_to_renew_ms(self, run: RunHistory) -> list[float]:
        """When it did, or asked for it and was told that the lock is gone."""
        return sorted([*self._renewed.get(_whose(run), []), *self._refused.get(_whose(run), [])])


def _whose(run: RunHistory) -> tuple[str, str, str]:
    return run.started.process, run.started.queue, run.started.job


_LIMITS: Mapping[str, int] = {"moments at the limit": 1}
OUTCOME_CHECKS = (
    HistoryCheck(name="outcomes", predicate=_outcomes, least=20),
    HistoryCheck(name="worker-concurrency", predicate=_worker_concurrency, least=20, least_seen=_LIMITS),
    HistoryCheck(name="renewals", predicate=_renewals, least_seen={"locks renewed three times": 1}),
)
