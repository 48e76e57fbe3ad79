"""Adding trees of jobs, whose parents wait for their children (upstream `src/classes/flow-producer.ts`)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from conformance.protocol.keys import DEFAULT_PREFIX, QueueKeys
from conformance.reference_impl.clock import Clock, SystemClock
from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.emitter import EventEmitter
from conformance.reference_impl.errors import Closed, PartlyStored
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.jobs.options import required
from conformance.reference_impl.policy import policy_of
from conformance.reference_impl.scripts import Scripts
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner, ScriptTexts, script_texts

FlowJob = Mapping[str, Any]
"""A job of a flow to add: name, queueName, data, opts, prefix, children (each a FlowJob)."""

ParentReference = Mapping[str, Any]
"""The option `parent` of a child: the parent's id, and `queue`, its qualified queue name."""

_DEPTH: Final = 10
_MOST_CHILDREN: Final = 20


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
        """Call the flow producer's listeners."""
        self._producer.emit(event, *args)

    async def waitUntilReady(self) -> None:
        """Wait until connected; a flow writes no `meta`."""
        await self.connection.ready()


QueueOf = Callable[[str, str | None], FlowQueue]
"""Returns the queue of a name, under a prefix or the flow producer's own."""


@dataclass(frozen=True)
class _PendingFlowJob:
    """A job that is still to be made, where it belongs, and its parent."""

    flow: FlowJob
    parent: ParentReference | None
    siblings: list[Any]


def plan(
    flows: Sequence[FlowJob], queue_of: QueueOf, queues_options: Mapping[str, Any]
) -> tuple[list[JobNode], list[EvalCommand]]:
    """Make the jobs of flows, and the script calls that store them.

    Calls come level by level over all flows, so that a parent exists before its children. Raises InvalidArgument for
    the first job that BullMQ refuses.
    """
    roots: list[JobNode] = []
    calls: list[EvalCommand] = []
    level = [_PendingFlowJob(flow, _parent_of(flow), roots) for flow in flows]
    while level:
        below: list[_PendingFlowJob] = []
        for pending in level:
            node, call = _place(pending, queue_of, queues_options)
            calls.append(call)
            reference = {"id": node.job.known_id, "queue": node.job.owner.keys.qualified_name}
            below += [_PendingFlowJob(child, reference, node.children) for child in _children(pending.flow)]
        level = below
    return roots, calls


def _place(
    pending: _PendingFlowJob, queue_of: QueueOf, queues_options: Mapping[str, Any]
) -> tuple[JobNode, EvalCommand]:
    flow = pending.flow
    name, queue_name = (required(flow, field, "a job of a flow") for field in ("name", "queueName"))
    queue = queue_of(queue_name, flow.get("prefix"))
    given = flow.get("opts") or {}
    defaults = (queues_options.get(queue_name) or {}).get("defaultJobOptions") or {}
    opts = {**defaults, **given, "parent": pending.parent}
    if pending.parent is None:
        del opts["parent"]
    job = Job(queue, name, flow.get("data", {}), opts, given.get("jobId") or str(uuid.uuid4()))
    call = queue.scripts.add_call(job.to_new_job(waits_for_children=bool(_children(flow))))
    node = JobNode(job)
    pending.siblings.append(node)
    return node, call


def _parent_of(flow: FlowJob) -> ParentReference | None:
    options = flow.get("opts") if isinstance(flow, Mapping) else None
    return (options or {}).get("parent")


def _children(flow: FlowJob) -> Sequence[FlowJob]:
    return flow.get("children") or ()


class FlowProducer(EventEmitter):
    """Adds flows over any queues. `opts` are `connection`, `prefix` and `policy`, as in a queue.

    It writes no `meta`, and does not check queue names. In a cluster all queues of a flow must share a slot, so the
    prefix needs a hash tag.
    """

    def __init__(
        self,
        opts: Mapping[str, Any] | None = None,
        *,
        scripts: ScriptTexts | str | Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self.opts: Mapping[str, Any] = {"prefix": DEFAULT_PREFIX, **(opts or {})}
        self.closing = False
        policy = policy_of(self.opts)
        self.connection = Connection(
            Address.of(self.opts.get("connection")), wait_unsent_s=policy.wait_unsent_s, reconnect=policy.reconnect
        )
        self._runner = ScriptRunner(self.connection, script_texts(scripts))
        self._clock = clock or SystemClock()

    async def waitUntilReady(self) -> None:
        """Connect, and see that BullMQ can use the server."""
        await self.connection.ready()

    async def add(self, flow: FlowJob, opts: Mapping[str, Any] | None = None) -> JobNode:
        """Add a flow: {name, queueName, data?, opts?, prefix?, children?}, in one MULTI, parents before children.

        `opts["queuesOptions"]` ({queue: {defaultJobOptions}}) are defaults for its jobs. Ids are uuids unless given.
        As in Node 5.62.0 a refusal by Redis goes unnoticed: a flow below a parent that does not exist is returned, but
        not stored. Raises InvalidArgument, and then nothing was sent.
        """
        (node,) = await self._add([flow], (opts or {}).get("queuesOptions") or {})
        return node

    async def addBulk(self, flows: Sequence[FlowJob]) -> list[JobNode]:
        """Add several flows in one MULTI. Raises InvalidArgument, and then nothing was sent."""
        return await self._add(flows, {})

    async def getFlow(self, opts: Mapping[str, Any]) -> JobNode | None:
        """Return the tree below a job: {id, queueName, prefix?, depth (10), maxChildren (20)}.

        `maxChildren` is asked of Redis per kind of child, and is a hint only. None stands for a child without a hash,
        and is returned where the job has none.
        """
        self._refuse_if_closed()
        await self.waitUntilReady()
        prefix, depth = opts.get("prefix", self.opts["prefix"]), opts.get("depth", _DEPTH)
        queue, job_id = (required(opts, field, "getFlow") for field in ("queueName", "id"))
        return await self._node(prefix, queue, job_id, depth, opts.get("maxChildren", _MOST_CHILDREN))

    async def close(self) -> None:
        """Close the connection."""
        self.closing = True
        await self.connection.close()

    async def __aenter__(self) -> Self:
        await self.waitUntilReady()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def disconnect(self) -> None:
        """Drop the sockets; the next call opens new ones."""
        await self.connection.disconnect()

    async def _add(self, flows: Sequence[FlowJob], queues_options: Mapping[str, Any]) -> list[JobNode]:
        self._refuse_if_closed()
        await self.waitUntilReady()
        nodes, calls = plan(flows, self._queue, queues_options)
        _insist_on_stored(await self._runner.run_transaction(calls))
        return nodes

    async def _node(self, prefix: str, queue: str, job_id: str, depth: int, most: int) -> JobNode | None:
        job = await Job.fromId(self._queue(queue, prefix), job_id)
        if job is None:
            return None
        keys = await _child_keys(job, most)
        if not keys or depth == 1:
            return JobNode(job)
        found = (self._node(*_parts(key), depth - 1, most) for key in keys)
        return JobNode(job, list(await asyncio.gather(*found)))

    def _queue(self, name: str, prefix: str | None) -> FlowQueue:
        return FlowQueue(QueueKeys(str(prefix or self.opts["prefix"]), name), self, self._runner, self._clock)

    def _refuse_if_closed(self) -> None:
        if self.closing:
            raise Closed("the flow producer was closed")


def _insist_on_stored(replies: Sequence[Any]) -> None:
    """Raise the error of Redis inside EXEC (OOM, READONLY, BUSY ...), which Node does not look at.

    Raises PartlyStored where only some of the scripts were refused.
    """
    refused = [reply for reply in replies if isinstance(reply, Exception)]
    if not refused:
        return
    if len(refused) == len(replies):
        raise refused[0]
    raise PartlyStored(f"{len(refused)} of {len(replies)} scripts of the flow were refused: {refused[0]}")


async def _child_keys(job: Job, most: int) -> list[str]:
    page = {"count": most}
    found = await job.getDependencies({"failed": page, "processed": page, "unprocessed": page, "ignored": page})
    return [*found["processed"], *found["unprocessed"], *found["failed"], *found["ignored"]]


def _parts(key: str) -> tuple[str, str, str]:
    """Prefix, queue and id of a job's key. As in Node a prefix or an id with colons is cut."""
    prefix, queue, job_id, *_ = [*key.split(":"), "", ""]
    return prefix, queue, job_id
