"""What must not grow with a store: the rows that the command itself takes from Spark, and one task's part of a diff."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from benchmarks.planted import CHANGES
from benchmarks.planted import planted as with_planted
from benchmarks.stores import QUEUE, fill
from conformance.servers import RedisInstance
from reports.diff.plan import compare_snapshots
from reports.diff.snapshot_comparison import SnapshotComparison
from reports.diff.summary import summarise
from reports.snapshot import format as stored_format
from reports.snapshot.folders import folder_at
from reports.snapshot.format import read_bucket
from reports.snapshot.plan import RedisSource
from reports.snapshot.spark_rows import StoredSnapshot
from tests.reports.reports_builders import saved

pytestmark = pytest.mark.xdist_group("spark")

SMALLER, LARGER = 2_100, 5_000
"""Both below the size at which a store is read in more parts: each part is a row as well, whatever is in it."""


@contextmanager
def counted_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows each `collect` inside the block brings into this process."""
    counts: list[int] = []
    collect = DataFrame.collect

    def counting(frame: DataFrame) -> list[Any]:
        rows = collect(frame)
        counts.append(len(rows))
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(DataFrame, "collect", counting)
        yield counts


def compared(spark: SparkSession, server: RedisInstance, jobs: int, folder: Path) -> StoredSnapshot:
    """Read a store with so many jobs, before and after some changes by hand, and compare the two."""
    prefix = server.fresh_prefix()
    source = RedisSource(redis=server.url, prefix=prefix)
    fill(server, prefix, jobs)
    left = saved(spark, source, folder_at(folder / "left"))
    with with_planted(server, prefix, CHANGES):
        right = saved(spark, source, folder_at(folder / "right"))
    server.remove_prefix(prefix)
    wanted = SnapshotComparison(expected=left, actual=right, folder=folder_at(folder / "differences"))
    assert summarise(wanted, compare_snapshots(spark, wanted)).total > 0
    return left


@pytest.mark.turns(days=3)
def test_the_command_takes_no_more_rows_of_a_larger_store(
    spark: SparkSession, server: RedisInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for jobs in (SMALLER, LARGER):
        with counted_rows(monkeypatch) as rows:
            left = compared(spark, server, jobs, tmp_path / str(jobs))
        taken.append(rows)
    assert taken[0] == taken[1]
    assert sum(taken[0]) > 0
    with counted_rows(monkeypatch) as rows:
        left.rows.where("table = 'jobs'").collect()
    assert rows[0] > LARGER, "what does grow with the jobs is seen"


@pytest.mark.turns(days=3)
def test_a_queue_with_nearly_all_jobs_is_spread_over_all_tasks(
    spark: SparkSession, server: RedisInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_format, "KEYS_PER_BUCKET", LARGER // 8)
    monkeypatch.setattr(stored_format, "BYTES_PER_BUCKET", 1 << 40)
    prefix = server.fresh_prefix()
    fill(server, prefix, LARGER)
    left = saved(spark, RedisSource(redis=server.url, prefix=prefix), folder_at(tmp_path))
    server.remove_prefix(prefix)
    buckets = left.manifest.buckets
    assert buckets >= 8
    assert left.manifest.queues[QUEUE].rows > 0.9 * sum(queue.rows for queue in left.manifest.queues.values())
    for table in ("jobs", "events"):
        rows = [read_bucket(left.folder, table, bucket, buckets).num_rows for bucket in range(buckets)]
        assert max(rows) < 1.5 * sum(rows) / buckets, (table, rows)
