"""Outcomes of runs: a job ends as its run did, and a worker does not run too many jobs at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from conformance.checkers.histories.base import CheckStatistics, HistoryCheck, HistoryFinding, Judged
from conformance.checkers.histories.evidence import ROUNDING_MS, Evidence, JobHistory, RunHistory
from conformance.checkers.histories.history import HandleChanged, HistoryLine, RunEnded, StreamEventLine


def _outcomes(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """A job completes only after a completed run, and fails only after as many failed runs as it has attempts.

    A result that Redis refuses while a fault is on counts as a failure (upstream `classes/worker.ts`, `processJob`).
    """
    for job in evidence.certain():
        for event in job.events:
            if event.name in {"completed", "failed"}:
                statistics.count()
                # Two ms, because the event's time is rounded and the run's end is not.
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
    # A fault may have kept the result from Redis, which counts as a failure.
    process = ended[-1].process if ended else ""
    if evidence.excused(since, event.at_ms, process=process, margin_ms=ROUNDING_MS):
        return
    lines: tuple[HistoryLine, ...] = (*job.starts, *ended, event)
    if len(ended) < attempts:
        message = f"failed permanently after {len(ended)} of {attempts} attempts"
        yield HistoryFinding(message=message, job=job.label, lines=lines)
    elif ended[-1].outcome == "complete":
        yield HistoryFinding(message="failed, although its run had ended well", job=job.label, lines=lines)


def _worker_concurrency(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """A worker never runs more jobs of a queue at a time than its concurrency."""
    most = evidence.bounds.worker_concurrency
    if not most:
        return
    running: defaultdict[tuple[str, str], dict[str, RunHistory]] = defaultdict(dict)
    for at_ms, what in _starts_and_openings(evidence):
        place = (what.process, what.queue) if isinstance(what, HandleChanged) else _place_of(what)
        if isinstance(what, HandleChanged):
            # The previous worker's runs may never have ended, for example after a crash.
            running[place].clear()  # runs of the previous worker do not count for this one
            continue
        # Runs that have ended by then are dropped, so that each start is compared with what really runs.
        live = {token: run for token, run in running[place].items() if run.ended_ms > at_ms}
        # By token and job: a recovered job may run twice in one process.
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
    """Starts and ends of runs, and openings of workers, ordered by time."""
    opened = [line for line in evidence.handles if line.role == "worker" and line.change == "opened"]
    found: list[tuple[float, RunHistory | HandleChanged]] = [(line.at_ms, line) for line in opened]
    found += [(run.started.at_ms, run) for run in evidence.runs]
    return sorted(found, key=lambda item: item[0])


_LIMITS: Mapping[str, int] = {"moments at the limit": 1}
OUTCOME_CHECKS = (
    HistoryCheck(name="outcomes", predicate=_outcomes, least=20),
    HistoryCheck(name="worker-concurrency", predicate=_worker_concurrency, least=20, least_seen=_LIMITS),
)
