"""The diff of two snapshots as Spark jobs. Nothing that grows with the number of jobs comes to the driver.

1. Everything that belongs to a job is brought together by queue and id, and compared by `reports.diff.jobs`.
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
from reports.snapshot.schema import ARROW
from reports.snapshot.store import Stored

JOBS_PER_TASK = 8_000
"""Jobs of each side that a Python worker holds at a time."""

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
    loose = both.where(_belongs_to_job() & ~sql.col("queue").isin(whole))
    by_job = loose.repartition(_partitions(wanted), "queue", "id").mapInArrow(jobs.comparer(settings), DDL)
    found = {"jobs": _stored(spark, by_job, wanted.folder / "jobs")}
    by_queue = _groups(wanted, both, whole).repartition("owner", "group").mapInArrow(queues.comparer(settings), DDL)
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


def _belongs_to_job() -> Column:
    """Rows that are compared by job; events without a job belong to their queue."""
    return sql.col("table").isin(*jobs.JOB_TABLES) & (sql.coalesce(sql.col("id"), sql.lit("")) != "")


def _partitions(wanted: Comparison) -> int:
    most = max(stored.manifest.jobs for stored in (wanted.expected, wanted.actual))
    return max(2, -(-most // JOBS_PER_TASK))


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


def _groups(wanted: Comparison, both: DataFrame, whole: list[str]) -> DataFrame:
    """Rows that are compared by queue, with the column `group`, and the jobs that rules look at beside them."""
    is_whole = sql.col("queue").isin(whole)
    owned = both.withColumn("owner", sql.coalesce(sql.col("queue"), sql.lit("")))
    complete = owned.where(is_whole).withColumn("group", sql.lit(queues.WHOLE))
    loose = owned.where(~_belongs_to_job() & (~is_whole | sql.col("queue").isNull()))
    deduplications = max(side.manifest.rows.get("deduplications", 0) for side in (wanted.expected, wanted.actual))
    dedup_shards = max(1, deduplications // DEDUPLICATIONS_PER_GROUP)
    shard = sql.concat(sql.lit("dedup-"), sql.pmod(sql.hash("id"), sql.lit(dedup_shards)).cast("string"))
    grouped = loose.withColumn(
        "group", sql.when(sql.col("table") == "deduplications", shard).otherwise(sql.lit(queues.SHARED))
    )
    holders = grouped.where("table = 'locks'").select("owner", "group", sql.col("id").alias("wanted_id"))
    owners = grouped.where("table = 'deduplications'").select("owner", "group", sql.col("value").alias("wanted_id"))
    seen = holders.unionByName(owners).distinct()
    candidates = both.where(sql.col("table").isin("jobs", "memberships") & ~is_whole)
    context = candidates.join(
        sql.broadcast(seen) if dedup_shards == 1 else seen,
        (candidates["queue"] == seen["owner"]) & (candidates["id"] == seen["wanted_id"]),
    ).drop("wanted_id")
    first = (
        candidates.where("name = 'delayed'")
        .groupBy("side", "queue")
        .agg(sql.min_by(sql.struct(*ARROW.names), "score").alias("first"))
    )
    delayed = first.select("side", "first.*").withColumn("owner", sql.col("queue"))
    return reduce(
        DataFrame.unionByName, (complete, grouped, context, delayed.withColumn("group", sql.lit(queues.SHARED)))
    )


def _moved(found: DataFrame) -> DataFrame:
    """Queue and id of jobs whose presence or state differs."""
    wanted = found.where("locator in ('job', 'membership.state')")
    return wanted.select("queue", sql.expr("substring(key, length(queue) + 2)").alias("id"))


def _stored(spark: SparkSession, found: DataFrame, folder: Path) -> DataFrame:
    """Written once, so that nothing is computed twice."""
    found.write.mode("overwrite").parquet(str(folder))
    return spark.read.schema(DDL).parquet(str(folder))
