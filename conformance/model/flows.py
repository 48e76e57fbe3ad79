"""Flows: trees of jobs, added in one transaction. A job with children waits for them before it is worked on.

All jobs of one level are added before those below. What the server refuses is not told to the caller: the job is just
not there, and its children find no parent.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass, field

from conformance.driver.ops import flow as ops
from conformance.model.adding import add, lost_scripts
from conformance.model.calls import Failure, NotModelled
from conformance.model.new_jobs import NewJob, new_job
from conformance.model.stage import Stage, answers


@dataclass(slots=True)
class _Node:
    """A node on its way: where it is in the answer, and the job to add."""

    job: NewJob
    queue: str
    children: list[_Node] = field(default_factory=list)

    def answer(self) -> ops.FlowNode:
        return ops.FlowNode(id=self.job.id, queue=self.queue, children=[child.answer() for child in self.children])


@answers(ops.AddFlow)
def _add_flow(stage: Stage, op: ops.AddFlow) -> ops.FlowNode:
    return _add_all(stage, [op.flow])[0]


@answers(ops.AddFlows)
def _add_flows(stage: Stage, op: ops.AddFlows) -> ops.FlowNodes:
    return ops.FlowNodes(flows=_add_all(stage, op.flows))


def _add_all(stage: Stage, flows: list[ops.FlowJob]) -> list[ops.FlowNode]:
    """Make all jobs first: one that the client refuses prevents everything. Then add them, level by level."""
    roots: list[_Node] = []
    order: list[_Node] = []
    todo = deque((flow, flow.opts.get("parent"), roots) for flow in flows)
    while todo:
        flow, parent, siblings = todo.popleft()
        node = _node(stage, flow, parent)
        siblings.append(node)
        order.append(node)
        link = {"id": node.job.id, "queue": node.job.queue.base.removesuffix(":")}
        todo.extend((child, link, node.children) for child in flow.children)
    if lost_scripts(stage, {node.job.script for node in order}):
        # A flow producer sends a script's text only once: its jobs are lost without a word until another client of the
        # same Redis has sent it again, which nobody can foresee.
        stage.world.determined = False
    for node in order:
        with contextlib.suppress(Failure):
            add(stage.world, node.job)
    return [root.answer() for root in roots]


def _node(stage: Stage, flow: ops.FlowJob, parent: dict[str, str] | None) -> _Node:
    options = {name: value for name, value in flow.opts.items() if name != "parent"}
    if parent:
        options["parent"] = parent
    queue = stage.world.queue(flow.queue)
    job_id = options.get("jobId") or stage.world.new_id()
    if ":" in job_id:
        raise NotModelled("ids with a colon in flows")
    job = new_job(queue, flow.name, flow.data_raw, options, stage.now_ms, job_id=job_id)
    if flow.children:
        job = NewJob(
            queue=job.queue,
            id=job.id,
            name=job.name,
            data_raw=job.data_raw,
            options=job.options,
            timestamp=job.timestamp,
            waits_for_children=True,
        )
    return _Node(job, flow.queue)


@answers(ops.GetFlow)
def _get_flow(stage: Stage, op: ops.GetFlow) -> ops.MaybeFlow:
    return ops.MaybeFlow(flow=_read(stage, op.queue, op.job, op.depth))


def _read(stage: Stage, queue_name: str, job: str, depth: int) -> ops.FlowNode | None:
    """The job and what is below it; children that are gone are left out."""
    queue = stage.world.queue(queue_name)
    if job not in queue.jobs:
        return None
    family = queue.children(job)
    keys = [*family.processed, *family.unprocessed, *family.failed.members(), *family.ignored]
    children = [_read(stage, *_place(stage, key), depth - 1) for key in keys] if depth - 1 else []
    return ops.FlowNode(id=job, queue=queue_name, children=[child for child in children if child is not None])


def _place(stage: Stage, key: str) -> tuple[str, str]:
    queue, job = stage.world.locate(key)
    return queue.name, job
