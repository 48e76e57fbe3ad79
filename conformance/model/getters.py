"""Reading: jobs, counts, states, logs, children. Nothing here changes anything."""

from __future__ import annotations

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as ops
from conformance.driver.ops.base import Count, Counts, Flag, Jobs, MaybeJob
from conformance.model.containers import list_range
from conformance.model.order import waiting_list
from conformance.model.stage import Stage, answers
from conformance.model.state import Queue
from conformance.model.texts import normalised_json
from conformance.model.views import maybe_job, view_of
from conformance.protocol.job_fields import STATE_UNKNOWN, STATES, container_of
from conformance.protocol.scores import PRIORITY_FACTOR

PENDING_STATES = ["waiting", "paused", "delayed", "prioritized", "waiting-children"]
STATE_ORDER = (
    ("completed", "completed"),
    ("failed", "failed"),
    ("delayed", "delayed"),
    ("prioritized", "prioritized"),
    ("active", "active"),
    ("wait", "waiting"),
    ("paused", "waiting"),
    ("waiting-children", "waiting-children"),
)
"""Containers in the order in which they are looked through, and the state that each one stands for."""


def state_of(queue: Queue, job: str) -> str:
    """The state of a job, as users name it: a paused job is `waiting`."""
    return next((state for name, state in STATE_ORDER if job in queue.container(name)), STATE_UNKNOWN)


def _asked_states(types: list[str]) -> list[str]:
    """No state is all of them, and `waiting` is `paused` too. Each only once."""
    wanted = [*types, "paused"] if "waiting" in types else types or list(STATES)
    return list(dict.fromkeys(wanted))


@answers(ops.GetJob)
def _get_job(stage: Stage, op: ops.GetJob) -> MaybeJob:
    return maybe_job(view_of(stage.queue, op.job) if op.job else None)


@answers(ops.GetJobs)
def _get_jobs(stage: Stage, op: ops.GetJobs) -> Jobs:
    """The range is taken of each state by itself."""
    found: dict[str, None] = {}
    for state in _asked_states(op.types):
        found.update(dict.fromkeys(_range(stage.queue, container_of(state), op)))
    return Jobs(jobs=[view_of(stage.queue, job) for job in found])


def _range(queue: Queue, name: str, op: ops.GetJobs) -> list[str]:
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


@answers(ops.GetJobCounts)
def _get_counts(stage: Stage, op: ops.GetJobCounts) -> Counts:
    return Counts(counts=_counts(stage.queue, op.types))


def _counts(queue: Queue, types: list[str]) -> dict[str, int]:
    return {state: len(queue.container(container_of(state))) for state in _asked_states(types)}


@answers(ops.GetJobCountByTypes)
def _get_count(stage: Stage, op: ops.GetJobCountByTypes) -> Count:
    return Count(count=sum(_counts(stage.queue, op.types).values()))


@answers(ops.CountPending)
def _count_pending(stage: Stage, _: ops.CountPending) -> Count:
    return Count(count=sum(_counts(stage.queue, PENDING_STATES).values()))


@answers(ops.GetCountsPerPriority)
def _per_priority(stage: Stage, op: ops.GetCountsPerPriority) -> Counts:
    """Priority 0 are the jobs that wait without one."""
    queue = stage.queue
    counts = {}
    for priority in op.priorities:
        low, high = priority * PRIORITY_FACTOR, (priority + 1) * PRIORITY_FACTOR - 1
        counts[str(priority)] = len(waiting_list(queue) if priority == 0 else queue.prioritized.between(low, high))
    return Counts(counts=counts)


@answers(ops.GetJobState)
def _get_state(stage: Stage, op: ops.GetJobState) -> ops.StateName:
    return ops.StateName(state=state_of(stage.queue, op.job))


@answers(job_ops.GetState)
def _get_state_of_job(stage: Stage, op: job_ops.GetState) -> ops.StateName:
    return ops.StateName(state=state_of(stage.queue, op.job))


@answers(job_ops.IsFinished)
def _is_finished(stage: Stage, op: job_ops.IsFinished) -> Flag:
    return Flag(value=op.job in stage.queue.completed or op.job in stage.queue.failed)


@answers(ops.GetJobLogs)
def _get_logs(stage: Stage, op: ops.GetJobLogs) -> ops.JobLogs:
    rows = stage.queue.logs.get(op.job, [])
    backwards = list_range(rows, -(op.end + 1), -(op.start + 1))[::-1]
    return ops.JobLogs(logs=list_range(rows, op.start, op.end) if op.asc else backwards, count=len(rows))


@answers(ops.GetVersion)
def _get_version(stage: Stage, _: ops.GetVersion) -> ops.MaybeText:
    return ops.MaybeText(value=stage.queue.meta.get("version"))


@answers(ops.GetWorkers)
def _get_workers(stage: Stage, _: ops.GetWorkers) -> ops.WorkerNames:
    return ops.WorkerNames(names=_worker_names(stage))


@answers(ops.GetWorkersCount)
def _count_workers(stage: Stage, _: ops.GetWorkersCount) -> Count:
    return Count(count=len(_worker_names(stage)))


def _worker_names(stage: Stage) -> list[str]:
    """Workers are known by the names of their connections; one without a name has an empty one."""
    handles = stage.world.handles.values()
    workers = [one for one in handles if one.role == "worker" and one.queue == stage.handle.queue]
    return sorted(str(worker.options.get("name") or "") for worker in workers)


@answers(job_ops.GetDependencies)
def _dependencies(stage: Stage, op: job_ops.GetDependencies) -> job_ops.Dependencies:
    family = stage.queue.children(op.job)
    return job_ops.Dependencies(
        processed={key: normalised_json(value) for key, value in family.processed.items()},
        unprocessed=sorted(family.unprocessed),
        ignored=dict(family.ignored),
        failed=family.failed.members(),
    )


@answers(job_ops.GetDependenciesCount)
def _dependency_counts(stage: Stage, op: job_ops.GetDependenciesCount) -> job_ops.DependenciesCount:
    family = stage.queue.children(op.job)
    return job_ops.DependenciesCount(
        processed=len(family.processed),
        unprocessed=len(family.unprocessed),
        ignored=len(family.ignored),
        failed=len(family.failed),
    )


@answers(job_ops.GetChildrenValues)
def _children_values(stage: Stage, op: job_ops.GetChildrenValues) -> job_ops.ChildTexts:
    processed = stage.queue.children(op.job).processed
    return job_ops.ChildTexts(values={key: normalised_json(value) for key, value in processed.items()})


@answers(job_ops.GetIgnoredChildrenFailures)
def _ignored_failures(stage: Stage, op: job_ops.GetIgnoredChildrenFailures) -> job_ops.ChildTexts:
    return job_ops.ChildTexts(values=dict(stage.queue.children(op.job).ignored))
