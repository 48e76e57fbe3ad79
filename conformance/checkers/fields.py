"""Invariants about the fields of job hashes and the scores made from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from conformance.checkers.base import Check, Found, View, has_chosen_timestamp, is_plausible_ms
from conformance.observe.tables import Job, as_number, parsed_json

REQUIRED = ("name", "data", "opts", "timestamp", "delay", "priority")
TIMES = ("timestamp", "processedOn", "finishedOn")
COUNTS = ("ats", "atm", "stc")
PRIORITY_STEP = 2**32
DELAY_STEP = 4096
CLOCK_TOLERANCE_MS = 2000
"""How far the clocks of two clients that handle the same job may be apart."""

_WHOLE = re.compile(r"\d+")


def _required_fields(view: View) -> Iterator[Found]:
    """Every job hash has the fields that adding a job writes."""
    for key, job in _jobs(view):
        for field in REQUIRED:
            if field not in job.fields:
                yield Found(where=f"job.{field}", key=key, message="the field is missing")


def _numbers(view: View) -> Iterator[Found]:
    """`delay` and `priority` are numbers, counters are whole numbers from 0."""
    for key, job in _jobs(view):
        for field in ("delay", "priority"):
            if field in job.fields and job.number(field) is None:
                yield Found(where=f"job.{field}", key=key, message=f"{job.fields[field]!r} is not a number")
        for field in COUNTS:
            if not _WHOLE.fullmatch(job.fields.get(field, "0")):
                yield Found(where=f"job.{field}", key=key, message=f"{job.fields[field]!r} is not a count")


def _times(view: View) -> Iterator[Found]:
    """Times of a job are whole numbers of Unix ms. A timestamp that the user chose may be any number."""
    for key, job in _jobs(view):
        for field in TIMES:
            text = job.fields.get(field)
            if text is None or (field == "timestamp" and has_chosen_timestamp(job)):
                continue
            if not _WHOLE.fullmatch(text) or not is_plausible_ms(job.number(field)):
                yield Found(where=f"job.{field}", key=key, message=f"{text!r} is not a time in Unix ms")


def _times_in_order(view: View) -> Iterator[Found]:
    """A job is added, then activated, then finished (clocks of different clients may differ by 2 s)."""
    for key, job in _jobs(view):
        names = TIMES[1:] if has_chosen_timestamp(job) else TIMES
        times = [(name, number) for name in names if (number := job.number(name)) is not None]
        for (earlier, before), (later, after) in pairwise(times):
            if after < before - CLOCK_TOLERANCE_MS:
                yield Found(where=f"job.{later}", key=key, message=f"{after:.0f} is before {earlier} {before:.0f}")


def _attempts(view: View) -> Iterator[Found]:
    """`atm` (attempts made) never exceeds `ats` (attempts started): each attempt ends at most once."""
    for key, job in _jobs(view):
        made, started = job.number("atm") or 0, job.number("ats") or 0
        if made > started:
            yield Found(where="job.atm", key=key, message=f"{made:.0f} attempts made, {started:.0f} started")


def _json_texts(view: View) -> Iterator[Found]:
    """Fields that hold JSON hold valid JSON of the right type. `data` may be empty: Node writes that for a function."""
    kinds: dict[str, tuple[type, ...]] = {"opts": (dict,), "parent": (dict,), "stacktrace": (list,)}
    for key, job in _jobs(view):
        for field in ("data", "opts", "parent", "progress", "returnvalue", "stacktrace"):
            text = job.fields.get(field)
            if text is None or (field == "data" and not text):
                continue
            value = parsed_json(text)
            if value is None and text.strip() != "null":
                yield Found(where=f"job.{field}", key=key, message=f"{text[:80]!r} is not JSON")
            elif not isinstance(value, kinds.get(field, (object,))):
                wanted = "an array" if field == "stacktrace" else "an object"
                yield Found(where=f"job.{field}", key=key, message=f"{text[:80]!r} is not {wanted}")


def _parent_fields(view: View) -> Iterator[Found]:
    """`parent` and `parentKey` come and go together and name the same job."""
    for key, job in _jobs(view):
        parent, parent_key = parsed_json(job.fields.get("parent")), job.fields.get("parentKey")
        if ("parent" in job.fields) != (parent_key is not None):
            yield Found(where="job.parentKey", key=key, message="only one of parent and parentKey is there")
        elif isinstance(parent, dict) and f"{parent.get('queueKey')}:{parent.get('id')}" != parent_key:
            message = f"parentKey {parent_key!r} is not the parent {parent.get('queueKey')}:{parent.get('id')}"
            yield Found(where="job.parentKey", key=key, message=message)


def _finish_scores(view: View) -> Iterator[Found]:
    """The score in `completed` and `failed` is `finishedOn`."""
    for row in view.snapshot.memberships:
        job = view.jobs.get((row.queue, row.job))
        if row.container not in {"completed", "failed"} or job is None or "finishedOn" not in job.fields:
            continue
        if as_number(row.score) != job.number("finishedOn"):
            message = f"score {row.score} is not finishedOn {job.fields['finishedOn']}"
            yield Found(where=f"membership.{row.container}.score", key=f"{row.queue}:{row.job}", message=message)


def _due_scores(view: View) -> Iterator[Found]:
    """The score in `delayed` is the due time in ms times 4096, plus a tie-break below 4096.

    The due time is not before timestamp plus delay. A score that belongs to a chosen timestamp may be anything.
    """
    for row in view.snapshot.memberships:
        job = view.jobs.get((row.queue, row.job))
        score = as_number(row.score)
        if row.container != "delayed" or job is None or has_chosen_timestamp(job):
            continue
        timestamp, delay = job.number("timestamp") or 0, job.number("delay") or 0
        due = None if score is None else score / DELAY_STEP
        if due is None or not is_plausible_ms(timestamp) or due < timestamp + delay - CLOCK_TOLERANCE_MS:
            message = f"score {row.score} is not 4096 times a time from timestamp + delay on ({timestamp + delay:.0f})"
            yield Found(where="membership.delayed.score", key=f"{row.queue}:{row.job}", message=message)


def _priority_scores(view: View) -> Iterator[Found]:
    """The score in `prioritized` decodes to the job's priority: from priority times 2^32 up to the next one.

    The lower end itself is the front of the class (moveToWait, changePriority with lifo). Negative ones count too.
    """
    for row in view.snapshot.memberships:
        job, score = view.jobs.get((row.queue, row.job)), as_number(row.score)
        priority = job.number("priority") if job is not None else None
        if row.container != "prioritized" or priority is None or score is None:
            continue
        if not priority * PRIORITY_STEP <= score < (priority + 1) * PRIORITY_STEP:
            message = f"score {score:.0f} decodes to priority {score // PRIORITY_STEP:.0f}, not {priority:.0f}"
            yield Found(where="membership.prioritized.score", key=f"{row.queue}:{row.job}", message=message)


def _jobs(view: View) -> Iterator[tuple[str, Job]]:
    for (queue, job_id), job in sorted(view.jobs.items()):
        yield f"{queue}:{job_id}", job


CHECKS: tuple[Check[View], ...] = (
    Check(name="required-fields", severity="breaks-others", source="includes/storeJob.lua", predicate=_required_fields),
    Check(name="numbers", severity="breaks-others", source="includes/storeJob.lua", predicate=_numbers),
    Check(name="times", severity="breaks-others", source="classes/job.ts", predicate=_times),
    Check(name="times-in-order", severity="wrong-behaviour", source="moveToFinished-14.lua", predicate=_times_in_order),
    Check(
        name="attempts", severity="wrong-behaviour", source="includes/prepareJobForProcessing.lua", predicate=_attempts
    ),
    Check(name="json-texts", severity="breaks-others", source="classes/job.ts", predicate=_json_texts),
    Check(name="parent-fields", severity="breaks-others", source="includes/storeJob.lua", predicate=_parent_fields),
    Check(name="finish-scores", severity="breaks-others", source="moveToFinished-14.lua", predicate=_finish_scores),
    Check(name="due-scores", severity="breaks-others", source="includes/getDelayedScore.lua", predicate=_due_scores),
    Check(
        name="priority-scores",
        severity="breaks-others",
        source="includes/getPriorityScore.lua",
        predicate=_priority_scores,
    ),
)
