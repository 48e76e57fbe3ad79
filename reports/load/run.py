"""A load from beginning to end: produce, work off, keep the final state, measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from conformance.gate.records import KIT_VERSION
from conformance.servers.connection import connect, explained
from reports.load.fleet import Crew, fleet, wait_for_end
from reports.load.produce import produce, warm_up
from reports.load.result import LoadResult, Phase, write_result
from reports.load.target import Target, forget_progress, insist_on_room
from reports.measure.histograms import Latency
from reports.measure.jobs import job_latencies
from reports.measure.observing import Listener, Series, observing
from reports.snapshot.plan import Source
from reports.snapshot.store import Stored, save
from reports.workload.generate import jobs_of

SNAPSHOT = "snapshot"
LEAD_MS = 500
"""Between the moment the fleet is ready and the first scheduled job."""

Told = Callable[[Mapping[str, int]], None]


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """What to do. `crews` may be empty: then jobs are only added. `patience_s`: how long workers may do nothing."""

    target: Target
    crews: Sequence[Crew]
    out: Path
    command: str
    patience_s: float = 120.0


def run_load(spark: SparkSession, plan: LoadPlan, *, announce: Callable[[str], None], told: Told) -> LoadResult:
    """Carry out a load; leaves `load.json` and the snapshot of the final state in `plan.out`. Raises Problems."""
    with explained(plan.target.address):
        insist_on_room(plan.target)
    with fleet(plan.target, plan.crews) as drivers:
        # Last of all: Spark ends Python workers that have had nothing to do for a minute.
        warm_up(spark, plan.target)
        target = replace(plan.target, start_ms=int(time.time() * 1000) + LEAD_MS)
        jobs = jobs_of(spark, target.workload, target.partitions)
        with observing(target) as (series, listener):
            counts = produce(jobs, target).collect()
            produced = Phase(jobs=sum(row["added"] for row in counts), seconds=_since(target))
            announce(f"added {produced.jobs} jobs in {produced.seconds:.1f} s ({produced.per_second:.0f} jobs/s)")
            if drivers:
                _work_off(target, drivers, plan, series, told)
            finished = _finished(target, series)
    with explained(target.address):
        forget_progress(target)
    stored = _keep(spark, plan, target, announce)
    result = LoadResult(
        kit=KIT_VERSION,
        command=plan.command,
        workload=target.workload,
        producer=target.producer.name if target.producer else "reference",
        workers=[f"{crew.processes} x {crew.client.name}, concurrency {crew.concurrency}" for crew in plan.crews],
        redis=target.address.text,
        prefix=target.prefix,
        start_ms=target.start_ms,
        produced=produced,
        finished=finished,
        late_ms=max((row["late_ms"] for row in counts), default=0) if target.workload.rate else 0,
        final=series.latest,
        latencies=_latencies(stored, jobs, target, listener),
        series=series.thinned(),
    )
    write_result(plan.out, result)
    return result


def _work_off(target: Target, drivers: Any, plan: LoadPlan, series: Series, told: Told) -> None:
    """Wait until the workers have nothing left to do."""

    def look() -> Mapping[str, int]:
        with explained(target.address):
            series.look(client)
        return series.latest

    with connect(target.address) as client:
        wait_for_end(look, drivers, patience_s=plan.patience_s, told=told)


def _finished(target: Target, series: Series) -> Phase:
    """Jobs that are finished, from the start of the schedule to the last look."""
    with explained(target.address), connect(target.address) as client:
        series.look(client)
    done = series.latest.get("completed", 0) + series.latest.get("failed", 0)
    return Phase(jobs=done, seconds=_since(target))


def _keep(spark: SparkSession, plan: LoadPlan, target: Target, announce: Callable[[str], None]) -> Stored:
    source = Source(redis=target.address.url, prefix=target.prefix)
    workload: dict[str, Any] = msgspec.to_builtins(target.workload)
    seed = target.workload.seed
    return save(spark, source, plan.out / SNAPSHOT, seed=seed, workload=workload, announce=announce)


def _latencies(stored: Stored, jobs: Any, target: Target, listener: Listener) -> dict[str, Latency]:
    found = job_latencies(stored.table("jobs"), jobs, target.start_ms)
    seen = listener.histogram.latency()
    return {**found, **({"finished-to-seen": seen} if seen.count else {})}


def _since(target: Target) -> float:
    return max(time.time() - target.start_ms / 1000, 0.001)
