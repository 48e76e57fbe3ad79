"""A load from beginning to end: start the workers, produce, wait for the end, keep the final state, measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from conformance.driver.messages import client_text
from conformance.driver.ops.lifecycle import Close, Open
from conformance.driver.transports import ChildProcess
from conformance.environment.clients import Launch
from conformance.environment.drivers import introduced
from conformance.gate.records import KIT_VERSION
from conformance.problems import EnvironmentProblem
from conformance.protocol.states import UNFINISHED_CONTAINERS
from conformance.servers.connection import connect, explained
from reports.load.measurements import (
    BacklogSeries,
    FinishListener,
    Latency,
    LoadPhase,
    LoadResult,
    job_latencies,
    observing,
    write_result,
)
from reports.load.producing import produce, warm_up
from reports.load.target import LoadTarget, forget_progress, require_unused_queues
from reports.load.workload import jobs_of
from reports.snapshot.plan import RedisSource
from reports.snapshot.store import StoredSnapshot, save

SNAPSHOT = "snapshot"
LEAD_MS = 500
"""Between the moment the workers are ready and the first scheduled job."""

CLOSE_DEADLINE_MS = 30_000
WAIT_SAMPLE_EVERY_S = 0.2

IDLE_SAMPLES = 2
"""Samples one after the other in which nothing was left to do."""

ContainerCounts = Mapping[str, int]
OnProgress = Callable[[ContainerCounts], None]


@dataclass(frozen=True, kw_only=True)
class WorkerGroup:
    """So many processes of one client, each with a worker of this concurrency for every queue."""

    client: Launch
    processes: int = 1
    concurrency: int = 100


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """What to do. `workers` may be empty: then jobs are only added. `patience_s`: how long workers may do nothing."""

    target: LoadTarget
    workers: Sequence[WorkerGroup]
    out: Path
    command: str
    patience_s: float = 120.0


def run_load(
    spark: SparkSession, plan: LoadPlan, *, announce: Callable[[str], None], on_progress: OnProgress
) -> LoadResult:
    """Carry out a load; leaves `load.json` and the snapshot of the final state in `plan.out`. Raises Problems."""
    with explained(plan.target.address):
        require_unused_queues(plan.target)
    with load_workers(plan.target, plan.workers) as drivers:
        # Last of all: Spark ends Python workers that have had nothing to do for a minute.
        warm_up(spark, plan.target)
        target = replace(plan.target, start_ms=int(time.time() * 1000) + LEAD_MS)
        jobs = jobs_of(spark, target.workload, target.partitions)
        with observing(target) as (series, listener):
            counts = produce(jobs, target).collect()
            produced = LoadPhase(jobs=sum(row["added"] for row in counts), seconds=_since(target))
            announce(f"added {produced.jobs} jobs in {produced.seconds:.1f} s ({produced.per_second:.0f} jobs/s)")
            clients = sorted({client_text(driver.ready.client) for driver in drivers} | _producers(target))
            if drivers:
                _work_off(target, drivers, plan, series, on_progress)
            finished = _finished(target, series)
    with explained(target.address):
        forget_progress(target)
    stored = _keep(spark, plan, target, announce)
    result = LoadResult(
        kit=KIT_VERSION,
        command=plan.command,
        workload=target.workload,
        producer=target.producer.name if target.producer else "reference",
        workers=[f"{group.processes} x {group.client.name}, concurrency {group.concurrency}" for group in plan.workers],
        redis=target.address.text,
        prefix=target.prefix,
        start_ms=target.start_ms,
        produced=produced,
        finished=finished,
        late_ms=max((row["late_ms"] for row in counts), default=0) if target.workload.rate else 0,
        final=series.latest,
        latencies=_latencies(stored, jobs, target, listener),
        series=series.thinned(),
        clients=clients,
    )
    write_result(plan.out, result)
    return result


def _producers(target: LoadTarget) -> set[str]:
    """Who adds the jobs, with all versions. The reference is part of the kit, whose version is told anyway."""
    return {introduced(target.producer)} if target.producer else set()


def _work_off(target: LoadTarget, drivers: Any, plan: LoadPlan, series: BacklogSeries, on_progress: OnProgress) -> None:
    """Wait until the workers have nothing left to do."""

    def sample() -> Mapping[str, int]:
        with explained(target.address):
            series.sample(client)
        return series.latest

    with connect(target.address) as client:
        wait_for_end(sample, drivers, patience_s=plan.patience_s, on_progress=on_progress)


@contextmanager
def load_workers(target: LoadTarget, groups: Sequence[WorkerGroup]) -> Iterator[list[ChildProcess]]:
    """Run workers for the duration of the block; afterwards they are closed as a user would close them."""
    with ExitStack() as stack:
        drivers = [stack.enter_context(_driver(group)) for group in groups for _ in range(group.processes)]
        concurrencies = [group.concurrency for group in groups for _ in range(group.processes)]
        for driver, concurrency in zip(drivers, concurrencies, strict=True):
            _open_workers(driver, target, concurrency)
        yield drivers
        for driver in drivers:
            for queue in target.workload.queue_names:
                driver.call(Close(), handle=f"worker-{queue}", deadline_ms=CLOSE_DEADLINE_MS)


@contextmanager
def _driver(group: WorkerGroup) -> Iterator[ChildProcess]:
    driver = ChildProcess.start(group.client.command, seed=0, env=group.client.environment)
    try:
        yield driver
    finally:
        driver.close()


def _open_workers(driver: ChildProcess, target: LoadTarget, concurrency: int) -> None:
    for queue in target.workload.queue_names:
        worker = Open(
            role="worker",
            queue=queue,
            prefix=target.prefix,
            redis=target.address.for_drivers,
            processor="steps",
            options={"concurrency": concurrency},
        )
        driver.call(worker, handle=f"worker-{queue}", deadline_ms=CLOSE_DEADLINE_MS)


def wait_for_end(
    sample: Callable[[], ContainerCounts],
    drivers: Sequence[ChildProcess],
    *,
    patience_s: float,
    on_progress: OnProgress,
) -> None:
    """Wait until no job is left that somebody has to work on; `on_progress` gets every sample.

    `patience_s`: how long nothing may happen. Raises DriverBroken for a worker that died, EnvironmentProblem when
    nothing happens any more.
    """
    last: ContainerCounts = {}
    since = time.monotonic()
    idle = 0
    while True:
        counts = sample()
        on_progress(counts)
        # A sample is not of one instant: a job that changes its container between two replies is in neither of them.
        idle = 0 if any(counts.get(container) for container in UNFINISHED_CONTAINERS) else idle + 1
        if idle == IDLE_SAMPLES:
            return
        for driver in drivers:
            if not driver.alive:
                driver.call(Close(), handle="none", deadline_ms=1000)
        if counts != last:
            last, since = counts, time.monotonic()
        elif time.monotonic() - since > patience_s:
            left = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
            raise EnvironmentProblem(
                f"the workers have done nothing for {patience_s:g} s; left: {left}", hint="look at the workers' logs"
            )
        time.sleep(WAIT_SAMPLE_EVERY_S)


def _finished(target: LoadTarget, series: BacklogSeries) -> LoadPhase:
    """Jobs that are finished, from the start of the schedule to the last sample."""
    with explained(target.address), connect(target.address) as client:
        series.sample(client)
    done = series.latest.get("completed", 0) + series.latest.get("failed", 0)
    return LoadPhase(jobs=done, seconds=_since(target))


def _keep(spark: SparkSession, plan: LoadPlan, target: LoadTarget, announce: Callable[[str], None]) -> StoredSnapshot:
    source = RedisSource(redis=target.address.url, prefix=target.prefix)
    workload: dict[str, Any] = msgspec.to_builtins(target.workload)
    seed = target.workload.seed
    return save(spark, source, plan.out / SNAPSHOT, seed=seed, workload=workload, announce=announce)


def _latencies(stored: StoredSnapshot, jobs: Any, target: LoadTarget, listener: FinishListener) -> dict[str, Latency]:
    found = job_latencies(stored.table("jobs"), jobs, target.start_ms)
    seen = listener.histogram.latency()
    return {**found, **({"finished-to-seen": seen} if seen.count else {})}


def _since(target: LoadTarget) -> float:
    return max(time.time() - target.start_ms / 1000, 0.001)
