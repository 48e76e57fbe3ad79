"""Adding the jobs of one partition: on schedule, in batches, again after a lost connection, and nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from redis.exceptions import RedisError

from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate
from conformance.problems import EnvironmentProblem, Problem
from conformance.reference_impl.scripts.runner import official_scripts
from conformance.servers.connection import Client, connect, explain, explained
from reports.failures import ExecutorProblem
from reports.load.producers import Producer, Row, producer_for
from reports.load.target import BATCH, Target, missing_of

ATTEMPTS = 5
"""How often a batch is tried before the partition gives up."""

PAUSE_S = 0.5

COUNTS_DDL = "partition int, added bigint, seconds double, late_ms bigint"
"""What each partition reports: jobs added, how long that took, and how late its latest batch was."""

_LOST = (RedisError, OSError, DriverBroken, OperationIndeterminate)


def warm_up(spark: SparkSession, target: Target) -> None:
    """Let every executor start its Python and find Redis and the scripts before the schedule begins to run."""
    spark.range(0, target.partitions, 1, target.partitions).mapInArrow(_rehearsal(target), "id bigint").collect()


def _rehearsal(target: Target) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
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


def produce(jobs: DataFrame, target: Target) -> DataFrame:
    """Add all jobs, each partition on its executor. One row per partition (COUNTS_DDL); runs when it is collected."""
    return jobs.mapInArrow(adder(target), COUNTS_DDL)


def adder(target: Target) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
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


def add_partition(batches: Iterable[pa.RecordBatch], target: Target, partition: int) -> dict[str, Any]:
    """Add the jobs of one partition and answer its counts. Raises EnvironmentProblem where Redis stays away."""
    began = time.monotonic()
    added, late_ms = 0, 0
    with connect(target.address) as client, producer_for(target) as producer:
        key = target.progress_key(partition)
        done = int(client.get(key) or 0)
        rows = islice(_rows(batches), done, None)
        # The batch at which an earlier load broke off may be there in part.
        doubtful = target.resume
        for batch in _on_schedule(rows, target):
            late_ms = max(late_ms, int(time.time() * 1000) - target.start_ms - batch[-1]["scheduled_ms"])
            _add_batch(producer, client, target, batch, doubtful=doubtful)
            doubtful = False
            added += len(batch)
            client.set(key, done + added)
    return {"partition": partition, "added": added, "seconds": time.monotonic() - began, "late_ms": late_ms}


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from batch.to_pylist()


def _on_schedule(rows: Iterator[Row], target: Target) -> Iterator[list[Row]]:
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


def _add_batch(producer: Producer, client: Client, target: Target, batch: Sequence[Row], *, doubtful: bool) -> None:
    """Add a batch; after a lost connection, what is missing of it. Raises EnvironmentProblem."""
    left: Sequence[Row] = batch
    for attempt in range(1, ATTEMPTS + 1):
        try:
            if doubtful:
                left = missing_of(client, target, left)
            if left:
                producer.add(left)
        except _LOST as error:
            doubtful = True
            if attempt == ATTEMPTS:
                raise _gave_up(error, target) from error
            time.sleep(PAUSE_S * attempt)
        except OperationFailed as error:
            raise EnvironmentProblem(f"the producer refused a batch: {error}", hint="look at its log") from error
        else:
            return


def _gave_up(error: Exception, target: Target) -> Problem:
    if isinstance(error, DriverBroken):
        return error
    where = ", ".join(target.address.nodes)
    problem = explain(error, target.address, where)
    hint = "when Redis is there again, run the same command with --resume"
    return EnvironmentProblem(f"{problem.what}; gave up after {ATTEMPTS} attempts", hint=hint)
