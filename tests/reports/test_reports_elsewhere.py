"""Snapshots, comparisons and reports in folders of other file systems: the API of S3 on loopback."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyarrow.fs import S3FileSystem
from pyspark.sql import SparkSession

from conformance.cli.verbs import cli
from conformance.problems import EnvironmentProblem, Problem, UsageProblem
from conformance.servers import RedisInstance
from reports.diff.comparison import compare_snapshots
from reports.diff.snapshot_comparison import SnapshotComparison
from reports.diff.summary import DiffSummary
from reports.history import check_jobs, result_of
from reports.load.result import LoadResult
from reports.session import OnSpark
from reports.snapshot.folders import ENDPOINT, Folder, folder_at
from reports.snapshot.format import DIGESTS, MANIFEST, ROWS, claim_folder, drop_unclaimed, read_manifest
from reports.snapshot.plan import RedisSource
from reports.snapshot.spark_rows import StoredSnapshot, open_stored
from tests.observe.snapshot_builders import job
from tests.reports.reports_builders import plain_store, rows_in, saved, write
from tests.reports.test_reports_history import bad_end, bad_history, said_of_all
from tests.reports.test_reports_spark import RunVerb, in_this_process, stored_by_hand

pytestmark = pytest.mark.xdist_group("spark")

__all__ = ["in_this_process"]

BUCKET = "kit"


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    """The address of a server that speaks S3, with one bucket."""
    from moto.server import ThreadedMotoServer  # every process of the tests reads this module, and one starts a server

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    made = S3FileSystem(
        endpoint_override=f"{host}:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    made.create_dir(BUCKET)
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_address: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """An address below which nothing lies yet, as users write it."""
    monkeypatch.setenv(ENDPOINT, s3_address)
    return f"s3://{BUCKET}/{request.node.name}"


@pytest.fixture(params=["here", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """A folder that is not there yet."""
    return folder_at(tmp_path / "new" if request.param == "here" else request.getfixturevalue("s3"))


def test_a_folder_is_the_same_wherever_it_is(folder: Folder, tmp_path: Path) -> None:
    assert (folder.exists(), folder.names(), folder.read("a")) == (False, [], None)
    folder.clear()
    folder.make()
    folder.write("a", b"one")
    folder.write("a", b"two")
    size = (folder / "below").write_table("rows.parquet", rows := pa.table({"n": [1, 2]}))
    assert (folder.sizes(), (folder / "below").sizes()) == ({"a": 3}, {"rows.parquet": size})
    assert (folder / "nowhere").sizes() == {}
    assert folder.exists()
    assert sorted(folder.names()) == ["a", "below"]
    assert folder.read("a") == b"two"
    with (folder / "below").opened("rows.parquet") as file:
        assert pyarrow.parquet.read_table(file) == rows
    folder.remove("a")
    folder.remove("a")
    (folder / "below").clear()
    assert folder.names() == []
    (tmp_path / "files" / "inner").mkdir(parents=True)
    (tmp_path / "files" / "inner" / "b").write_bytes(b"three")
    folder.take(tmp_path / "files")
    assert (folder / "inner").read("b") == b"three"


def stored(spark: SparkSession, server: RedisInstance, named: str, **changes: Any) -> StoredSnapshot:
    """A plain store with some other keys, kept under this name."""
    prefix = server.fresh_prefix()
    write(server, prefix, {**plain_store(prefix), **changes})
    kept = saved(spark, RedisSource(redis=server.url, prefix=prefix), folder_at(named))
    server.remove_prefix(prefix)
    return kept


CHANGED = {"q:3": job(data='{"n":"another"}')}


@pytest.mark.slow
def test_a_planted_change_is_found_between_snapshots_in_s3_and_nothing_else(
    spark: SparkSession, server: RedisInstance, s3: str
) -> None:
    left, right = stored(spark, server, f"{s3}/left"), stored(spark, server, f"{s3}/right", **CHANGED)
    assert left.manifest.digests != ""
    assert left.rows.count() == sum(left.manifest.rows.values())
    assert [row["token"] for row in left.table("locks").orderBy("job").collect()] == ["token-a", "token-b"]
    wanted = SnapshotComparison(expected=left, actual=right, folder=folder_at(f"{s3}/differences"))
    blind = replace(right, manifest=msgspec.structs.replace(right.manifest, digests=""))
    for comparison, place in ((replace(wanted, actual=blind), OnSpark(spark)), (wanted, None)):
        compare_snapshots(comparison, place)
        assert [(row["class"], row["key"]) for row in rows_in(wanted.folder)] == [("field", "q:3")]
    compare_snapshots(replace(wanted, actual=left))
    assert rows_in(wanted.folder) == [], "what was found before is no longer there"


def test_only_the_tables_that_are_asked_for_are_read(spark: SparkSession, server: RedisInstance, s3: str) -> None:
    kept = stored(spark, server, f"{s3}/kept")
    (kept.folder / ROWS / "table=jobs").clear()
    (kept.folder / ROWS / "table=jobs").write("b000-p00000-a0-000.parquet", b"no Parquet")
    assert kept.table("locks").count() == 2
    with pytest.raises(Exception, match=r"Parquet|Spark failed"):
        kept.table("jobs").count()


@pytest.mark.slow
def test_verbs_leave_everything_in_s3(in_this_process: RunVerb, server: RedisInstance, s3: str) -> None:
    prefix = server.fresh_prefix().strip("{}")
    shared = ["--redis", server.url, "--prefix", prefix]
    in_this_process("load", "--jobs", "20", *shared, "--out", f"{s3}/run")
    in_this_process("snapshot", *shared, "--out", f"{s3}/again")
    with server.connect() as client:
        client.config_set("repl-diskless-sync-delay", 0)
    in_this_process("snapshot", *shared, "--replicate", "--out", f"{s3}/replica")
    in_this_process("diff", f"{s3}/run/snapshot", f"{s3}/again", "--out", f"{s3}/diff")
    in_this_process("diff", f"{s3}/replica", f"{s3}/again")
    in_this_process("check", f"{s3}/again", "--out", f"{s3}/check")
    server.remove_prefix(prefix)
    run, compared = folder_at(f"{s3}/run"), folder_at(f"{s3}/diff")
    assert {"load.json", "load.html", "junit.xml", "histograms", "snapshot"} <= set(run.names())
    assert msgspec.json.decode(run.read("load.json") or b"", type=LoadResult).produced.jobs == 20
    summary = msgspec.json.decode(compared.read("diff.json") or b"", type=DiffSummary)
    assert (summary.total, summary.jobs, summary.actual) == (0, (20, 20), f"{s3}/again")
    assert {"diff.html", "junit.xml", "differences"} <= set(compared.names())
    assert {"check.json", "junit.xml"} <= set(folder_at(f"{s3}/check").names())


def test_the_history_of_a_run_is_held_against_a_snapshot_in_s3(s3: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(bad_history().encoded())
    end = stored_by_hand(bad_end(), folder_at(f"{s3}/end"))
    result = result_of(check_jobs(path, end), "history", "end")
    assert {(each.check, each.job, each.message) for each in result.examples} == said_of_all(bad_history(), bad_end())


def test_an_unfinished_snapshot_is_refused_in_s3_too(spark: SparkSession, server: RedisInstance, s3: str) -> None:
    whole = stored(spark, server, f"{s3}/kept")
    whole.folder.remove(MANIFEST)
    with pytest.raises(UsageProblem, match="was not finished"):
        open_stored(spark, whole.folder)
    with pytest.raises(UsageProblem, match="is not a folder"):
        read_manifest(folder_at(f"{s3}/nowhere"))
    again = stored(spark, server, f"{s3}/kept")
    assert again.rows.count() == sum(whole.manifest.rows.values())
    whole.folder.write("letter.txt", b"dear")
    with pytest.raises(UsageProblem, match=r"letter\.txt"):
        claim_folder(whole.folder)


def test_files_of_a_failed_attempt_in_s3_are_removed(spark: SparkSession, server: RedisInstance, s3: str) -> None:
    kept = stored(spark, server, f"{s3}/kept")
    jobs = folder_at(f"{s3}/kept") / ROWS / "table=jobs"
    claimed = jobs.names()
    jobs.write(left_over := claimed[0].replace("-a0-", "-a1-"), jobs.read(claimed[0]) or b"")
    others = [
        f"{kind}/{table}/{name}"
        for kind in (ROWS, DIGESTS)
        for table in (kept.folder / kind).names()
        for name in (kept.folder / kind / table).names()
        if name != left_over
    ]
    assert left_over in jobs.names()
    drop_unclaimed(kept.folder, others)
    assert sorted(jobs.names()) == sorted(claimed)


def complaint(*words: str) -> Problem:
    with pytest.raises(Problem) as caught:
        cli.main(list(words), standalone_mode=False)
    return caught.value


@contextmanager
def no_bucket(_: str) -> Iterator[str]:
    yield "s3://nobody-has-this/run"


@contextmanager
def refused(s3: str) -> Iterator[str]:
    with refusing(os.environ[ENDPOINT]):
        yield f"{s3}/run"


@contextmanager
def gone(s3: str) -> Iterator[str]:
    with socket.socket() as taken, pytest.MonkeyPatch.context() as patch:
        taken.bind(("127.0.0.1", 0))
        patch.setenv(ENDPOINT, f"http://127.0.0.1:{taken.getsockname()[1]}")
        yield f"{s3}/run"


@pytest.mark.parametrize("verb", ["snapshot", "diff"])
@pytest.mark.parametrize(
    ("trouble", "said"), [(no_bucket, "bucket"), (refused, "ACCESS_DENIED"), (gone, "NETWORK_CONNECTION")]
)
def test_an_s3_that_refuses_is_reported_in_one_line_before_spark_starts(
    s3: str, server: RedisInstance, verb: str, trouble: Callable[[str], AbstractContextManager[str]], said: str
) -> None:
    with trouble(s3) as named:
        words = ["--redis", server.url, "--out", named] if verb == "snapshot" else [named, named]
        problem = complaint(verb, *words)
    assert isinstance(problem, EnvironmentProblem)
    assert problem.exit_code == 3
    assert "\n" not in str(problem)
    assert said in problem.what


@contextmanager
def refusing(address: str) -> Iterator[None]:
    """In this block the server accepts no credentials."""
    _ask_after(address, 0)
    yield
    _ask_after(address, 1_000_000)


def _ask_after(address: str, calls: int) -> None:
    """Have the server accept any credentials for this number of calls."""
    host, port = address.removeprefix("http://").split(":")
    connection = HTTPConnection(host, int(port))
    connection.request("POST", "/moto-api/reset-auth", str(calls))
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize("named", ["s3://", "s3://kit", "s3://kit/", "ftp://host/run", "s3a://kit/run"])
def test_an_address_of_no_folder_is_a_mistake_of_the_command_line(named: str) -> None:
    with pytest.raises(UsageProblem, match=r"does not name a folder|unsupported file system"):
        folder_at(named)


def test_a_folder_of_this_machine_may_be_named_by_a_url(tmp_path: Path) -> None:
    assert folder_at(f"file://{tmp_path}").path == tmp_path
    assert folder_at("runs/a/").path == Path("runs/a")
