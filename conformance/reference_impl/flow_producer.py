"""Adding trees of jobs, whose parents wait for their children (upstream `src/classes/flow-producer.ts`)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
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
from conformance.reference_impl.option_types import (
    AnyOptions,
    ClientOptions,
    FlowJob,
    FlowOptions,
    refuse_misspelt_client_options,
    refuse_misspelt_job_options,
)
from conformance.reference_impl.policy import policy_of
from conformance.reference_impl.scripts import Scripts
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner, ScriptTexts, script_texts
from conformance.reference_impl.telemetry import attributes
from conformance.reference_impl.telemetry.interface import SpanKind, Telemetry, telemetry_of
from conformance.reference_impl.telemetry.job_context import settled
from conformance.reference_impl.telemetry.tracing import UNTRACED, TracedBlock, trace

FlowMapping = Mapping[str, Any]
"""A FlowJob, or any other mapping with its fields."""

ParentReference = Mapping[str, Any]
"""The option `parent` of a child: the parent's id, and `queue`, its qualified queue name."""

_DEPTH: Final = 10
_MOST_CHILDREN: Final = 20


@dataclass
class JobNode:
    """A job of a flow and its children; a child is None if its hash is gone."""

    job: Job
    children: list[JobNode | None] = field(default_factory=list)


class FlowQueue:
    """A queue on the connection of a flow producer, as its jobs need it."""

    def __init__(self, keys: QueueKeys, producer: EventEmitter[str], runner: ScriptRunner, clock: Clock) -> None:
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

    def trace(
        self, _kind: SpanKind, _operation: str, _destination: str | None = None, *, metadata: Any = None
    ) -> TracedBlock:
        """Record nothing: only adding a flow is traced, as in Node.js."""
        del metadata
        return UNTRACED

    async def waitUntilReady(self) -> None:
        """Wait until connected; a flow writes no `meta`."""
        await self.connection.ready()


QueueOf = Callable[[str, str | None], FlowQueue]
"""Returns the queue of a name, under a prefix or the flow producer's own."""


@dataclass(frozen=True)
class _PendingFlowJob:
    """A job to be made: its flow node, queue and parent, and the span of its caller."""

    flow: FlowMapping
    parent: ParentReference | None
    siblings: list[Any]
    adding: TracedBlock


class FlowPlan:
    """Makes the jobs of flows, and the script calls that store them.

    With telemetry, the span of each job is a child of its parent's span.
    """

    def __init__(self, queue_of: QueueOf, queues_options: Mapping[str, Any], telemetry: Telemetry | None) -> None:
        self._queue_of = queue_of
        self._queues_options = queues_options
        self._telemetry = telemetry
        self.roots: list[JobNode] = []
        self.calls: list[EvalCommand] = []

    def add(self, flows: Sequence[FlowMapping], adding: TracedBlock) -> None:
        """Plan flows inside a span.

        Calls come level by level over all flows, so that a parent exists before its children. Raises InvalidArgument
        for the first job that BullMQ refuses.
        """
        level = [_PendingFlowJob(flow, _parent_of(flow), self.roots, adding) for flow in flows]
        with ExitStack() as spans:
            while level:
                level = [below for pending in level for below in self._place(pending, spans)]

    def _place(self, pending: _PendingFlowJob, spans: ExitStack) -> list[_PendingFlowJob]:
        """Plan a job; returns its children, which are still to be planned."""
        flow = pending.flow
        name, queue_name = (required(flow, field, "a job of a flow") for field in ("name", "queueName"))
        own = flow.get("opts")
        refuse_misspelt_job_options(own or {})
        job_id = (own or {}).get("jobId") or str(uuid.uuid4())
        span = spans.enter_context(self._span(queue_name, pending))
        span.setAttributes({attributes.JOB_NAME: name, attributes.JOB_ID: job_id})
        queue = self._queue_of(queue_name, flow.get("prefix"))
        opts = settled(self._merged_options(queue_name, own or {}, pending.parent), own, span.metadata)
        node = JobNode(Job(queue, name, flow.get("data", {}), opts, job_id))
        self.calls.append(queue.scripts.add_call(node.job.to_new_job(waits_for_children=bool(_children(flow)))))
        pending.siblings.append(node)
        reference = {"id": job_id, "queue": queue.keys.qualified_name}
        return [_PendingFlowJob(child, reference, node.children, span) for child in _children(flow)]

    def _span(self, queue_name: str, pending: _PendingFlowJob) -> TracedBlock:
        parent = pending.adding.context
        return trace(self._telemetry, SpanKind.PRODUCER, queue_name, "addNode", queue_name, context=parent)

    def _merged_options(
        self, queue_name: str, own: Mapping[str, Any], parent: ParentReference | None
    ) -> dict[str, Any]:
        defaults = (self._queues_options.get(queue_name) or {}).get("defaultJobOptions") or {}
        merged = {**defaults, **own, "parent": parent}
        if parent is None:
            del merged["parent"]
        return merged


def _span_text(flow: FlowMapping, field: str) -> str:
    """Return a field of a flow for a span, before the flow is validated."""
    value = flow.get(field) if isinstance(flow, Mapping) else None
    return "" if value is None else str(value)


def _parent_of(flow: FlowMapping) -> ParentReference | None:
    options = flow.get("opts") if isinstance(flow, Mapping) else None
    return (options or {}).get("parent")


def _children(flow: FlowMapping) -> Sequence[FlowMapping]:
    return flow.get("children") or ()


class FlowProducer(EventEmitter[str]):
    """Adds flows over any queues. `opts` are `connection`, `prefix`, `policy` and `telemetry`, as in a queue.

    It writes no `meta`, and does not check queue names. In a cluster all queues of a flow must share a slot, so the
    prefix needs a hash tag.
    """

    def __init__(
        self,
        opts: ClientOptions | AnyOptions | None = None,
        *,
        scripts: ScriptTexts | str | Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        refuse_misspelt_client_options(opts or {}, "FlowProducer")
        self.opts: Mapping[str, Any] = {"prefix": DEFAULT_PREFIX, **(opts or {})}
        self.closing = False
        policy = policy_of(self.opts)
        self.telemetry: Telemetry | None = telemetry_of(self.opts)
        self.connection = Connection(
            Address.of(self.opts.get("connection")), wait_unsent_s=policy.wait_unsent_s, reconnect=policy.reconnect
        )
        self._runner = ScriptRunner(self.connection, script_texts(scripts))
        self._clock = clock or SystemClock()

    async def waitUntilReady(self) -> None:
        """Connect, and check that BullMQ can use the server. Raises BullMQError if its version is too old."""
        await self.connection.ready()

    async def add(self, flow: FlowJob | AnyOptions, opts: FlowOptions | AnyOptions | None = None) -> JobNode:
        """Add a flow: {name, queueName, data?, opts?, prefix?, children?}, in one MULTI, parents before children.

        `opts["queuesOptions"]` ({queue: {defaultJobOptions}}) are defaults for its jobs. Ids are uuids unless given.
        As in Node.js 5.62.0, a refusal of a script is not reported: a flow below a missing parent is returned, but not
        stored. Raises InvalidArgument before anything is sent.
        """
        queue_name = _span_text(flow, "queueName")
        with trace(self.telemetry, SpanKind.PRODUCER, queue_name, "addFlow", queue_name) as span:
            span.setAttributes({attributes.FLOW_NAME: _span_text(flow, "name")})
            given: Mapping[str, Any] = opts or {}
            (node,) = await self._add([flow], given.get("queuesOptions") or {}, span)
            return node

    async def addBulk(self, flows: Sequence[FlowJob | AnyOptions]) -> list[JobNode]:
        """Add several flows in one MULTI. Raises InvalidArgument before anything is sent."""
        with trace(self.telemetry, SpanKind.PRODUCER, "", "addBulkFlows", "") as span:
            if span.is_recorded:
                flow_names = ",".join(_span_text(flow, "name") for flow in flows)
                span.setAttributes({attributes.BULK_COUNT: len(flows), attributes.BULK_NAMES: flow_names})
            return await self._add(flows, {}, span)

    async def getFlow(self, opts: Mapping[str, Any]) -> JobNode | None:
        """Return the tree below a job: {id, queueName, prefix?, depth (10), maxChildren (20)}.

        `maxChildren` is the COUNT of a scan per kind of child, so it is only a hint. A child without a hash is None; so
        is the result if the job itself has no hash.
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

    async def _add(
        self, flows: Sequence[FlowMapping], queues_options: Mapping[str, Any], adding: TracedBlock
    ) -> list[JobNode]:
        self._refuse_if_closed()
        await self.waitUntilReady()
        plan = FlowPlan(self._queue, queues_options, self.telemetry)
        # Planned completely first: an invalid job must refuse the flow before anything is sent.
        plan.add(flows, adding)
        # One MULTI: a worker must not take a child whose parent is not stored yet.
        _insist_on_stored(await self._runner.run_transaction(plan.calls))
        return plan.roots

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
    """Raise the error of Redis inside EXEC (OOM, READONLY, BUSY ...), which Node.js ignores.

    Raises PartlyStored if only some of the scripts were refused.
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
