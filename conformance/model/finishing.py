"""Finishing: a job is completed, or has failed for good.

Only who holds the lock may finish. The parent is told, a deduplication id is given free, old finished jobs go, and
whoever asks for it gets the next job with the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from conformance.driver.ops import worker as ops
from conformance.driver.ops.base import MaybeJob
from conformance.model.calls import HeldJob, script_error
from conformance.model.claiming import hand_over, next_job
from conformance.model.deduplication import release_on_finish
from conformance.model.events import MAX_EVENTS_FIELD, emit, note_limit, trim
from conformance.model.holding import job_object
from conformance.model.locks import give_back_lock
from conformance.model.metrics import count_finish
from conformance.model.order import is_held_back, remove_last
from conformance.model.parents import child_completed, child_failed, child_vanished, delete_job_keys, forget_unprocessed
from conformance.model.retention import Keep, drop_superfluous, keep_rule
from conformance.model.stage import Stage, answers
from conformance.model.views import maybe_job
from conformance.protocol.errors import ErrorCode

State = Literal["completed", "failed"]
VALUE_FIELD = {"completed": "returnvalue", "failed": "failedReason"}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends. `value`: the return value as JSON text, or the reason as plain text."""

    state: State
    value: str
    token: str
    fields: dict[str, str]
    """What else is written into the hash."""


def finish(stage: Stage, job: HeldJob, ending: Ending) -> None:
    """End a job. Raises Failure where it must not end, or where another worker holds it."""
    queue = stage.queue
    if job.id not in queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    if ending.state == "completed":
        _refuse_while_children_count(stage, job.id)
    give_back_lock(queue, job.id, ending.token)
    queue.hash(job.id).update(ending.fields)
    if not remove_last(queue.active, job.id):
        script_error(ErrorCode.WRONG_STATE)
    note_limit(queue)
    trim(stage.world, queue, int(queue.meta[MAX_EVENTS_FIELD]))
    release_on_finish(queue, job.id)
    _tell_parent(stage, job.id, ending)
    attempts_made = _count_attempt(stage, job.id)
    _store_or_drop(stage, job, ending, keep_rule(stage.handle, job, ending.state))
    _announce(stage, job, ending, attempts_made)
    points = (stage.handle.options.get("metrics") or {}).get("maxDataPoints")
    if points:
        count_finish(queue, ending.state, points, stage.now_ms)


def _refuse_while_children_count(stage: Stage, job: str) -> None:
    """A parent is completed only when it waits for no child, and none has failed it."""
    family = stage.queue.children(job)
    if family.unprocessed:
        script_error(ErrorCode.PENDING_DEPENDENCIES)
    if len(family.failed):
        script_error(ErrorCode.FAILED_CHILDREN)


def _tell_parent(stage: Stage, job: str, ending: Ending) -> None:
    queue, world = stage.queue, stage.world
    parent_key, link = queue.field(job, "parentKey"), queue.field(job, "parent")
    if not parent_key:
        return
    if ending.state == "failed":
        child_failed(world, link, queue.key(job), ending.value, stage.now_ms)
        return
    home, parent = world.locate(parent_key)
    if forget_unprocessed(home, parent, queue.key(job)):
        child_completed(world, parent_key, queue.key(job), ending.value, stage.now_ms)


def _count_attempt(stage: Stage, job: str) -> int:
    fields = stage.queue.hash(job)
    made = int(fields.get("atm", 0)) + 1
    fields["atm"] = str(made)
    return made


def _store_or_drop(stage: Stage, job: HeldJob, ending: Ending, rule: Keep) -> None:
    """Keep the job among the finished ones, or forget it at once."""
    queue = stage.queue
    if rule.count == 0:
        parent_key = queue.field(job.id, "parentKey")
        delete_job_keys(queue, job.id)
        if parent_key:
            child_vanished(stage.world, parent_key, queue.key(job.id))
        return
    finished = queue.completed if ending.state == "completed" else queue.failed
    finished.add(job.id, stage.now_ms)
    fields = queue.hash(job.id)
    fields |= {VALUE_FIELD[ending.state]: ending.value, "finishedOn": str(stage.now_ms)}
    if ending.state == "failed":
        fields.pop("defa", None)
    drop_superfluous(stage.world, queue, finished, rule, stage.now_ms)


def _announce(stage: Stage, job: HeldJob, ending: Ending, attempts_made: int) -> None:
    value = {VALUE_FIELD[ending.state]: ending.value}
    emit(stage.world, stage.queue, ending.state, jobId=job.id, **value, prev="active")
    if ending.state == "failed" and attempts_made >= float(job.opts.get("attempts") or 0):
        emit(stage.world, stage.queue, "retries-exhausted", jobId=job.id, attemptsMade=str(attempts_made))


def fetch_or_rest(stage: Stage, token: str, *, fetch_next: bool) -> MaybeJob:
    """The next job under the same token, if asked for. An empty queue is told of, unless the fetch ends otherwise."""
    queue = stage.queue
    if fetch_next:
        found = next_job(stage, token)
        if isinstance(found, str):
            return hand_over(stage, found, token)
        if found > 0 or _is_waited_for(stage):
            return maybe_job(None)
    if not (queue.wait or queue.active or len(queue.prioritized)):
        emit(stage.world, queue, "drained")
    return maybe_job(None)


def _is_waited_for(stage: Stage) -> bool:
    """The fetch ends early where the queue is held back, or where the next delayed job is known."""
    return is_held_back(stage.queue) or len(stage.queue.delayed) > 0


@answers(ops.MoveToCompleted)
def _move_to_completed(stage: Stage, op: ops.MoveToCompleted) -> MaybeJob:
    job = job_object(stage, op.job)
    stage.take_held(op.job)
    finish(stage, job, Ending("completed", op.value_raw, op.token, {}))
    return fetch_or_rest(stage, op.token, fetch_next=op.fetch_next)
