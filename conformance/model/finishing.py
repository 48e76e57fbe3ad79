"""How the work on a job ends: it is completed, fails, is retried, is put back, or waits for its children.

Only the owner of the lock may end it. When a job has finished, its parent is updated, a deduplication id is released,
old finished jobs go, the metrics count it, and on request the caller gets the next job in the same call. The client
decides about retries: as long as `attempts` allow it, a failed job is retried, after the delay that `backoff` says. It
decides by what it read when it claimed the job.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from conformance.driver.ops import worker as ops
from conformance.driver.ops.base import Flag, MaybeJob, Nothing
from conformance.model.adding import add_kept_back, put_delayed
from conformance.model.calls import HeldJob, NotModelled, refuse, script_error
from conformance.model.claiming import give_back_lock, hand_over, next_job
from conformance.model.deduplication import release_on_finish
from conformance.model.dispatch import CallContext, operation
from conformance.model.events import MAX_EVENTS_FIELD, emit, emit_within_limit, note_limit, trim
from conformance.model.job_objects import job_object, maybe_job
from conformance.model.order import (
    is_held_back,
    priority_of,
    promote_due,
    put_first_of_priority,
    put_prioritized,
    put_waiting,
    remove_first,
    remove_last,
)
from conformance.model.parents import child_completed, child_failed, child_vanished, delete_job_keys, forget_unprocessed
from conformance.model.removing import RetentionRule, drop_superfluous, keep_rule
from conformance.model.state import MetricsRecord, QueueState
from conformance.model.texts import js_number
from conformance.protocol.scripts import ErrorCode

MINUTE_MS = 60_000
FinishedState = Literal["completed", "failed"]
VALUE_FIELD = {"completed": "returnvalue", "failed": "failedReason"}
STACK_TEXT = "<stack>"
"""Replaces a stack trace, whose text depends on the language."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ends. `value`: the return value as JSON text, or the reason as plain text."""

    state: FinishedState
    value: str
    token: str
    fields: dict[str, str]
    """Further fields of the hash."""


def finish(context: CallContext, job: HeldJob, result: JobResult) -> None:
    """End a job. Raises CallFailure where it must not end, or where another worker holds it."""
    queue = context.queue
    if job.id not in queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    if result.state == "completed":
        # Before the lock: a refused completion must leave the job to its worker.
        _refuse_while_children_count(context, job.id)
    give_back_lock(queue, job.id, result.token)
    queue.hash(job.id).update(result.fields)
    if not remove_last(queue.active, job.id):
        script_error(ErrorCode.WRONG_STATE)
    note_limit(queue)
    trim(context.state, queue, int(queue.meta[MAX_EVENTS_FIELD]))
    release_on_finish(queue, job.id)
    add_kept_back(context.state, queue, job.id, context.now_ms)
    # Before the job may be dropped: the parent reads its key and options from the hash.
    _report_to_parent(context, job.id, result)
    attempts_made = _count_attempt(context, job.id)
    _store_or_drop(context, job, result, keep_rule(context.handle, job, result.state))
    # The event is emitted even if the hash is already deleted.
    _announce(context, job, result, attempts_made)
    points = (context.handle.options.get("metrics") or {}).get("maxDataPoints")
    if points:
        count_finish(queue, result.state, points, context.now_ms)


def _refuse_while_children_count(context: CallContext, job: str) -> None:
    """A parent is completed only when it waits for no child, and none has failed it."""
    relations = context.queue.children(job)
    if relations.unprocessed:
        script_error(ErrorCode.PENDING_DEPENDENCIES)
    if len(relations.failed):
        script_error(ErrorCode.FAILED_CHILDREN)


def _report_to_parent(context: CallContext, job: str, result: JobResult) -> None:
    queue, state = context.queue, context.state
    parent_key, link = queue.field(job, "parentKey"), queue.field(job, "parent")
    if not parent_key:
        return
    if result.state == "failed":
        child_failed(state, link, queue.key(job), result.value, context.now_ms)
        return
    home, parent = state.locate(parent_key)
    if forget_unprocessed(home, parent, queue.key(job)):
        child_completed(state, parent_key, queue.key(job), result.value, context.now_ms)


def _count_attempt(context: CallContext, job: str) -> int:
    fields = context.queue.hash(job)
    made = int(fields.get("atm", 0)) + 1
    fields["atm"] = str(made)
    return made


def _store_or_drop(context: CallContext, job: HeldJob, result: JobResult, rule: RetentionRule) -> None:
    """Keep the job among the finished ones, or forget it at once."""
    queue = context.queue
    if rule.count == 0:
        parent_key = queue.field(job.id, "parentKey")
        delete_job_keys(queue, job.id)
        if parent_key:
            child_vanished(context.state, parent_key, queue.key(job.id))
        return
    finished = queue.completed if result.state == "completed" else queue.failed
    finished.add(job.id, context.now_ms)
    fields = queue.hash(job.id)
    fields |= {VALUE_FIELD[result.state]: result.value, "finishedOn": str(context.now_ms)}
    if result.state == "failed":
        fields.pop("defa", None)
    drop_superfluous(context.state, queue, finished, rule, context.now_ms)


def _announce(context: CallContext, job: HeldJob, result: JobResult, attempts_made: int) -> None:
    value = {VALUE_FIELD[result.state]: result.value}
    emit(context.state, context.queue, result.state, jobId=job.id, **value, prev="active")
    if result.state == "failed" and attempts_made >= float(job.opts.get("attempts") or 0):
        emit(context.state, context.queue, "retries-exhausted", jobId=job.id, attemptsMade=str(attempts_made))


def count_finish(queue: QueueState, state: str, most_points: int, now_ms: int) -> None:
    """Count a finished job. The points of earlier minutes are written at the first job of a new minute."""
    record = queue.metrics.setdefault(state, MetricsRecord())
    before = int(record.fields.get("count", 0))
    record.fields["count"] = str(before + 1)
    if "prevTS" not in record.fields:
        record.fields |= {"prevTS": str(now_ms), "prevCount": "0"}
        return
    # Whole minutes by the clock, not 60 s since the last job.
    minutes = min(now_ms // MINUTE_MS - int(record.fields["prevTS"]) // MINUTE_MS, most_points)
    if minutes <= 0:
        return
    record.points.insert(0, str(before - int(record.fields["prevCount"])))
    record.points[:0] = ["0"] * (minutes - 1)
    del record.points[most_points:]
    record.fields |= {"prevTS": str(now_ms), "prevCount": str(before)}


def fetch_or_rest(context: CallContext, token: str, *, fetch_next: bool) -> MaybeJob:
    """The next job under the same token, if asked for.

    The event `drained` says that the queue is empty, unless the fetch ends otherwise.
    """
    queue = context.queue
    if fetch_next:
        found = next_job(context, token)
        if isinstance(found, str):
            return hand_over(context, found, token)
        # In these cases the script returns early, and `drained` is not emitted.
        if found > 0 or _is_waited_for(context):
            return maybe_job(None)
    if not (queue.wait or queue.active or len(queue.prioritized)):
        emit(context.state, queue, "drained")
    return maybe_job(None)


def _is_waited_for(context: CallContext) -> bool:
    """The fetch ends early where the queue is held back, or where the next delayed job is known."""
    return is_held_back(context.queue) or len(context.queue.delayed) > 0


@operation(ops.MoveToCompleted)
def _move_to_completed(context: CallContext, op: ops.MoveToCompleted) -> MaybeJob:
    job = job_object(context, op.job)
    context.take_held(op.job)
    finish(context, job, JobResult("completed", op.value_raw, op.token, {}))
    return fetch_or_rest(context, op.token, fetch_next=op.fetch_next)


@operation(ops.MoveToFailed)
def _move_to_failed(context: CallContext, op: ops.MoveToFailed) -> MaybeJob:
    job = job_object(context, op.job)
    context.take_held(op.job)
    delay = _retry_delay(job, unrecoverable=op.unrecoverable)
    traces = _traces_kept(job.stack_traces + 1, job.opts.get("stackTraceLimit"))
    fields = {"failedReason": op.message, "stacktrace": json.dumps([STACK_TEXT] * traces)}
    if delay is None:
        finish(context, job, JobResult("failed", op.message, op.token, fields))
        return fetch_or_rest(context, op.token, fetch_next=op.fetch_next)
    if delay:
        _delay(context, op.job, op.token, delay, fields=fields, counts=True)
    else:
        _retry_now(context, job, op.token, fields)
    return maybe_job(None)


def _retry_delay(job: HeldJob, *, unrecoverable: bool) -> float | None:
    """The delay (ms) before the next attempt, 0: immediately; None: the job has failed permanently."""
    attempts = job.opts.get("attempts") or 0
    if unrecoverable or not job.attempts_made + 1 < attempts:
        return None
    backoff = job.opts.get("backoff")
    if not backoff:
        return 0
    return _backoff_delay(backoff, job.attempts_made + 1)


def _backoff_delay(backoff: dict[str, Any], attempt: int) -> float:
    """`fixed`: always the same. `exponential`: doubled with each attempt."""
    if backoff.get("jitter"):
        raise NotModelled("back-off with jitter is drawn at random")
    if backoff.get("type") not in {"fixed", "exponential"}:
        refuse("unknown back-off strategy")
    delay: float = backoff.get("delay") or 0
    return delay if backoff["type"] == "fixed" else math.floor(float(2 ** (attempt - 1) * delay + 0.5))


def _traces_kept(count: int, limit: Any) -> int:
    return count if limit is None else min(count, limit)


def _retry_now(context: CallContext, job: HeldJob, token: str, fields: dict[str, str]) -> None:
    """Let a failed job wait again; delayed jobs that are due come before it, even if the call is refused then."""
    queue = context.queue
    promote_due(context.state, queue, context.now_ms)
    _end_activity(context, job.id, token, fields)
    priority = priority_of(queue, job.id)
    if priority == 0:
        put_waiting(queue, job.id, "right" if job.opts.get("lifo") else "left")
    else:
        put_prioritized(queue, job.id, priority)
    hash_fields = queue.hash(job.id)
    hash_fields["atm"] = str(int(hash_fields.get("atm", 0)) + 1)
    emit_within_limit(context.state, queue, "waiting", jobId=job.id, prev="active")


def _end_activity(context: CallContext, job: str, token: str, fields: dict[str, str]) -> None:
    """Take a job from its worker. Raises CallFailure where the job is missing, locked by another, or not active."""
    if job not in context.queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    give_back_lock(context.queue, job, token)
    context.queue.hash(job).update(fields)
    if not remove_last(context.queue.active, job):
        script_error(ErrorCode.WRONG_STATE)


def _delay(context: CallContext, job: str, token: str, delay: float, *, fields: dict[str, str], counts: bool) -> None:
    """Let a job wait for its time. `counts`: this was an attempt."""
    _end_activity(context, job, token, fields)
    hash_fields = context.queue.hash(job)
    if counts:
        hash_fields["atm"] = str(int(hash_fields.get("atm", 0)) + 1)
    hash_fields["delay"] = js_number(float(delay))
    put_delayed(context.state, context.queue, job, context.now_ms, delay)


@operation(ops.MoveToDelayed)
def _move_to_delayed(context: CallContext, op: ops.MoveToDelayed) -> Nothing:
    """A time that has passed is now."""
    context.take_held(op.job)
    _delay(context, op.job, op.token, max(op.timestamp - context.now_ms, 0), fields={}, counts=False)
    return Nothing()


@operation(ops.MoveToWait)
def _move_to_wait(context: CallContext, op: ops.MoveToWait) -> Nothing:
    """Put a job back as the next one among those of its priority. A job that is not active is not an error."""
    queue = context.queue
    context.take_held(op.job)
    if op.job not in queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    give_back_lock(queue, op.job, op.token)
    # The lock is gone by then, and the script still returns success.
    if not remove_first(queue.active, op.job):
        return Nothing()
    priority = priority_of(queue, op.job)
    if priority > 0:
        put_first_of_priority(queue, op.job, priority)
    else:
        put_waiting(queue, op.job, "right")
    emit_within_limit(context.state, queue, "waiting", jobId=op.job, prev="active")
    return Nothing()


@operation(ops.MoveToWaitingChildren)
def _move_to_waiting_children(context: CallContext, op: ops.MoveToWaitingChildren) -> Flag:
    """Let a job wait for its children; with none to wait for it stays active."""
    queue = context.queue
    context.take_held(op.job)
    if op.job not in queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    relations = queue.children(op.job)
    if len(relations.failed):
        script_error(ErrorCode.FAILED_CHILDREN)
    if not relations.unprocessed:
        return Flag(value=False)
    _end_activity(context, op.job, op.token, {})
    queue.waiting_children.add(op.job, context.now_ms)
    emit(context.state, queue, "waiting-children", jobId=op.job, prev="active")
    return Flag(value=True)
