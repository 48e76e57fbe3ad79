"""The checks of one stored snapshot as Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from conformance.protocol.states import PRIORITY_FACTOR
from reports.diff.checks import KEY_CHECKS, STORE_CHECKS, broken_jobs, broken_queue, broken_row
from reports.diff.prefilter import BucketSide
from reports.diff.stored_rows import rows_by_group
from reports.diff.values import DIFFERENCE_DDL, DiffSide, batch_of_rows
from reports.snapshot.folders import Folder
from reports.snapshot.format import ARROW, read_bucket
from reports.snapshot.spark_rows import StoredSnapshot

CHECKED_TABLES = ("jobs", "memberships", "dependencies", "logs", "events")
"""Tables whose rows belong to jobs."""

ONCE = (
    *("locks", "deduplications", "metas", "markers", "limiters", "stalled_checks", "counters", "schedulers"),
    *("expiries", "unknown"),
)
"""Tables of what a queue has once, and of what belongs to none."""

SHARED = "shared"
"""The group of a queue that has everything except its deduplication keys and their owners."""

OWNERS_PER_GROUP = 2000
"""Deduplication keys that are checked together, with the jobs that own them."""


def broken_in(spark: SparkSession, stored: StoredSnapshot) -> DataFrame:
    """Everything that a store breaks by itself, in the columns of differences. Nothing is collected."""
    facts = facts_of(stored)
    buckets = spark.range(0, stored.manifest.buckets, 1, stored.manifest.buckets)
    by_job = buckets.mapInArrow(_job_checker(stored.folder.absolute(), stored.manifest.buckets, facts), DIFFERENCE_DDL)
    groups = queue_groups(stored).withColumn("side", sql.lit(0)).repartition("owner", "group")
    return by_job.unionByName(groups.mapInArrow(queue_checker(facts), DIFFERENCE_DDL))


def facts_of(stored: StoredSnapshot) -> DiffSide:
    """The facts about a snapshot that the checks need."""
    manifest = stored.manifest
    return DiffSide(prefix=manifest.prefix, taken_ms=manifest.until_ms)


def read_side(folder: Folder, bucket: int, buckets: int, facts: DiffSide) -> BucketSide:
    """The rows of a bucket that belong to jobs; what is not about a job has an empty id. Raises OSError."""
    tables = {table: read_bucket(folder, table, bucket, buckets) for table in CHECKED_TABLES}
    return BucketSide({name: _of_jobs(rows) for name, rows in tables.items()}, facts)


def _of_jobs(rows: pa.Table) -> pa.Table:
    job = rows.column("id").combine_chunks().view(pa.binary())
    return rows.filter(pc.fill_null(pc.not_equal(job, b""), fill_value=False))


def _job_checker(
    folder: Folder, buckets: int, facts: DiffSide
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function from numbers of buckets (column `id`) to what is wrong with their jobs."""

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bucket in batch.column("id").to_pylist():
                found = broken_jobs(read_side(folder, bucket, buckets, facts))
                yield batch_of_rows(broken_row(each) for each in found)

    return check


def queue_checker(facts: DiffSide) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function from the rows of some groups (columns `owner`, `group`, `side`) to what is wrong with their queues.

    Only the group `SHARED` has the settings and markers of its queue; the owners of deduplication keys are elsewhere.
    """

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (_, group), (rows, _) in rows_by_group(batches).items():
            checks = STORE_CHECKS if group == SHARED else KEY_CHECKS
            yield batch_of_rows(broken_row(each) for each in broken_queue(rows, facts, checks))

    return check


def queue_groups(stored: StoredSnapshot) -> DataFrame:
    """The single keys of each queue, with the jobs that its checks need; adds the columns `owner` and `group`.

    Of the jobs these are the owners of locks and deduplication keys, and of each queue one that waits, one that is
    active, the delayed one that is due first, and those with the largest generated id and priority counter: what a
    check says of all of them it says of these.
    """
    rows = stored.rows
    shards = max(1, stored.manifest.rows.get("deduplications", 0) // OWNERS_PER_GROUP)
    once = rows.where(sql.col("table").isin(*ONCE)).withColumns({"owner": _owner(), "group": _shard(shards)})
    holders = once.where("table = 'locks'").select("owner", "group", sql.col("id").alias("wanted"))
    owners = once.where("table = 'deduplications'").select("owner", "group", sql.col("value").alias("wanted"))
    asked = holders.unionByName(owners).distinct()
    jobs = rows.where(sql.col("table").isin("jobs", "memberships"))
    owned = jobs.join(asked, (jobs["queue"] == asked["owner"]) & (jobs["id"] == asked["wanted"])).drop("wanted")
    beside = examples(rows).withColumns({"owner": _owner(), "group": sql.lit(SHARED)})
    return reduce(DataFrame.unionByName, (once, owned, beside))


def _owner() -> Column:
    return sql.coalesce(sql.col("queue"), sql.lit(""))


def _shard(shards: int) -> Column:
    shard = sql.concat(sql.lit("dedup-"), sql.pmod(sql.hash("id"), sql.lit(shards)).cast("string"))
    return sql.when(sql.col("table") == "deduplications", shard).otherwise(sql.lit(SHARED))


def examples(rows: DataFrame, *by: str) -> DataFrame:
    """The members and jobs that represent all others of their queue. `by`: further columns that identify a queue."""
    numbered = rows.where("table = 'jobs'").where(_is_numbered())
    return first_members(rows, *by).unionByName(_first(numbered, -sql.col("id").cast("bigint"), by))


def first_members(rows: DataFrame, *by: str) -> DataFrame:
    """Of each queue a member that waits, one that is active, the first delayed one, and the last counted priority."""
    counter = sql.pmod(sql.col("score"), sql.lit(float(PRIORITY_FACTOR)))
    is_counted = (counter > 0) & (counter < PRIORITY_FACTOR / 2)
    name = sql.col("name")
    rank = (
        sql.when(name.isin(*_IN_LISTS), sql.col("position").cast("double"))
        .when(name == "delayed", sql.col("score"))
        .when((name == "prioritized") & is_counted, -counter)
    )
    # The names by themselves, so that Parquet leaves out what holds only finished jobs.
    members = rows.where("table = 'memberships'").where(name.isin(*_IN_LISTS, "delayed", "prioritized"))
    return _first(members.where(rank.isNotNull()), rank, by)


def largest_ids(rows: DataFrame, *by: str) -> DataFrame:
    """The job with the largest generated id of each queue, without its hash: only the column of ids is read."""
    numbered = rows.where("table = 'jobs'").where(_is_numbered())
    largest = numbered.groupBy(*by, "queue").agg(sql.max(sql.col("id").cast("bigint")).cast("string").alias("id"))
    known = {"table": sql.lit("jobs"), "queue": sql.col("queue"), "id": sql.col("id"), "fields": sql.create_map()}
    columns = [
        known.get(field.name, sql.lit(None)).cast(field.dataType).alias(field.name)
        for field in rows.schema.fields
        if field.name in ARROW.names
    ]
    return largest.select(*by, *columns)


_IN_LISTS = ("wait", "paused", "active")


def _is_numbered() -> Column:
    return sql.col("id").rlike("^[1-9][0-9]{0,17}$")


def _first(rows: DataFrame, order: Column, by: Sequence[str]) -> DataFrame:
    """The first row of each queue and container."""
    chosen = rows.groupBy(*by, "queue", "name").agg(sql.min_by(sql.struct(*ARROW.names), order).alias("first"))
    return chosen.select(*by, "first.*")
