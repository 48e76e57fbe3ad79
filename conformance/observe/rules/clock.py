"""The rule for participants without a clock of their own: times become relations between times.

BullMQ takes job times from the client's clock (upstream: every script that has a timestamp in ARGV). Where a
participant cannot be told what time it is, its times are compared with each other and with the server's clock, never
with those of the other participant. A time that breaks its relation stays a raw number, and so becomes a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from conformance.observe.rules.base import CLOCK_TOLERANCE_MS, PLAUSIBLE_SINCE_MS, Context, Rule, with_fields
from conformance.observe.rules.delays import SCORE_STEPS, chosen_timestamp, due_label, iteration_time, masked_delay
from conformance.observe.rules.iterations import masked_iteration, rename_iterations
from conformance.observe.tables import (
    Dependency,
    Event,
    Expiring,
    Job,
    Marker,
    Membership,
    Metrics,
    Number,
    Snapshot,
    as_number,
)

TIMESTAMP = "<timestamp>"
AFTER_TIMESTAMP = "<timestamp or later>"
AFTER_PROCESSED = "<processedOn or later>"
FINISHED = "<finishedOn>"
DUE_TIME = "<due time of a delayed job>"
SOME_TIME = "<time>"
SCORED_WITH_A_TIME = frozenset({"completed", "failed", "waiting-children"})


def _worker_clock(snapshot: Snapshot, _: Context) -> Snapshot:
    """Replace every time by its relation. All relations are judged on the raw times, before any is replaced."""
    jobs = {(job.queue, job.id): job for job in snapshot.jobs}
    masked = replace(
        snapshot,
        jobs=tuple(_masked_job(job, snapshot.taken_ms) for job in snapshot.jobs),
        memberships=tuple(
            _masked_member(member, jobs.get((member.queue, member.job)), snapshot.taken_ms)
            for member in snapshot.memberships
        ),
        dependencies=tuple(_masked_dependency(row, snapshot.taken_ms) for row in snapshot.dependencies),
        markers=tuple(_masked_marker(marker, snapshot) for marker in snapshot.markers),
        events=tuple(_masked_events(snapshot, jobs)),
        stalled_checks=tuple(_masked_check(row, snapshot.taken_ms) for row in snapshot.stalled_checks),
        metrics=tuple(_masked_metrics(row, snapshot.taken_ms) for row in snapshot.metrics),
    )
    return rename_iterations(masked, snapshot)


def _masked_job(job: Job, taken_ms: int) -> Job:
    """The hash with its times and its delay masked."""
    delay = masked_delay(job)
    iteration = masked_iteration(job)
    changes: dict[str, str | None] = {
        "timestamp": _masked_timestamp(job, taken_ms),
        "delay": delay,
        "processedOn": _relation(job.fields.get("processedOn"), _added(job), taken_ms, AFTER_TIMESTAMP),
        "finishedOn": _masked_finish(job, taken_ms),
        **iteration,
    }
    return replace(job, fields=with_fields(job.fields, {k: v for k, v in changes.items() if k in job.fields}))


def _masked_timestamp(job: Job, taken_ms: int) -> str | None:
    """A timestamp that the user chose is no matter of clocks and stays."""
    if chosen_timestamp(job) is not None:
        return None
    return TIMESTAMP if _is_past(job.fields.get("timestamp"), taken_ms) else None


def _added(job: Job) -> float | None:
    """The earliest time that anything can have happened to a job.

    A chosen timestamp says nothing about that, and neither does a hash that was evicted and begins anew.
    """
    says_nothing = chosen_timestamp(job) is not None or "timestamp" not in job.fields
    return float(PLAUSIBLE_SINCE_MS) if says_nothing else job.number("timestamp")


def _masked_finish(job: Job, taken_ms: int) -> str | None:
    """A job that was activated finishes after that; one that was not (moved by hand) after it was added."""
    if "processedOn" in job.fields:
        return _relation(job.fields.get("finishedOn"), job.number("processedOn"), taken_ms, AFTER_PROCESSED)
    return _relation(job.fields.get("finishedOn"), _added(job), taken_ms, AFTER_TIMESTAMP)


def _masked_member(member: Membership, job: Job | None, taken_ms: int) -> Membership:
    """The score in relation to the job's own fields; where its hash was evicted, that it is a time."""
    score = as_number(member.score)
    if score is None:
        return member
    if job is None:
        is_time = member.container in SCORED_WITH_A_TIME and _is_past(score, taken_ms)
        return replace(member, score=SOME_TIME) if is_time else member
    if member.container in {"completed", "failed"} and score == job.number("finishedOn"):
        return replace(member, score=FINISHED)
    if member.container == "delayed":
        return replace(member, score=due_label(job, score, taken_ms) or score)
    if member.container == "waiting-children":
        return replace(member, score=_score_since(job, score, taken_ms))
    return member


def _score_since(job: Job, score: float, taken_ms: int) -> Number:
    """A waiting parent is scored with its timestamp (added by a flow) or with the time it was moved there."""
    return _relation(score, _added(job), taken_ms, AFTER_TIMESTAMP) or score


def _masked_dependency(row: Dependency, taken_ms: int) -> Dependency:
    """The score in `unsuccessful` is the time of the child's failure."""
    score = row.score
    return replace(row, score=SOME_TIME) if _is_past(score, taken_ms) else row


def _masked_marker(marker: Marker, snapshot: Snapshot) -> Marker:
    """The delay marker tells the due time of the next delayed job, or of one that was delayed before (a stale marker).

    These two are not told apart: two due times may by chance fall into the same millisecond.
    """
    score = as_number(marker.score)
    if marker.member != "1" or score is None:
        return marker
    scores = [as_number(row.score) for row in snapshot.memberships if _is_delayed_in(row, marker.queue)]
    first = min((value for value in scores if value is not None), default=None)
    announced = [as_number(event.get("delay")) for event in snapshot.events_of(marker.queue) if event.name == "delayed"]
    is_next = first is not None and first // SCORE_STEPS == score // 1
    return replace(marker, score=DUE_TIME) if is_next or score in announced else marker


def _is_delayed_in(row: Membership, queue: str) -> bool:
    return row.queue == queue and row.container == "delayed"


def _masked_events(snapshot: Snapshot, jobs: Mapping[tuple[str, str], Job]) -> Iterator[Event]:
    """Only `delayed` carries a time: the absolute due time of the job, as text."""
    before: dict[tuple[str, str], str] = {}
    for event in snapshot.events:
        where = (event.queue, event.job)
        due = as_number(event.get("delay")) if event.name == "delayed" else None
        label = None if due is None else _due_event_label(jobs.get(where), due, just_added=before.get(where) == "added")
        before[where] = event.name
        yield event if label is None else replace(event, fields=_with_delay(event, label))


def _due_event_label(job: Job | None, due: float, *, just_added: bool) -> str | None:
    """The due time in relation to the job; of a job that is gone it is known only that it is a time.

    A job that has just been added is due exactly at timestamp + delay; one that was moved, some time after that.
    """
    if job is None or "timestamp" not in job.fields:
        return SOME_TIME if due >= PLAUSIBLE_SINCE_MS else None
    timestamp, asked = job.number("timestamp"), as_number(job.opts.get("delay"))
    if timestamp is None:
        return None
    if due == iteration_time(job.id):
        return "<own time>"
    if just_added:
        return "<timestamp + delay>" if asked is not None and due == timestamp + asked else None
    return AFTER_TIMESTAMP if due >= timestamp else None


def _with_delay(event: Event, label: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, label if name == "delay" else value) for name, value in event.fields)


def _masked_check(row: Expiring, taken_ms: int) -> Expiring:
    return replace(row, value=SOME_TIME) if _is_past(row.value, taken_ms) else row


def _masked_metrics(row: Metrics, taken_ms: int) -> Metrics:
    since: Mapping[str, str | None] = {"prevTS": SOME_TIME if _is_past(row.fields.get("prevTS"), taken_ms) else None}
    return replace(row, fields=with_fields(row.fields, since))


def _relation(value: Number | None, since: float | None, taken_ms: int, label: str) -> str | None:
    """The label where the value is a whole number of ms, not before `since` and not after now.

    A worker looks at its clock before it sends a command, a job may be added before that command arrives: a start may
    seem to lie before the job's timestamp, with conforming clients too.
    """
    number = as_number(value)
    if number is None or since is None or not _is_past(value, taken_ms):
        return None
    return label if number >= since - CLOCK_TOLERANCE_MS else None


def _is_past(value: Number | None, taken_ms: int) -> bool:
    """Whether a value is a whole number of Unix ms that the server's clock has reached."""
    number = as_number(value)
    if number is None or not number.is_integer() or (isinstance(value, str) and not value.isdigit()):
        return False
    return PLAUSIBLE_SINCE_MS <= number <= taken_ms + CLOCK_TOLERANCE_MS


WORKER_CLOCK = Rule(
    name="worker-clock",
    reason="Job times come from the clock of the client. A client that cannot be told the time is compared by the "
    "relations between its times: not before the job's timestamp, not after now, due at timestamp plus delay.",
    transform=_worker_clock,
)
