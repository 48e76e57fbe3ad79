"""The diff of two snapshots as Spark jobs. Nothing that grows with the number of jobs comes to the driver.

1. Everything that belongs to a job lies in the bucket of its id. Each bucket is read by one task, from the files of
   both snapshots, and compared by `reports.diff.jobs`.
2. What belongs to a queue is brought together by queue, and compared by `reports.diff.queues`.
3. The order of lists is compared by `reports.diff.order`.

A queue in which a rule has to give jobs other names (generated uuids, iterations of schedulers) cannot be cut by job
id. It is compared as a whole, as the gate does, which limits its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from conformance.problems import UsageProblem
from reports.diff import jobs, queues
from reports.diff.order import compare_order
from reports.diff.settings import Settings, SideFacts
from reports.diff.table import COLUMNS, DDL
from reports.snapshot.files import bucket_of
from reports.snapshot.rows import as_bytes
from reports.snapshot.schema import ARROW, TYPED
from reports.snapshot.store import Stored

MOST_ROWS_OF_A_WHOLE_QUEUE = 100_000

DEDUPLICATIONS_PER_GROUP = 500


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two snapshots, and how to compare them. `folder` is where the differences go, as Parquet."""

    expected: Stored
    actual: Stored
    folder: Path
    switched_off: tuple[str, ...] = ()
    queue: str = ""
    job: str = ""


def differences(spark: SparkSession, wanted: Comparison) -> DataFrame:
    """All differences, stored under the folder and read from there. Raises UsageProblem; Spark's exceptions."""
    both = _both_sides(wanted)
    whole = _whole_queues(wanted)
    settings = _settings(wanted)
    work = _work(wanted, settings, whole)
    by_job = _buckets(spark, work).mapInArrow(jobs.comparer(work), DDL)
    found = {"jobs": _stored(spark, by_job, wanted.folder / "jobs")}
    groups = _groups(wanted, both, whole, settings)
    by_queue = groups.repartition("owner", "group").mapInArrow(queues.comparer(settings), DDL)
    found["queues"] = _stored(spark, _unexplained(by_queue, found["jobs"]), wanted.folder / "queues")
    if not wanted.job:
        sides = [both.where(sql.col("side") == side).where(~sql.col("queue").isin(whole)) for side in (0, 1)]
        order = compare_order(sides[0], sides[1], _moved(found["jobs"]))
        found["order"] = _stored(spark, order, wanted.folder / "order")
    return reduce(DataFrame.unionByName, found.values())


def _unexplained(by_queue: DataFrame, by_job: DataFrame) -> DataFrame:
    """Without the markers and counters of queues in which a job is missing or too many: that explains them."""
    uneven = by_job.where("kind in ('missing-job', 'extra-job')").select("queue").distinct()
    marked = by_queue.join(sql.broadcast(uneven.withColumn("uneven", sql.lit(True))), "queue", "left")
    follows = sql.col("locator").startswith("marker") | sql.col("locator").startswith("counter")
    return marked.where(~follows | sql.col("uneven").isNull()).select(*COLUMNS)


def _both_sides(wanted: Comparison) -> DataFrame:
    """Both snapshots in one table with the column `side`, restricted to what is asked for."""
    sides = [
        stored.rows.withColumn("side", sql.lit(side)) for side, stored in enumerate((wanted.expected, wanted.actual))
    ]
    rows = sides[0].unionByName(sides[1])
    if wanted.queue:
        rows = rows.where(sql.col("queue") == wanted.queue)
    return rows.where(sql.col("id") == wanted.job) if wanted.job else rows


def _work(wanted: Comparison, settings: Settings, whole: list[str]) -> jobs.Work:
    sides = (wanted.expected, wanted.actual)
    return jobs.Work(
        folders=(sides[0].folder.absolute(), sides[1].folder.absolute()),
        buckets=min(side.manifest.buckets for side in sides),
        settings=settings,
        left_out=tuple(whole),
        queue=wanted.queue,
        job=wanted.job,
    )


def _buckets(spark: SparkSession, work: jobs.Work) -> DataFrame:
    """The number of each bucket to compare, one to a task."""
    if not work.job:
        return spark.range(0, work.buckets, 1, work.buckets)
    bucket = bucket_of(as_bytes(work.job), work.buckets)
    return spark.range(bucket, bucket + 1, 1, 1)


def _settings(wanted: Comparison) -> Settings:
    expected, actual = (
        SideFacts(prefix=stored.manifest.prefix, taken_ms=stored.manifest.taken_ms)
        for stored in (wanted.expected, wanted.actual)
    )
    settings = Settings(
        expected=expected, actual=actual, switched_off=wanted.switched_off, trimmed=frozenset(trimmed_queues(wanted))
    )
    settings.rules()
    return settings


def trimmed_queues(wanted: Comparison) -> list[str]:
    """Queues whose older events one side has no longer."""
    sides = (wanted.expected, wanted.actual)
    names = {name for side in sides for name, facts in side.manifest.queues.items() if not facts.events_complete}
    return sorted(names)


def _whole_queues(wanted: Comparison) -> list[str]:
    """Queues with ids that rules rename. Raises UsageProblem where one is too large to be compared as a whole."""
    sides = [stored.manifest.queues for stored in (wanted.expected, wanted.actual)]
    names = {name for side in sides for name, facts in side.items() if facts.generated_ids}
    names &= {wanted.queue} if wanted.queue else names
    for name in sorted(names):
        rows = sum(side[name].rows for side in sides if name in side)
        if rows > MOST_ROWS_OF_A_WHOLE_QUEUE:
            raise UsageProblem(
                f"queue {name!r} has generated job ids, and {rows} rows on both sides together",
                hint="give the jobs ids of your own: only then jobs of two stores can be told to be the same",
            )
    return sorted(names)


def _groups(wanted: Comparison, both: DataFrame, whole: list[str], settings: Settings) -> DataFrame:
    """Rows that are compared by queue, with the column `group`, and the jobs that rules look at beside them.

    Jobs are most of a store, and so they are looked through only where something asks for one of them.
    """
    shards = max(1, _rows(wanted, "deduplications") // DEDUPLICATIONS_PER_GROUP)
    loose = _loose(both, whole, shards)
    parts = [loose]
    if whole:
        parts.append(both.where(sql.col("queue").isin(whole)).withColumns(_place(queues.WHOLE)))
    candidates = both.where(sql.col("table").isin("jobs", "memberships") & ~sql.col("queue").isin(whole))
    if _rows(wanted, "locks") + _rows(wanted, "deduplications"):
        parts.append(_asked_for(loose, candidates, few=shards == 1))
    if _rows(wanted, "markers") and settings.has_rule("worker-clock") and not settings.has_rule("worker-traces"):
        parts.append(_first_delayed(candidates))
    return reduce(DataFrame.unionByName, parts)


def _rows(wanted: Comparison, table: str) -> int:
    return max(side.manifest.rows.get(table, 0) for side in (wanted.expected, wanted.actual))


def _place(group: str) -> dict[str, Column]:
    return {"owner": sql.coalesce(sql.col("queue"), sql.lit("")), "group": sql.lit(group)}


def _loose(both: DataFrame, whole: list[str], shards: int) -> DataFrame:
    """Rows that are no job's. Deduplication keys, of which there may be many, come in several groups."""
    about_queues = sql.col("table").isin(*(table for table in TYPED if table not in jobs.JOB_TABLES))
    unowned_event = (sql.col("table") == "events") & (sql.coalesce(sql.col("id"), sql.lit("")) == "")
    elsewhere = sql.col("queue").isin(whole) & sql.col("queue").isNotNull()
    found = both.where((about_queues | unowned_event) & ~elsewhere).withColumns(_place(queues.SHARED))
    shard = sql.concat(sql.lit("dedup-"), sql.pmod(sql.hash("id"), sql.lit(shards)).cast("string"))
    return found.withColumn("group", sql.when(sql.col("table") == "deduplications", shard).otherwise(sql.col("group")))


def _asked_for(loose: DataFrame, candidates: DataFrame, *, few: bool) -> DataFrame:
    """The jobs that locks and deduplication keys name, with their containers, beside these."""
    holders = loose.where("table = 'locks'").select("owner", "group", sql.col("id").alias("wanted_id"))
    owners = loose.where("table = 'deduplications'").select("owner", "group", sql.col("value").alias("wanted_id"))
    seen = holders.unionByName(owners).distinct()
    found = candidates.join(
        sql.broadcast(seen) if few else seen,
        (candidates["queue"] == seen["owner"]) & (candidates["id"] == seen["wanted_id"]),
    )
    return found.drop("wanted_id")


def _first_delayed(candidates: DataFrame) -> DataFrame:
    """The next delayed job of each queue, which a marker announces."""
    first = (
        candidates.where("name = 'delayed'")
        .groupBy("side", "queue")
        .agg(sql.min_by(sql.struct(*ARROW.names), "score").alias("first"))
    )
    return first.select("side", "first.*").withColumns(_place(queues.SHARED))


def _moved(found: DataFrame) -> DataFrame:
    """Queue and id of jobs whose presence or state differs."""
    wanted = found.where("locator in ('job', 'membership.state')")
    return wanted.select("queue", sql.expr("substring(key, length(queue) + 2)").alias("id"))


def _stored(spark: SparkSession, found: DataFrame, folder: Path) -> DataFrame:
    """Written once, so that nothing is computed twice."""
    found.write.mode("overwrite").parquet(str(folder))
    return spark.read.schema(DDL).parquet(str(folder))
