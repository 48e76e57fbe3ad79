"""Translates calls, answers and events of a driver between the names of the scenario and those of its client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import Any, TypeVar

import msgspec

from conformance.driver.messages import DriverEvent
from conformance.driver.ops import Op, flow, lifecycle, queue, worker
from conformance.driver.ops.base import Ids, JobRef, Jobs, MaybeJob
from conformance.participants.job_ids import NOT_GENERATED, JobIds
from conformance.participants.names import Names

Answer = TypeVar("Answer")

OTHER_JOB_IDS = "identity.job-ids"
OTHER_FLOW_IDS = "identity.flow-ids"
"""Locators of names that differ from Node's. Each is owned by the requirement about exactly these names."""

_SCHEDULED = "repeat:"


def call_to_client(names: Names, queue_name: str, op: Op[Answer]) -> Op[Answer]:
    """The operation in the client's names. `queue_name`: the scenario's name of the handle's queue."""
    if names.same:
        return op
    args: dict[str, Any] = msgspec.to_builtins(op)
    translated = names.to_client({**args, **_renamed(names, queue_name, op, args)})
    return msgspec.convert(translated, type(op))


def _renamed(names: Names, queue_name: str, op: Op[Any], args: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are names of queues or bare job ids, in the client's names."""
    ids = names.ids(queue_name)
    match op:
        case lifecycle.Open():
            # Another prefix than the scenario's is intended, and stays.
            own = {"prefix": names.client_prefix, "queue": names.client_queue(op.queue)}
            return own if op.prefix == names.prefix else {}
        case queue.Add():
            return {"opts": names.opts_to_client(op.opts)}
        case queue.AddBulk():
            return {"jobs": [_new_job(names, job) for job in args["jobs"]]}
        case flow.AddFlow():
            return {"flow": _tree(names, args["flow"])}
        case flow.AddFlows():
            return {"flows": [_tree(names, tree) for tree in args["flows"]]}
        case flow.GetFlow():
            return {"queue": names.client_queue(op.queue), "job": names.ids(op.queue).to_client(op.job)}
        case worker.ExtendLocks():
            return {"jobs": [ids.to_client(job) for job in op.jobs]}
    return {"job": ids.to_client(args["job"])} if "job" in args else {}


def answer_to_scenario(names: Names, queue_name: str, op: Op[Answer], answer: Answer) -> Answer:
    """The answer in the scenario's names: as Node would have answered."""
    if names.same:
        return answer
    ids = names.ids(queue_name)
    renamed: Any = names.to_scenario(msgspec.to_builtins(answer))
    match answer:
        case JobRef():
            renamed = {"id": ids.to_scenario(answer.id)}
        case Ids():
            renamed = {"ids": _ids_to_scenario(ids, op, answer.ids)}
        case MaybeJob():
            renamed = {"job": _maybe_view(names, queue_name, renamed["job"])}
        case Jobs():
            views = [_maybe_view(names, queue_name, view) for view in renamed["jobs"]]
            renamed = {"jobs": _jobs_in_order(ids, op, views)}
        case flow.FlowNode() | flow.FlowNodes() | flow.MaybeFlow():
            renamed = _flow_answer(names, renamed)
        case queue.MaybeText(value=str(value)) if isinstance(op, queue.GetDeduplicationJobId):
            renamed = {"value": ids.to_scenario(value)}
    return msgspec.convert(renamed, type(answer))


def _ids_to_scenario(ids: JobIds, op: Op[Any], answered: list[str]) -> list[str]:
    jobs = [ids.to_scenario(job) for job in answered]
    if not isinstance(op, worker.CheckStalled):
        return jobs
    # Redis returns a set of numbers in their order, and a set of other texts in any order: restore the former.
    ids.decide_order |= len(jobs) > 1 and ids.differ
    return sorted(jobs, key=lambda job: (len(job), job))


def _jobs_in_order(ids: JobIds, op: Op[Any], views: list[Any]) -> list[Any]:
    ascending = isinstance(op, queue.GetJobs) and bool(op.asc)
    # A removed job leaves no id to sort by, so the order of the others cannot be restored.
    ids.decide_order |= None in views and ids.differ
    return _in_order(views, ascending=ascending) if ids.differ else views


def _flow_answer(names: Names, answer: dict[str, Any]) -> dict[str, Any]:
    if "flows" in answer:
        return {"flows": [_node(names, node) for node in answer["flows"]]}
    if "flow" in answer:
        return {"flow": answer["flow"] and _node(names, answer["flow"])}
    return _node(names, answer)


def event_to_scenario(names: Names, queue_name: str, event: DriverEvent) -> DriverEvent:
    """An event in the scenario's names: as Node would have sent it."""
    if names.same:
        return event
    args: dict[str, Any] = names.to_scenario(event.args)
    job = args.get("job")
    if isinstance(job, str):
        args = {**args, "job": names.ids(queue_name).to_scenario(job)}
    elif isinstance(job, dict):
        args = {**args, "job": _maybe_view(names, queue_name, job)}
    if event.name == "queue-event":
        args = {**args, "fields": names.event_to_scenario(queue_name, event.args["fields"])}
    return msgspec.structs.replace(event, args=args)


def _new_job(names: Names, job: dict[str, Any]) -> dict[str, Any]:
    return {**job, "opts": names.opts_to_client(job["opts"])}


def _tree(names: Names, node: dict[str, Any]) -> dict[str, Any]:
    """A flow to add."""
    children = [_tree(names, child) for child in node["children"]]
    return {**_new_job(names, node), "queue": names.client_queue(node["queue"]), "children": children}


def _node(names: Names, node: dict[str, Any]) -> dict[str, Any]:
    """An existing flow."""
    own = names.scenario_queue(node["queue"])
    children = [_node(names, child) for child in node["children"]]
    return {"id": names.ids(own).to_scenario(node["id"]), "queue": own, "children": children}


def _maybe_view(names: Names, queue_name: str, view: dict[str, Any] | None) -> dict[str, Any] | None:
    if view is None:
        return None
    opts = names.opts_to_scenario(queue_name, view.get("opts") or {})
    return {**view, "id": names.ids(queue_name).to_scenario(view["id"]), "opts": opts}


def _in_order(views: list[Any], *, ascending: bool) -> list[Any]:
    """Sort jobs that ended in the same ms by the scenario's ids: Redis sorted them by the client's."""
    ordered: list[Any] = []
    for ended, group in groupby(views, key=lambda view: view and view.get("finished_on")):
        jobs = list(group)
        ordered += jobs if ended is None else sorted(jobs, key=lambda view: str(view["id"]), reverse=not ascending)
    return ordered


# Learning ids from answers.


@contextmanager
def adding(names: Names, queue_name: str, op: Op[Any]) -> Iterator[None]:
    """The block of an operation's call: concurrent calls that add jobs need to know its number of jobs."""
    with ExitStack() as stack:
        for name, jobs in _jobs_by_queue(queue_name, op).items():
            stack.enter_context(names.ids(name).adding(jobs))
        yield


def learn(names: Names, queue_name: str, op: Op[Any], answer: Any, *, counter: Callable[[str], int]) -> dict[str, str]:
    """Learn the ids in an answer. Returns deviations from Node: locator to an observed example.

    `counter` reads the counter of a queue from Redis. Call it inside `adding`.
    """
    ids = names.ids(queue_name)
    match op:
        case queue.Add():
            given = [_given_by_client(ids, answer.id, op.opts)]
        case queue.AddBulk():
            # Not strict: a client that returns too few ids is a finding of the comparison, not a crash of the kit.
            bulk = zip(answer.ids, op.jobs, strict=False)
            given = [_given_by_client(ids, job, new.opts) for job, new in bulk]
        case flow.AddFlow():
            return _learn_tree(names, op.flow, answer)
        case flow.AddFlows():
            trees = zip(op.flows, answer.flows, strict=False)
            return {name: seen for tree, node in trees for name, seen in _learn_tree(names, tree, node).items()}
        case _:
            return {}
    deviation = ids.learn(given, lambda: counter(queue_name))
    return {OTHER_JOB_IDS: deviation} if deviation else {}


def _learn_tree(names: Names, tree: flow.FlowJob, node: flow.FlowNode) -> dict[str, str]:
    ids = names.ids(tree.queue)
    deviation = ids.learn_of_flow(_given_by_client(ids, node.id, tree.opts))
    deviations = {OTHER_FLOW_IDS: deviation} if deviation else {}
    for child, answered in zip(tree.children, node.children, strict=False):
        deviations |= _learn_tree(names, child, answered)
    return deviations


def _given_by_client(ids: JobIds, job: str, opts: dict[str, Any]) -> str | None:
    """The id, if the client generated it; not if the user chose it or it belongs to a schedule."""
    if opts.get("jobId") is not None:
        ids.name(str(opts["jobId"]))
        return NOT_GENERATED
    return NOT_GENERATED if job.startswith(_SCHEDULED) else job


def _jobs_by_queue(queue_name: str, op: Op[Any]) -> Counter[str]:
    """The number of jobs that an operation adds, by queue."""
    match op:
        case queue.Add():
            return Counter([queue_name])
        case queue.AddBulk():
            return Counter({queue_name: len(op.jobs)})
        case flow.AddFlow():
            return Counter(_queues_of(op.flow))
        case flow.AddFlows():
            return Counter(name for tree in op.flows for name in _queues_of(tree))
    return Counter()


def _queues_of(tree: flow.FlowJob) -> Iterator[str]:
    yield tree.queue
    for child in tree.children:
        yield from _queues_of(child)
