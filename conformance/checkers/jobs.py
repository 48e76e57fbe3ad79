"""Invariants about jobs: their containers, their hashes, and their parents and children."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from conformance.checkers.base import (
    EARLIEST_MS,
    SnapshotView,
    ViolationDetail,
    has_chosen_timestamp,
    is_plausible_ms,
)
from conformance.checkers.table import check
from conformance.observe.keyspace import split_key
from conformance.observe.tables import Dependency, Job, as_number, parsed_json
from conformance.protocol.states import DELAY_FACTOR, LIST_CONTAINERS, PRIORITY_FACTOR

REQUIRED = ("name", "data", "opts", "timestamp", "delay", "priority")
TIMES = ("timestamp", "processedOn", "finishedOn")
COUNTS = ("ats", "atm", "stc")
# Far below the error of a wrong unit, which is a factor of 1000.
CLOCK_TOLERANCE_MS = 2000
"""How far the clocks of two clients that handle the same job may be apart."""

_WHOLE = re.compile(r"\d+")


@check("one-state")
def _one_state(view: SnapshotView) -> Iterator[ViolationDetail]:
    """Every job hash is in exactly one container.

    Parents that wait for children are in `waiting-children`; iterations of schedulers are ordinary jobs.
    """
    for (queue, job), _ in sorted(view.jobs.items()):
        states = view.states.get((queue, job), [])
        if not states:
            yield ViolationDetail(
                where="membership.state",
                key=f"{queue}:{job}",
                message="the job is in no container",
                severity="lost-jobs",
                damage="job-in-no-container",
            )
        elif len(set(states)) > 1:
            yield ViolationDetail(
                where="membership.state",
                key=f"{queue}:{job}",
                message=f"the job is in {', '.join(states)}",
                damage="job-in-two-containers",
            )


@check("no-ghosts")
def _no_ghosts(view: SnapshotView) -> Iterator[ViolationDetail]:
    """Every id in a container has a job hash. Ids that start with `0:` are markers of old versions."""
    for (queue, job), states in sorted(view.states.items()):
        if (queue, job) not in view.jobs and not job.startswith("0:"):
            for state in states:
                yield ViolationDetail(
                    where=f"membership.{state}", key=f"{queue}:{job}", message="there is no hash for this job"
                )


@check("no-duplicates")
def _no_duplicates(view: SnapshotView) -> Iterator[ViolationDetail]:
    """No list holds an id twice."""
    for (queue, container), rows in sorted(view.containers.items()):
        jobs = [row.job for row in rows]
        # Only lists can hold an id twice; sorted sets and sets cannot.
        for job in sorted({job for job in jobs if jobs.count(job) > 1} if container in LIST_CONTAINERS else ()):
            message = f"the list holds the job {jobs.count(job)} times"
            yield ViolationDetail(where=f"membership.{container}.order", key=f"{queue}:{job}", message=message)


@check("paused-list")
def _paused_list(view: SnapshotView) -> Iterator[ViolationDetail]:
    """Jobs wait in `paused` while the queue is paused (`meta.paused` exists), and in `wait` otherwise."""
    for queue in view.snapshot.queues:
        paused = "paused" in view.snapshot.meta(queue)
        wrong = "wait" if paused else "paused"
        if view.members(queue, wrong):
            state = "paused" if paused else "not paused"
            message = f"the queue is {state} but jobs are in `{wrong}`"
            yield ViolationDetail(where=f"membership.{wrong}", key=f"{queue}:{wrong}", message=message)


@check("nothing-parked")
def _nothing_parked(view: SnapshotView) -> Iterator[ViolationDetail]:
    """No job is in `paused`: jobs wait in `wait` whether the queue is paused or not.

    Jobs that older versions left in `paused` come back with the next resume, and are not claimed before.
    """
    for queue in view.snapshot.queues:
        if view.members(queue, "paused"):
            message = "jobs are in `paused`, which only older versions use"
            yield ViolationDetail(where="membership.paused", key=f"{queue}:paused", message=message)


@check("finished-fields")
def _finished(view: SnapshotView) -> Iterator[ViolationDetail]:
    """`finishedOn` exists exactly if the job is in `completed` or `failed`, with the result of that state."""
    results = {"completed": "returnvalue", "failed": "failedReason"}
    for (queue, job_id), job in sorted(view.jobs.items()):
        state, key = view.state_of(job), f"{queue}:{job_id}"
        # A job in several containers is reported by `one-state` and has no single state to compare with.
        if state is None:
            continue
        if (state in results) != ("finishedOn" in job.fields):
            problem = "has no finishedOn" if state in results else "has finishedOn"
            yield ViolationDetail(where="job.finishedOn", key=key, message=f"the job is in `{state}` and {problem}")
        result = results.get(state)
        if result is not None and result not in job.fields:
            yield ViolationDetail(
                where=f"job.{result}", key=key, message=f"the job is in `{state}` and has no {result}"
            )


@check("required-fields")
def _required_fields(view: SnapshotView) -> Iterator[ViolationDetail]:
    """Every job hash has the fields that adding a job writes."""
    for key, job in _jobs(view):
        for field in REQUIRED:
            if field not in job.fields:
                yield ViolationDetail(where=f"job.{field}", key=key, message="the field is missing")


@check("numbers")
def _numbers(view: SnapshotView) -> Iterator[ViolationDetail]:
    """`delay` and `priority` are numbers, counters are whole numbers from 0."""
    for key, job in _jobs(view):
        for field in ("delay", "priority"):
            if field in job.fields and job.number(field) is None:
                yield ViolationDetail(where=f"job.{field}", key=key, message=f"{job.fields[field]!r} is not a number")
        for field in COUNTS:
            if not _WHOLE.fullmatch(job.fields.get(field, "0")):
                yield ViolationDetail(where=f"job.{field}", key=key, message=f"{job.fields[field]!r} is not a count")


@check("times")
def _times(view: SnapshotView) -> Iterator[ViolationDetail]:
    """Times of a job are whole numbers of Unix ms. A timestamp that the user chose may be any number."""
    for key, job in _jobs(view):
        for field in TIMES:
            text = job.fields.get(field)
            if text is None or (field == "timestamp" and has_chosen_timestamp(job)):
                continue
            if not _WHOLE.fullmatch(text) or not is_plausible_ms(job.number(field)):
                yield ViolationDetail(where=f"job.{field}", key=key, message=f"{text!r} is not a time in Unix ms")


@check("times-in-order")
def _times_in_order(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A job is added, then activated, then finished (clocks of different clients may differ by 2 s)."""
    for key, job in _jobs(view):
        # A chosen timestamp may be in the future, so the order only starts with the activation.
        names = TIMES[1:] if has_chosen_timestamp(job) else TIMES
        times = [(name, number) for name in names if (number := job.number(name)) is not None]
        for (earlier, before), (later, after) in pairwise(times):
            if after < before - CLOCK_TOLERANCE_MS:
                yield ViolationDetail(
                    where=f"job.{later}", key=key, message=f"{after:.0f} is before {earlier} {before:.0f}"
                )


@check("attempts")
def _attempts(view: SnapshotView) -> Iterator[ViolationDetail]:
    """`atm` (attempts made) never exceeds `ats` (attempts started): each attempt ends at most once."""
    for key, job in _jobs(view):
        made, started = job.number("atm") or 0, job.number("ats") or 0
        if made > started:
            # Without `ats`, it is the start that was not counted.
            where = "job.atm" if started else "job.ats"
            yield ViolationDetail(where=where, key=key, message=f"{made:.0f} attempts made, {started:.0f} started")


@check("json-texts")
def _json_texts(view: SnapshotView) -> Iterator[ViolationDetail]:
    """Fields that hold JSON hold valid JSON of the right type. `data` may be empty: Node writes that for a function."""
    kinds: dict[str, tuple[type, ...]] = {"opts": (dict,), "parent": (dict,), "stacktrace": (list,)}
    for key, job in _jobs(view):
        for field in ("data", "opts", "parent", "progress", "returnvalue", "stacktrace"):
            text = job.fields.get(field)
            if text is None or (field == "data" and not text):
                continue
            value = parsed_json(text)
            # `parsed_json` returns None for invalid JSON and for `null`, which is valid.
            if value is None and text.strip() != "null":
                yield ViolationDetail(where=f"job.{field}", key=key, message=f"{text[:80]!r} is not JSON")
            elif not isinstance(value, kinds.get(field, (object,))):
                wanted = "an array" if field == "stacktrace" else "an object"
                yield ViolationDetail(where=f"job.{field}", key=key, message=f"{text[:80]!r} is not {wanted}")


@check("parent-fields")
def _parent_fields(view: SnapshotView) -> Iterator[ViolationDetail]:
    """`parent` and `parentKey` exist together and name the same job."""
    for key, job in _jobs(view):
        parent, parent_key = parsed_json(job.fields.get("parent")), job.fields.get("parentKey")
        if ("parent" in job.fields) != (parent_key is not None):
            yield ViolationDetail(where="job.parentKey", key=key, message="only one of parent and parentKey is there")
        elif isinstance(parent, dict) and f"{parent.get('queueKey')}:{parent.get('id')}" != parent_key:
            message = f"parentKey {parent_key!r} is not the parent {parent.get('queueKey')}:{parent.get('id')}"
            yield ViolationDetail(where="job.parentKey", key=key, message=message)


@check("finish-scores")
def _finish_scores(view: SnapshotView) -> Iterator[ViolationDetail]:
    """The score in `completed` and `failed` is `finishedOn`."""
    for row in view.snapshot.memberships:
        job = view.jobs.get((row.queue, row.job))
        if row.container not in {"completed", "failed"} or job is None or "finishedOn" not in job.fields:
            continue
        if as_number(row.score) != job.number("finishedOn"):
            message = f"score {row.score} is not finishedOn {job.fields['finishedOn']}"
            yield ViolationDetail(
                where=f"membership.{row.container}.score", key=f"{row.queue}:{row.job}", message=message
            )


@check("due-scores")
def _due_scores(view: SnapshotView) -> Iterator[ViolationDetail]:
    """The score in `delayed` is the due time in ms times 4096, plus a tie-break below 4096.

    The due time is not before timestamp plus delay. The score of a chosen timestamp may be anything, and an invalid
    timestamp (which another check reports) proves nothing about the score.
    """
    for row in view.snapshot.memberships:
        job = view.jobs.get((row.queue, row.job))
        score = as_number(row.score)
        if row.container != "delayed" or job is None or has_chosen_timestamp(job):
            continue
        timestamp, delay = job.number("timestamp") or 0, job.number("delay") or 0
        due = None if score is None else score / DELAY_FACTOR
        # With a job that was added by another client, clocks may differ, hence the tolerance.
        earliest = timestamp + delay - CLOCK_TOLERANCE_MS if is_plausible_ms(timestamp) else EARLIEST_MS
        if due is None or due < earliest:
            message = f"score {row.score} is not 4096 times a time from timestamp + delay on ({timestamp + delay:.0f})"
            yield ViolationDetail(where="membership.delayed.score", key=f"{row.queue}:{row.job}", message=message)


@check("priority-scores")
def _priority_scores(view: SnapshotView) -> Iterator[ViolationDetail]:
    """The score in `prioritized` decodes to the job's priority: from priority times 2^32 up to the next one.

    The lower end itself is the front of the class (moveToWait, changePriority with lifo). Negative ones count too.
    """
    for row in view.snapshot.memberships:
        job, score = view.jobs.get((row.queue, row.job)), as_number(row.score)
        priority = job.number("priority") if job is not None else None
        if row.container != "prioritized" or priority is None or score is None:
            continue
        # The script adds the counter below 2^32 to the class, so every score of the class is in this range.
        if not priority * PRIORITY_FACTOR <= score < (priority + 1) * PRIORITY_FACTOR:
            message = f"score {score:.0f} decodes to priority {score // PRIORITY_FACTOR:.0f}, not {priority:.0f}"
            yield ViolationDetail(where="membership.prioritized.score", key=f"{row.queue}:{row.job}", message=message)


def _jobs(view: SnapshotView) -> Iterator[tuple[str, Job]]:
    for (queue, job_id), job in sorted(view.jobs.items()):
        yield f"{queue}:{job_id}", job


@check("one-dependency-kind")
def _one_dependency_kind(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A child is in at most one of its parent's four keys."""
    kinds: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for row in view.snapshot.dependencies:
        kinds[row.queue, row.parent, row.child].append(row.kind)
    for (queue, parent, child), found in sorted(kinds.items()):
        if len(found) > 1:
            message = f"the child {child} is {' and '.join(sorted(found))}"
            where = f"dependency.{min(found)}"
            yield ViolationDetail(where=where, key=f"{queue}:{parent}", message=message, other=child)


@check("pending-children")
def _pending_children(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A pending child exists and has not completed. Children under another prefix cannot be seen from here."""
    for row in view.snapshot.dependencies:
        queue, child = split_key(view.snapshot.prefix, row.child)
        if row.kind != "pending" or not child:
            continue
        if (queue, child) not in view.jobs:
            yield _pending(row, "child-is-gone", "does not exist")
        # A failed child stays pending by default (no option says otherwise), so `failed` is allowed here.
        elif "completed" in view.states.get((queue, child), []):
            yield _pending(row, "child-has-ended", "has completed")


def _pending(row: Dependency, damage: str, problem: str) -> ViolationDetail:
    key, message = f"{row.queue}:{row.parent}", f"the pending child {row.child} {problem}"
    return ViolationDetail(where="dependency.pending", key=key, message=message, damage=damage, other=row.child)


@check("waits-for-something")
def _waits_for_something(view: SnapshotView) -> Iterator[ViolationDetail]:
    """A job in `waiting-children` has a pending child; else it waits for ever."""
    waited_for = {(row.queue, row.parent) for row in view.snapshot.dependencies if row.kind == "pending"}
    for row in view.snapshot.memberships:
        if row.container == "waiting-children" and (row.queue, row.job) not in waited_for:
            message = "the job waits for children, and none is pending"
            yield ViolationDetail(where="dependency.pending", key=f"{row.queue}:{row.job}", message=message)


@check("owned-keys")
def _dependencies_of_jobs(view: SnapshotView) -> Iterator[ViolationDetail]:
    """The dependent keys of a job, children and logs, are deleted with it."""
    owners = {("dependency", "children-without-a-job", row.queue, row.parent) for row in view.snapshot.dependencies}
    owners |= {("log", "log-without-a-job", row.queue, row.job) for row in view.snapshot.logs}
    for where, damage, queue, job in sorted(owners):
        if (queue, job) not in view.jobs:
            message = "the job that owns this key does not exist"
            yield ViolationDetail(where=where, key=f"{queue}:{job}", message=message, damage=damage)
