"""What a flow is made of: the tree that is asked for, its jobs, and the script calls that store them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.protocol.keys import QueueKeys
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.emitter import EventEmitter
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.scripts.registry import Scripts
from conformance.reference_impl.scripts.runner import ScriptCall, ScriptRunner

FlowJob = Mapping[str, Any]
"""A job of a flow to add: name, queueName, data, opts, prefix, children (each a FlowJob)."""

ParentReference = Mapping[str, Any]
"""The option `parent` of a child: the parent's id, and `queue`, its qualified queue name."""


@dataclass
class JobNode:
    """A job of a flow and its children; None stands for a child whose hash is gone."""

    job: Job
    children: list[JobNode | None] = field(default_factory=list)


class FlowQueue:
    """A queue as its jobs need it, on the connection of a flow producer."""

    def __init__(self, keys: QueueKeys, producer: EventEmitter, runner: ScriptRunner, clock: Clock) -> None:
        self.keys = keys
        self.clock = clock
        self.opts: Mapping[str, Any] = {"prefix": keys.prefix}
        self.closing = False
        self.connection: Connection = runner.connection
        self.scripts = Scripts(runner, self)
        self._producer = producer

    def emit(self, event: str, *args: Any) -> None:
        """Tell the flow producer's listeners."""
        self._producer.emit(event, *args)

    async def waitUntilReady(self) -> None:
        """Wait until connected; a flow writes no `meta`."""
        await self.connection.ready()


QueueOf = Callable[[str, str | None], FlowQueue]
"""Answers the queue of a name, under a prefix or the flow producer's own."""


@dataclass(frozen=True)
class _Pending:
    """A job that is still to be made, where it belongs, and its parent."""

    flow: FlowJob
    parent: ParentReference | None
    siblings: list[Any]


def plan(
    flows: Sequence[FlowJob], queue_of: QueueOf, queues_options: Mapping[str, Any]
) -> tuple[list[JobNode], list[ScriptCall]]:
    """Make the jobs of flows, and the script calls that store them.

    Calls come level by level over all flows, so that a parent exists before its children. Raises InvalidArgument for
    the first job that BullMQ refuses.
    """
    roots: list[JobNode] = []
    calls: list[ScriptCall] = []
    level = [_Pending(flow, (flow.get("opts") or {}).get("parent"), roots) for flow in flows]
    while level:
        below: list[_Pending] = []
        for pending in level:
            node, call = _place(pending, queue_of, queues_options)
            calls.append(call)
            reference = {"id": node.job.known_id, "queue": node.job.owner.keys.qualified_name}
            below += [_Pending(child, reference, node.children) for child in _children(pending.flow)]
        level = below
    return roots, calls


def _place(pending: _Pending, queue_of: QueueOf, queues_options: Mapping[str, Any]) -> tuple[JobNode, ScriptCall]:
    flow = pending.flow
    queue = queue_of(flow["queueName"], flow.get("prefix"))
    given = flow.get("opts") or {}
    defaults = (queues_options.get(flow["queueName"]) or {}).get("defaultJobOptions") or {}
    opts = {**defaults, **given, "parent": pending.parent}
    if pending.parent is None:
        del opts["parent"]
    job = Job(queue, flow["name"], flow.get("data", {}), opts, given.get("jobId") or str(uuid.uuid4()))
    call = queue.scripts.add_call(job.to_new_job(waits_for_children=bool(_children(flow))))
    node = JobNode(job)
    pending.siblings.append(node)
    return node, call


def _children(flow: FlowJob) -> Sequence[FlowJob]:
    return flow.get("children") or ()
