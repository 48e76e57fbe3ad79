"""Jobs with generated ids in queues that are too large to be compared as a whole: told apart from all others.

Their ids differ between two stores that are the same (uuids of flows, iterations of schedulers), so the rules have to
see all of them together to tell which is which. With them goes what names them: parents, locks, deduplication keys.
Every other job of such a queue is compared by its id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from reports.diff.columns import keys_of
from reports.snapshot.format import GENERATED_CHILD, GENERATED_ID
from reports.snapshot.rows import as_bytes


def without_generated(sides: Sequence[Mapping[str, pa.Table]], queues: Sequence[str]) -> list[dict[str, pa.Table]]:
    """The rows of a bucket, by table, without the jobs of these queues that are told apart.

    A parent is told apart on both sides if one of them has a child of it with a generated id.
    """
    if not queues:
        return [dict(side) for side in sides]
    parents = pa.concat_arrays([_parents_in(side["dependencies"]) for side in sides])
    named = pa.array([as_bytes(queue) for queue in queues], pa.binary())
    return [
        {table: rows.filter(_is_told_by_id(rows, named, parents)) for table, rows in side.items()} for side in sides
    ]


def _parents_in(dependencies: pa.Table) -> pa.Array:
    """Keys of the jobs that have children with generated ids."""
    children = dependencies.column("key").combine_chunks().view(pa.binary())
    return keys_of(
        dependencies.filter(pc.fill_null(pc.match_substring_regex(children, GENERATED_CHILD), fill_value=False))
    )


def _is_told_by_id(rows: pa.Table, queues: pa.Array, parents: pa.Array) -> pa.Array:
    queue, job = (rows.column(name).combine_chunks().view(pa.binary()) for name in ("queue", "id"))
    generated = pc.or_(pc.match_substring_regex(job, GENERATED_ID), pc.is_in(keys_of(rows), value_set=parents))
    return pc.invert(pc.and_(pc.is_in(queue, value_set=queues), generated))


def tell_apart(rows: DataFrame, queues: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """The rows of both sides that belong to the jobs told apart, and all others. `rows`: with the column `side`.

    The schedulers of these queues go with their iterations, whose times tell which is which.
    """
    if not queues:
        return rows.limit(0), rows
    parents = rows.where(sql.col("queue").isin(*queues) & (sql.col("table") == "dependencies"))
    parents = parents.where(sql.col("key").rlike(GENERATED_CHILD)).select("queue", "id").distinct()
    marked = rows.join(parents.withColumn("is_parent", sql.lit(True)), ["queue", "id"], "left")
    is_apart = sql.col("queue").isin(*queues) & (sql.col("is_parent").isNotNull() | _names_generated())
    told = marked.withColumn("is_apart", sql.coalesce(is_apart, sql.lit(False)))
    return (
        told.where("is_apart").select(rows.columns),
        told.where("not is_apart").select(rows.columns),
    )


def _names_generated() -> Column:
    """Whether a row is of a job with such an id, of a deduplication key that one owns, or of a scheduler."""
    owned = (sql.col("table") == "deduplications") & sql.col("value").rlike(GENERATED_ID)
    of_job = sql.col("table").isin("jobs", "memberships", "events", "logs", "dependencies", "locks")
    return (sql.col("table") == "schedulers") | owned | (of_job & sql.col("id").rlike(GENERATED_ID))
