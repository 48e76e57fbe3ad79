"""Guarantees of the options of a job: deduplication ids, and the number of iterations of a scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from conformance.checkers.histories.base import (
    NO_REST,
    CheckStatistics,
    HistoryCheck,
    HistoryFinding,
    Inapplicable,
    Judged,
)
from conformance.checkers.histories.evidence import CallHistory, Evidence
from conformance.checkers.histories.history import Fail, Ok, StreamEventLine

ENDS = frozenset({"completed", "failed", "removed"})


def _deduplication(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """While a job of a deduplication id is not done, no other job of this id is added."""
    calls = [call for call in evidence.calls.values() if "deduplication" in call.invocation.args]
    if calls and all(_is_unsupported(call) for call in calls):
        yield Inapplicable("the client takes no deduplicated jobs")
        return
    ids = {str(call.invocation.args["deduplication"]) for call in calls}
    for queue in evidence.events_by_queue:
        yield from _second_jobs(evidence, queue, ids, statistics)
    acknowledged = sum(isinstance(call.completion, Ok) for call in calls)
    # Acknowledged calls that added nothing have found the job there, which shows that the key works.
    statistics.seen["adds that found a job there"] = max(acknowledged - statistics.examined, 0)


def _second_jobs(
    evidence: Evidence, queue: str, ids: Collection[str], statistics: CheckStatistics
) -> Iterator[HistoryFinding]:
    """Jobs that were added while another job of their deduplication id was not done; such jobs are named after it."""
    unfinished: dict[str, StreamEventLine] = {}
    for event, _ in evidence.events_by_queue[queue]:
        name = event.fields.get("name", "")
        if event.name == "added" and name in ids:
            statistics.count()
            before = unfinished.get(name)
            # A lost job cannot hold its deduplication id any more.
            if before is not None and not evidence.was_lost(before.at_ms):
                message = f"added, although job {before.job} of the same id ({name}) was not done"
                yield HistoryFinding(message=message, job=f"{queue}:{event.job}", lines=(before, event))
            unfinished[name] = event
        elif event.name in ENDS:
            unfinished = {name: added for name, added in unfinished.items() if added.job != event.job}


def _schedules(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """A scheduler with a limit of iterations has run exactly that often when all work is done."""
    calls = [call for call in evidence.calls.values() if "scheduler" in call.invocation.args]
    if calls and all(_is_unsupported(call) for call in calls):
        yield Inapplicable("the client has no schedulers")
        return
    if not evidence.at_rest:
        yield NO_REST
        return
    # On a clock that is off, the next iteration may be due only after the end of the run.
    if any(window.skew_ms for window in evidence.windows):
        return
    done = _completions(evidence)
    for call in calls:
        # After a rollback the scheduler's record and its iteration count may be older than the runs.
        lost = any(call.invocation.at_ms <= until for _, until in evidence.rollbacks)
        if not lost and isinstance(call.completion, Ok):
            statistics.count()
            yield from _wrong_iterations(evidence, call, done)


def _completions(evidence: Evidence) -> Counter[str]:
    """How often jobs of each name have completed."""
    return Counter(job.name for job in evidence.jobs for event in job.events if event.name == "completed" and job.name)


def _wrong_iterations(evidence: Evidence, call: CallHistory, done: Counter[str]) -> Iterator[HistoryFinding]:
    name, times = str(call.invocation.args["scheduler"]), int(call.invocation.args["times"])
    if done[name] != times:
        message = f"scheduler {name} has run {done[name]} times instead of {times} times"
        lines = tuple(line for job in evidence.jobs if job.name == name for line in job.events)
        yield HistoryFinding(message=message, job=name, lines=(call.invocation, *lines))


def _is_unsupported(call: CallHistory) -> bool:
    return isinstance(call.completion, Fail) and call.completion.unsupported


GUARANTEE_CHECKS = (
    HistoryCheck(
        name="deduplication", predicate=_deduplication, least=1, least_seen={"adds that found a job there": 1}
    ),
    HistoryCheck(name="schedules", predicate=_schedules, least=1),
)
