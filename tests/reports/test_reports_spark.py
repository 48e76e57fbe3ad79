"""Everything that needs Spark, in few tests: each process that runs one of them starts a JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from junitparser import JUnitXml
from pyspark.sql import SparkSession
from redis import Redis

from benchmarks.planted import CHANGES, expected_differences, expected_hidden
from benchmarks.planted import planted as with_planted
from benchmarks.stores import FIRST_MS, IDLE, fill
from conformance.cli.verbs import cli
from conformance.observe.tables import TABLES, Snapshot
from conformance.problems import EnvironmentProblem, Undecidable, UsageProblem
from conformance.servers import RedisInstance, open_server
from reports.check.store_check import check_snapshot
from reports.check.summary import summarise_checks
from reports.diff.comparison import compare_snapshots
from reports.diff.snapshot_comparison import SnapshotComparison
from reports.diff.summary import DiffSummary, summarise
from reports.diff.values import DIFFERENCE_CLASSES
from reports.distribution import Distribution, InProcesses, InThreads
from reports.history import HistoryResult, check_jobs, result_of
from reports.load.planned_jobs import jobs_of
from reports.load.result import LoadResult
from reports.load.workload import DelayShare, FailureShares, FlowShare, PayloadSize, PriorityShare, Workload
from reports.session import OnSpark, SparkSettings, explained_spark
from reports.snapshot.folders import Folder, folder_at
from reports.snapshot.format import (
    MANIFEST,
    SnapshotFolder,
    file_name,
    open_snapshot_folder,
    write_file,
    write_manifest,
)
from reports.snapshot.plan import RedisSource
from reports.snapshot.rows import batch_of, wide_rows
from reports.snapshot.source import BullmqSource, register
from reports.snapshot.spark_rows import StoredSnapshot, open_stored
from reports.snapshot.store import in_buckets
from reports.standalone import standalone_cluster
from reports.store_pages import write_history_reports
from reports.verbs.store_readings import demand_both, demand_content
from tests.docs.blocks import blocks_of
from tests.observe.snapshot_builders import Zset, job
from tests.reports.reports_builders import finished_job, kept_here, plain_store, planted, rows_in, saved, write
from tests.reports.test_reports_failures import manifest
from tests.reports.test_reports_history import bad_end, bad_history, said_of_all

pytestmark = pytest.mark.xdist_group("spark")


def kept(spark: SparkSession, server: RedisInstance, prefix: str, keys: dict[str, Any], folder: Path) -> StoredSnapshot:
    write(server, prefix, keys)
    return saved(spark, RedisSource(redis=server.url, prefix=prefix), folder_at(folder))


@pytest.mark.slow
def test_planted_differences_are_found_wherever_the_tasks_run_and_the_roll_up_sums(
    spark: SparkSession, server: RedisInstance, tmp_path: Path
) -> None:
    prefixes = [server.fresh_prefix(), server.fresh_prefix()]
    changed, expected = planted(plain_store(prefixes[1]))
    left = kept(spark, server, prefixes[0], plain_store(prefixes[0]), tmp_path / "left")
    right = kept(spark, server, prefixes[1], changed, tmp_path / "right")
    assert open_stored(spark, folder_at(tmp_path / "left")).manifest == left.manifest
    assert left.table("locks").select("job", "token").orderBy("job").collect()[0] == ("5", "token-a")
    wanted = SnapshotComparison(expected=left, actual=right, folder=folder_at(tmp_path / "differences"))
    summary = compared_everywhere(spark, wanted)
    rows = rows_in(wanted.folder / "here")
    assert {(row["class"], row["key"]) for row in rows} == expected
    for line in summary.rollup:
        matching = [
            r for r in rows if [r["queue"], r["state"], r["class"], r["locator"]][: len(line.path)] == line.path
        ]
        assert line.count == len(matching), line
    assert summary.hidden["own-prefix"] > 0, "the keys of the children of a flow"
    assert (summary.total, summary.by_class) == (len(rows), dict(Counter(row["class"] for row in rows)))
    one_job = replace(wanted, queue="q", job="1", folder=wanted.folder / "job")
    assert {name.partition(".")[0] for name in summarised(one_job).by_class} == {
        row["class"] for row in rows if row["key"] == "q:1"
    }
    for prefix in prefixes:
        server.remove_prefix(prefix)


@pytest.mark.slow
def test_every_change_by_hand_is_found_or_counted_as_hidden_and_nothing_else(
    spark: SparkSession, server: RedisInstance, tmp_path: Path
) -> None:
    """The same with a million jobs, live and through RDB: `python -m benchmarks.peers_redis --jobs 1000000`."""
    prefix = server.fresh_prefix()
    source = RedisSource(redis=server.url, prefix=prefix)
    fill(server, prefix, 5_000)
    left = saved(spark, source, folder_at(tmp_path / "left"))
    with with_planted(server, prefix, CHANGES):
        right = saved(spark, source, folder_at(tmp_path / "right"))
    undone = saved(spark, source, folder_at(tmp_path / "undone"))
    server.remove_prefix(prefix)
    wanted = SnapshotComparison(expected=left, actual=right, folder=folder_at(tmp_path / "differences"))
    summary = compared_everywhere(spark, wanted)
    found = {(row["class"], row["key"]) for row in rows_in(wanted.folder / "here")}
    assert found == expected_differences(CHANGES)
    assert {name for name, _ in expected_differences(CHANGES)} == set(DIFFERENCE_CLASSES)
    # Times to live run down between the two readings, so that these may be more.
    assert Counter(summary.hidden) >= expected_hidden(CHANGES)
    again = SnapshotComparison(expected=left, actual=undone, folder=folder_at(tmp_path / "no differences"))
    assert summarised(again).total == 0
    assert rows_in(again.folder) == []


def summarised(wanted: SnapshotComparison, place: Distribution | None = None) -> DiffSummary:
    return summarise(wanted, compare_snapshots(wanted, place))


def compared_everywhere(spark: SparkSession, wanted: SnapshotComparison) -> DiffSummary:
    """Here, in processes, in Spark, and without digests (few jobs at a time) the same is found and hidden."""
    blind = replace(wanted.actual, manifest=msgspec.structs.replace(wanted.actual.manifest, digests=""))
    here = replace(wanted, folder=wanted.folder / "here")
    expected, rows = summarised(here), sorted_rows(here)
    ways: dict[str, tuple[SnapshotComparison, Distribution]] = {
        "processes": (wanted, InProcesses()),
        "spark": (wanted, OnSpark(spark)),
        "blind": (replace(wanted, actual=blind), InThreads()),
    }
    for name, (comparison, place) in ways.items():
        there = replace(comparison, folder=wanted.folder / name)
        assert summarised(there, place) == expected, name
        assert sorted_rows(there) == rows, name
    return expected


def sorted_rows(wanted: SnapshotComparison) -> list[tuple[str, ...]]:
    return sorted(tuple(row.values()) for row in rows_in(wanted.folder))


def test_memory_is_bounded_by_few_jobs_and_few_rows_at_a_time(
    server: RedisInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefixes = [server.fresh_prefix(), server.fresh_prefix()]
    sides = []
    for prefix, keys in zip(prefixes, (plain_store(prefixes[0]), planted(plain_store(prefixes[1]))[0]), strict=True):
        write(server, prefix, keys)
        sides.append(kept_here(RedisSource(redis=server.url, prefix=prefix), folder_at(tmp_path / prefix)))
        server.remove_prefix(prefix)
    wanted = SnapshotComparison(expected=sides[0], actual=sides[1], folder=folder_at(tmp_path / "differences"))
    expected, rows = summarised(wanted), sorted_rows(wanted)
    monkeypatch.setattr("reports.diff.comparison.JOBS_AT_A_TIME", 1)
    monkeypatch.setattr("reports.diff.comparison.DEDUPLICATIONS_OF_A_TASK", 1)
    assert summarised(wanted, InThreads()) == expected
    assert sorted_rows(wanted) == rows


@pytest.mark.slow
def test_snapshots_in_different_numbers_of_buckets_are_compared(
    server: RedisInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefixes = [server.fresh_prefix(), server.fresh_prefix()]
    changed, expected = planted(plain_store(prefixes[1]))
    write(server, prefixes[0], plain_store(prefixes[0]))
    # How many buckets a store needs also depends on the memory of the server.
    monkeypatch.setattr("reports.snapshot.format.KEYS_PER_BUCKET", 1)
    monkeypatch.setattr("reports.snapshot.format.MOST_BUCKETS", 2)
    left = kept_here(RedisSource(redis=server.url, prefix=prefixes[0]), folder_at(tmp_path / "left"))
    monkeypatch.setattr("reports.snapshot.format.MOST_BUCKETS", 16)
    write(server, prefixes[1], changed)
    right = kept_here(RedisSource(redis=server.url, prefix=prefixes[1]), folder_at(tmp_path / "right"))
    assert (left.manifest.buckets, right.manifest.buckets) == (2, 16)
    for name, sides in (("fewer first", (left, right)), ("more first", (right, left))):
        wanted = SnapshotComparison(expected=sides[0], actual=sides[1], folder=folder_at(tmp_path / name))
        found = {(row["class"], row["key"]) for row in rows_in(wanted.folder)} if summarised(wanted).total else set()
        assert found == expected or name == "more first"
        assert {key for _, key in found} == {key for _, key in expected}
    for prefix in prefixes:
        server.remove_prefix(prefix)


def test_a_store_is_checked_by_itself(server: RedisInstance, prefix: str, tmp_path: Path) -> None:
    keys = {**plain_store(prefix), "q:13": finished_job(ats="1"), "q:failed": Zset({"13": 17.0}), "q:14:lock": "token"}
    del keys["q:active"], keys["q:id"]
    write(server, prefix, keys)
    stored = kept_here(RedisSource(redis=server.url, prefix=prefix), folder_at(tmp_path / "out"))
    summary = summarise_checks(stored.name, stored.manifest, check_snapshot(stored).tally)
    broken = {(example.check, example.key) for example in summary.examples}
    assert broken >= {
        ("finish-scores", "q:13"),
        ("finished-fields", "q:13"),
        ("locks", "q:14"),
        ("locks", "q:5"),
        ("one-state", "q:5"),
        ("base-marker", "q:marker"),
        ("id-counter", "q:id"),
        ("paused-list", "q:paused"),
    }
    assert not {key for _, key in broken} & {"q:1", "q:2", "q:3", "q:4"}
    assert (summary.total, summary.by_check["locks"]) == (sum(summary.by_check.values()), 6)
    assert summarise_checks(stored.name, stored.manifest, check_snapshot(stored, place=InProcesses()).tally) == summary


def test_a_wrong_prefix_is_a_store_without_queues(server: RedisInstance, prefix: str, tmp_path: Path) -> None:
    stored = kept_here(RedisSource(redis=server.url, prefix=prefix), folder_at(tmp_path / "out"))
    assert check_snapshot(stored).tally.total == 0
    wanted = SnapshotComparison(expected=stored, actual=stored, folder=folder_at(tmp_path / "differences"))
    assert summarised(wanted).total == 0
    with pytest.raises(Undecidable, match="there is no queue in the store"):
        demand_content("", stored.manifest)
    with pytest.raises(Undecidable, match=f"no key under the prefix '{prefix}'"):
        demand_both(stored)


def test_a_healthy_queue_with_a_deduplicated_job_passes_the_checks(
    server: RedisInstance, prefix: str, tmp_path: Path
) -> None:
    keys = {"q:kept": job(deid="x", opts='{"de":{"id":"x"}}'), "q:wait": ["kept"], "q:marker": Zset({"0": 0.0})}
    keys |= {"q:de:x": "kept", "q:meta": {"opts.maxLenEvents": "10000", "version": "bullmq:5.62.0"}}
    write(server, prefix, keys)
    stored = kept_here(RedisSource(redis=server.url, prefix=prefix), folder_at(tmp_path / "out"))
    assert check_snapshot(stored).tally.counts == {}


def test_a_workload_is_the_same_however_it_is_cut(spark: SparkSession) -> None:
    workload = Workload(
        jobs=500,
        queues=3,
        rate=100,
        arrival="jittered",
        payload=PayloadSize(distribution="uniform", least=1, most=50),
        priority=PriorityShare(share=0.3),
        delay=DelayShare(share=0.3),
        failures=FailureShares(once=0.2, always=0.1),
        flows=FlowShare(share=0.1),
    )
    cut = [sorted(map(repr, jobs_of(spark, workload, parts).collect())) for parts in (1, 7)]
    assert cut[0] == cut[1]
    other = sorted(map(repr, jobs_of(spark, msgspec.structs.replace(workload, seed=2), 1).collect()))
    assert other != cut[0]


@pytest.mark.slow
def test_a_query_reads_no_more_than_it_asks_for(spark: SparkSession, server: RedisInstance) -> None:
    """Each question, its answer, and how many hashes and how many containers Redis had to read for it."""
    prefix, jobs = server.fresh_prefix(), 5_000
    fill(server, prefix, jobs)
    with server.connect() as client:
        client.delete(f"{prefix}:{IDLE}:meta")  # a queue that is not announced is still found
    register(spark)
    place = {"redis": server.url, "prefix": prefix}
    of = {
        table: spark.read.format("bullmq").options(**place, table=table).load()
        for table in ("", "jobs", "memberships", "events")
    }
    questions = {
        "one job": (of["jobs"].where("queue = 'q' and id = '7'"), 1, (1, 0)),
        "two jobs": (of["jobs"].where("queue = 'q'").where("id in ('7', '8')"), 2, (2, 0)),
        "no job: the name of a container": (of["jobs"].where("queue = 'q' and id = 'completed'"), 0, (0, 0)),
        "a container": (of["memberships"].where("queue = 'q' and container = 'completed'"), jobs, (1, 1)),
        "waiting jobs": (of["memberships"].where("container = 'wait'"), 8, (2, 9)),
        "a queue": (of["memberships"].where("queue = 'live'"), 18, (1, 7)),
        "all events of a job": (of["events"].where("queue = 'q' and job = '7'"), 4, (1, 0)),
        "everything": (of[""].where("table = 'jobs' or table = 'markers'"), jobs + 22, (jobs + 21, 10)),
    }
    found = {}
    for question, (rows, _, _) in questions.items():
        with server.connect() as client:
            client.config_resetstat()
            answer = rows.count()
            calls = {name: each["calls"] for name, each in client.info("commandstats").items()}
        containers = sum(calls.get(f"cmdstat_{name}", 0) for name in ("lrange", "zrange"))
        found[question] = (answer, (calls.get("cmdstat_hgetall", 0), containers))
    server.remove_prefix(prefix)
    assert found == {question: (answer, read) for question, (_, answer, read) in questions.items()}


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ask-a-store.md"


@pytest.mark.slow
def test_the_questions_of_the_page_are_answered(spark: SparkSession, server: RedisInstance, prefix: str) -> None:
    """The page is executed as it stands, except for the address and the prefix."""
    fill(server, prefix, 600)
    with server.connect() as client:
        client.hset(f"{prefix}:q:lost", mapping={"name": "job", "data": "{}"})
        client.rpush(f"{prefix}:q:wait", "gone", "1")
    names: dict[str, Any] = {"spark": spark}
    answers: dict[str, list[Any]] = {}
    for block in blocks_of(PAGE):
        text = block.text.replace("redis://127.0.0.1:6379", server.url).replace('prefix="bull"', f'prefix="{prefix}"')
        names.pop("answer", None)
        exec(compile(text, str(PAGE), "exec"), names)  # noqa: S102 - the page is ours
        if "answer" in names:
            answers[block.section[-1]] = sorted(tuple(row) for row in names["answer"].collect())
    # Spark gives moments in the time zone of the machine.
    minute = datetime.fromtimestamp(FIRST_MS // 60_000 * 60, UTC).astimezone().replace(tzinfo=None)
    assert list(answers.values()) == [
        [("live", "no", 2)],
        [("live", [5, 5, 5], [4, 4, 4]), ("q", [2, 2, 2], [3, 3, 3])],
        [("q", "gone", None, "wait"), ("q", "lost", True, None)],
        [("job", 1, 80.0, 80)],
        [("q", minute, 600, None)],
    ]


def test_a_redis_that_goes_away_leaves_no_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    with open_server(None, announce=lambda _: None) as server:
        write(server, "p", plain_store())
        host, port = server.nodes[0].split(":")
        source = RedisSource(redis=server.url, prefix="p")
        spark.dataSource.register(BullmqSource)
        rows = spark.read.format("bullmq").option("redis", server.url).option("prefix", "p").load()
        rows.schema  # noqa: B018 - the parts are planned when the rows are read
        with Redis(host=host, port=int(port)) as client:
            client.config_set("requirepass", "secret")
        with pytest.raises(EnvironmentProblem, match=r"refused the user or password|answered with an error"):
            saved(spark, source, folder_at(tmp_path / "out"))
    assert not (tmp_path / "out" / MANIFEST).exists()


def trouble_called(name: str) -> Any:
    """A function that meets with trouble on an executor. It has to be an inner one: executors know no test modules."""

    def dies(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os._exit(137)
        yield from batches

    def runs_out_of_memory(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if batches is not None:
            raise MemoryError
        yield from batches

    def fills_the_disk(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
            full.write(b"x")
        yield from batches

    return {"dies": dies, "runs out of memory": runs_out_of_memory, "fills the disk": fills_the_disk}[name]


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("dies", "a Python worker of Spark died"),
        ("runs out of memory", "ran out of memory"),
        ("fills the disk", "the disk is full"),
    ],
)
def test_the_trouble_of_an_executor_is_reported_in_one_line(spark: SparkSession, trouble: str, said: str) -> None:
    with pytest.raises(EnvironmentProblem) as caught, explained_spark():
        spark.range(1).mapInArrow(trouble_called(trouble), "id bigint").collect()
    assert said in caught.value.what
    assert "\n" not in caught.value.what


def test_a_jvm_that_hangs_up_prints_no_stack(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    """It ends with the terminal that is closed; Spark's server of accumulators prints the stack of every error."""
    vars(spark.sparkContext)["_accumulatorServer"].handle_error(None, ("127.0.0.1", 1))
    assert capfd.readouterr().err == ""


def test_an_unfinished_snapshot_is_refused(
    spark: SparkSession, server: RedisInstance, prefix: str, tmp_path: Path
) -> None:
    whole = kept(spark, server, prefix, plain_store(prefix), tmp_path / "out")
    (tmp_path / "out" / MANIFEST).unlink()
    with pytest.raises(UsageProblem, match="was not finished"):
        open_stored(spark, folder_at(tmp_path / "out"))
    again = saved(spark, RedisSource(redis=server.url, prefix=prefix), folder_at(tmp_path / "out"))
    assert again.manifest.rows == whole.manifest.rows
    assert again.rows.count() == sum(again.manifest.rows.values())


@pytest.mark.parametrize("part", [1 << 24, 200], ids=["one part", "many parts"])
def test_the_history_of_each_job_is_judged_where_it_comes_together(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.history.BYTES_OF_A_PART", part)
    path = tmp_path / "history.jsonl"
    path.write_bytes(bad_history().encoded())
    for end in (None, bad_end()):
        stored = None if end is None else stored_by_hand(end, folder_at(tmp_path / "end"))
        result = result_of(check_jobs(path, stored), "history", "end")
        found = {(each.check, each.job, each.message) for each in result.examples}
        assert found == said_of_all(bad_history(), end)
        assert result.total == len(result.examples)
    names = {case.name: bool(case.result) for suite in JUnitXml.fromfile(junit_of(tmp_path, result)) for case in suite}
    assert names == {check: bool(count) for check, count in result.by_check.items()}


def junit_of(folder: Path, result: HistoryResult) -> str:
    return str(next(path for path in write_history_reports(folder, result) if path.suffix == ".xml"))


def stored_by_hand(end: Snapshot, folder: Folder) -> SnapshotFolder:
    """A snapshot as if it had been read from a store."""
    rows = pa.Table.from_batches([batch_of(wide_rows(end))])
    files: dict[str, int] = {}
    for table in TABLES:
        own = rows.filter(pc.equal(rows.column("table"), table))
        for bucket, share in in_buckets(own, 2):
            files.update([write_file(folder, table, file_name(bucket, 0, 0, 0), share)])
    write_manifest(folder, msgspec.structs.replace(manifest(), files=files))
    return open_snapshot_folder(folder)


RunVerb = Callable[..., None]
"""Carries out the verb with these words, which must end with exit code 0."""


def in_a_process_of_its_own(*words: str) -> None:
    """As a user does, with a JVM of its own."""
    command = [sys.executable, "-m", "conformance", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def in_this_process(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> RunVerb:
    """The same words, on the session of all tests: its JVM is there already."""

    @contextmanager
    def shared_session(_: SparkSettings) -> Iterator[SparkSession]:
        yield spark

    def run_verb(*words: str) -> None:
        assert cli.main(list(words), standalone_mode=False) in {None, 0}, words

    monkeypatch.setattr("reports.verbs.load.spark_session", shared_session)
    return run_verb


def load_by_two_clients_and_compare(run: RunVerb, folder: Path, jobs: int, *shared: str) -> None:
    """The same workload, added and worked off by the reference and Node, and by Node and the reference."""
    for producer, worker in (("reference", "node"), ("node", "reference")):
        out = folder / producer
        words = ["--producer", producer, "--worker", worker, "--jobs", str(jobs), "--prefix", producer]
        run("load", *shared, *words, "--out", str(out))
        result = msgspec.json.decode((out / "load.json").read_bytes(), type=LoadResult)
        assert result.final["completed"] == jobs
    run("diff", *(str(folder / producer / "snapshot") for producer in ("reference", "node")), "--out", str(folder))
    summary = msgspec.json.decode((folder / "diff.json").read_bytes(), type=DiffSummary)
    assert (summary.total, summary.jobs) == (0, (jobs, jobs)), summary


@pytest.mark.slow
def test_a_load_by_two_clients_from_the_command_line(
    in_this_process: RunVerb, server: RedisInstance, tmp_path: Path
) -> None:
    """CI sets BULLMQ_LOAD_JOBS=2000."""
    jobs = int(os.environ.get("BULLMQ_LOAD_JOBS", "300"))
    shared = ["--redis", server.url, "--queues", "2", "--events", "1000000"]
    load_by_two_clients_and_compare(in_this_process, tmp_path, jobs, *shared)
    for prefix in ("reference", "node"):
        server.remove_prefix(prefix)


@pytest.mark.skipif(
    "BULLMQ_SPARK_CLUSTER" not in os.environ,
    reason="two Spark workers beside three Redis masters take minutes on two cores: set BULLMQ_SPARK_CLUSTER=1",
)
def test_the_same_workload_through_two_clients_on_spark_and_redis_clusters(tmp_path: Path) -> None:
    """Load, snapshot and diff from the command line: two Spark workers, three Redis masters."""
    with standalone_cluster(2) as master, open_server("cluster:3", announce=lambda _: None) as redis:

        def on_the_cluster(*words: str) -> None:
            in_a_process_of_its_own(*words, "--master", master)

        shared = ["--redis", redis.url, "--queues", "4", "--events", "100000"]
        load_by_two_clients_and_compare(on_the_cluster, tmp_path, 200, *shared)
