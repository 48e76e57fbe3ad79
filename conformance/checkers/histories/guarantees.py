"""What was promised when jobs were asked for: one at a time of an id, and so many iterations of a scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

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
    for queue, rows in evidence.events_by_queue.items():
        there: dict[str, StreamEventLine] = {}
        for event, _ in rows:
            name = event.fields.get("name", "")
            if event.name == "added" and name in ids:
                statistics.count()
                before = there.get(name)
                if before is not None and not evidence.was_lost(before.at_ms):
                    message = f"added, although job {before.job} of the same id ({name}) was not done"
                    yield HistoryFinding(message=message, job=f"{queue}:{event.job}", lines=(before, event))
                there[name] = event
            elif event.name in ENDS:
                there = {name: added for name, added in there.items() if added.job != event.job}
    asked = sum(isinstance(call.completion, Ok) for call in calls)
    statistics.seen["adds that found a job there"] = max(asked - statistics.examined, 0)


def _schedules(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """A scheduler that was told to run so many times has run so often when all work is done."""
    calls = [call for call in evidence.calls.values() if "scheduler" in call.invocation.args]
    if calls and all(_is_unsupported(call) for call in calls):
        yield Inapplicable("the client has no schedulers")
        return
    if not evidence.at_rest:
        yield NO_REST
        return
    done = Counter(job.name for job in evidence.jobs for event in job.events if event.name == "completed" and job.name)
    skewed = any(window.skew_ms for window in evidence.windows)
    for call in calls:
        lost = any(call.invocation.at_ms <= until for _, until in evidence.rollbacks)
        if skewed or lost or not isinstance(call.completion, Ok):
            continue
        statistics.count()
        name, times = str(call.invocation.args["scheduler"]), int(call.invocation.args["times"])
        if done[name] != times:
            message = f"scheduler {name} has run {done[name]} times, and was to run {times} times"
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
