"""The report of a load says the same as a computation from Redis alone."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from conformance.environment.clients import find_toolchain
from conformance.reference_impl import Worker
from conformance.servers import RedisInstance
from reports.load.barrier import ScheduleSegment
from reports.load.latencies import job_times
from reports.load.planned_jobs import jobs_of
from reports.load.result import LoadResult, read_result
from reports.load.run import LoadPlan, WorkerGroup, run_load
from reports.load.target import LoadTarget
from reports.load.workload import DelayShare, RampUp, Workload
from reports.rendering import load_notes, write_load_reports
from reports.snapshot.folders import folder_at
from tests.cli.cli_program import PROGRAM, clean_environment, family, wait_until

pytestmark = pytest.mark.xdist_group("spark")

LATE_S = 10
END_S = 120.0


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
    """Times of one job by its events, Unix ms."""

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
            for entry, fields in _events_of(client, f"{prefix}:{queue}:events"):
                life = found.setdefault(fields.get(b"jobId", b"").decode(), Life())
                _note(life, int(entry.split(b"-")[0]), fields)
    found.pop("", None)
    return found


def _events_of(client: Any, stream: str) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    start = b"-"
    while page := client.xrange(stream, min=start, count=10_000):
        yield from page
        start = b"(" + page[-1][0]


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


@pytest.mark.slow
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
    assert result.start_ms > late_ms, "the schedule started before the last executor was there"
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
    _same_slices(result, lives)


def _same_slices(result: LoadResult, lives: Sequence[Life]) -> None:
    added, finished = ([getattr(life, name) for life in lives] for name in ("added", "finished"))
    width = result.slices[1].at_ms
    counts = [Counter((time - result.start_ms) // width for time in times) for times in (added, finished)]
    assert [part.added for part in result.slices] == [counts[0][n] for n in range(len(result.slices))]
    assert [part.finished for part in result.slices] == [counts[1][n] for n in range(len(result.slices))]
    ordered = [sorted(times) for times in (added, finished)]
    for part in result.slices:
        end = result.start_ms + part.at_ms + width
        assert part.backlog == bisect_left(ordered[0], end) - bisect_left(ordered[1], end)


def test_producers_take_turns_and_each_job_is_due_when_the_description_says(spark: SparkSession) -> None:
    for jobs, partitions in ((100, 3), (7, 5), (5, 4)):
        workload = Workload(jobs=jobs, rate=20, ramp=RampUp(first=5, seconds=1))
        rows = jobs_of(spark, workload, partitions).withColumn("partition", sql.spark_partition_id()).collect()
        assert sorted(row["index"] for row in rows) == list(range(jobs))
        assert all(row["index"] % partitions == row["partition"] for row in rows)
        assert all(abs(row["scheduled_ms"] - workload.due_ms(row["index"])) <= 1 for row in rows)


@pytest.mark.slow
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
    # On a busy machine the harness may report that it was late; no jobs are missing.
    assert failures == [late for late in [result.spoilt_by_harness] if late]


@pytest.mark.slow
def test_a_load_that_is_killed_interrupted_and_paused_is_reported_truly(
    server: RedisInstance, prefix: str, tmp_path: Path
) -> None:
    """From the command line; the pause is that of a producer. CI sets BULLMQ_LOAD_JOBS=2000, large runs 1000000."""
    jobs = int(os.environ.get("BULLMQ_LOAD_JOBS", "1200"))
    workload = Workload(jobs=jobs, rate=max(50, jobs / 400), queues=2)
    words = ["--jobs", str(jobs), "--rate", str(workload.rate), "--queues", "2", "--prefix", prefix]
    words += ["--redis", server.url, "--worker", "node", "--worker", "reference", "--out", str(tmp_path)]
    breaks = []
    with server.connect() as client:
        with _load(*words) as load:
            _wait_for_added(client, prefix, jobs // 4)
            # No worker finishes this job, so one job is certainly active when the load is killed.
            _stop([*_members(load, "driver.mjs"), *_members(load, "reference_impl.driver")])
            asyncio.run(_claim(server, prefix, "load-0"))
            _kill(family(load.pid))
            breaks.append(_now_ms(client))
        with _load(*words, "--resume") as load:
            _wait_for_added(client, prefix, jobs // 2)
            load.send_signal(signal.SIGINT)
            assert load.wait(END_S) == 130
            breaks.append(_now_ms(client))
        with _load(*words, "--resume") as load:
            _wait_for_added(client, prefix, jobs // 2 + int(workload.rate))
            with _paused(next(iter(_members(load, "pyspark.daemon", least=3)))):
                # The other producer goes on meanwhile.
                _wait_for_added(client, prefix, jobs // 2 + 3 * int(workload.rate))
            assert load.wait(END_S + jobs / 100) == 0
    result = read_result(tmp_path)
    _same_as_redis(result, lives_in(server, prefix, workload.queue_names), breaks)


def _same_as_redis(result: LoadResult, lives: dict[str, Life], breaks: Sequence[int]) -> None:
    """`breaks`: when the load broke off, Unix ms. Jobs added before belong to the schedule before."""
    assert lives.keys() == {f"j{number}" for number in range(result.workload.jobs)}
    assert len(result.schedule) == 1 + len(breaks)
    parts: list[list[Life]] = [[] for _ in result.schedule]
    scheduled = {}
    for job, life in lives.items():
        part = bisect_left(breaks, life.added)
        parts[part].append(life)
        scheduled[job] = result.schedule[part].start_ms + int(result.workload.due_ms(int(job[1:])))
    assert all(parts), "a part of the schedule added nothing"
    same_latency(result, "scheduled-to-added", [life.added - scheduled[job] for job, life in lives.items()])
    same_latency(result, "scheduled-to-finished", [life.finished - scheduled[job] for job, life in lives.items()])
    once = [life for life in lives.values() if life.runs == 1]
    assert 0 < len(once) < len(lives), "no job was taken from a killed worker"
    same_latency(result, "due-to-active", [life.active - life.due for life in once])
    same_latency(result, "active-to-finished", [life.finished - life.active for life in once])
    assert result.latencies["scheduled-to-added"].percentiles["100"] > 500, "the pause of a producer is not seen"
    adding = [(min(life.added for life in part), max(life.added for life in part)) for part in parts]
    working = [(min(life.active for life in part), max(life.finished for life in part)) for part in parts]
    assert result.timed == result.produced.jobs == result.finished.jobs == len(lives)
    assert result.produced.seconds == pytest.approx(sum(last - first for first, last in adding) / 1000)
    assert result.finished.seconds == pytest.approx(_together_ms(working) / 1000)
    _same_slices(result, list(lives.values()))


def _together_ms(windows: Sequence[tuple[int, int]]) -> int:
    """How many ms are in at least one of the windows."""
    ends = sorted([(first, 1) for first, _ in windows] + [(last, -1) for _, last in windows], key=lambda end: end[0])
    inside = total = 0
    for (at, step), (following, _) in pairwise(ends):
        inside += step
        total += (following - at) * bool(inside)
    return total


@contextmanager
def _load(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A load from the command line, which ends with the block."""
    with subprocess.Popen([PROGRAM, "load", *words], env=clean_environment()) as process:
        try:
            yield process
        finally:
            _kill(family(process.pid))


def _wait_for_added(client: Any, prefix: str, jobs: int) -> None:
    def added() -> int:
        return sum(int(client.get(f"{prefix}:load-{queue}:id") or 0) for queue in range(2))

    wait_until(lambda: added() >= jobs, seen=added, within_s=END_S + jobs / 100)


def _members(load: subprocess.Popen[bytes], what: str, least: int = 1) -> dict[int, str]:
    """The processes of a load whose command lines contain this, the youngest first."""

    def found() -> dict[int, str]:
        return {pid: line for pid, line in sorted(family(load.pid).items(), reverse=True) if what in line}

    wait_until(lambda: len(found()) >= least, seen=lambda: family(load.pid))
    return found()


async def _claim(server: RedisInstance, prefix: str, queue: str) -> None:
    """Take a job as a worker that is killed before it ends it."""
    host, port = server.nodes[0].split(":")
    connection = {"host": host, "port": int(port)}
    worker = Worker(queue, None, {"connection": connection, "prefix": prefix})
    try:
        async with asyncio.timeout(END_S):
            while await worker.getNextJob("gone") is None:
                pass
    finally:
        await worker.close()


def _stop(processes: Iterable[int]) -> None:
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)


def _kill(processes: Iterable[int]) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def _paused(pid: int) -> Iterator[None]:
    _stop([pid])
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _now_ms(client: Any) -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


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


def test_a_load_without_a_rate_reports_service_times_only(
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
