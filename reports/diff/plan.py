"""The diff of two snapshots as Spark jobs. Nothing that grows with the number of jobs comes to the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from conformance.observe.differences import severity_of
from conformance.problems import UsageProblem
from conformance.protocol.states import LIST_CONTAINERS
from reports.diff import bulk_comparison, snapshot_comparison
from reports.diff.check_plan import first_members, largest_ids
from reports.diff.checks import ABOUT_ALL_JOBS
from reports.diff.difference_store import write_differences
from reports.diff.generated_ids import split_generated, with_shares
from reports.diff.snapshot_comparison import (
    DEDUPLICATIONS_PER_GROUP,
    SnapshotComparison,
    digests_of_both,
    queues_with_generated_ids,
    settings_of,
)
from reports.diff.values import DIFFERENCE_COLUMNS, DIFFERENCE_DDL, HIDDEN, DiffSettings
from reports.snapshot.format import ARROW, TYPED, bucket_of
from reports.snapshot.rows import as_bytes
from reports.snapshot.spark_rows import StoredSnapshot


def compare_order(rows: DataFrame, moved: DataFrame) -> DataFrame:
    """One difference per list in which the common jobs have another order on each side.

    `rows`: wide rows of both sides. `moved`: queue and id of the jobs whose state differs, or that one side lacks. The
    example shows the first job, from the left, that stands before its left neighbour on the actual side.
    """
    common = _common_members(rows).join(moved.distinct(), ["queue", "id"], "left_anti")
    by_list = Window.partitionBy("queue", "name").orderBy("left_position")
    stepped = common.withColumn("before", sql.lag("id").over(by_list)).withColumn(
        "back", sql.lag("right_position").over(by_list) > sql.col("right_position")
    )
    found = (
        stepped.where("back")
        .groupBy("queue", "name")
        .agg(sql.count("*").alias("steps"), sql.min_by(sql.struct("before", "id"), "left_position").alias("first"))
    )
    return _as_differences(found)


def _common_members(rows: DataFrame) -> DataFrame:
    """Members of lists that are in their list once on each side, with both positions."""
    members = rows.where((sql.col("table") == "memberships") & sql.col("name").isin(*LIST_CONTAINERS))
    is_left, is_right = (sql.col("side") == side for side in (0, 1))
    return (
        members.groupBy("queue", "name", "id")
        .agg(
            sql.min(sql.when(is_left, sql.col("position"))).alias("left_position"),
            sql.min(sql.when(is_right, sql.col("position"))).alias("right_position"),
            sql.count_if(is_left).alias("left_times"),
            sql.count_if(is_right).alias("right_times"),
        )
        .where("left_times = 1 and right_times = 1")
        .drop("left_times", "right_times")
    )


def _as_differences(found: DataFrame) -> DataFrame:
    locators = sql.concat(sql.lit("membership."), sql.col("name"), sql.lit(".order"))
    severity = severity_of("membership.wait.order", "wrong-order")
    several = sql.concat(sql.lit(" ("), sql.col("steps").cast("string"), sql.lit(" such steps back in this list)"))
    values = {
        "class": sql.lit("order"),
        "kind": sql.lit("wrong-order"),
        "severity": sql.lit(severity),
        "locator": locators,
        "queue": sql.col("queue"),
        "state": sql.col("name"),
        "key": sql.concat_ws(":", "queue", "name"),
        "field": sql.lit(""),
        "expected": sql.concat(sql.col("first.before"), sql.lit(" before "), sql.col("first.id")),
        "actual": sql.concat(sql.col("first.id"), sql.lit(" before "), sql.col("first.before"), several),
    }
    return found.select(*(values[name].alias(name) for name in DIFFERENCE_COLUMNS))


@dataclass(frozen=True)
class ComparedRows:
    """The rows of both sides (column `side`), grouped by how they are compared.

    `both`: all of them. `apart`: those of jobs with generated ids in queues too large to be compared as a whole, with
    the column `group`. `rest`: all others. `whole`: the queues that are compared as a whole.
    """

    both: DataFrame
    apart: DataFrame
    rest: DataFrame
    whole: Sequence[str]

    @property
    def by_id(self) -> DataFrame:
        """Rows whose jobs have the same id on both sides."""
        return self.rest.where(~sql.col("queue").isin(self.whole))


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The differences of two snapshots as Spark rows, and how many values each rule hides."""

    found: DataFrame
    hidden: dict[str, int]


def differences(spark: SparkSession, comparison: SnapshotComparison[StoredSnapshot]) -> DataFrame:
    """Only the differences. Raises as `compare_snapshots`."""
    return compare_snapshots(spark, comparison).found


def compare_snapshots(spark: SparkSession, comparison: SnapshotComparison[StoredSnapshot]) -> Compared:
    """Compare, and store all differences under the folder.

    1. All rows of a job are in the bucket of its id. Each bucket is read by one task, from the files of
       both snapshots, and compared (`job_comparer`).
    2. Rows of a queue are grouped by queue, and compared (`queue_comparer`).
    3. The order of lists is compared inside Spark (`compare_order`).

    Values that the rules hide in 1. and 2. are counted, and each store is also checked by itself: what only
    one of them breaks, although the rules find it the same, is a difference of the class `broken`.

    Jobs to which a rule has to give other names (generated uuids, iterations of schedulers) cannot be cut by job id. A
    queue with such jobs is compared as a whole, as the gate does; where it is too large for that, these jobs are
    paired by what they are, in shares of those that are alike, and all others are compared by their ids. Raises
    UsageProblem where those that have no equal, or belong to flows, are too many for one piece; Spark's exceptions.
    """
    both = _both_sides(comparison)
    whole, large = queues_with_generated_ids(comparison)
    rows = _split_rows(comparison, both, whole, large)
    _insist_on_few(rows.apart, large)
    settings = settings_of(comparison)
    work = _work(comparison, settings, whole, large)
    by_job = _buckets(spark, work).mapInArrow(bulk_comparison.job_comparer(work), DIFFERENCE_DDL)
    groups = _groups(comparison, rows, settings)
    by_queue = groups.repartition("owner", "group").mapInArrow(bulk_comparison.queue_comparer(settings), DIFFERENCE_DDL)
    differences = [frame.persist(StorageLevel.DISK_ONLY) for frame in (by_job, by_queue)]
    kept = [frame.where(~_is_hidden()) for frame in differences]
    # First, because it computes everything: what follows reads what is kept.
    hidden = _hidden_by_rules(differences[0].unionByName(differences[1]))
    found = [_unexplained(kept[1], kept[0]), kept[0]]
    if comparison.rows("unknown"):
        retyped = _retyped(kept[0], kept[1])
        found = [_unexplained(_without_retyped(kept[1], retyped), kept[0]), retyped]
    if not comparison.job:
        found.append(compare_order(rows.by_id, _moved_jobs(found[1])))
    written = write_differences(spark, reduce(DataFrame.unionByName, found), comparison.folder)
    for frame in differences:
        frame.unpersist()
    return Compared(found=written, hidden=hidden)


def _is_hidden() -> Column:
    return sql.col("class") == HIDDEN


def _hidden_by_rules(differences: DataFrame) -> dict[str, int]:
    """How many values are hidden by each rule, the most first."""
    counted = (
        differences.where(_is_hidden()).groupBy("kind").agg(sql.sum(sql.col("expected").cast("bigint")).alias("n"))
    )
    return {row["kind"]: row["n"] for row in sorted(counted.collect(), key=lambda row: (-row["n"], row["kind"]))}


_RETYPED = "wrong-type"
_ABOUT_ALL_JOBS = tuple(f"invariant.{check.name}" for check in ABOUT_ALL_JOBS)


def _retyped(by_job: DataFrame, by_queue: DataFrame) -> DataFrame:
    """The differences of jobs; a hash in whose place the other side has a key of another type is one of type."""
    foreign = by_queue.where("locator like 'unknown.%' and kind in ('extra-key', 'missing-key')")
    types = foreign.select("key", sql.substring_index("locator", ".", -1).alias("foreign_type")).distinct()
    marked = by_job.join(types, "key", "left")
    is_retyped = sql.col("foreign_type").isNotNull() & sql.col("kind").isin("missing-job", "extra-job")
    is_missing = sql.col("kind") == "missing-job"
    values = {
        "class": sql.lit("type"),
        "kind": sql.lit(_RETYPED),
        "severity": sql.lit(severity_of("job", _RETYPED)),
        "expected": sql.when(is_missing, sql.lit("hash")).otherwise(sql.col("foreign_type")),
        "actual": sql.when(is_missing, sql.col("foreign_type")).otherwise(sql.lit("hash")),
    }
    changed = {name: sql.when(is_retyped, value).otherwise(sql.col(name)) for name, value in values.items()}
    return marked.select(*(changed.get(name, sql.col(name)).alias(name) for name in DIFFERENCE_COLUMNS))


def _without_retyped(by_queue: DataFrame, retyped: DataFrame) -> DataFrame:
    """Remove keys in the place of a job: the difference of the job reports them."""
    places = retyped.where(sql.col("kind") == _RETYPED).where("locator = 'job'").select("key").distinct()
    foreign = sql.col("locator").startswith("unknown.")
    marked = by_queue.join(places.withColumn("is_retyped", sql.lit(True)), "key", "left")
    return marked.where(~foreign | sql.col("is_retyped").isNull()).select(*DIFFERENCE_COLUMNS)


def _unexplained(by_queue: DataFrame, by_job: DataFrame) -> DataFrame:
    """Remove markers and counters of queues with a missing or extra job, which explains them."""
    uneven = by_job.where("kind in ('missing-job', 'extra-job')").select("queue").distinct()
    marked = by_queue.join(sql.broadcast(uneven.withColumn("uneven", sql.lit(True))), "queue", "left")
    locator = sql.col("locator")
    follows = locator.startswith("marker") | locator.startswith("counter") | locator.isin(*_ABOUT_ALL_JOBS)
    return marked.where(~follows | sql.col("uneven").isNull()).select(*DIFFERENCE_COLUMNS)


def _both_sides(comparison: SnapshotComparison[StoredSnapshot]) -> DataFrame:
    """Both snapshots in one table with the column `side`, restricted to what is asked for."""
    sides = [
        stored.rows.withColumn("side", sql.lit(side))
        for side, stored in enumerate((comparison.expected, comparison.actual))
    ]
    rows = sides[0].unionByName(sides[1])
    if comparison.queue:
        rows = rows.where(sql.col("queue") == comparison.queue)
    return rows.where(sql.col("id") == comparison.job) if comparison.job else rows


def _work(
    comparison: SnapshotComparison[StoredSnapshot], settings: DiffSettings, whole: list[str], large: list[str]
) -> bulk_comparison.BucketComparison:
    return bulk_comparison.BucketComparison(
        folders=comparison.folders,
        buckets=comparison.buckets,
        settings=settings,
        left_out=tuple(whole),
        cut=tuple(large),
        queue=comparison.queue,
        job=comparison.job,
        digests=digests_of_both(comparison, settings) if not large else "",
    )


def _buckets(spark: SparkSession, work: bulk_comparison.BucketComparison) -> DataFrame:
    """The number of each bucket to compare, one to a task."""
    if not work.job:
        return spark.range(0, work.buckets, 1, work.buckets)
    bucket = bucket_of(as_bytes(work.job), work.buckets)
    return spark.range(bucket, bucket + 1, 1, 1)


def _split_rows(
    comparison: SnapshotComparison[StoredSnapshot], both: DataFrame, whole: list[str], large: list[str]
) -> ComparedRows:
    apart, rest = split_generated(both, large)
    sides = (comparison.expected.manifest.queues, comparison.actual.manifest.queues)
    rows = sum(side[queue].rows for side in sides for queue in large if queue in side)
    grouped = with_shares(apart, rows, bulk_comparison.GENERATED) if large else apart.withColumn("group", sql.lit(""))
    return ComparedRows(both, grouped, rest, whole=whole)


def _insist_on_few(apart: DataFrame, large: list[str]) -> None:
    """Raises UsageProblem where jobs with generated ids of a queue are too many to be compared in one piece."""
    together = apart.where(sql.col("group") == bulk_comparison.GENERATED)
    counted = together.groupBy("queue").count().orderBy("queue").collect() if large else []
    for row in counted:
        if row["count"] > snapshot_comparison.MOST_ROWS_OF_A_WHOLE_QUEUE:
            raise UsageProblem(
                f"queue {row['queue']!r} has {row['count']} rows of jobs with generated ids that belong to flows or "
                "have no equal on the other side",
                hint="give the jobs ids of your own: jobs of two stores can then be matched by id",
            )


def _groups(comparison: SnapshotComparison[StoredSnapshot], rows: ComparedRows, settings: DiffSettings) -> DataFrame:
    """Rows that are compared by queue, with the column `group`, and the jobs that rules need next to them.

    Jobs are most of a store, and so they are looked through only where something asks for one of them.
    """
    shards = max(1, comparison.rows("deduplications") // DEDUPLICATIONS_PER_GROUP)
    loose = _loose(rows, shards)
    parts = [loose, rows.apart.withColumn("owner", sql.coalesce("queue", sql.lit("")))]
    if rows.whole:
        parts.append(rows.both.where(sql.col("queue").isin(rows.whole)).withColumns(_place(bulk_comparison.WHOLE)))
    cut = rows.both.where(~sql.col("queue").isin(rows.whole))
    if not comparison.job:
        parts.append(_examples(cut))
    if comparison.rows("locks") + comparison.rows("deduplications"):
        parts.append(_asked_for(loose, _jobs_in(rows.by_id), few=shards == 1))
    if comparison.rows("markers") and settings.has_rule("worker-clock") and not settings.has_rule("worker-traces"):
        parts.append(_first_delayed(_jobs_in(cut)))
    return reduce(DataFrame.unionByName, parts)


def _jobs_in(rows: DataFrame) -> DataFrame:
    return rows.where(sql.col("table").isin("jobs", "memberships"))


def _examples(rows: DataFrame) -> DataFrame:
    """Jobs that represent all others of their queue, and its settings."""
    parts = (first_members(rows, "side"), largest_ids(rows, "side"), _settings_of(rows))
    return reduce(DataFrame.unionByName, parts).withColumns(_place(bulk_comparison.EXAMPLES))


def _settings_of(rows: DataFrame) -> DataFrame:
    """Rows that the checks of a queue's markers and counters need, other than its jobs."""
    return rows.where(sql.col("table").isin("metas", "markers", "limiters", "counters"))


def _place(group: str) -> dict[str, Column]:
    return {"owner": sql.coalesce(sql.col("queue"), sql.lit("")), "group": sql.lit(group)}


def _loose(rows: ComparedRows, shards: int) -> DataFrame:
    """Rows that belong to no job. Deduplication keys are split into several groups: there may be many."""
    about_queues = sql.col("table").isin(*(table for table in TYPED if table not in bulk_comparison.JOB_TABLES))
    elsewhere = sql.col("queue").isin(rows.whole) & sql.col("queue").isNotNull()
    # Apart, and compared with constants: so Parquet leaves out nearly all events by what it knows of their ids.
    unowned_events = rows.rest.where("table = 'events'").where("id is null or id = ''")
    known = rows.rest.where(about_queues).unionByName(unowned_events)
    found = known.where(~elsewhere).withColumns(_place(bulk_comparison.SHARED))
    shard = sql.concat(sql.lit("dedup-"), sql.pmod(sql.hash("id"), sql.lit(shards)).cast("string"))
    return found.withColumn("group", sql.when(sql.col("table") == "deduplications", shard).otherwise(sql.col("group")))


def _asked_for(loose: DataFrame, candidates: DataFrame, *, few: bool) -> DataFrame:
    """The jobs that locks and deduplication keys name, with their containers, in addition to these."""
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
    return first.select("side", "first.*").withColumns(_place(bulk_comparison.SHARED))


def _moved_jobs(found: DataFrame) -> DataFrame:
    """Queue and id of jobs whose presence or state differs."""
    moved = found.where("locator in ('job', 'membership.state')")
    return moved.select("queue", sql.expr("substring(key, length(queue) + 2)").alias("id"))
