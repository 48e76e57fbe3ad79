"""Adding the jobs of a load: by the reference or any driver, on schedule, and nothing twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from typing import Any, Protocol, TypeAlias

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from redis.exceptions import RedisError

from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate
from conformance.driver.ops.flow import AddFlows, FlowJob
from conformance.driver.ops.lifecycle import Open
from conformance.driver.ops.queue import AddBulk, NewJob
from conformance.driver.transports import ChildProcess
from conformance.problems import EnvironmentProblem, Problem
from conformance.reference_impl.flow_producer import FlowProducer
from conformance.reference_impl.jobs import options
from conformance.reference_impl.js_values import RawJson
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.add import AddArguments as StoredJob
from conformance.reference_impl.scripts.runner import official_scripts
from conformance.servers.connection import Client, connect, explain, explained
from reports.load.target import BATCH, LoadTarget, missing_of
from reports.spark_problems import ExecutorProblem

PlannedJob: TypeAlias = Mapping[str, Any]
"""A row of `reports.load.workload`."""

_CALL_DEADLINE_MS = 60_000


class LoadProducer(Protocol):
    """Adds rows in their order."""

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
    launched = target.producer
    connection = ChildProcess.start(launched.command, seed=target.workload.seed, env=launched.environment)
    try:
        yield DriverProducer(target, connection)
    finally:
        connection.close()


def runs_of(rows: Sequence[PlannedJob]) -> Iterator[tuple[str, bool, list[PlannedJob]]]:
    """The rows cut where the queue changes or flows begin or end: queue, whether these are flows, rows.

    Rows of different queues come in turns, so they are brought together first; the order within each queue stays.
    """
    by_queue = sorted(rows, key=lambda row: row["queue"])
    for (queue, is_flow), run in groupby(by_queue, key=lambda row: (row["queue"], row["children"] > 0)):
        yield queue, is_flow, list(run)


class ReferenceProducer:
    """The reference: scripts are cached, commands pipelined by node.

    Jobs go in as `Queue.addBulk` sends them, but without a Job object for each, which nobody would look at here; flows
    go through `FlowProducer.addBulk`.
    """

    def __init__(self, target: LoadTarget, runner: asyncio.Runner) -> None:
        self._target = target
        self._runner = runner
        self._queues: dict[str, Queue] = {}
        self._flows: FlowProducer | None = None

    def add(self, rows: Sequence[PlannedJob]) -> None:
        """Add the jobs of these rows."""
        self._runner.run(self._add(rows))

    def close(self) -> None:
        """Close all connections."""
        self._runner.run(self._close())

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


ATTEMPTS = 5
"""How often a batch is tried before the partition gives up."""

PAUSE_S = 0.5

COUNTS_DDL = "partition int, added bigint, seconds double, late_ms bigint"
"""What each partition reports: jobs added, how long that took, and how late its latest batch was."""

_LOST = (RedisError, OSError, DriverBroken, OperationIndeterminate)


def warm_up(spark: SparkSession, target: LoadTarget) -> None:
    """Let every executor start its Python and find Redis and the scripts before the schedule begins to run."""
    spark.range(0, target.partitions, 1, target.partitions).mapInArrow(_rehearsal(target), "id bigint").collect()


def _rehearsal(target: LoadTarget) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def rehearse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        address = target.address
        try:
            with explained(address), connect(address) as client:
                client.ping()
            if target.producer is None:
                official_scripts()
        except Problem as problem:
            raise ExecutorProblem(problem) from problem
        yield from batches

    return rehearse


def produce(jobs: DataFrame, target: LoadTarget) -> DataFrame:
    """Add all jobs, each partition on its executor. One row per partition (COUNTS_DDL); runs when it is collected."""
    return jobs.mapInArrow(adder(target), COUNTS_DDL)


def adder(target: LoadTarget) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function from the jobs of one partition to its counts."""

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        try:
            counts = add_partition(batches, target, partition)
        except Problem as problem:
            raise ExecutorProblem(problem) from problem
        yield pa.RecordBatch.from_pylist([counts], schema=_COUNTS)

    return add


_COUNTS = pa.schema(
    [("partition", pa.int32()), ("added", pa.int64()), ("seconds", pa.float64()), ("late_ms", pa.int64())]
)


def add_partition(batches: Iterable[pa.RecordBatch], target: LoadTarget, partition: int) -> dict[str, Any]:
    """Add the jobs of one partition and return its counts. Raises EnvironmentProblem where Redis stays away."""
    began = time.monotonic()
    added, late_ms = 0, 0
    with connect(target.address) as client, producer_for(target) as producer:
        key = target.progress_key(partition)
        done = int(client.get(key) or 0)
        rows = islice(_rows_in(batches), done, None)
        # The batch at which an earlier load broke off may be there in part: its jobs would be announced twice.
        doubtful = target.resume
        for batch in _on_schedule(rows, target):
            late_ms = max(late_ms, int(time.time() * 1000) - target.start_ms - batch[-1]["scheduled_ms"])
            _add_batch(producer, client, target, batch, doubtful=doubtful)
            doubtful = False
            added += len(batch)
            # Only now: counted before it is in, a batch that never arrived would be left out by --resume.
            client.set(key, done + added)
    return {"partition": partition, "added": added, "seconds": time.monotonic() - began, "late_ms": late_ms}


def _rows_in(batches: Iterable[pa.RecordBatch]) -> Iterator[PlannedJob]:
    for batch in batches:
        yield from batch.to_pylist()


def _on_schedule(rows: Iterator[PlannedJob], target: LoadTarget) -> Iterator[list[PlannedJob]]:
    """Batches of at most BATCH rows, each when its first job is due: an open loop waits for nobody else.

    What is due already goes along, so that a producer that is late catches up in full batches.
    """
    held = next(rows, None)
    while held is not None:
        _wait_until(target.start_ms + held["scheduled_ms"])
        batch = [held]
        now = int(time.time() * 1000) - target.start_ms
        held = next(rows, None)
        while held is not None and len(batch) < BATCH and (not target.workload.rate or held["scheduled_ms"] <= now):
            batch.append(held)
            held = next(rows, None)
        yield batch


def _wait_until(unix_ms: int) -> None:
    remaining = unix_ms / 1000 - time.time()
    if remaining > 0:
        time.sleep(remaining)


def _add_batch(
    producer: LoadProducer, client: Client, target: LoadTarget, batch: Sequence[PlannedJob], *, doubtful: bool
) -> None:
    """Add a batch; after a lost connection, what is missing of it. Raises EnvironmentProblem."""
    left: Sequence[PlannedJob] = batch
    for attempt in range(1, ATTEMPTS + 1):
        try:
            if doubtful:
                left = missing_of(client, target, left)
            if left:
                producer.add(left)
        except _LOST as error:
            # Redis may have carried it out before the connection was lost: what is there is not sent again.
            doubtful = True
            if attempt == ATTEMPTS:
                raise _gave_up(error, target) from error
            time.sleep(PAUSE_S * attempt)
        except OperationFailed as error:
            raise EnvironmentProblem(f"the producer refused a batch: {error}", hint="look at its log") from error
        else:
            return


def _gave_up(error: Exception, target: LoadTarget) -> Problem:
    if isinstance(error, DriverBroken):
        return error
    where = ", ".join(target.address.nodes)
    problem = explain(error, target.address, where)
    hint = "when Redis is there again, run the same command with --resume"
    return EnvironmentProblem(f"{problem.what}; gave up after {ATTEMPTS} attempts", hint=hint)
