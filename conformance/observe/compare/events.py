"""Compare event streams by alignment, not by index: one event too few is one difference. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

from conformance.observe.compare.jobs import Presence
from conformance.observe.compare.values import same, same_json
from conformance.observe.differences import Difference, difference
from conformance.observe.tables import Event, Snapshot, parsed_json

JSON_FIELDS = frozenset({("completed", "returnvalue"), ("progress", "data")})
"""Event and field of the values that are JSON texts."""

Kind: TypeAlias = tuple[str, str]
"""What identifies an event for alignment: its name and its job."""


def compare_events(expected: Snapshot, actual: Snapshot, presence: Presence) -> Iterator[Difference]:
    """The streams of all queues, without the events of jobs that only one side has."""
    for queue in sorted({*expected.queues, *actual.queues}):
        left, right = (
            [event for event in side.events_of(queue) if not presence.explains(queue, event.job)]
            for side in (expected, actual)
        )
        yield from _compare_streams(queue, left, right)


def _compare_streams(queue: str, expected: Sequence[Event], actual: Sequence[Event]) -> Iterator[Difference]:
    """Aligned events are compared field by field; of the rest, those on both sides have only changed places."""
    pairs, left_over, right_over = _aligned(expected, actual)
    for left, right in pairs:
        yield from _compare_entries(left, right)
    moved = Counter(map(_kind, left_over)) & Counter(map(_kind, right_over))
    if moved:
        yield difference("wrong-event-order", "event.order", f"{queue}:events", _names(expected), _names(actual))
    moved_left, moved_right = _only(left_over, moved), _only(right_over, moved)
    for left in left_over:
        if left not in moved_left:
            yield difference("missing-event", f"event.{left.name}", _key(left), dict(left.fields), None)
    for right in right_over:
        if right not in moved_right:
            yield difference("extra-event", f"event.{right.name}", _key(right), None, dict(right.fields))
    for left, right in zip(sorted(moved_left, key=_kind), sorted(moved_right, key=_kind), strict=True):
        yield from _compare_entries(left, right)


def _aligned(
    expected: Sequence[Event], actual: Sequence[Event]
) -> tuple[list[tuple[Event, Event]], list[Event], list[Event]]:
    """Pairs that stand in the same order on both sides, and what is left of each side."""
    matcher = SequenceMatcher(None, [_kind(event) for event in expected], [_kind(event) for event in actual], False)
    pairs: list[tuple[Event, Event]] = []
    left_over: list[Event] = []
    right_over: list[Event] = []
    for tag, left_start, left_end, right_start, right_end in matcher.get_opcodes():
        if tag == "equal":
            pairs.extend(zip(expected[left_start:left_end], actual[right_start:right_end], strict=True))
        else:
            left_over.extend(expected[left_start:left_end])
            right_over.extend(actual[right_start:right_end])
    return pairs, left_over, right_over


def _only(events: Sequence[Event], wanted: Counter[Kind]) -> list[Event]:
    """The first events of each wanted kind, as many as are wanted."""
    left = Counter(wanted)
    chosen: list[Event] = []
    for event in events:
        if left[_kind(event)] > 0:
            left[_kind(event)] -= 1
            chosen.append(event)
    return chosen


def _compare_entries(expected: Event, actual: Event) -> Iterator[Difference]:
    """Differences between two events of the same kind: fields, their order, and the stream id where it is compared."""
    key, where = _key(expected), f"event.{expected.name}"
    left, right = dict(expected.fields), dict(actual.fields)
    for field in sorted(left.keys() | right.keys()):
        if not same(left.get(field), right.get(field)):
            place = f"{where}.{field}{'.text' if _same_value(expected.name, field, left, right) else ''}"
            yield difference("event-field", place, key, left.get(field), right.get(field), field=field)
    if left.keys() == right.keys() and list(left) != list(right):
        yield difference("event-field", f"{where}.field-order", key, list(left), list(right))
    if expected.id != actual.id:
        yield difference("event-field", f"{where}.id", key, expected.id, actual.id)


def _same_value(event: str, field: str, left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    """Whether a field that holds JSON has the same value on both sides, only spelled otherwise."""
    if (event, field) not in JSON_FIELDS or field not in left or field not in right:
        return False
    value = parsed_json(left[field])
    return value is not None and same_json(value, parsed_json(right[field]))


def _kind(event: Event) -> Kind:
    return event.name, event.job


def _key(event: Event) -> str:
    return f"{event.queue}:{event.job}" if event.job else f"{event.queue}:events"


def _names(events: Sequence[Event]) -> list[str]:
    return [f"{event.name} {event.job}".strip() for event in events]
