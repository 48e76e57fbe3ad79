"""What a worker does with a job that did not end: retry it now or later, put it back, or let it wait for children.

The client decides: as long as `attempts` allow it, a failed job is retried, after the delay that `backoff` says. It
decides by what it read when it claimed the job.
"""

from __future__ import annotations

import json
import math
from typing import Any

from conformance.driver.ops import worker as ops
from conformance.driver.ops.base import Flag, MaybeJob, Nothing
from conformance.model.adding import put_delayed
from conformance.model.calls import HeldJob, NotModelled, refuse, script_error
from conformance.model.events import emit, emit_within_limit
from conformance.model.finishing import Ending, fetch_or_rest, finish
from conformance.model.holding import job_object
from conformance.model.locks import give_back_lock
from conformance.model.order import (
    priority_of,
    promote_due,
    put_first_of_priority,
    put_prioritized,
    put_waiting,
    remove_first,
    remove_last,
)
from conformance.model.stage import Stage, answers
from conformance.model.texts import argument
from conformance.model.views import maybe_job
from conformance.protocol.errors import ErrorCode

STACK_TEXT = "<stack>"
"""Stands for a stack trace, whose text is the language's own."""


@answers(ops.MoveToFailed)
def _move_to_failed(stage: Stage, op: ops.MoveToFailed) -> MaybeJob:
    job = job_object(stage, op.job)
    stage.take_held(op.job)
    delay = _retry_delay(job, unrecoverable=op.unrecoverable)
    traces = _traces_kept(job.stack_traces + 1, job.opts.get("stackTraceLimit"))
    fields = {"failedReason": op.message, "stacktrace": json.dumps([STACK_TEXT] * traces)}
    if delay is None:
        finish(stage, job, Ending("failed", op.message, op.token, fields))
        return fetch_or_rest(stage, op.token, fetch_next=op.fetch_next)
    if delay:
        _delay(stage, op.job, op.token, delay, fields=fields, counts=True)
    else:
        _retry_now(stage, job, op.token, fields)
    return maybe_job(None)


def _retry_delay(job: HeldJob, *, unrecoverable: bool) -> float | None:
    """The delay (ms) before the next attempt, 0: at once; None: the job has failed for good."""
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


def _retry_now(stage: Stage, job: HeldJob, token: str, fields: dict[str, str]) -> None:
    """Let a failed job wait again; delayed jobs that are due come before it, even if the call is refused then."""
    queue = stage.queue
    promote_due(stage.world, queue, stage.now_ms)
    _end_activity(stage, job.id, token, fields)
    priority = priority_of(queue, job.id)
    if priority == 0:
        put_waiting(queue, job.id, "right" if job.opts.get("lifo") else "left")
    else:
        put_prioritized(queue, job.id, priority)
    hash_fields = queue.hash(job.id)
    hash_fields["atm"] = str(int(hash_fields.get("atm", 0)) + 1)
    emit_within_limit(stage.world, queue, "waiting", jobId=job.id, prev="active")


def _end_activity(stage: Stage, job: str, token: str, fields: dict[str, str]) -> None:
    """Take a job from its worker. Raises Failure where the job is missing, locked by another, or not active."""
    if job not in stage.queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    give_back_lock(stage.queue, job, token)
    stage.queue.hash(job).update(fields)
    if not remove_last(stage.queue.active, job):
        script_error(ErrorCode.WRONG_STATE)


def _delay(stage: Stage, job: str, token: str, delay: float, *, fields: dict[str, str], counts: bool) -> None:
    """Let a job wait for its time. `counts`: this was an attempt."""
    _end_activity(stage, job, token, fields)
    hash_fields = stage.queue.hash(job)
    if counts:
        hash_fields["atm"] = str(int(hash_fields.get("atm", 0)) + 1)
    hash_fields["delay"] = argument(delay)
    put_delayed(stage.world, stage.queue, job, stage.now_ms, delay)


@answers(ops.MoveToDelayed)
def _move_to_delayed(stage: Stage, op: ops.MoveToDelayed) -> Nothing:
    """A time that has passed is now."""
    stage.take_held(op.job)
    _delay(stage, op.job, op.token, max(op.timestamp - stage.now_ms, 0), fields={}, counts=False)
    return Nothing()


@answers(ops.MoveToWait)
def _move_to_wait(stage: Stage, op: ops.MoveToWait) -> Nothing:
    """Put a job back: it is the next one to be taken, among those of its priority. Not being active is no error."""
    queue = stage.queue
    stage.take_held(op.job)
    if op.job not in queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    give_back_lock(queue, op.job, op.token)
    if not remove_first(queue.active, op.job):
        return Nothing()
    priority = priority_of(queue, op.job)
    if priority > 0:
        put_first_of_priority(queue, op.job, priority)
    else:
        put_waiting(queue, op.job, "right")
    emit_within_limit(stage.world, queue, "waiting", jobId=op.job, prev="active")
    return Nothing()


@answers(ops.MoveToWaitingChildren)
def _move_to_waiting_children(stage: Stage, op: ops.MoveToWaitingChildren) -> Flag:
    """Let a job wait for its children; with none to wait for it stays active."""
    queue = stage.queue
    stage.take_held(op.job)
    if op.job not in queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    family = queue.children(op.job)
    if len(family.failed):
        script_error(ErrorCode.FAILED_CHILDREN)
    if not family.unprocessed:
        return Flag(value=False)
    _end_activity(stage, op.job, op.token, {})
    queue.waiting_children.add(op.job, stage.now_ms)
    emit(stage.world, queue, "waiting-children", jobId=op.job, prev="active")
    return Flag(value=True)
