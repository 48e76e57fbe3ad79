"""A load from beginning to end: start the workers, produce, wait for the end, keep the final state, measure."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
from reports.load.backlog import BacklogSeries, observing
from reports.load.barrier import StartBarrier, start_barrier
from reports.load.histograms import Histogram, Latency
from reports.load.latencies import LoadTimes, measure
from reports.load.planned_jobs import jobs_of
from reports.load.production import MICROSECONDS, ProducerCounts, produce
from reports.load.result import LoadPhase, LoadResult, write_result
from reports.load.target import LoadTarget, forget_progress, require_unused_queues
from reports.session import OnSpark
from reports.snapshot.folders import Folder
from reports.snapshot.plan import RedisSource
from reports.snapshot.spark_rows import StoredSnapshot, open_stored
from reports.snapshot.store import save

SNAPSHOT = "snapshot"
EXPORTS = "histograms"
"""Folder of the `.hgrm` files."""

CLOSE_DEADLINE_MS = 30_000
WAIT_SAMPLE_EVERY_S = 0.2

IDLE_SAMPLES = 2
"""Samples one after the other in which nothing was left to do."""

ContainerCounts = Mapping[str, int]
OnProgress = Callable[[ContainerCounts], None]


@dataclass(frozen=True, kw_only=True)
class WorkerGroup:
    """A number of processes of one client, each with a worker of this concurrency for every queue."""

    client: Launch
    processes: int = 1
    concurrency: int = 100


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """A load to run. `workers` may be empty: then jobs are only added. `patience_s`: how long workers may do nothing.

    `out`: the folder for results. `kept`: the one for the snapshot of the final state.
    """

    target: LoadTarget
    workers: Sequence[WorkerGroup]
    out: Path
    kept: Folder
    command: str
    patience_s: float = 120.0


def run_load(
    spark: SparkSession, plan: LoadPlan, *, announce: Callable[[str], None], on_progress: OnProgress
) -> LoadResult:
    """Carry out a load; leaves `load.json` in `plan.out`, and a snapshot of the final state. Raises Problems."""
    with explained(plan.target.address):
        require_unused_queues(plan.target)
    target = replace(plan.target, barrier=secrets.token_hex(6))
    jobs = jobs_of(spark, target.workload, target.partitions)
    with load_workers(target, plan.workers) as drivers, observing(target) as series:
        clients = sorted({client_text(driver.ready.client) for driver in drivers} | _producers(target))
        with start_barrier(target) as barrier:
            counts = produce(jobs, target)
        announce(_start_sentence(barrier, target))
        if drivers:
            _work_off(target, drivers, plan, series, on_progress)
        _last_sample(target, series)
    with explained(target.address):
        forget_progress(target)
    stored = _keep(spark, plan, target, announce)
    times = measure(stored.table("events"), jobs, target.workload, barrier.segments)
    seen = _Measurements(barrier=barrier, counts=counts, series=series, clients=clients)
    result = _result(plan, seen, times)
    _export(plan.out / EXPORTS, seen, times)
    write_result(plan.out, result)
    return result


@dataclass(frozen=True, kw_only=True)
class _Measurements:
    """Measurements of a load while it ran."""

    barrier: StartBarrier
    counts: Sequence[ProducerCounts]
    series: BacklogSeries
    clients: Sequence[str]

    @property
    def jobs(self) -> int:
        """Jobs that are added for certain, those before a load was resumed included."""
        return sum(each.before + each.added for each in self.counts)

    @property
    def service(self) -> Histogram:
        """How long calls that add a batch took, in microseconds."""
        return _summed(each.service for each in self.counts)


def _start_sentence(barrier: StartBarrier, target: LoadTarget) -> str:
    return (
        f"the schedule started when all {target.partitions} producers were connected, after {barrier.waited_s:.1f} s "
        f"(the last one {barrier.apart_s:.1f} s behind the first); no latency includes this"
    )


def _result(plan: LoadPlan, seen: _Measurements, times: LoadTimes) -> LoadResult:
    target, start_ms = plan.target, seen.barrier.segments[0].start_ms
    is_complete, has_schedule = times.timed >= seen.jobs, bool(target.workload.rate)
    return LoadResult(
        kit=KIT_VERSION,
        command=plan.command,
        workload=target.workload,
        producer=target.producer.name if target.producer else "reference",
        workers=[f"{group.processes} x {group.client.name}, concurrency {group.concurrency}" for group in plan.workers],
        redis=target.address.text,
        prefix=target.prefix,
        start_ms=start_ms,
        produced=times.produced if is_complete else _produced(seen),
        finished=times.finished if is_complete else _finished(seen.series),
        late_ms=max((each.late_ms for each in seen.counts), default=0) if has_schedule else 0,
        final=seen.series.latest,
        latencies=_latencies(seen, times),
        series=seen.series.since(start_ms),
        schedule=seen.barrier.segments,
        waited_s=round(seen.barrier.waited_s, 3),
        apart_s=round(seen.barrier.apart_s, 3),
        harness=_summed(each.harness for each in seen.counts).latency() if has_schedule else None,
        by_kind=times.by_kind,
        by_queue=times.by_queue,
        slices=times.slices if is_complete else [],
        timed=times.timed,
        taken_at=datetime.fromtimestamp(start_ms / 1000, UTC).isoformat(timespec="seconds"),
        clients=list(seen.clients),
    )


def _produced(seen: _Measurements) -> LoadPhase:
    """The phase from the counts of producers, if Redis has trimmed the events; without jobs from before a resume."""
    first, last = min(each.first_ms for each in seen.counts), max(each.last_ms for each in seen.counts)
    return LoadPhase(jobs=seen.jobs, seconds=(last - first) / 1000)


def _finished(series: BacklogSeries) -> LoadPhase:
    """The phase from samples, if Redis has trimmed the events: until the number of finished jobs was reached."""
    done = [sample.counts.get("completed", 0) + sample.counts.get("failed", 0) for sample in series.samples]
    changed = [number for number in range(1, len(done)) if done[number] != done[number - 1]]
    if not changed:
        return LoadPhase(jobs=done[-1], seconds=0.0)
    first, last = series.samples[changed[0] - 1], series.samples[changed[-1]]
    return LoadPhase(jobs=done[-1], seconds=(last.at_ms - first.at_ms) / 1000)


SERVICE = "add-service"
"""Latency of one call that adds a batch."""


def _latencies(seen: _Measurements, times: LoadTimes) -> dict[str, Latency]:
    service = seen.service.latency()
    return {**times.latencies, **({SERVICE: service} if service.count else {})}


def _summed(encoded: Iterable[bytes]) -> Histogram:
    whole = Histogram(MICROSECONDS)
    for part in encoded:
        whole.add(bytes(part))
    return whole


def _export(folder: Path, seen: _Measurements, times: LoadTimes) -> None:
    """Write every histogram as a file that HdrHistogram's plotter reads. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {**times.exports, SERVICE: seen.service.hgrm()}
    for name in _latencies(seen, times):
        (folder / f"{name}.hgrm").write_text(texts[name], "utf-8")


def _producers(target: LoadTarget) -> set[str]:
    """The producer, with all versions. The reference is part of the kit, whose version is recorded separately."""
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
    """Wait until no unfinished job is left; `on_progress` gets every sample.

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
                f"the workers have done nothing for {patience_s:g} s; left: {left}", hint="see the workers' logs"
            )
        time.sleep(WAIT_SAMPLE_EVERY_S)


def _last_sample(target: LoadTarget, series: BacklogSeries) -> None:
    with explained(target.address), connect(target.address) as client:
        series.sample(client)


def _keep(spark: SparkSession, plan: LoadPlan, target: LoadTarget, announce: Callable[[str], None]) -> StoredSnapshot:
    source = RedisSource(redis=target.address.url, prefix=target.prefix)
    workload: dict[str, Any] = msgspec.to_builtins(target.workload)
    seed = target.workload.seed
    save(source, plan.kept, OnSpark(spark), seed=seed, workload=workload, announce=announce)
    return open_stored(spark, plan.kept)
