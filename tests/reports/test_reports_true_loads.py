"""What the report of a load says is what anybody can compute from Redis alone."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from conformance.environment.clients import find_toolchain
from conformance.servers import RedisInstance
from reports.load.barrier import ScheduleSegment
from reports.load.latencies import job_times
from reports.load.result import LoadResult, read_result
from reports.load.run import LoadPlan, WorkerGroup, run_load
from reports.load.target import LoadTarget
from reports.load.workload import DelayShare, RampUp, Workload, jobs_of
from reports.rendering import load_notes, write_load_reports
from reports.snapshot.folders import folder_at

pytestmark = pytest.mark.xdist_group("spark")

LATE_S = 10


def with_a_late_executor(folder: Path) -> Callable[..., DataFrame]:
    """As `jobs_of`, but one executor comes to its jobs only after LATE_S; it writes down when that was."""

    def jobs_late(spark: SparkSession, workload: Workload, partitions: int) -> DataFrame:
        jobs = jobs_of(spark, workload, partitions)
        return jobs.mapInArrow(sleeping(str(folder)), jobs.schema)

    return jobs_late


def sleeping(folder: str) -> Any:
    """It has to be an inner function: executors know no test modules."""

    def sleep_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time

        try:
            os.mkdir(folder)  # noqa: PTH102 - only one of them can
        except FileExistsError:
            pass
        else:
            time.sleep(LATE_S)
            with open(os.path.join(folder, "started"), "w") as file:  # noqa: PTH118, PTH123 - on the executor
                file.write(str(time.time() * 1000))
        yield from batches

    return sleep_once


@dataclass
class Life:
    """What the events of one job say, Unix ms."""

    added: int = 0
    due: int = 0
    active: int = 0
    runs: int = 0
    finished: int = 0


def lives_in(server: RedisInstance, prefix: str, queues: Iterable[str]) -> dict[str, Life]:
    """Every job of the load, from its events and nothing else."""
    found: dict[str, Life] = {}
    with server.connect() as client:
        for queue in queues:
            for entry, fields in client.xrange(f"{prefix}:{queue}:events"):
                life = found.setdefault(fields.get(b"jobId", b"").decode(), Life())
                _note(life, int(entry.split(b"-")[0]), fields)
    found.pop("", None)
    return found


def _note(life: Life, at_ms: int, fields: dict[bytes, bytes]) -> None:
    match fields[b"event"]:
        case b"added":
            life.added = life.due = at_ms
        case b"delayed":
            life.due = int(fields[b"delay"])
        case b"active":
            life.active = life.active or at_ms
            life.runs += 1
        case b"completed" | b"failed":
            life.finished = at_ms


def near(measured: float, values: Sequence[int], percentile: float) -> bool:
    """Whether a percentile is that of the values, to the third digit."""
    ordered = sorted(max(0, value) for value in values)
    expected = ordered[max(int(percentile / 100 * len(ordered) + 0.5), 1) - 1]
    return math.isclose(measured, expected, rel_tol=0.002, abs_tol=0.5)


def same_latency(result: LoadResult, name: str, values: Sequence[int]) -> None:
    latency = result.latencies[name]
    assert latency.count == len(values), name
    for percentile in (50.0, 90.0, 99.0, 100.0):
        assert near(latency.percentiles[f"{percentile:g}"], values, percentile), (name, percentile)


@pytest.mark.turns(days=4)
def test_a_report_agrees_with_redis_and_late_executors_change_no_latency(
    spark: SparkSession, server: RedisInstance, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.load.run.jobs_of", with_a_late_executor(tmp_path / "late"))
    workload = Workload(jobs=600, rate=150, queues=2, delay=DelayShare(share=0.2, least=50, most=300))
    target = LoadTarget(address=server, prefix=prefix, workload=workload)
    node = WorkerGroup(client=find_toolchain("", print).launch("node"))
    plan = LoadPlan(
        target=target,
        workers=[node],
        out=tmp_path / "run",
        kept=folder_at(tmp_path / "run" / "snapshot"),
        command="load",
    )
    said: list[str] = []
    result = run_load(spark, plan, announce=said.append, on_progress=lambda _: None)
    lives = lives_in(server, prefix, workload.queue_names)
    scheduled = {f"j{number}": result.start_ms + number * 1000 / workload.rate for number in range(workload.jobs)}
    assert lives.keys() == scheduled.keys()

    same_latency(result, "scheduled-to-added", [life.added - int(scheduled[job]) for job, life in lives.items()])
    same_latency(result, "scheduled-to-finished", [life.finished - int(scheduled[job]) for job, life in lives.items()])
    same_latency(result, "due-to-active", [life.active - life.due for life in lives.values() if life.runs == 1])
    same_latency(result, "active-to-finished", [life.finished - life.active for life in lives.values()])
    _same_rates_and_backlog(result, list(lives.values()))

    late_ms = float((tmp_path / "late" / "started").read_text())
    assert result.start_ms > late_ms, "the schedule began before the last executor was there"
    assert result.waited_s >= LATE_S
    assert any("producers were connected" in line for line in said)
    assert "no latency includes this" in load_notes(result)[0]
    assert read_result(plan.out) == result
    write_load_reports(plan.out, result)
    assert "no latency includes this" in (plan.out / "load.html").read_text("utf-8")
    assert (plan.out / "histograms" / "scheduled-to-added.hgrm").read_text("utf-8").lstrip().startswith("Value")


def _same_rates_and_backlog(result: LoadResult, lives: Sequence[Life]) -> None:
    added, finished = ([getattr(life, name) for life in lives] for name in ("added", "finished"))
    first_active = min(life.active for life in lives)
    assert result.produced.jobs == result.finished.jobs == len(lives)
    assert result.produced.seconds == pytest.approx((max(added) - min(added)) / 1000)
    assert result.finished.seconds == pytest.approx((max(finished) - first_active) / 1000)
    width = result.slices[1].at_ms
    counts = [Counter((time - result.start_ms) // width for time in times) for times in (added, finished)]
    assert [part.added for part in result.slices] == [counts[0][n] for n in range(len(result.slices))]
    assert [part.finished for part in result.slices] == [counts[1][n] for n in range(len(result.slices))]
    for part in result.slices:
        end = result.start_ms + part.at_ms + width
        assert part.backlog == sum(time < end for time in added) - sum(time < end for time in finished)


def test_producers_take_turns_and_each_job_is_due_when_the_description_says(spark: SparkSession) -> None:
    for jobs, partitions in ((100, 3), (7, 5), (5, 4)):
        workload = Workload(jobs=jobs, rate=20, ramp=RampUp(first=5, seconds=1))
        rows = jobs_of(spark, workload, partitions).withColumn("partition", sql.spark_partition_id()).collect()
        assert sorted(row["index"] for row in rows) == list(range(jobs))
        assert all(row["index"] % partitions == row["partition"] for row in rows)
        assert all(abs(row["scheduled_ms"] - workload.due_ms(row["index"])) <= 1 for row in rows)


@pytest.mark.turns(days=4)
def test_a_load_that_is_resumed_is_reported_as_a_whole(
    spark: SparkSession, server: RedisInstance, prefix: str, tmp_path: Path
) -> None:
    workload = Workload(jobs=90, rate=300)
    target = LoadTarget(address=server, prefix=prefix, workload=workload)
    broken = LoadPlan(
        target=target,
        workers=[],
        out=tmp_path / "broken",
        kept=folder_at(tmp_path / "broken" / "snapshot"),
        command="load",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reports.load.run.forget_progress", broken_off)
        with pytest.raises(ConnectionResetError):
            run_load(spark, broken, announce=lambda _: None, on_progress=lambda _: None)
    with server.connect() as client:
        _as_if_the_last_were_not_there(client, target)
    resumed_at_ms = time.time() * 1000
    resumed = LoadPlan(
        target=replace(target, resume=True),
        workers=[],
        out=tmp_path / "resumed",
        kept=folder_at(tmp_path / "resumed" / "snapshot"),
        command="load",
    )
    result = run_load(spark, resumed, announce=lambda _: None, on_progress=lambda _: None)
    assert (result.produced.jobs, result.timed) == (90, 90)
    assert len(result.schedule) == 2
    assert result.start_ms < resumed_at_ms < result.schedule[1].start_ms + workload.due_ms(80)
    with server.connect() as client:
        last_ms = int(client.xrevrange(f"{prefix}:load-0:events", count=1)[0][0].split(b"-")[0])
    pause_ms = result.schedule[1].start_ms - resumed_at_ms
    assert pause_ms > 0
    assert result.produced.seconds * 1000 <= last_ms - result.start_ms - pause_ms + 1, "the pause counts as work"
    assert "was resumed (1 times)" in " ".join(load_notes(result))
    write_load_reports(resumed.out, result)
    failures = [each.get("message") for each in ET.parse(resumed.out / "junit.xml").iter("failure")]  # noqa: S314 - our own file
    # On a busy machine the harness may be late, which is for itself to say, and nobody's jobs are missing.
    assert failures == [late for late in [result.spoilt_by_harness] if late]


def test_jobs_that_a_killed_producer_had_added_belong_to_the_time_before_the_pause(spark: SparkSession) -> None:
    planned = jobs_of(spark, Workload(jobs=4, rate=100), 1)
    times = {"j0": 1_000_000, "j1": 1_000_010, "j2": 1_060_020}
    events = spark.createDataFrame(
        [("load-0", f"{at_ms}-0", "added", job, {}) for job, at_ms in times.items()],
        "queue string, id string, event string, job string, fields map<string,string>",
    )
    schedule = [ScheduleSegment(start_ms=1_000_000, done=[0]), ScheduleSegment(start_ms=1_060_000, done=[1])]
    found = {row["id"]: (row["segment"], row["scheduled"]) for row in job_times(events, planned, schedule).collect()}
    assert found == {
        "j0": (0, 1_000_000),
        "j1": (0, 1_000_010),
        "j2": (1, 1_060_020),
        "j3": (1, 1_060_030),
    }


def broken_off(_: LoadTarget) -> None:
    raise ConnectionResetError("the load broke off")


def _as_if_the_last_were_not_there(client: Any, target: LoadTarget) -> None:
    """Take away the jobs from number 80 on, and every trace of them."""
    gone = {f"j{number}" for number in range(80, 90)}
    base = f"{target.prefix}:load-0"
    for job in gone:
        client.delete(f"{base}:{job}")
        client.lrem(f"{base}:wait", 0, job)
    for entry, fields in client.xrange(f"{base}:events"):
        if fields.get(b"jobId", b"").decode() in gone:
            client.xdel(f"{base}:events", entry)
    # The last batch of each producer is there, and was not counted.
    for partition in range(target.partitions):
        client.set(target.progress_key(partition), 30)


def test_a_load_without_a_rate_tells_service_times_only(
    spark: SparkSession, server: RedisInstance, prefix: str, tmp_path: Path
) -> None:
    target = LoadTarget(address=server, prefix=prefix, workload=Workload(jobs=50), event_limit=20)
    plan = LoadPlan(target=target, workers=[], out=tmp_path, kept=folder_at(tmp_path / "snapshot"), command="load")
    with server.connect() as client:
        result = run_load(spark, plan, announce=lambda _: None, on_progress=lambda _: None)
        assert result.latencies.keys() <= {"add-service", "active-to-finished"}
        assert result.latencies["add-service"].count == 2, "one batch of each producer"
        assert result.harness is None
        assert "only service times are given" in " ".join(load_notes(result))
        assert client.exists(*(key for key in target.own_keys)) == 0
