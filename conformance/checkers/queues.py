"""Invariants about a queue as a whole: markers, locks, counters, schedulers, lifetimes, and its event stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from conformance.checkers.base import SnapshotView, ViolationDetail, is_plausible_ms
from conformance.checkers.table import check
from conformance.observe.relay import relay_place
from conformance.observe.tables import Event, as_number
from conformance.protocol.keys import WAITING_CHILDREN
from conformance.protocol.states import (
    DELAY_FACTOR,
    JOB_TYPES,
    PRIORITY_FACTOR,
    STATE_CONTAINERS,
    STATE_UNKNOWN,
    UNFINISHED_CONTAINERS,
)

_EXACT_PRIORITY = 2**20
"""From here on, scores lose their low bits, so the counter cannot be decoded."""


@check("base-marker")
def _base_marker(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A queue with waiting jobs and no active job has its base marker, so that an idle worker wakes up.

    Exceptions: a paused queue, a running rate limit, and a global concurrency (a slot that becomes free sets no
    marker). Jobs at the very front of a priority class were put there without a marker.
    """
    markers = {(row.queue, row.member) for row in view.snapshot.markers}
    limited = {row.queue for row in view.snapshot.limiters}
    for queue in view.snapshot.queues:
        meta = view.snapshot.meta(queue)
        # With an active job, its worker fetches the next one itself when it finishes, so no marker is needed.
        if {"paused", "concurrency"} & meta.keys() or queue in limited or view.members(queue, "active"):
            continue
        # Ids that start with `0:` are markers of old versions.
        waiting = [row.job for row in view.members(queue, "wait") if not row.job.startswith("0:")]
        waiting += [row.job for row in view.members(queue, "prioritized") if not _is_at_front(as_number(row.score))]
        if waiting and (queue, "0") not in markers:
            message = f"{len(waiting)} jobs wait, nothing is active, and there is no marker"
            yield ViolationDetail(where="marker.base", key=f"{queue}:marker", message=message)


def _is_at_front(score: float | None) -> bool:
    return score is not None and score % PRIORITY_FACTOR == 0


@check("marker-members")
def _marker_members(view: SnapshotView) -> Iterator[ViolationDetail]:
    """`marker` only holds member `0` with score 0 and member `1` with a due time."""
    for row in view.snapshot.markers:
        score = as_number(row.score)
        if row.member not in {"0", "1"}:
            yield ViolationDetail(
                where="marker.other", key=f"{row.queue}:marker", message=f"unknown member {row.member!r}"
            )
        elif row.member == "0" and score != 0:
            yield ViolationDetail(where="marker.base", key=f"{row.queue}:marker", message=f"score {score} instead of 0")
        elif row.member == "1" and (score is None or score <= 0):
            yield ViolationDetail(
                where="marker.delay", key=f"{row.queue}:marker", message=f"score {score} is not a due time"
            )


@check("delay-marker")
def _delay_marker(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A delay marker is not later than the first delayed job; else that job starts late.

    It may be earlier (jobs were removed), or missing (a worker took it and remembers the time).
    """
    for row in view.snapshot.markers:
        scores = [as_number(member.score) for member in view.members(row.queue, "delayed")]
        first = min((score for score in scores if score is not None), default=None)
        marked = as_number(row.score)
        # One ms of tolerance: the marker may be fractional, and the score carries a tie-break below 4096.
        if row.member == "1" and marked is not None and first is not None and marked > first / DELAY_FACTOR + 1:
            message = f"the marker says {marked:.0f}, the first delayed job is due at {first / DELAY_FACTOR:.0f}"
            yield ViolationDetail(where="marker.delay", key=f"{row.queue}:marker", message=message)


@check("locks")
def _locks(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A lock expires, and belongs to a job that is active.

    A job that was moved back by a call with token `0` keeps its lock until it expires: upstream's default for
    `moveToDelayed` and `moveToWait` outside a processor. So the lock of a waiting or delayed job is not a violation.
    """
    left_behind = set(UNFINISHED_CONTAINERS) - {WAITING_CHILDREN}
    for lock in view.snapshot.locks:
        key, ttl = f"{lock.queue}:{lock.job}", as_number(lock.ttl_ms)
        states = view.states.get((lock.queue, lock.job), [])
        if ttl is not None and ttl < 0:
            yield ViolationDetail(where="lock.ttl", key=key, message="the lock never expires", damage="lock-never-ends")
        if (lock.queue, lock.job) not in view.jobs:
            message = "there is a lock, but no such job"
            yield ViolationDetail(where="lock.left", key=key, message=message, damage="lock-without-a-job")
        elif not left_behind.intersection(states):
            message = f"there is a lock, and the job is in {', '.join(states) or 'none'}"
            yield ViolationDetail(where="lock.left", key=key, message=message, damage="lock-of-another-state")


@check("deduplication")
def _deduplication(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A deduplication key that does not expire points to a job that has not finished yet."""
    for row in view.snapshot.deduplications:
        # A key with a TTL outlives its job on purpose: that is throttling.
        if as_number(row.ttl_ms) != -1 or row.next is not None:
            continue
        states = view.states.get((row.queue, row.job), [])
        if (row.queue, row.job) not in view.jobs or {"completed", "failed"}.intersection(states):
            message = f"it points to job {row.job!r}, which is {'finished' if states else 'gone'}"
            yield ViolationDetail(where="dedup.job", key=f"{row.queue}:de:{row.id}", message=message)


@check("kept-back")
def _kept_back(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A job is kept back only for a job that has not ended: the end of that one stores it."""
    for row in view.snapshot.deduplications:
        if row.next is not None and not view.has_unfinished(row.queue, row.id):
            message = f"the job {row.next.get('data', '')[:80]!r} is kept back for ever: no job of its id will end"
            yield ViolationDetail(where="dedup.next", key=f"{row.queue}:dn:{row.id}", message=message)


@check("id-counter")
def _id_counter(view: SnapshotView) -> Iterator[ViolationDetail]:
    """The counter `id` is not below any generated (integer) job id; else the next job overwrites an old one."""
    counters = {row.queue: as_number(row.value) for row in view.snapshot.counters if row.name == "id"}
    for queue in view.snapshot.queues:
        generated = [int(name) for owner, name in view.jobs if owner == queue and _is_generated(name)]
        counter = counters.get(queue) or 0
        if generated and counter < max(generated):
            message = f"the counter is at {counter:.0f}, there is a job {max(generated)}"
            yield ViolationDetail(where="counter.id", key=f"{queue}:id", message=message)


def _is_generated(name: str) -> bool:
    # Only ids without a leading zero come from the counter; others were chosen by a user.
    return name.isascii() and name.isdigit() and not name.startswith("0")


@check("priority-counter")
def _priority_counter(view: SnapshotView) -> Iterator[ViolationDetail]:
    """The counter `pc` is not below the counter part of any score in `prioritized`."""
    counters = {row.queue: as_number(row.value) for row in view.snapshot.counters if row.name == "pc"}
    for row in view.snapshot.memberships:
        score = as_number(row.score)
        if row.container != "prioritized" or score is None or abs(score) >= _EXACT_PRIORITY * PRIORITY_FACTOR:
            continue
        part, counter = score % PRIORITY_FACTOR, counters.get(row.queue) or 0
        if part > counter and part < PRIORITY_FACTOR // 2:
            message = f"the counter is at {counter:.0f}, job {row.job} has {part:.0f}"
            yield ViolationDetail(where="counter.pc", key=f"{row.queue}:pc", message=message)


@check("schedulers")
def _schedulers(view: SnapshotView) -> Iterator[ViolationDetail]:
    """Every entry of `repeat` has a record and a next time in Unix ms; every record has an entry."""
    for row in view.snapshot.schedulers:
        key = f"{row.queue}:repeat:{row.id}"
        if row.fields is None:
            message = "this entry of `repeat` has no record"
            yield ViolationDetail(
                where="scheduler.record", key=key, message=message, damage="schedule-without-a-record"
            )
        if row.next is None:
            message = "the record has no entry in `repeat`"
            yield ViolationDetail(where="scheduler.next", key=key, message=message, damage="schedule-without-an-entry")
        elif not is_plausible_ms(as_number(row.next)):
            message = f"{row.next} is not a time in Unix ms"
            yield ViolationDetail(where="scheduler.next", key=key, message=message, damage="schedule-time-unreadable")


@check("throttles")
def _throttles(view: SnapshotView) -> Iterator[ViolationDetail]:
    """`limiter` and `stalled-check` expire; else the queue stops for ever."""
    for row in (*view.snapshot.limiters, *view.snapshot.stalled_checks):
        # -1 is Redis's answer for a key without expiry.
        if as_number(row.ttl_ms) == -1:
            damage = "limit-never-ends" if row.name == "limiter" else "stalled-check-never-ends"
            key, message = f"{row.queue}:{row.name}", "the key never expires"
            yield ViolationDetail(where=f"{row.name}.ttl", key=key, message=message, damage=damage)


@check("no-expiry")
def _no_expiry(view: SnapshotView) -> Iterator[ViolationDetail]:
    """No other key expires: a job or a list that vanishes by itself is lost work."""
    for row in view.snapshot.expiries:
        yield ViolationDetail(where=f"expiry.{row.kind}", key=row.key, message=f"the key expires in {row.ttl_ms} ms")


@check("no-unknown-keys")
def _no_unknown_keys(view: SnapshotView) -> Iterator[ViolationDetail]:
    """Every key under the prefix has a meaning in BullMQ, and the Redis type that belongs to it."""
    for row in view.snapshot.unknown:
        if relay_place(view.snapshot.prefix, row.key) is None:
            message = f"a {row.type} that BullMQ does not know"
            yield ViolationDetail(where=f"unknown.{row.type}", key=row.key, message=message)


PREVIOUS_STATES = frozenset({*STATE_CONTAINERS, *JOB_TYPES, STATE_UNKNOWN})
"""Allowed values of `prev`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventShape:
    """The fields of an event besides `event`: required, optional, and those that may be empty."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    may_be_empty: frozenset[str] = frozenset()


SHAPES: Mapping[str, EventShape] = {
    "added": EventShape(required=("jobId", "name"), may_be_empty=frozenset({"name"})),
    "waiting": EventShape(required=("jobId",), optional=("prev",)),
    "delayed": EventShape(required=("jobId", "delay")),
    "waiting-children": EventShape(required=("jobId",), optional=("prev",)),
    "active": EventShape(required=("jobId", "prev")),
    "progress": EventShape(required=("jobId", "data")),
    "completed": EventShape(required=("jobId", "returnvalue"), optional=("prev",)),
    "failed": EventShape(
        required=("jobId", "failedReason"), optional=("prev",), may_be_empty=frozenset({"failedReason"})
    ),
    "retries-exhausted": EventShape(required=("jobId", "attemptsMade")),
    "stalled": EventShape(required=("jobId",)),
    "drained": EventShape(),
    "paused": EventShape(),
    "resumed": EventShape(),
    "removed": EventShape(required=("jobId", "prev")),
    "duplicated": EventShape(required=("jobId",)),
    "debounced": EventShape(required=("jobId", "debounceId")),
    "deduplicated": EventShape(required=("jobId", "deduplicationId", "deduplicatedJobId")),
    "cleaned": EventShape(required=("count",)),
}
"""Every event that BullMQ writes. Other names are custom events (QueueEventsProducer) and may have any fields."""

_NUMBERS = ("delay", "attemptsMade", "count")


@check("event-fields")
def _event_fields(view: SnapshotView) -> Iterator[ViolationDetail]:
    """Events have exactly their own fields, and none of these is empty."""
    for event in view.snapshot.events:
        shape = SHAPES.get(event.name)
        if not event.name:
            yield ViolationDetail(where="event", key=_key(event), message=f"entry {event.id} has no field `event`")
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


@check("event-prev")
def _event_prev(view: SnapshotView) -> Iterator[ViolationDetail]:
    """Events `completed` and `failed` have the field `prev`."""
    for event in view.snapshot.events:
        if event.name in ("completed", "failed") and not event.get("prev"):
            yield _found(event, "prev", "is missing")


@check("event-values")
def _event_values(view: SnapshotView) -> Iterator[ViolationDetail]:
    """`prev` names a state; delays, counts and attempts are numbers."""
    for event in view.snapshot.events:
        if event.name not in SHAPES:
            continue
        prev = event.get("prev")
        if prev and prev not in PREVIOUS_STATES:
            yield _found(event, "prev", f"is {prev!r}, which is not a state")
        for name in _NUMBERS:
            value = event.get(name)
            if value and as_number(value) is None:
                yield _found(event, name, f"is {value!r}, which is not a number")


@check("event-jobs")
def _event_jobs(view: SnapshotView) -> Iterator[ViolationDetail]:
    """An event names a job that exists, or that was added earlier in the stream.

    Not judged if the stream was trimmed: then it has fewer entries for additions than the counter `id`.
    """
    for queue in view.snapshot.queues:
        events = view.snapshot.events_of(queue)
        if _is_trimmed(view, queue, events):
            # Trimming is approximate and drops the oldest entries first, so additions may be missing.
            continue
        added = {event.job for event in events if event.name == "added"}
        unknown: dict[str, list[Event]] = {}
        for event in events:
            if event.name in SHAPES and event.job and event.job not in added and (queue, event.job) not in view.jobs:
                unknown.setdefault(event.job, []).append(event)
        for job, its_events in unknown.items():
            first = its_events[0]
            # A job that was added lacks this event: it has gone to another job. Otherwise its own `added` is missing.
            misnamed = first.name != "waiting" or added - {event.job for event in events if event.name == "waiting"}
            if len(its_events) == 1 and misnamed:
                yield _found(first, "jobId", f"is {job!r}, a job that was never added")
            else:
                message = f"job {job!r} has events from `{first.name}` on, and no `added`"
                yield ViolationDetail(where="event.added", key=_key(first), message=message)


def _is_trimmed(view: SnapshotView, queue: str, events: list[Event]) -> bool:
    """Every call of an add script counts in `id` and leaves one of these entries."""
    counters = [row.value for row in view.snapshot.counters if row.queue == queue and row.name == "id"]
    calls = sum(event.name in {"added", "duplicated", "debounced"} for event in events)
    return calls < (as_number(counters[0]) or 0 if counters else 0)


def _found(event: Event, field: str, problem: str) -> ViolationDetail:
    message = f"`{event.name}` ({event.id}): {field} {problem}"
    return ViolationDetail(where=f"event.{event.name}.{field}", key=_key(event), message=message)


def _key(event: Event) -> str:
    return f"{event.queue}:{event.job or 'events'}"
