"""Invariants about a queue as a whole: markers, locks, deduplication, counters, schedulers, lifetimes."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checkers.base import Check, Found, View, is_plausible_ms
from conformance.observe.tables import as_number

DELAY_STEP = 4096
PRIORITY_STEP = 2**32
_EXACT_PRIORITY = 2**20
"""From here on scores lose their low bits, and the counter cannot be read back."""


def _base_marker(view: View) -> Iterator[Found]:
    """A queue with work and nobody at work has its base marker, so that an idle worker wakes up.

    Not while it is paused, nor while a rate limit runs, nor with a global concurrency (a slot that becomes free sets no
    marker). Jobs at the very front of a priority class were put there without a marker.
    """
    markers = {(row.queue, row.member) for row in view.snapshot.markers}
    limited = {row.queue for row in view.snapshot.limiters}
    for queue in view.snapshot.queues:
        meta = view.snapshot.meta(queue)
        if {"paused", "concurrency"} & meta.keys() or queue in limited or view.members(queue, "active"):
            continue
        waiting = [row.job for row in view.members(queue, "wait")]
        waiting += [row.job for row in view.members(queue, "prioritized") if not _is_at_front(as_number(row.score))]
        if waiting and (queue, "0") not in markers:
            message = f"{len(waiting)} jobs wait, nothing is active, and there is no marker"
            yield Found(where="marker.base", key=f"{queue}:marker", message=message)


def _is_at_front(score: float | None) -> bool:
    return score is not None and score % PRIORITY_STEP == 0


def _marker_members(view: View) -> Iterator[Found]:
    """`marker` holds nothing but member `0` with score 0 and member `1` with a due time."""
    for row in view.snapshot.markers:
        score = as_number(row.score)
        if row.member not in {"0", "1"}:
            yield Found(where="marker.other", key=f"{row.queue}:marker", message=f"unknown member {row.member!r}")
        elif row.member == "0" and score != 0:
            yield Found(where="marker.base", key=f"{row.queue}:marker", message=f"score {score} instead of 0")
        elif row.member == "1" and (score is None or score <= 0):
            yield Found(where="marker.delay", key=f"{row.queue}:marker", message=f"score {score} is no due time")


def _delay_marker(view: View) -> Iterator[Found]:
    """Where there is a delay marker, it is not later than the first delayed job, or that job starts late.

    It may be earlier (jobs were removed), and it may be missing (a worker took it and remembers the time).
    """
    for row in view.snapshot.markers:
        scores = [as_number(member.score) for member in view.members(row.queue, "delayed")]
        first = min((score for score in scores if score is not None), default=None)
        marked = as_number(row.score)
        if row.member == "1" and marked is not None and first is not None and marked > first / DELAY_STEP + 1:
            message = f"the marker says {marked:.0f}, the first delayed job is due at {first / DELAY_STEP:.0f}"
            yield Found(where="marker.delay", key=f"{row.queue}:marker", message=message)


def _locks(view: View) -> Iterator[Found]:
    """A lock expires, and belongs to a job that is active.

    A job that was moved back by a call with token `0` keeps its lock until it expires: upstream's default for
    `moveToDelayed` and `moveToWait` outside a processor. So a lock of a waiting or delayed job is no violation.
    """
    left_behind = {"active", "wait", "paused", "prioritized", "delayed"}
    for lock in view.snapshot.locks:
        key, ttl = f"{lock.queue}:{lock.job}", as_number(lock.ttl_ms)
        states = view.states.get((lock.queue, lock.job), [])
        if ttl is not None and ttl < 0:
            yield Found(where="lock.ttl", key=key, message="the lock never expires")
        if (lock.queue, lock.job) not in view.jobs:
            yield Found(where="lock", key=key, message="there is a lock, but no such job")
        elif not left_behind.intersection(states):
            yield Found(
                where="lock", key=key, message=f"there is a lock, and the job is in {', '.join(states) or 'none'}"
            )


def _deduplication(view: View) -> Iterator[Found]:
    """A deduplication key that does not expire points to a job that has not finished yet."""
    for row in view.snapshot.deduplications:
        if as_number(row.ttl_ms) != -1:
            continue
        states = view.states.get((row.queue, row.job), [])
        if (row.queue, row.job) not in view.jobs or {"completed", "failed"}.intersection(states):
            message = f"it points to job {row.job!r}, which is {'finished' if states else 'gone'}"
            yield Found(where="dedup.job", key=f"{row.queue}:de:{row.id}", message=message)


def _id_counter(view: View) -> Iterator[Found]:
    """The counter `id` is not below any generated (integer) job id, or the next job overwrites an old one."""
    counters = {row.queue: as_number(row.value) for row in view.snapshot.counters if row.name == "id"}
    for queue in view.snapshot.queues:
        generated = [int(name) for owner, name in view.jobs if owner == queue and _is_generated(name)]
        counter = counters.get(queue) or 0
        if generated and counter < max(generated):
            message = f"the counter is at {counter:.0f}, there is a job {max(generated)}"
            yield Found(where="counter.id", key=f"{queue}:id", message=message)


def _is_generated(name: str) -> bool:
    return name.isascii() and name.isdigit() and not name.startswith("0")


def _priority_counter(view: View) -> Iterator[Found]:
    """The counter `pc` is not below the counter part of any score in `prioritized`."""
    counters = {row.queue: as_number(row.value) for row in view.snapshot.counters if row.name == "pc"}
    for row in view.snapshot.memberships:
        score = as_number(row.score)
        if row.container != "prioritized" or score is None or abs(score) >= _EXACT_PRIORITY * PRIORITY_STEP:
            continue
        part, counter = score % PRIORITY_STEP, counters.get(row.queue) or 0
        if part > counter and part < PRIORITY_STEP // 2:
            message = f"the counter is at {counter:.0f}, job {row.job} has {part:.0f}"
            yield Found(where="counter.pc", key=f"{row.queue}:pc", message=message)


def _schedulers(view: View) -> Iterator[Found]:
    """Every entry of `repeat` has a record and a next time in Unix ms; every record has an entry."""
    for row in view.snapshot.schedulers:
        key = f"{row.queue}:repeat:{row.id}"
        if row.fields is None:
            yield Found(where="scheduler.record", key=key, message="there is no record for this entry of `repeat`")
        if row.next is None:
            yield Found(where="scheduler.next", key=key, message="the record has no entry in `repeat`")
        elif not is_plausible_ms(as_number(row.next)):
            yield Found(where="scheduler.next", key=key, message=f"{row.next} is not a time in Unix ms")


def _throttles(view: View) -> Iterator[Found]:
    """`limiter` and `stalled-check` expire, or the queue stands still for ever."""
    for row in (*view.snapshot.limiters, *view.snapshot.stalled_checks):
        if as_number(row.ttl_ms) == -1:
            yield Found(where=f"{row.name}.ttl", key=f"{row.queue}:{row.name}", message="the key never expires")


def _no_expiry(view: View) -> Iterator[Found]:
    """No other key expires: a job or a list that vanishes by itself is lost work."""
    for row in view.snapshot.expiries:
        yield Found(where=f"expiry.{row.kind}", key=row.key, message=f"the key expires in {row.ttl_ms} ms")


def _no_unknown_keys(view: View) -> Iterator[Found]:
    """Every key under the prefix has a meaning in BullMQ, and the Redis type that belongs to it."""
    for row in view.snapshot.unknown:
        yield Found(where=f"unknown.{row.type}", key=row.key, message=f"a {row.type} that BullMQ does not know")


CHECKS: tuple[Check[View], ...] = (
    Check(
        name="base-marker",
        severity="breaks-others",
        source="includes/addBaseMarkerIfNeeded.lua",
        predicate=_base_marker,
    ),
    Check(name="marker-members", severity="breaks-others", source="classes/worker.ts", predicate=_marker_members),
    Check(
        name="delay-marker",
        severity="breaks-others",
        source="includes/addDelayMarkerIfNeeded.lua",
        predicate=_delay_marker,
    ),
    Check(name="locks", severity="breaks-others", source="includes/removeLock.lua", predicate=_locks),
    Check(
        name="deduplication",
        severity="breaks-others",
        source="includes/removeDeduplicationKeyIfNeededOnFinalization.lua",
        predicate=_deduplication,
    ),
    Check(name="id-counter", severity="breaks-others", source="addStandardJob-9.lua", predicate=_id_counter),
    Check(
        name="priority-counter",
        severity="wrong-behaviour",
        source="includes/getPriorityScore.lua",
        predicate=_priority_counter,
    ),
    Check(name="schedulers", severity="breaks-others", source="addJobScheduler-11.lua", predicate=_schedulers),
    Check(name="throttles", severity="breaks-others", source="moveStalledJobsToWait-8.lua", predicate=_throttles),
    Check(name="no-expiry", severity="breaks-others", source="every script that writes", predicate=_no_expiry),
    Check(name="no-unknown-keys", severity="cosmetic", source="classes/queue-keys.ts", predicate=_no_unknown_keys),
)
