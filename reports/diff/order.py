"""Compare the order of lists, however long: inside Spark, without looking at any list as a whole."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from conformance.observe.differences import severity_of
from conformance.observe.keyspace import LISTS
from reports.diff.table import COLUMNS


def compare_order(expected: DataFrame, actual: DataFrame, moved: DataFrame) -> DataFrame:
    """One difference per list in which jobs that are in it on both sides stand in another order.

    `expected`, `actual`: wide rows. `moved`: queue and id of the jobs whose state differs, or that one side lacks. The
    example shows the first job, from the left, that stands before its left neighbour on the actual side.
    """
    keys = ["queue", "name", "id"]
    left, right = _members(expected, "left_position"), _members(actual, "right_position")
    common = left.join(right, keys).join(moved.distinct(), ["queue", "id"], "left_anti")
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


def _members(rows: DataFrame, position: str) -> DataFrame:
    """Members of lists that are in their list once, with their positions."""
    wanted = rows.where((sql.col("table") == "memberships") & sql.col("name").isin(*LISTS))
    return (
        wanted.groupBy("queue", "name", "id")
        .agg(sql.min("position").alias(position), sql.count("*").alias("n"))
        .where("n = 1")
        .drop("n")
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
    return found.select(*(values[name].alias(name) for name in COLUMNS))
