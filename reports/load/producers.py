"""Who adds the jobs of a load: the reference inside the executor, or any client behind its driver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Protocol, TypeAlias

import msgspec

from conformance.driver.ops.flow import AddFlows, FlowJob
from conformance.driver.ops.lifecycle import Open
from conformance.driver.ops.queue import AddBulk, NewJob
from conformance.driver.transports import ChildProcess
from conformance.reference_impl.flow_producer import FlowProducer
from conformance.reference_impl.jobs import options
from conformance.reference_impl.js_values import RawJson
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.add import AddArguments as StoredJob
from conformance.reference_impl.scripts.runner import official_scripts
from reports.executor_archive import local_launch
from reports.load.target import LoadTarget

PlannedJob: TypeAlias = Mapping[str, Any]
"""A row of `reports.load.workload`."""

_CALL_DEADLINE_MS = 60_000


class LoadProducer(Protocol):
    """Adds rows in their order."""

    def connect(self) -> None:
        """Be ready to add to every queue at once. Raises as `add`."""
        ...

    def add(self, rows: Sequence[PlannedJob]) -> None:
        """Add the jobs of these rows. Raises OSError, redis errors or DriverBroken where the connection is lost."""
        ...


@contextmanager
def producer_for(target: LoadTarget) -> Iterator[LoadProducer]:
    """The producer that the target asks for; closed after the block."""
    if target.producer is None:
        with asyncio.Runner() as runner:
            reference = ReferenceProducer(target, runner)
            try:
                yield reference
            finally:
                reference.close()
        return
    launched = local_launch(target.producer)
    connection = ChildProcess.start(launched.command, seed=target.workload.seed, env=launched.environment)
    try:
        yield DriverProducer(target, connection)
    finally:
        connection.close()


def runs_of(rows: Sequence[PlannedJob]) -> Iterator[tuple[str, bool, list[PlannedJob]]]:
    """The rows cut whenever the queue changes, or flows start or end: queue, whether these are flows, rows.

    Rows of different queues come in turns, so they are brought together first; the order within each queue stays.
    """
    by_queue = sorted(rows, key=lambda row: row["queue"])
    for (queue, is_flow), run in groupby(by_queue, key=lambda row: (row["queue"], row["children"] > 0)):
        yield queue, is_flow, list(run)


class ReferenceProducer:
    """The reference: scripts are cached, commands pipelined by node.

    Jobs go in as `Queue.addBulk` sends them, but without a Job object for each, which a load does not need; flows
    go through `FlowProducer.addBulk`.
    """

    def __init__(self, target: LoadTarget, runner: asyncio.Runner) -> None:
        self._target = target
        self._runner = runner
        self._queues: dict[str, Queue] = {}
        self._flows: FlowProducer | None = None

    def connect(self) -> None:
        """Open all queues, and load the scripts."""
        self._runner.run(self._connect())

    def add(self, rows: Sequence[PlannedJob]) -> None:
        """Add the jobs of these rows."""
        self._runner.run(self._add(rows))

    def close(self) -> None:
        """Close all connections."""
        self._runner.run(self._close())

    async def _connect(self) -> None:
        official_scripts()
        for name in self._target.workload.queue_names:
            await self._queue(name).waitUntilReady()

    async def _add(self, rows: Sequence[PlannedJob]) -> None:
        for queue, is_flow, run in runs_of(rows):
            if is_flow:
                await self._flow_producer().addBulk([_flow_of(row) for row in run])
            else:
                await self._add_jobs(self._queue(queue), run)

    async def _add_jobs(self, queue: Queue, run: Sequence[PlannedJob]) -> None:
        await queue.waitUntilReady()
        now_ms = queue.clock.now_ms()
        await queue.scripts.add_jobs([_new_job(row, now_ms) for row in run])

    async def _close(self) -> None:
        for queue in self._queues.values():
            await queue.close()
        if self._flows is not None:
            await self._flows.close()

    def _queue(self, name: str) -> Queue:
        if name not in self._queues:
            self._queues[name] = Queue(name, self._options())
        return self._queues[name]

    def _flow_producer(self) -> FlowProducer:
        if self._flows is None:
            self._flows = FlowProducer(self._options())
        return self._flows

    def _options(self) -> dict[str, Any]:
        target = self._target
        return {"connection": target.connection(), "prefix": target.prefix, **target.queue_options}


class DriverProducer:
    """A client behind the driver protocol: `queue.addBulk` and `flow.addBulk`."""

    def __init__(self, target: LoadTarget, connection: ChildProcess) -> None:
        self._target = target
        self._connection = connection
        self._opened: set[str] = set()

    def connect(self) -> None:
        """Open all queues. Raises DriverBroken, OperationFailed, OperationIndeterminate."""
        for queue in self._target.workload.queue_names:
            self._open("queue", queue)
            if self._target.workload.flows.share:
                self._open("flow", queue)

    def add(self, rows: Sequence[PlannedJob]) -> None:
        """Add the jobs of these rows. Raises DriverBroken, OperationFailed, OperationIndeterminate."""
        for queue, is_flow, run in runs_of(rows):
            handle = self._open("flow" if is_flow else "queue", queue)
            if is_flow:
                flows = AddFlows(flows=[_flow_job(row) for row in run])
                self._connection.call(flows, handle=handle, deadline_ms=_CALL_DEADLINE_MS)
            else:
                jobs = AddBulk(jobs=[NewJob(name=row["name"], data_raw=row["data"], opts=_options(row)) for row in run])
                self._connection.call(jobs, handle=handle, deadline_ms=_CALL_DEADLINE_MS)

    def _open(self, role: Any, queue: str) -> str:
        handle = f"{role}-{queue}"
        if handle not in self._opened:
            target = self._target
            opening = Open(
                role=role,
                queue=queue,
                prefix=target.prefix,
                redis=target.address.for_drivers,
                options=target.queue_options if role == "queue" else {},
            )
            self._connection.call(opening, handle=handle, deadline_ms=_CALL_DEADLINE_MS)
            self._opened.add(handle)
        return handle


def _new_job(row: PlannedJob, now_ms: int) -> StoredJob:
    stored = options.encode(options.normalize(_options(row)))
    return StoredJob(name=row["name"], data=row["data"], options=stored, timestamp=now_ms, job_id=row["id"])


def _options(row: PlannedJob) -> dict[str, Any]:
    return msgspec.json.decode(row["opts"], type=dict[str, Any])


def _child_rows(row: PlannedJob) -> list[tuple[str, str]]:
    """Id and data of each child of a flow."""
    return [
        (f"{row['id']}-{number}", json.dumps({"i": number, "steps": []}, separators=(",", ":")))
        for number in range(row["children"])
    ]


def _flow_of(row: PlannedJob) -> dict[str, Any]:
    """A flow as the reference takes it."""
    children = [
        {"name": row["name"], "queueName": row["queue"], "data": RawJson(data), "opts": {"jobId": child}}
        for child, data in _child_rows(row)
    ]
    own = {"name": row["name"], "queueName": row["queue"], "data": RawJson(row["data"])}
    return {**own, "opts": _options(row), "children": children}


def _flow_job(row: PlannedJob) -> FlowJob:
    """A flow as drivers take it."""
    children = [
        FlowJob(name=row["name"], queue=row["queue"], data_raw=data, opts={"jobId": child})
        for child, data in _child_rows(row)
    ]
    return FlowJob(name=row["name"], queue=row["queue"], data_raw=row["data"], opts=_options(row), children=children)
