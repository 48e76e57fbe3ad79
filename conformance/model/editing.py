"""Changing single jobs: data, progress, logs, delay, priority, and by hand from one state to another."""

from __future__ import annotations

from conformance.driver.ops import job as ops
from conformance.driver.ops.base import Count, Nothing
from conformance.model.adding import put_delayed
from conformance.model.calls import script_breaks, script_error
from conformance.model.events import emit, emit_within_limit
from conformance.model.holding import job_object
from conformance.model.order import (
    delay_score,
    priority_of,
    put_first_of_priority,
    put_prioritized,
    put_waiting,
    remove_last,
    waiting_list,
)
from conformance.model.stage import Stage, answers
from conformance.model.state import JobFields
from conformance.model.texts import number_text
from conformance.protocol.errors import ErrorCode


def _existing(stage: Stage, job: str) -> JobFields:
    """The job's hash. Raises Failure where it has none."""
    if job not in stage.queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    return stage.queue.jobs[job]


@answers(ops.UpdateData)
def _update_data(stage: Stage, op: ops.UpdateData) -> Nothing:
    _existing(stage, op.job)["data"] = op.data_raw
    return Nothing()


@answers(ops.UpdateProgress)
def _update_progress(stage: Stage, op: ops.UpdateProgress) -> Nothing:
    _existing(stage, op.job)["progress"] = op.value_raw
    emit_within_limit(stage.world, stage.queue, "progress", jobId=op.job, data=op.value_raw)
    return Nothing()


@answers(ops.Log)
def _log(stage: Stage, op: ops.Log) -> Count:
    """Add a row at the end; `keep_logs` keeps only so many of the last ones (0: all)."""
    _existing(stage, op.job)
    rows = stage.queue.logs.setdefault(op.job, [])
    rows.append(op.row)
    kept = min(len(rows), op.keep_logs) if op.keep_logs else len(rows)
    del rows[: len(rows) - kept]
    return Count(count=kept)


@answers(ops.ClearLogs)
def _clear_logs(stage: Stage, op: ops.ClearLogs) -> Nothing:
    rows = stage.queue.logs.pop(op.job, [])
    if op.keep_logs and rows:
        stage.queue.logs[op.job] = rows[-op.keep_logs :]
    return Nothing()


@answers(ops.Promote)
def _promote(stage: Stage, op: ops.Promote) -> Nothing:
    """Let a delayed job wait now. A job that does not exist is not delayed either."""
    queue = stage.queue
    if not queue.delayed.remove(op.job):
        script_error(ErrorCode.WRONG_STATE)
    priority = priority_of(queue, op.job)
    if priority == 0:
        put_waiting(queue, op.job, "left")
    else:
        put_prioritized(queue, op.job, priority)
    emit(stage.world, queue, "waiting", jobId=op.job, prev="delayed")
    queue.hash(op.job)["delay"] = number_text(0)
    return Nothing()


@answers(ops.ChangeDelay)
def _change_delay(stage: Stage, op: ops.ChangeDelay) -> Nothing:
    """A new delay counts from now. The job's old place still counts when the order within a millisecond is settled."""
    queue = stage.queue
    fields = _existing(stage, op.job)
    score, due = delay_score(queue, stage.now_ms, op.delay_ms)
    if not queue.delayed.remove(op.job):
        script_error(ErrorCode.WRONG_STATE)
    fields["delay"] = number_text(op.delay_ms)
    put_delayed(stage.world, queue, op.job, stage.now_ms, op.delay_ms, at=(score, due))
    return Nothing()


@answers(ops.ChangePriority)
def _change_priority(stage: Stage, op: ops.ChangePriority) -> Nothing:
    """A waiting job finds a new place, any other only remembers the priority. Nothing is checked, and no event told."""
    queue = stage.queue
    fields = _existing(stage, op.job)
    if queue.prioritized.remove(op.job) or remove_last(waiting_list(queue), op.job):
        if op.priority == 0:
            put_waiting(queue, op.job, "right" if op.lifo else "left")
        elif op.lifo:
            put_first_of_priority(queue, op.job, op.priority)
        else:
            put_prioritized(queue, op.job, op.priority)
    fields["priority"] = number_text(op.priority)
    return Nothing()


@answers(ops.Retry)
def _retry(stage: Stage, op: ops.Retry) -> Nothing:
    """Let a finished job wait again, whatever its priority, and let its parent wait for it again.

    A failed child that its parent had ignored breaks the script after the job has moved: upstream takes the parent's
    hash of ignored failures for a sorted set.
    """
    queue = stage.queue
    lifo = job_object(stage, op.job).opts.get("lifo")
    fields = _existing(stage, op.job)
    if not (queue.failed if op.state == "failed" else queue.completed).remove(op.job):
        script_error(ErrorCode.WRONG_STATE)
    for name in ("finishedOn", "processedOn", "failedReason" if op.state == "failed" else "returnvalue"):
        fields.pop(name, None)
    put_waiting(queue, op.job, "right" if lifo else "left")
    _return_to_parent(stage, op)
    emit_within_limit(stage.world, queue, "waiting", jobId=op.job, prev=op.state)
    return Nothing()


def _return_to_parent(stage: Stage, op: ops.Retry) -> None:
    parent_key, child_key = stage.queue.field(op.job, "parentKey"), stage.queue.key(op.job)
    if not parent_key or not stage.world.exists(parent_key):
        return
    queue, parent = stage.world.locate(parent_key)
    family = queue.children(parent)
    if op.state == "completed":
        counted = family.processed.pop(child_key, None) is not None
    else:
        counted = family.failed.remove(child_key)
        if not counted and family.ignored:
            script_breaks("WRONGTYPE: ZREM on the hash of ignored failures")
    if counted:
        family.unprocessed[child_key] = None
