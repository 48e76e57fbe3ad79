"""Adding the jobs of a load: all producers at once, on schedule, and nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, islice

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from redis.exceptions import RedisError

from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate
from conformance.problems import EnvironmentProblem, Problem
from conformance.servers.connection import Client, connect, explain, explained
from reports.load.barrier import wait_for_start
from reports.load.histograms import Histogram
from reports.load.producers import LoadProducer, PlannedJob, producer_for
from reports.load.redis_clock import RedisClock, read_redis_clock
from reports.load.target import BATCH, LoadTarget, missing_of
from reports.load.workload import Workload
from reports.spark_problems import ExecutorProblem

ATTEMPTS = 5
"""How often a batch is tried before the partition gives up."""

PAUSE_S = 0.5

ROWS_AT_A_TIME = 256
"""Rows that become Python objects together: more would hold up a producer that has a schedule to keep."""

MICROSECONDS = 1000
"""Of one ms: the unit of histograms of what takes less than that."""

COUNTS_DDL = (
    "partition int, before bigint, added bigint, first_ms bigint, last_ms bigint, late_ms bigint, "
    "service binary, harness binary"
)
"""The columns that each partition reports; see `ProducerCounts`."""

_LOST = (RedisError, OSError, DriverBroken, OperationIndeterminate)


@dataclass(frozen=True, kw_only=True)
class ProducerCounts:
    """Counts and times of one producer. `before`: jobs that were added before a load was resumed; `added`: later ones.

    `first_ms`, `last_ms`: when its first batch was sent and its last one confirmed, Unix ms of Redis' clock. `late_ms`:
    how far it was behind the schedule at most. `service`: how long the client took for a batch, an encoded histogram of
    microseconds; `harness`: by how much each job was late because of the producer's own process, not of the client.
    """

    partition: int
    before: int
    added: int
    first_ms: int
    last_ms: int
    late_ms: int
    service: bytes
    harness: bytes


class ProducerWatch:
    """The measurements of a producer. All instants are Unix ms of Redis' clock."""

    def __init__(self, now_ms: Callable[[], float], start_ms: float) -> None:
        self.service, self.harness = Histogram(MICROSECONDS), Histogram(MICROSECONDS)
        self.first_ms = self.last_ms = int(start_ms)
        self.late_ms = 0.0
        self._now_ms = now_ms
        self._start_ms = start_ms
        self._free_ms: float | None = None

    @contextmanager
    def batch(self, rows: Sequence[PlannedJob], *, has_schedule: bool) -> Iterator[None]:
        """Measure the adding of a batch, which is the block.

        A job that had to wait until the batch before it was confirmed has waited for the system, which is what a load
        measures. Only what comes on top of that is the harness's own.
        """
        sent_ms = self._now_ms()
        if self._free_ms is None:
            self.first_ms = int(sent_ms)
        if has_schedule:
            due_ms = np.array([row["scheduled_ms"] for row in rows], np.float64) + self._start_ms
            self.late_ms = max(self.late_ms, sent_ms - float(due_ms.min()))
            own_ms = np.maximum(sent_ms - np.maximum(due_ms, self._free_ms or 0.0), 0.0)
            self.harness.record_all((own_ms * MICROSECONDS).astype(np.int64))
        yield
        self._free_ms = self._now_ms()
        self.last_ms = int(self._free_ms)
        self.service.record(round((self._free_ms - sent_ms) * MICROSECONDS))


def produce(jobs: DataFrame, target: LoadTarget) -> list[ProducerCounts]:
    """Add all jobs, each partition on its executor."""
    rows = jobs.mapInArrow(adder(target), COUNTS_DDL).collect()
    return [ProducerCounts(**row.asDict()) for row in rows]


def adder(target: LoadTarget) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function from the jobs of one partition to its counts."""

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        try:
            counts = add_partition(batches, target, partition)
        except Problem as problem:
            raise ExecutorProblem(problem) from problem
        yield pa.RecordBatch.from_pylist([asdict(counts)], schema=_COUNTS)

    return add


_COUNTS = pa.schema(
    [
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in ("before", "added", "first_ms", "last_ms", "late_ms")),
        *((name, pa.binary()) for name in ("service", "harness")),
    ]
)


def add_partition(batches: Iterable[pa.RecordBatch], target: LoadTarget, partition: int) -> ProducerCounts:
    """Add the jobs of one partition, when all producers are connected. Raises EnvironmentProblem."""
    with explained(target.address), connect(target.address) as client, producer_for(target) as producer:
        key = target.progress_key(partition)
        before = int(client.get(key) or 0)
        # Spark computes the first jobs, and the client connects, before the schedule starts.
        rows = _peekable(islice(_rows_in(batches), before, None))
        _connect(producer)
        clock = read_redis_clock(target.address)
        start_ms = wait_for_start(client, target, partition) if target.barrier else target.start_ms
        watch = ProducerWatch(clock.now_ms, start_ms)
        added = 0
        for batch in on_schedule(rows, target.workload, start_ms, clock):
            with watch.batch(batch, has_schedule=bool(target.workload.rate)):
                # The batch at which an earlier load broke off may be there, if only in part: its jobs would be
                # announced twice. On schedule it is added again in smaller ones.
                _add_batch(producer, client, target, batch, doubtful=target.resume and added < BATCH)
            added += len(batch)
            # Only now: counted before it is in, a batch that never arrived would be left out by --resume.
            client.set(key, before + added)
    return ProducerCounts(
        partition=partition,
        before=before,
        added=added,
        first_ms=watch.first_ms,
        last_ms=watch.last_ms,
        late_ms=round(watch.late_ms),
        service=watch.service.encode(),
        harness=watch.harness.encode(),
    )


def _connect(producer: LoadProducer) -> None:
    try:
        producer.connect()
    except (OperationFailed, OperationIndeterminate) as error:
        raise EnvironmentProblem(f"the producer cannot open its queues: {error}", hint="see its log") from error


def _rows_in(batches: Iterable[pa.RecordBatch]) -> Iterator[PlannedJob]:
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_A_TIME):
            yield from batch.slice(start, ROWS_AT_A_TIME).to_pylist()


def _peekable(rows: Iterator[PlannedJob]) -> Iterator[PlannedJob]:
    """The same rows, the first of them taken already."""
    first = list(islice(rows, 1))
    return chain(first, rows)


def on_schedule(
    rows: Iterator[PlannedJob], workload: Workload, start_ms: float, clock: RedisClock
) -> Iterator[list[PlannedJob]]:
    """Batches of at most BATCH rows, each when its first job is due: an open loop never waits for the client.

    Jobs that are already due are included, so that a late producer catches up in full batches.
    """
    held = next(rows, None)
    while held is not None:
        clock.sleep_until(start_ms + held["scheduled_ms"])
        batch = [held]
        elapsed_ms = clock.now_ms() - start_ms
        held = next(rows, None)
        while held is not None and len(batch) < BATCH and (not workload.rate or held["scheduled_ms"] <= elapsed_ms):
            batch.append(held)
            held = next(rows, None)
        yield batch


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
            raise EnvironmentProblem(f"the producer refused a batch: {error}", hint="see its log") from error
        else:
            return


def _gave_up(error: Exception, target: LoadTarget) -> Problem:
    if isinstance(error, DriverBroken):
        return error
    where = ", ".join(target.address.nodes)
    problem = explain(error, target.address, where)
    hint = "when Redis is there again, run the same command with --resume"
    return EnvironmentProblem(f"{problem.what}; gave up after {ATTEMPTS} attempts", hint=hint)
