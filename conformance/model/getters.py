"""Reading: jobs, counts, states, logs, children, flows, metrics. Nothing here changes anything."""

from __future__ import annotations

from conformance.driver.ops import flow as flow_ops
from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as ops
from conformance.driver.ops.base import Count, Counts, Flag, Jobs, MaybeJob
from conformance.model.dispatch import CallContext, operation
from conformance.model.job_objects import maybe_job, view_of
from conformance.model.order import waiting_list
from conformance.model.state import MetricsRecord, QueueState, list_range
from conformance.model.texts import normalised_json, parse_int
from conformance.protocol.states import (
    JOB_TYPES,
    PENDING_TYPES,
    PRIORITY_FACTOR,
    STATE_LOOKUP,
    STATE_OF_CONTAINER,
    STATE_UNKNOWN,
    container_of,
)


def state_of(queue: QueueState, job: str) -> str:
    """The state of a job, as users name it: a paused job is `waiting`."""
    return next((STATE_OF_CONTAINER[name] for name in STATE_LOOKUP if job in queue.container(name)), STATE_UNKNOWN)


def _asked_states(types: list[str]) -> list[str]:
    """No state is all of them, and `waiting` is `paused` too. Each only once."""
    wanted = [*types, "paused"] if "waiting" in types else types or list(JOB_TYPES)
    return list(dict.fromkeys(wanted))


@operation(ops.GetJob)
def _get_job(context: CallContext, op: ops.GetJob) -> MaybeJob:
    return maybe_job(view_of(context.queue, op.job) if op.job else None)


@operation(ops.GetJobs)
def _get_jobs(context: CallContext, op: ops.GetJobs) -> Jobs:
    """The range is taken of each state by itself."""
    found: dict[str, None] = {}
    for state in _asked_states(op.types):
        found.update(dict.fromkeys(_range(context.queue, container_of(state), op)))
    return Jobs(jobs=[view_of(context.queue, job) for job in found])


def _range(queue: QueueState, name: str, op: ops.GetJobs) -> list[str]:
    """Sorted sets from the lowest score, lists from the right end, or the other way round if not `asc`."""
    container = queue.container(name)
    if not isinstance(container, list):
        members = container.members()
        return list_range(members if op.asc else members[::-1], op.start, op.end)
    if not op.asc:
        return list_range(container, op.start, op.end)
    first = 0 if op.start == -1 else -(op.start + 1)
    last = 0 if op.end == -1 else -(op.end + 1)
    return list_range(container, last, first)[::-1]


@operation(ops.GetJobCounts)
def _get_counts(context: CallContext, op: ops.GetJobCounts) -> Counts:
    return Counts(counts=_counts(context.queue, op.types))


def _counts(queue: QueueState, types: list[str]) -> dict[str, int]:
    return {state: len(queue.container(container_of(state))) for state in _asked_states(types)}


@operation(ops.GetJobCountByTypes)
def _get_count(context: CallContext, op: ops.GetJobCountByTypes) -> Count:
    return Count(count=sum(_counts(context.queue, op.types).values()))


@operation(ops.CountPending)
def _count_pending(context: CallContext, _: ops.CountPending) -> Count:
    return Count(count=sum(_counts(context.queue, list(PENDING_TYPES)).values()))


@operation(ops.GetCountsPerPriority)
def _per_priority(context: CallContext, op: ops.GetCountsPerPriority) -> Counts:
    """Priority 0 are the jobs that wait without one."""
    queue = context.queue
    counts = {}
    for priority in op.priorities:
        low, high = priority * PRIORITY_FACTOR, (priority + 1) * PRIORITY_FACTOR - 1
        counts[str(priority)] = len(waiting_list(queue) if priority == 0 else queue.prioritized.between(low, high))
    return Counts(counts=counts)


@operation(ops.GetJobState)
def _get_state(context: CallContext, op: ops.GetJobState) -> ops.StateName:
    return ops.StateName(state=state_of(context.queue, op.job))


@operation(job_ops.GetState)
def _get_state_of_job(context: CallContext, op: job_ops.GetState) -> ops.StateName:
    return ops.StateName(state=state_of(context.queue, op.job))


@operation(job_ops.IsFinished)
def _is_finished(context: CallContext, op: job_ops.IsFinished) -> Flag:
    return Flag(value=op.job in context.queue.completed or op.job in context.queue.failed)


@operation(ops.GetJobLogs)
def _get_logs(context: CallContext, op: ops.GetJobLogs) -> ops.JobLogs:
    rows = context.queue.logs.get(op.job, [])
    # The same rows as Node.js reads: indexes from the end, then reversed.
    backwards = list_range(rows, -(op.end + 1), -(op.start + 1))[::-1]
    return ops.JobLogs(logs=list_range(rows, op.start, op.end) if op.asc else backwards, count=len(rows))


@operation(ops.GetVersion)
def _get_version(context: CallContext, _: ops.GetVersion) -> ops.MaybeText:
    return ops.MaybeText(value=context.queue.meta.get("version"))


@operation(ops.GetWorkers)
def _get_workers(context: CallContext, _: ops.GetWorkers) -> ops.WorkerNames:
    return ops.WorkerNames(names=_worker_names(context))


@operation(ops.GetWorkersCount)
def _count_workers(context: CallContext, _: ops.GetWorkersCount) -> Count:
    return Count(count=len(_worker_names(context)))


def _worker_names(context: CallContext) -> list[str]:
    """Workers are known by the names of their connections; one without a name has an empty one."""
    handles = context.state.handles.values()
    workers = [handle for handle in handles if handle.role == "worker" and handle.queue == context.handle.queue]
    return sorted(str(worker.options.get("name") or "") for worker in workers)


@operation(job_ops.GetDependencies)
def _dependencies(context: CallContext, op: job_ops.GetDependencies) -> job_ops.Dependencies:
    relations = context.queue.children(op.job)
    return job_ops.Dependencies(
        processed={key: normalised_json(value) for key, value in relations.processed.items()},
        unprocessed=sorted(relations.unprocessed),
        ignored=dict(relations.ignored),
        failed=relations.failed.members(),
    )


@operation(job_ops.GetDependenciesCount)
def _dependency_counts(context: CallContext, op: job_ops.GetDependenciesCount) -> job_ops.DependenciesCount:
    relations = context.queue.children(op.job)
    return job_ops.DependenciesCount(
        processed=len(relations.processed),
        unprocessed=len(relations.unprocessed),
        ignored=len(relations.ignored),
        failed=len(relations.failed),
    )


@operation(job_ops.GetChildrenValues)
def _children_values(context: CallContext, op: job_ops.GetChildrenValues) -> job_ops.ChildTexts:
    processed = context.queue.children(op.job).processed
    return job_ops.ChildTexts(values={key: normalised_json(value) for key, value in processed.items()})


@operation(job_ops.GetIgnoredChildrenFailures)
def _ignored_failures(context: CallContext, op: job_ops.GetIgnoredChildrenFailures) -> job_ops.ChildTexts:
    return job_ops.ChildTexts(values=dict(context.queue.children(op.job).ignored))


@operation(flow_ops.GetFlow)
def _get_flow(context: CallContext, op: flow_ops.GetFlow) -> flow_ops.MaybeFlow:
    return flow_ops.MaybeFlow(flow=_read_flow(context, op.queue, op.job, op.depth))


def _read_flow(context: CallContext, queue_name: str, job: str, depth: int) -> flow_ops.FlowNode | None:
    """The job and what is below it; children that are gone are left out."""
    queue = context.state.queue(queue_name)
    if job not in queue.jobs:
        return None
    relations = queue.children(job)
    keys = [*relations.processed, *relations.unprocessed, *relations.failed.members(), *relations.ignored]
    children = [_read_flow(context, *_queue_and_id(context, key), depth - 1) for key in keys] if depth - 1 else []
    return flow_ops.FlowNode(id=job, queue=queue_name, children=[child for child in children if child is not None])


def _queue_and_id(context: CallContext, key: str) -> tuple[str, str]:
    queue, job = context.state.locate(key)
    return queue.name, job


@operation(ops.GetMetrics)
def _get_metrics(context: CallContext, op: ops.GetMetrics) -> ops.MetricsView:
    record = context.queue.metrics.get(op.type, MetricsRecord())
    meta = {name: float(parse_int(record.fields.get(name)) or 0) for name in ("count", "prevTS", "prevCount")}
    points = [float(point) for point in list_range(record.points, op.start, op.end)]
    return ops.MetricsView(meta=meta, data=points, count=len(record.points))
