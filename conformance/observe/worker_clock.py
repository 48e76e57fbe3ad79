"""The rule for participants without a clock of their own: times become relations between times.

BullMQ takes job times from the client's clock (upstream: every script that has a timestamp in ARGV). If the
kit cannot set the clock of a participant, its times are compared with each other and with the server's clock, never
with those of the other participant. A time that breaks its relation stays a raw number, and so becomes a difference.

A delayed job is due at `T = time of the call + delay`, with the score `T * 4096` plus a tie-break, which the scripts
compute (upstream `includes/getDelayedScore.lua`): up to 4095 jobs of the same millisecond follow each other. The ids of
the iterations of job schedulers contain the time that they are for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from conformance.observe.canonical_rules import (
    CLOCK_TOLERANCE_MS,
    PLAUSIBLE_SINCE_MS,
    CanonicalContext,
    CanonicalRule,
    canonical_json,
    ids_by_appearance,
    map_texts,
    with_fields,
)
from conformance.observe.differences import APPROXIMATELY
from conformance.observe.tables import (
    Dependency,
    Event,
    Expiring,
    Job,
    Marker,
    Membership,
    Metrics,
    Number,
    Scheduler,
    Snapshot,
    as_number,
    parsed_json,
)
from conformance.protocol.states import DELAY_FACTOR, JOB_CONTAINERS

DUE = "<timestamp + delay, or later>"
UNTIL_OWN_TIME = "<until own time>"

_ITERATION_TIME = re.compile(r"repeat:.*:(\d+)")
_MOST_DOUBLINGS = 64

TIMESTAMP = "<timestamp>"
AFTER_TIMESTAMP = "<timestamp or later>"
FINISHED = "<finishedOn>"
DUE_TIME = "<due time of a delayed job>"
SOME_TIME = "<time>"
SCORED_WITH_A_TIME = frozenset(container.key for container in JOB_CONTAINERS if container.score == "time")

OFFSET = "<offset>"
OLDER_OFFSET = "<offset of an earlier, longer period>"
ONE_PERIOD_LATER = "<a period after an iteration>"
_ITERATION = re.compile(r"repeat:(?P<scheduler>.*):(?P<ms>\d{12,14})")


def chosen_timestamp(job: Job) -> float | None:
    """The job's timestamp where the user chose it (option `timestamp`); None where the client's clock did."""
    timestamp = job.number("timestamp")
    return timestamp if not job.is_iteration and timestamp == as_number(job.opts.get("timestamp")) else None


def due_label(job: Job, score: float, taken_ms: int) -> str | None:
    """How a score in `delayed` follows from the job's fields; None where it does not, or needs no clock.

    Added jobs are due at timestamp + delay, jobs that were moved back (retry, changeDelay) at the time of that call +
    delay, and that call lies between the timestamp and now. The two are distinguished only where the user chose the
    timestamp: else a call in the very millisecond of the timestamp would look like the other kind.
    """
    timestamp, delay = job.number("timestamp"), job.number("delay")
    if delay is None:
        # A missing field is a difference of its own, and does not make the score wrong.
        delay = as_number(job.opts.get("delay"))
    if "timestamp" not in job.fields or ("delay" not in job.fields and delay is None):
        # Nothing is known but that it is a time, and a job may be due in the future.
        return DUE if score // DELAY_FACTOR >= PLAUSIBLE_SINCE_MS else None
    if timestamp is None or delay is None:
        return None
    due = (timestamp + max(delay, 0)) * DELAY_FACTOR
    chosen = chosen_timestamp(job) is not None
    if due <= score < due + DELAY_FACTOR:
        return None if chosen else DUE
    # The low 12 bits of the score only order jobs of the same ms (see `due`), so they are dropped.
    called = score // DELAY_FACTOR - delay
    # A chosen timestamp may be in the future, so it does not bound when the call was made.
    earliest = PLAUSIBLE_SINCE_MS if chosen else timestamp
    return DUE if earliest <= called <= taken_ms + CLOCK_TOLERANCE_MS else None


def masked_delay(job: Job) -> str | None:
    """A text for a delay that depends on the clock; None where the delay is one that was asked for.

    Such are the distance of a scheduler's iteration to its own time, and a move to an absolute time. The latter is
    approximate: `<about N ms>`, which the comparison meets with a tolerance.
    """
    delay, timestamp = job.number("delay"), job.number("timestamp")
    if delay is None or delay in _asked_delays(job) or (timestamp is None and "timestamp" in job.fields):
        return None
    if job.is_iteration:
        own_time = iteration_time(job.id)
        off = None if own_time is None else own_time - delay - (timestamp or PLAUSIBLE_SINCE_MS)
        is_until = off is not None and (off > 0 if timestamp is None else abs(off) <= CLOCK_TOLERANCE_MS)
        return UNTIL_OWN_TIME if is_until else None
    return f"{APPROXIMATELY}{delay:.0f} ms>"


def iteration_time(job_id: str) -> int | None:
    """The time in the id of a scheduler's iteration, `repeat:SCHEDULER:MS`; None for other ids."""
    found = _ITERATION_TIME.fullmatch(job_id)
    return int(found.group(1)) if found else None


def _asked_delays(job: Job) -> Iterator[float]:
    """Delays that follow from the options alone: none, `delay`, and the back-off's (fixed, doubled per attempt)."""
    # Promotion sets the hash field to 0, so a job with any delay may have it.
    yield 0.0
    asked = as_number(job.opts.get("delay"))
    if asked is not None and not job.is_iteration:
        yield asked
    backoff = job.opts.get("backoff")
    step = as_number(backoff.get("delay")) if isinstance(backoff, dict) else as_number(backoff)
    if step is not None:
        yield from (step * 2.0**doubling for doubling in range(_MOST_DOUBLINGS))


def masked_iteration(job: Job) -> dict[str, str | None]:
    """The options of an iteration with its clock times masked; nothing for other jobs."""
    own_time = iteration_time(job.id)
    opts = parsed_json(job.fields.get("opts"))
    if own_time is None or not job.is_iteration or not isinstance(opts, dict):
        return {}
    masked = {name: _masked_option(name, value, job, own_time) for name, value in opts.items()}
    return {"opts": canonical_json(masked)} if masked != opts else {}


def _masked_option(name: str, value: Any, job: Job, own_time: int) -> Any:
    """One option: times in relation to the job's fields, the offset in relation to `every`."""
    number = as_number(value)
    if name == "repeat" and isinstance(value, dict):
        return _masked_offset(value)
    if name == "prevMillis" and number == own_time:
        return "<own time>"
    # Without the field, any time fits.
    timestamp = job.number("timestamp") if "timestamp" in job.fields else float(PLAUSIBLE_SINCE_MS)
    tolerance = CLOCK_TOLERANCE_MS if "timestamp" in job.fields else own_time
    if name == "timestamp" and number is not None and timestamp is not None:
        return "<timestamp>" if abs(number - timestamp) <= tolerance else value
    if name == "delay" and number is not None and timestamp is not None:
        # The hash field `delay` is cleared when the iteration becomes due, the option stays.
        return UNTIL_OWN_TIME if abs(timestamp + number - own_time) <= tolerance else value
    return value


def _masked_offset(record: Mapping[str, Any]) -> dict[str, Any]:
    """An offset shows only when the scheduler was started; it may be left from before its period was changed."""
    offset, every = as_number(record.get("offset")), as_number(record.get("every"))
    if offset is None or offset < 0:
        return dict(record)
    return {**record, "offset": OFFSET if every is not None and offset < every else OLDER_OFFSET}


def _iteration_ids(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
    """Replace the times in iteration ids by their number per scheduler, everywhere."""
    labels = _labels(snapshot)
    if not labels:
        return snapshot
    # One id may be the start of another: the longer one must be tried first.
    longest_first = sorted(labels, key=lambda job_id: (-len(job_id), job_id))
    known = re.compile("(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\d)")
    return map_texts(snapshot, lambda text: known.sub(lambda found: labels[found.group()], text))


def _labels(snapshot: Snapshot) -> dict[str, str]:
    """The ids of all iterations, each with its time replaced by `<time N>`, counted per scheduler from the earliest.

    Those that keep their time are not among them.
    """
    times: dict[str, set[int]] = defaultdict(set)
    kept = {job.id for job in snapshot.jobs if _is_counted_from_a_date(job, snapshot.taken_ms)}
    for job_id in ids_by_appearance(snapshot):
        found = _ITERATION.fullmatch(job_id)
        if found and job_id not in kept:
            times[found["scheduler"]].add(int(found["ms"]))
    return {
        f"repeat:{scheduler}:{ms}": f"repeat:{scheduler}:<time {number}>"
        for scheduler, known in times.items()
        for number, ms in enumerate(sorted(known), start=1)
    }


def _is_counted_from_a_date(iteration: Job, taken_ms: int) -> bool:
    """Whether the time of the iteration follows from a `startDate` to come: then it is the same on every clock."""
    repeat, own_time = iteration.opts.get("repeat"), iteration_time(iteration.id)
    start = as_number(repeat.get("startDate")) if isinstance(repeat, dict) else None
    return own_time is not None and start is not None and taken_ms + CLOCK_TOLERANCE_MS < start <= own_time


def _masked_scheduler(row: Scheduler, labels: Mapping[str, str], raw: Snapshot) -> Scheduler:
    """The next time is that of an iteration; the record's offset is masked like the iteration's."""
    number = as_number(row.next)
    label = labels.get(f"repeat:{row.id}:{number:.0f}") if number is not None else None
    due = label.rpartition(":")[2] if label else _unmade_iteration(row, raw)
    fields = row.fields
    if fields is not None:
        fields = with_fields(fields, {"offset": _offset_text(fields)})
    return replace(row, next=due or row.next, fields=fields)


def _unmade_iteration(row: Scheduler, raw: Snapshot) -> str | None:
    """The next time where no iteration was made for it, as without the record: at most one period after another's."""
    number = as_number(row.next)
    for job in raw.jobs:
        own_time, every = iteration_time(job.id), _period(job)
        if job.queue != row.queue or job.fields.get("rjk") != row.id or own_time is None or every is None:
            continue
        # Periods that have passed meanwhile are left out.
        latest = max(own_time, raw.taken_ms) + every
        if number is not None and own_time < number <= latest:
            return ONE_PERIOD_LATER
    return None


def _period(iteration: Job) -> float | None:
    """The interval that an iteration was made with, ms; None where a cron pattern gives the times."""
    repeat = iteration.opts.get("repeat")
    return as_number(repeat.get("every")) if isinstance(repeat, dict) else None


def _offset_text(fields: Mapping[str, str]) -> str | None:
    masked = _masked_offset(fields).get("offset")
    return masked if masked in (OFFSET, OLDER_OFFSET) else None


def _worker_clock(snapshot: Snapshot, _: CanonicalContext) -> Snapshot:
    """Replace every time by its relation. All relations are judged on the raw times, before any is replaced."""
    jobs = {(job.queue, job.id): job for job in snapshot.jobs}
    labels = _labels(snapshot)
    return replace(
        snapshot,
        jobs=tuple(_masked_job(job, snapshot.taken_ms) for job in snapshot.jobs),
        memberships=tuple(
            _masked_member(member, jobs.get((member.queue, member.job)), snapshot.taken_ms)
            for member in snapshot.memberships
        ),
        dependencies=tuple(_masked_dependency(row, snapshot.taken_ms) for row in snapshot.dependencies),
        markers=tuple(_masked_marker(marker, snapshot) for marker in snapshot.markers),
        events=tuple(_masked_events(snapshot, jobs)),
        schedulers=tuple(_masked_scheduler(row, labels, snapshot) for row in snapshot.schedulers),
        stalled_checks=tuple(_masked_check(row, snapshot.taken_ms) for row in snapshot.stalled_checks),
        metrics=tuple(_masked_metrics(row, snapshot.taken_ms) for row in snapshot.metrics),
    )


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
    """A timestamp that the user chose does not depend on clocks and stays."""
    if chosen_timestamp(job) is not None:
        return None
    return TIMESTAMP if _is_past(job.fields.get("timestamp"), taken_ms) else None


def _added(job: Job) -> float | None:
    """The earliest time that anything can have happened to a job.

    A chosen timestamp does not bound it, and neither does one that is not a number, or a hash that was evicted and
    created again.
    """
    if job.fields.get("timestamp") == TIMESTAMP:
        return None  # the relations are replaced already
    timestamp = job.number("timestamp")
    says_nothing = chosen_timestamp(job) is not None or timestamp is None
    return float(PLAUSIBLE_SINCE_MS) if says_nothing else timestamp


def _masked_finish(job: Job, taken_ms: int) -> str | None:
    """A job that was activated finishes after that; one that was not (moved by hand) after it was added.

    The label is the same for both: a wrong `processedOn` is a difference of its own, and not one of `finishedOn`.
    """
    if job.fields.get("processedOn") == AFTER_TIMESTAMP:
        return None  # the rule was applied before, when the raw time of the start was known
    started = job.number("processedOn")
    if started is not None:
        return _relation(job.fields.get("finishedOn"), started, taken_ms, AFTER_TIMESTAMP)
    return _relation(job.fields.get("finishedOn"), _added(job), taken_ms, AFTER_TIMESTAMP)


def _masked_member(member: Membership, job: Job | None, taken_ms: int) -> Membership:
    """The score in relation to the job's own fields; where its hash was evicted, that it is a time."""
    score = as_number(member.score)
    if score is None:
        return member
    if job is None:
        is_time = member.container in SCORED_WITH_A_TIME and _is_past(score, taken_ms)
        return replace(member, score=SOME_TIME) if is_time else member
    if member.container in {"completed", "failed"}:
        is_time = "finishedOn" not in job.fields and _is_past(score, taken_ms)
        label = FINISHED if score == job.number("finishedOn") else SOME_TIME if is_time else score
        return replace(member, score=label)
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
    """The delay marker holds the due time of the next delayed job, or of one that was delayed before (a stale marker).

    These two are not distinguished: two due times may by chance fall into the same millisecond.
    """
    score = as_number(marker.score)
    if marker.member != "1" or score is None:
        return marker
    scores = [as_number(row.score) for row in snapshot.memberships if _is_delayed_in(row, marker.queue)]
    first = min((value for value in scores if value is not None), default=None)
    announced = [as_number(event.get("delay")) for event in snapshot.events_of(marker.queue) if event.name == "delayed"]
    # Whole ms on both sides: the marker may hold a fraction of a ms, the score holds the order in the low bits.
    is_next = first is not None and first // DELAY_FACTOR == score // 1
    is_time = not scores and not announced and score >= PLAUSIBLE_SINCE_MS
    return replace(marker, score=DUE_TIME) if is_next or is_time or score in announced else marker


def _is_delayed_in(row: Membership, queue: str) -> bool:
    return row.queue == queue and row.container == "delayed"


def _masked_events(snapshot: Snapshot, jobs: Mapping[tuple[str, str], Job]) -> Iterator[Event]:
    """Only `delayed` carries a time: the absolute due time of the job, as text."""
    before: dict[tuple[str, str], str] = {}
    for event in snapshot.events:
        where = (event.queue, event.job)
        due = as_number(event.get("delay")) if event.name == "delayed" else None
        label = None if due is None else _due_event_label(jobs.get(where), due, just_added=before.get(where) == "added")
        # Recorded for all events: the one directly before distinguishes an added job from a moved one.
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

    A worker reads its clock before it sends a command, and a job may be added before that command arrives: a start may
    seem to lie before the job's timestamp, with conforming clients too.
    """
    number = as_number(value)
    if number is None or since is None or not _is_past(value, taken_ms):
        return None
    # The job's timestamp may come from another machine's clock than the worker's.
    return label if number >= since - CLOCK_TOLERANCE_MS else None


def _is_past(value: Number | None, taken_ms: int) -> bool:
    """Whether a value is a whole number of Unix ms that the server's clock has reached."""
    number = as_number(value)
    if number is None or not number.is_integer() or (isinstance(value, str) and not value.isdigit()):
        return False
    return PLAUSIBLE_SINCE_MS <= number <= taken_ms + CLOCK_TOLERANCE_MS


WORKER_CLOCK = CanonicalRule(
    name="worker-clock",
    reason="Job times come from the clock of the client. If the kit cannot set this clock, it compares the "
    "relations between the times: not before the job's timestamp, not after now, due at timestamp plus delay.",
    transform=_worker_clock,
    relative=True,
)
ITERATION_IDS = CanonicalRule(
    name="iteration-ids",
    reason="The ids of a job scheduler's iterations contain the times that they are for; their order identifies them.",
    transform=_iteration_ids,
)
