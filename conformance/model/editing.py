"""Changing jobs: data, progress, logs, delay, priority, and by hand from one state to another, one or many."""

from __future__ import annotations

from conformance.driver.ops import job as ops
from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops.base import Count, Nothing
from conformance.model.adding import put_delayed
from conformance.model.calls import NotModelled, script_breaks, script_error
from conformance.model.dispatch import CallContext, operation
from conformance.model.events import emit, emit_within_limit
from conformance.model.job_objects import job_object
from conformance.model.order import (
    delay_score,
    is_held_back,
    mark_work,
    priority_of,
    push,
    put_first_of_priority,
    put_prioritized,
    put_waiting,
    remove_last,
    waiting_list,
)
from conformance.model.state import JobFields, SortedSet
from conformance.model.texts import number_text
from conformance.protocol.scripts import ErrorCode


def _existing(context: CallContext, job: str) -> JobFields:
    """The job's hash. Raises CallFailure where it has none."""
    if job not in context.queue.jobs:
        script_error(ErrorCode.MISSING_JOB)
    return context.queue.jobs[job]


@operation(ops.UpdateData)
def _update_data(context: CallContext, op: ops.UpdateData) -> Nothing:
    _existing(context, op.job)["data"] = op.data_raw
    return Nothing()


@operation(ops.UpdateProgress)
def _update_progress(context: CallContext, op: ops.UpdateProgress) -> Nothing:
    _existing(context, op.job)["progress"] = op.value_raw
    emit_within_limit(context.state, context.queue, "progress", jobId=op.job, data=op.value_raw)
    return Nothing()


@operation(ops.Log)
def _log(context: CallContext, op: ops.Log) -> Count:
    """Add a row at the end; `keep_logs` keeps only this number of the last rows (0: all)."""
    _existing(context, op.job)
    rows = context.queue.logs.setdefault(op.job, [])
    rows.append(op.row)
    kept = min(len(rows), op.keep_logs) if op.keep_logs else len(rows)
    del rows[: len(rows) - kept]
    return Count(count=kept)


@operation(ops.ClearLogs)
def _clear_logs(context: CallContext, op: ops.ClearLogs) -> Nothing:
    rows = context.queue.logs.pop(op.job, [])
    if op.keep_logs and rows:
        context.queue.logs[op.job] = rows[-op.keep_logs :]
    return Nothing()


@operation(ops.Promote)
def _promote(context: CallContext, op: ops.Promote) -> Nothing:
    """Let a delayed job wait now. A job that does not exist is not delayed either."""
    queue = context.queue
    if not queue.delayed.remove(op.job):
        script_error(ErrorCode.WRONG_STATE)
    priority = priority_of(queue, op.job)
    if priority == 0:
        put_waiting(queue, op.job, "left")
    else:
        put_prioritized(queue, op.job, priority)
    emit(context.state, queue, "waiting", jobId=op.job, prev="delayed")
    queue.hash(op.job)["delay"] = number_text(0)
    return Nothing()


@operation(ops.ChangeDelay)
def _change_delay(context: CallContext, op: ops.ChangeDelay) -> Nothing:
    """A new delay counts from now. The job's old place still counts when the order within a millisecond is settled."""
    queue = context.queue
    fields = _existing(context, op.job)
    # Computed before the job leaves the set: its own old score still counts as taken.
    score, due = delay_score(queue, context.now_ms, op.delay_ms)
    if not queue.delayed.remove(op.job):
        script_error(ErrorCode.WRONG_STATE)
    fields["delay"] = number_text(op.delay_ms)
    put_delayed(context.state, queue, op.job, context.now_ms, op.delay_ms, at=(score, due))
    return Nothing()


@operation(ops.ChangePriority)
def _change_priority(context: CallContext, op: ops.ChangePriority) -> Nothing:
    """A waiting job finds a new place, any other only remembers the priority. Nothing is checked; no event."""
    queue = context.queue
    fields = _existing(context, op.job)
    if queue.prioritized.remove(op.job) or remove_last(waiting_list(queue), op.job):
        if op.priority == 0:
            put_waiting(queue, op.job, "right" if op.lifo else "left")
        elif op.lifo:
            put_first_of_priority(queue, op.job, op.priority)
        else:
            put_prioritized(queue, op.job, op.priority)
    fields["priority"] = number_text(op.priority)
    return Nothing()


@operation(ops.Retry)
def _retry(context: CallContext, op: ops.Retry) -> Nothing:
    """Let a finished job wait again, regardless of its priority, and let its parent wait for it again.

    A failed child that its parent had ignored breaks the script after the job has moved: upstream takes the parent's
    hash of ignored failures for a sorted set.
    """
    queue = context.queue
    lifo = job_object(context, op.job).opts.get("lifo")
    fields = _existing(context, op.job)
    if not (queue.failed if op.state == "failed" else queue.completed).remove(op.job):
        script_error(ErrorCode.WRONG_STATE)
    for name in ("finishedOn", "processedOn", "failedReason" if op.state == "failed" else "returnvalue"):
        fields.pop(name, None)
    put_waiting(queue, op.job, "right" if lifo else "left")
    _return_to_parent(context, op)
    emit_within_limit(context.state, queue, "waiting", jobId=op.job, prev=op.state)
    return Nothing()


def _return_to_parent(context: CallContext, op: ops.Retry) -> None:
    parent_key, child_key = context.queue.field(op.job, "parentKey"), context.queue.key(op.job)
    if not parent_key or not context.state.exists(parent_key):
        return
    queue, parent = context.state.locate(parent_key)
    relations = queue.children(parent)
    if op.state == "completed":
        counted = relations.processed.pop(child_key, None) is not None
    else:
        counted = relations.failed.remove(child_key)
        if not counted and relations.ignored:
            # The job has moved by then: Redis does not roll a broken script back.
            script_breaks("WRONGTYPE: ZREM on the hash of ignored failures")
    if counted:
        relations.unprocessed[child_key] = None


@operation(queue_ops.RetryJobs)
def _retry_jobs(context: CallContext, op: queue_ops.RetryJobs) -> Nothing:
    """Let all finished jobs of a state wait again, the oldest first."""
    until = context.now_ms if op.timestamp is None else op.timestamp
    value = "failedReason" if op.state == "failed" else "returnvalue"
    _bulk_to_wait(context, op.state, op.count, until, ("finishedOn", "processedOn", value))
    return Nothing()


@operation(queue_ops.PromoteJobs)
def _promote_jobs(context: CallContext, op: queue_ops.PromoteJobs) -> Nothing:
    """Let all delayed jobs wait now; their field `delay` stays."""
    _bulk_to_wait(context, "delayed", op.count, float("inf"), ())
    return Nothing()


def _bulk_to_wait(context: CallContext, state: str, count: int, until: float, forgotten: tuple[str, ...]) -> None:
    """Move jobs to `wait` in batches, regardless of their priorities."""
    if count <= 0:
        raise NotModelled("a batch of 0 jobs never ends")
    queue = context.queue
    source = queue.container(state)
    assert isinstance(source, SortedSet)
    # Decided before the jobs move, as in the script.
    held_back = is_held_back(queue)
    jobs = source.between(0, until)
    for job in jobs:
        for name in forgotten:
            queue.jobs.get(job, {}).pop(name, None)
        emit_within_limit(context.state, queue, "waiting", jobId=job, prev=state)
        source.remove(job)
        push(waiting_list(queue), job, "left")
    if jobs and not held_back:
        mark_work(queue)
