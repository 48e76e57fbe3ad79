"""Invariants about the event stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from conformance.checkers.base import Check, Found, View
from conformance.observe.tables import Event, as_number

PREVIOUS_STATES = frozenset(
    {
        "wait",
        "waiting",
        "paused",
        "active",
        "delayed",
        "prioritized",
        "completed",
        "failed",
        "waiting-children",
        "unknown",
    }
)
"""What `prev` may say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The fields of an event after `event`: always there, sometimes there, and those that may be an empty text."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    may_be_empty: frozenset[str] = frozenset()


SHAPES: Mapping[str, Shape] = {
    "added": Shape(required=("jobId", "name"), may_be_empty=frozenset({"name"})),
    "waiting": Shape(required=("jobId",), optional=("prev",)),
    "delayed": Shape(required=("jobId", "delay")),
    "waiting-children": Shape(required=("jobId",), optional=("prev",)),
    "active": Shape(required=("jobId", "prev")),
    "progress": Shape(required=("jobId", "data")),
    "completed": Shape(required=("jobId", "returnvalue", "prev")),
    "failed": Shape(required=("jobId", "failedReason", "prev"), may_be_empty=frozenset({"failedReason"})),
    "retries-exhausted": Shape(required=("jobId", "attemptsMade")),
    "stalled": Shape(required=("jobId",)),
    "drained": Shape(),
    "paused": Shape(),
    "resumed": Shape(),
    "removed": Shape(required=("jobId", "prev")),
    "duplicated": Shape(required=("jobId",)),
    "debounced": Shape(required=("jobId", "debounceId")),
    "deduplicated": Shape(required=("jobId", "deduplicationId", "deduplicatedJobId")),
    "cleaned": Shape(required=("count",)),
}
"""Every event that BullMQ writes. Other names are custom events (QueueEventsProducer) and may have any fields."""

_NUMBERS = ("delay", "attemptsMade", "count")


def _event_fields(view: View) -> Iterator[Found]:
    """Events have the fields that belong to them, no others, and none of these is empty."""
    for event in view.snapshot.events:
        shape = SHAPES.get(event.name)
        if not event.name:
            yield Found(where="event", key=_key(event), message=f"entry {event.id} has no field `event`")
        if shape is None:
            continue
        names = [name for name, _ in event.fields if name != "event"]
        for name in shape.required:
            if name not in names:
                yield _found(event, name, "is missing")
            elif not event.get(name) and name not in shape.may_be_empty:
                yield _found(event, name, "is empty")
        for name in names:
            if name not in shape.required and name not in shape.optional:
                yield _found(event, name, "does not belong there")


def _event_values(view: View) -> Iterator[Found]:
    """`prev` names a state; delays, counts and attempts are numbers."""
    for event in view.snapshot.events:
        if event.name not in SHAPES:
            continue
        prev = event.get("prev")
        if prev and prev not in PREVIOUS_STATES:
            yield _found(event, "prev", f"is {prev!r}, which is no state")
        for name in _NUMBERS:
            value = event.get(name)
            if value and as_number(value) is None:
                yield _found(event, name, f"is {value!r}, which is no number")


def _event_jobs(view: View) -> Iterator[Found]:
    """An event names a job that exists, or that was added earlier in the stream.

    Not judged where the stream has been trimmed: then it holds fewer entries for additions than the counter `id` says.
    """
    for queue in view.snapshot.queues:
        events = view.snapshot.events_of(queue)
        if _is_trimmed(view, queue, events):
            continue
        added = {event.job for event in events if event.name == "added"}
        for event in events:
            unknown = event.job not in added and (queue, event.job) not in view.jobs
            if event.name in SHAPES and event.job and unknown:
                yield _found(event, "jobId", f"is {event.job!r}, a job that was never added")


def _is_trimmed(view: View, queue: str, events: list[Event]) -> bool:
    """Every call of an add script counts in `id` and leaves one of these entries."""
    counters = [row.value for row in view.snapshot.counters if row.queue == queue and row.name == "id"]
    calls = sum(event.name in {"added", "duplicated", "debounced"} for event in events)
    return calls < (as_number(counters[0]) or 0 if counters else 0)


def _found(event: Event, field: str, problem: str) -> Found:
    message = f"`{event.name}` ({event.id}): {field} {problem}"
    return Found(where=f"event.{event.name}.{field}", key=_key(event), message=message)


def _key(event: Event) -> str:
    return f"{event.queue}:{event.job or 'events'}"


CHECKS: tuple[Check[View], ...] = (
    Check(name="event-fields", severity="breaks-others", source="every XADD of the scripts", predicate=_event_fields),
    Check(name="event-values", severity="breaks-others", source="every XADD of the scripts", predicate=_event_values),
    Check(name="event-jobs", severity="wrong-behaviour", source="includes/storeJob.lua", predicate=_event_jobs),
)
