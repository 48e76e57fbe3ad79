"""The order of events that the order of steps decides; the order of independent processes is left out. Pure.

A worker's own loop claims and finishes jobs while the scenario adds others: whether `added 2` or `active 1` comes first
depends on the speed of two processes, and is right both ways. Events stay in order that

- are about the same job,
- belong to the same process: additions to the caller, claims and ends each to the loop,
- are about the whole queue, such as `paused`: they keep their place among all others.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from conformance.observe.canonical_rules import CanonicalContext, CanonicalRule
from conformance.observe.tables import Event, Snapshot

PROCESSES = {
    **dict.fromkeys(("added", "duplicated", "deduplicated", "debounced"), "adding"),
    "active": "claiming",
    **dict.fromkeys(("completed", "failed", "drained"), "ending"),
}
"""The process to which an event belongs, by its name; of other events with a job, only the job counts."""


def with_independent_events_sorted(snapshot: Snapshot, _: CanonicalContext | None = None) -> Snapshot:
    """Return the snapshot with one order for all streams that differ only in the order of independent events."""
    by_queue: defaultdict[str, list[Event]] = defaultdict(list)
    for event in snapshot.events:
        by_queue[event.queue].append(event)
    ordered = (event for events in by_queue.values() for event in sort_independent(events))
    return replace(snapshot, events=tuple(ordered))


def sort_independent(events: Sequence[Event]) -> list[Event]:
    """Sort the events of one queue by job, as far as the events that must stay in order allow."""
    followers, missing = _order(events)
    ready = [(_rank(events[place]), place) for place, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    done: list[Event] = []
    while ready:
        _, place = heapq.heappop(ready)
        done.append(events[place])
        for follower in followers[place]:
            missing[follower] -= 1
            if missing[follower] == 0:
                heapq.heappush(ready, (_rank(events[follower]), follower))
    return done


def _order(events: Sequence[Event]) -> tuple[list[list[int]], list[int]]:
    """For each event, those that must come after it; and how many must come before it."""
    followers: list[list[int]] = [[] for _ in events]
    missing = [0] * len(events)
    last: dict[str, int] = {}
    for place, event in enumerate(events):
        threads = _threads_of(event)
        # An event about the whole queue follows the last one of everything, and comes before all later ones.
        before = {last[thread] for thread in threads if thread in last} if threads else set(last.values())
        if threads and "whole queue" in last:
            before.add(last["whole queue"])
        for earlier in before:
            followers[earlier].append(place)
        missing[place] = len(before)
        if not threads:
            last.clear()
        last.update(dict.fromkeys(threads or ("whole queue",), place))
    return followers, missing


def _threads_of(event: Event) -> tuple[str, ...]:
    """The job and the process in whose order the event is; empty for an event about the whole queue."""
    process = PROCESSES.get(event.name)
    return (*((f"job {event.job}",) if event.job else ()), *((process,) if process else ()))


def _rank(event: Event) -> tuple[int, str, str]:
    """Shorter ids first, so that numbers are in order; what is about no job comes last."""
    return (len(event.job) or 1_000_000, event.job, event.name)


INDEPENDENT_EVENTS = CanonicalRule(
    name="independent-events",
    reason="Worker loops run at their own speed: only the order of events of one job or one process is protocol.",
    transform=with_independent_events_sorted,
)
