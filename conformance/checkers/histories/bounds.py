"""Whether limits hold at every moment: starts per window, and jobs that run at a time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from conformance.checkers.histories.base import Finding, HistoryCheck, Tally, Unknown
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.lines import Event

LEAVING = frozenset({"completed", "failed", "removed", "delayed", "waiting", "waiting-children"})


def _rate(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """From the first start after a pause on, no more than `most` jobs start before the window's duration is over.

    That is BullMQ's rule: a window opens with a start, not with the clock. A fault of Redis itself may lose the
    counter, and so opens a new one.
    """
    for queue, limit in evidence.bounds.limits.items():
        started: deque[Event] = deque()
        for event, _ in evidence.events_by_queue.get(queue, []):
            if event.name != "active":
                continue
            tally.look()
            if started and (_is_over(started[0], event, limit.duration_ms) or _counter_lost(evidence, started, event)):
                started.clear()
            started.append(event)
            if len(started) > limit.most:
                within = event.at_ms - started[0].at_ms
                message = f"{len(started)} starts within {within:.0f} ms, allowed are {limit.most}"
                yield Finding(message=message, job=f"{queue}:{event.job}", lines=tuple(started))


def _is_over(first: Event, event: Event, duration_ms: float) -> bool:
    return event.at_ms - first.at_ms >= duration_ms


def _counter_lost(evidence: Evidence, started: deque[Event], event: Event) -> bool:
    return any(
        window.fault.startswith("redis.") and window.touches(started[0].at_ms, event.at_ms)
        for window in evidence.windows
    )


def _concurrency(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """Never are more jobs of a queue active than its global concurrency allows."""
    for queue, most in evidence.bounds.concurrency.items():
        active: dict[str, Event] = {}
        lost_ms = min((each.began_ms for each in evidence.windows if each.lost_since_ms is not None), default=math.inf)
        for event, _ in evidence.events_by_queue.get(queue, []):
            if event.at_ms >= lost_ms:
                yield Unknown("a loss may have taken the setting of the global concurrency")
                break
            if event.name == "active":
                tally.look()
                active[event.job] = event
            elif event.name in LEAVING:
                active.pop(event.job, None)
            tally.facts["most at a time"] = max(len(active), tally.facts.get("most at a time", 0))
            if event.name == "active" and len(active) > most:
                message = f"{len(active)} jobs are active, allowed are {most}"
                yield Finding(message=message, job=f"{queue}:{event.job}", lines=tuple(active.values()))


CHECKS = (HistoryCheck(name="rate", predicate=_rate), HistoryCheck(name="concurrency", predicate=_concurrency))
