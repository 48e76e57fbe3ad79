"""Compare what two snapshots say about jobs: which there are, their fields and states, and their events. Pure.

Event streams are compared by alignment, not by index: one event too few is one difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TypeAlias

from conformance.observe.differences import Difference, compare_fields, difference, same, same_json
from conformance.observe.tables import Event, Job, Membership, Snapshot, as_number, parsed_json
from conformance.protocol.states import DELAY_FACTOR, LIST_CONTAINERS, STATE_CONTAINERS, UNFINISHED_CONTAINERS

JobKey: TypeAlias = tuple[str, str]
"""Queue and job id."""

JSON_FIELDS = frozenset({("completed", "returnvalue"), ("progress", "data")})
"""Event and field of the values that are JSON texts."""

FORMER_MARKER = "0:"
JOB_TEXTS = ("data", "opts", "returnvalue", "stacktrace", "progress")
WRITTEN_BY_ADDING = ("name", "data", "opts", "timestamp", "delay", "priority")

Kind: TypeAlias = tuple[str, str]
"""The identity of an event for alignment: its name and its job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPresence:
    """The jobs that only one side has. Data of such a job is not a further difference."""

    missing: frozenset[JobKey]
    extra: frozenset[JobKey]

    def explains(self, queue: str, job: str) -> bool:
        """Whether a row about this job is explained by the job's being missing or too many."""
        return (queue, job) in self.missing or (queue, job) in self.extra

    def touches(self, queue: str) -> bool:
        """Whether a job of the queue is missing or too many, so that counters and markers differ for that reason."""
        return any(name == queue for name, _ in self.missing | self.extra)


def presence_of(expected: Snapshot, actual: Snapshot) -> JobPresence:
    """Compare which job hashes exist."""
    left, right = _by_key(expected), _by_key(actual)
    return JobPresence(missing=frozenset(left.keys() - right.keys()), extra=frozenset(right.keys() - left.keys()))


def compare_jobs(expected: Snapshot, actual: Snapshot, presence: JobPresence) -> Iterator[Difference]:
    """Missing and extra jobs, and the fields of the others."""
    left, right = _by_key(expected), _by_key(actual)
    left_states, right_states = _states(expected), _states(actual)
    for key in sorted(presence.missing):
        missing = difference("missing-job", "job", _text(key), _described(left[key], left_states[key]), None)
        # A finished job that is not kept is not lost: its work is done.
        lost = any(state in UNFINISHED_CONTAINERS for state in left_states[key])
        yield replace(missing, severity="lost-jobs") if lost else missing
    for key in sorted(presence.extra):
        yield difference("extra-job", "job", _text(key), None, _described(right[key], right_states[key]))
    for key in sorted(left.keys() & right.keys()):
        yield from compare_fields("job", _text(key), left[key].fields, right[key].fields)


def compare_memberships(expected: Snapshot, actual: Snapshot, presence: JobPresence) -> Iterator[Difference]:
    """State of each job, then order of each list, then scores, then the stalled set."""
    left, right = _states(expected), _states(actual)
    ghosts = right.keys() - _by_key(actual).keys()
    moved: set[JobKey] = set()
    for key in sorted(left.keys() | right.keys()):
        if left[key] != right[key] and not presence.explains(*key):
            moved.add(key)
            where = "membership.ghost" if key in ghosts and not left[key] else "membership.state"
            # A marker of former versions among the jobs, which Node's readers skip.
            where = "marker.base" if key[1].startswith(FORMER_MARKER) else where
            yield difference(_state_kind(left[key], right[key]), where, _text(key), list(left[key]), list(right[key]))
    yield from _compare_orders(expected, actual, moved, presence)
    yield from _compare_scores(expected, actual, presence)
    yield from _compare_stalled(expected, actual, presence)


def _state_kind(expected: tuple[str, ...], actual: tuple[str, ...]) -> str:
    """A job in no container is lost, one in two may run twice; else it is only somewhere else."""
    if expected and not actual:
        return "no-state"
    # Not just "more than one": the oracle itself may have two after a fault, and then two are right.
    return "two-states" if len(actual) > max(1, len(expected)) else "wrong-state"


def _states(snapshot: Snapshot) -> Mapping[JobKey, tuple[str, ...]]:
    """The containers of every job, one entry per occurrence, in a fixed order."""
    found: defaultdict[JobKey, tuple[str, ...]] = defaultdict(tuple)
    for row in sorted(
        snapshot.memberships,
        key=lambda row: STATE_CONTAINERS.index(row.container) if row.container in STATE_CONTAINERS else -1,
    ):
        # The stalled set marks active jobs; it is not a state of its own.
        if row.container != "stalled":
            found[row.queue, row.job] = (*found[row.queue, row.job], row.container)
    return found


def _compare_orders(
    expected: Snapshot, actual: Snapshot, moved: set[JobKey], presence: JobPresence
) -> Iterator[Difference]:
    """One difference per list whose common jobs have a different order."""
    for queue in sorted({*expected.queues, *actual.queues}):
        for container in LIST_CONTAINERS:
            left = _comparable(expected, queue, container, moved, presence)
            right = _comparable(actual, queue, container, moved, presence)
            if left != right:
                yield difference("wrong-order", f"membership.{container}.order", f"{queue}:{container}", left, right)


def _comparable(snapshot: Snapshot, queue: str, container: str, moved: set[JobKey], presence: JobPresence) -> list[str]:
    members = snapshot.members(queue, container)
    return [job for job in members if (queue, job) not in moved and not presence.explains(queue, job)]


def _compare_scores(expected: Snapshot, actual: Snapshot, presence: JobPresence) -> Iterator[Difference]:
    """Scores of the jobs that are in the same sorted set on both sides, unless a field already shows the difference."""
    left, right = _scored(expected), _scored(actual)
    jobs_left, jobs_right = _by_key(expected), _by_key(actual)
    for key in sorted(left.keys() & right.keys()):
        queue, container, job = key
        if presence.explains(queue, job) or same(left[key].score, right[key].score):
            continue
        if not _follows(left[key], jobs_left.get((queue, job)), right[key], jobs_right.get((queue, job))):
            where = f"membership.{container}.score"
            yield difference("wrong-value", where, f"{queue}:{job}", left[key].score, right[key].score)


def _follows(left: Membership, left_job: Job | None, right: Membership, right_job: Job | None) -> bool:
    """Whether the scores differ by just as much as the fields that they are made from."""
    if left_job is None or right_job is None:
        return False
    shares = [_beyond_fields(left, left_job), _beyond_fields(right, right_job)]
    return shares[0] is not None and shares[0] == shares[1]


def _beyond_fields(row: Membership, job: Job) -> float | None:
    """The rest of a score without the fields that it is computed from; None if it is unknown."""
    score = as_number(row.score)
    if row.container == "delayed":
        timestamp, delay = job.number("timestamp"), job.number("delay")
        base = None if timestamp is None or delay is None else (timestamp + max(delay, 0)) * DELAY_FACTOR
    elif row.container in {"completed", "failed"}:
        base = job.number("finishedOn")
    else:
        base = None
    return None if score is None or base is None else score - base


def _compare_stalled(expected: Snapshot, actual: Snapshot, presence: JobPresence) -> Iterator[Difference]:
    left, right = (
        {(row.queue, row.job) for row in side.memberships if row.container == "stalled"} for side in (expected, actual)
    )
    for key in sorted(left ^ right):
        if not presence.explains(*key):
            kind = "missing-member" if key in left else "extra-member"
            sides = ("in stalled", None) if key in left else (None, "in stalled")
            yield difference(kind, "membership.stalled", _text(key), *sides)


def _by_key(snapshot: Snapshot) -> dict[JobKey, Job]:
    return {(job.queue, job.id): job for job in snapshot.jobs}


def _scored(snapshot: Snapshot) -> dict[tuple[str, str, str], Membership]:
    return {(row.queue, row.container, row.job): row for row in snapshot.memberships if row.score is not None}


def _described(job: Job, states: tuple[str, ...]) -> str:
    return f"{job.fields.get('name', '')} in {', '.join(states) or 'no container'}"


def _text(key: JobKey) -> str:
    return ":".join(key)


def unreadable_places(side: Snapshot) -> Iterator[tuple[str, str]]:
    """Locator and key of each value at which Node's readers and workers end with an error: not JSON, or missing."""
    for event in side.events:
        for name, field in JSON_FIELDS:
            if event.name == name and _is_not_json(event.get(field)):
                yield f"event.{name}.{field}", _key(event)
    for job in side.jobs:
        yield from (
            (f"job.{field}", f"{job.queue}:{job.id}") for field in JOB_TEXTS if _is_not_json(job.fields.get(field))
        )
    for job in side.jobs:
        yield from ((f"job.{field}", f"{job.queue}:{job.id}") for field in WRITTEN_BY_ADDING if field not in job.fields)


def _is_not_json(text: str | None) -> bool:
    return text is not None and text.strip() != "null" and parsed_json(text) is None


def compare_events(expected: Snapshot, actual: Snapshot, presence: JobPresence) -> Iterator[Difference]:
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
    # Events that the alignment left over on both sides are only out of order.
    moved = Counter(map(_kind, left_over)) & Counter(map(_kind, right_over))
    if moved:
        yield difference("wrong-event-order", "event.order", f"{queue}:events", _names(expected), _names(actual))
    (moved_left, missing), (moved_right, extra) = _divided(left_over, moved), _divided(right_over, moved)
    for left in missing:
        yield difference("missing-event", f"event.{left.name}", _key(left), dict(left.fields), None)
    for right in extra:
        yield difference("extra-event", f"event.{right.name}", _key(right), None, dict(right.fields))
    for left, right in zip(sorted(moved_left, key=_kind), sorted(moved_right, key=_kind), strict=True):
        yield from _compare_entries(left, right)


def _aligned(
    expected: Sequence[Event], actual: Sequence[Event]
) -> tuple[list[tuple[Event, Event]], list[Event], list[Event]]:
    """Pairs in the same order on both sides, and the rest of each side."""
    # Without the junk heuristic, which drops frequent elements of long sequences: events repeat by nature.
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


def _divided(events: Sequence[Event], wanted: Counter[Kind]) -> tuple[list[Event], list[Event]]:
    """The first events of each wanted kind, as many as are wanted; and all others, equal to one of the first or not."""
    left = Counter(wanted)
    chosen: list[Event] = []
    others: list[Event] = []
    for event in events:
        if left[_kind(event)] > 0:
            left[_kind(event)] -= 1
            chosen.append(event)
        else:
            others.append(event)
    return chosen, others


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
