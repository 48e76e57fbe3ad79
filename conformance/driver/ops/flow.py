"""Operations on a flow handle (BullMQ's FlowProducer) and on job schedulers (on a queue handle)."""

from __future__ import annotations

from typing import Any

import msgspec

from conformance.driver.ops.base import Count, Flag, MaybeJob, Op, operation


class FlowJob(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a flow to add."""

    name: str
    queue: str
    data_raw: str = "{}"
    opts: dict[str, Any] = {}
    children: list[FlowJob] = []


class FlowNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a flow that was added: the job's id and its children."""

    id: str
    queue: str
    children: list[FlowNode] = []


class FlowNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Added flows, in the order given."""

    flows: list[FlowNode]


class MaybeFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow, or None if the root job does not exist."""

    flow: FlowNode | None


@operation("flow.add", on="flow", answer=FlowNode)
class AddFlow(Op[FlowNode], frozen=True):
    """FlowProducer.add(flow, {queuesOptions}). `queues_options`: by queue, the defaults of its jobs."""

    flow: FlowJob
    queues_options: dict[str, dict[str, Any]] | None = None


@operation("flow.addBulk", on="flow", answer=FlowNodes)
class AddFlows(Op[FlowNodes], frozen=True):
    """FlowProducer.addBulk."""

    flows: list[FlowJob]


@operation("flow.getFlow", on="flow", answer=MaybeFlow)
class GetFlow(Op[MaybeFlow], frozen=True):
    """FlowProducer.getFlow({id, queueName, depth, maxChildren})."""

    job: str
    queue: str
    depth: int = 10
    max_children: int = 20


class SchedulerView(msgspec.Struct, frozen=True, kw_only=True):
    """A job scheduler as the client reports it. Times are Unix ms, `every` is in ms."""

    key: str
    name: str
    next: float | None = None
    every: float | None = None
    pattern: str | None = None
    tz: str | None = None
    limit: int | None = None
    start_date: float | None = None
    end_date: float | None = None
    iteration_count: int | None = None
    offset: float | None = None
    template_data_raw: str | None = None
    template_opts: dict[str, Any] | None = None


class MaybeScheduler(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler, or None."""

    scheduler: SchedulerView | None


class Schedulers(msgspec.Struct, frozen=True, kw_only=True):
    """Schedulers in the client's order."""

    schedulers: list[SchedulerView]


@operation("queue.upsertJobScheduler", on="queue", answer=MaybeJob)
class UpsertJobScheduler(Op[MaybeJob], frozen=True):
    """Queue.upsertJobScheduler(id, repeat, {name, data, opts}); returns the first job."""

    id: str
    repeat: dict[str, Any]
    name: str | None = None
    data_raw: str | None = None
    opts: dict[str, Any] | None = None


@operation("queue.getJobScheduler", on="queue", answer=MaybeScheduler)
class GetJobScheduler(Op[MaybeScheduler], frozen=True):
    """Queue.getJobScheduler."""

    id: str


@operation("queue.getJobSchedulers", on="queue", answer=Schedulers)
class GetJobSchedulers(Op[Schedulers], frozen=True):
    """Queue.getJobSchedulers(start, end, asc)."""

    start: int = 0
    end: int = -1
    asc: bool = False


@operation("queue.getJobSchedulersCount", on="queue", answer=Count)
class GetJobSchedulersCount(Op[Count], frozen=True):
    """Queue.getJobSchedulersCount."""


@operation("queue.removeJobScheduler", on="queue", answer=Flag)
class RemoveJobScheduler(Op[Flag], frozen=True):
    """Queue.removeJobScheduler: true when it existed."""

    id: str
