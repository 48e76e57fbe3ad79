"""Jobs with generated ids in queues that are too large to be compared as a whole.

Generated ids (uuids, iterations of schedulers) differ between two equal stores, so these jobs are compared in one
piece, where `reports.diff.pairing` matches them by content. Rows that name them (parents, locks, deduplication keys)
are in the same piece. Jobs with uuids that no other row names, and of which both sides have equally many with the same
content, are compared in shares. Every other job of such a queue is compared by its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from reports.diff.columns import keys_of
from reports.snapshot.format import GENERATED_CHILD, GENERATED_ID, UUID_TEXT
from reports.snapshot.rows import as_bytes


def without_generated(sides: Sequence[Mapping[str, pa.Table]], queues: Sequence[str]) -> list[dict[str, pa.Table]]:
    """The rows of a bucket, by table, without the jobs of these queues that are compared separately.

    A parent is separated on both sides if it has a child with a generated id on one of them.
    """
    if not queues:
        return [dict(side) for side in sides]
    parents = pa.concat_arrays([_parents_in(side["dependencies"]) for side in sides])
    named = pa.array([as_bytes(queue) for queue in queues], pa.binary())
    return [
        {table: rows.filter(_is_known_by_id(rows, named, parents)) for table, rows in side.items()} for side in sides
    ]


def _parents_in(dependencies: pa.Table) -> pa.Array:
    """Keys of the jobs that have children with generated ids."""
    children = dependencies.column("key").combine_chunks().view(pa.binary())
    return keys_of(
        dependencies.filter(pc.fill_null(pc.match_substring_regex(children, GENERATED_CHILD), fill_value=False))
    )


def _is_known_by_id(rows: pa.Table, queues: pa.Array, parents: pa.Array) -> pa.Array:
    queue, job = (rows.column(name).combine_chunks().view(pa.binary()) for name in ("queue", "id"))
    generated = pc.or_(pc.match_substring_regex(job, GENERATED_ID), pc.is_in(keys_of(rows), value_set=parents))
    return pc.invert(pc.and_(pc.is_in(queue, value_set=queues), generated))


def split_generated(rows: DataFrame, queues: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """The rows of both sides that belong to the separated jobs, and all others. `rows`: with the column `side`.

    Schedulers are separated together with their iterations, which are matched by time.
    """
    if not queues:
        return rows.limit(0), rows
    parents = rows.where(sql.col("queue").isin(*queues) & (sql.col("table") == "dependencies"))
    parents = parents.where(sql.col("key").rlike(GENERATED_CHILD)).select("queue", "id").distinct()
    marked = rows.join(parents.withColumn("is_parent", sql.lit(True)), ["queue", "id"], "left")
    is_apart = sql.col("queue").isin(*queues) & (sql.col("is_parent").isNotNull() | _names_generated())
    split = marked.withColumn("is_apart", sql.coalesce(is_apart, sql.lit(False)))
    return (
        split.where("is_apart").select(rows.columns),
        split.where("not is_apart").select(rows.columns),
    )


JOBS_TOGETHER = 500
"""Jobs of the same content of one side that come into one share."""

ROWS_PER_SHARE = 50_000

_OWN_TABLES = ("jobs", "memberships", "events", "logs")
"""Tables of what a job has for itself."""

_NOT_CONTENT = ("timestamp", "processedOn", "finishedOn", "stacktrace", "opts")
"""Fields that two runs write differently, and the options, whose order depends on the language."""


def with_shares(apart: DataFrame, rows: int, group: str) -> DataFrame:
    """The rows of the separated jobs with the column `group`: which of them are compared together.

    Of jobs with the same content both sides have as many in the same share (`group` and a number), so that each meets
    its partner there. Flows, iterations, holders of locks and deduplication keys, and jobs that only one side has in
    this form, are all in the one group without a number. `rows`: how many rows there may be.
    """
    jobs = _content_of_jobs(apart)
    of_content = Window.partitionBy("side", "queue", "content").orderBy("first_ms", "id")
    numbered = jobs.withColumn("number", sql.row_number().over(of_content))
    counts = jobs.groupBy("queue", "content").agg(
        sql.least(sql.count_if(sql.col("side") == 0), sql.count_if(sql.col("side") == 1)).alias("common")
    )
    matched = numbered.join(counts, ["queue", "content"]).where(sql.col("number") <= sql.col("common"))
    batch = sql.floor((sql.col("number") - 1) / JOBS_TOGETHER)
    share = sql.pmod(sql.hash("content", batch), sql.lit(rows // ROWS_PER_SHARE + 1))
    named = matched.select("side", "queue", "id", sql.concat(sql.lit(f"{group}-"), share.cast("string")).alias("group"))
    return apart.join(named, ["side", "queue", "id"], "left").withColumn("group", sql.coalesce("group", sql.lit(group)))


def _content_of_jobs(apart: DataFrame) -> DataFrame:
    """A checksum of each job that no other row names: hash without times, containers, names of events, logs.

    Columns: `side`, `queue`, `id`, `content`, and `first_ms`, its timestamp.
    """
    is_job = sql.col("table") == "jobs"
    options = sql.from_json(sql.col("fields")["opts"], "map<string,string>")
    hashes = (sql.map_filter("fields", lambda name, _: ~name.isin(*_NOT_CONTENT)), options)
    texts = [sql.when(is_job, sql.to_json(sql.array_sort(sql.map_entries(each)))) for each in hashes]
    logged = sql.when(sql.col("table") == "logs", sql.col("value"))
    text = sql.regexp_replace(sql.concat_ws("\n", "table", "name", *texts, logged), UUID_TEXT, "")
    is_alone = sql.col("table").isin(*_OWN_TABLES) & sql.col("id").rlike(f"^{UUID_TEXT}$")
    in_flow = is_job & (sql.col("fields")["parentKey"].isNotNull())
    owners = apart.where("table = 'deduplications'").select("side", "queue", sql.col("value").alias("id")).distinct()
    return (
        apart.join(owners, ["side", "queue", "id"], "left_anti")
        .groupBy("side", "queue", "id")
        .agg(
            sql.md5(sql.concat_ws("\n", sql.array_sort(sql.collect_list(text)))).alias("content"),
            sql.min(sql.when(is_job, sql.col("fields")["timestamp"].cast("bigint"))).alias("first_ms"),
            sql.bool_and(is_alone & ~in_flow).alias("is_alone"),
        )
        .where("is_alone")
    )


def _names_generated() -> Column:
    """Whether a row is of a job with such an id, of a deduplication key that one owns, or of a scheduler."""
    owned = (sql.col("table") == "deduplications") & sql.col("value").rlike(GENERATED_ID)
    of_job = sql.col("table").isin("jobs", "memberships", "events", "logs", "dependencies", "locks")
    return (sql.col("table") == "schedulers") | owned | (of_job & sql.col("id").rlike(GENERATED_ID))
