"""The roll-up of a diff: counts from the run down to single fields, examples, and how to look closer."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from reports.diff.local_diff import LocalDiff
from reports.diff.plan import Compared
from reports.diff.snapshot_comparison import SnapshotComparison, trimmed_queues
from reports.diff.values import DIFFERENCE_CLASSES, DIFFERENCE_COLUMNS, readable
from reports.snapshot.format import SnapshotFolder
from reports.snapshot.spark_rows import StoredSnapshot

LEVELS = ("queue", "state", "class", "locator")
"""From the whole run to a single field of a hash (the locator names it); below that are the keys, in Parquet."""

_TO_CLASS = LEVELS.index("class") + 1

EXAMPLES = 20
"""Differences of each class that reports show in full."""

MOST_ROLLUP_LINES = 2000
"""Lines of the roll-up in a report. If there are more, they are left out; the counts above them still sum."""


_ABOUT_JOBS = frozenset({"job", "lock", "event", "log", "dependency"})
"""The beginnings of locators that are about one job."""


class RollupLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the roll-up: the values of the first levels (`path`), and how many differences lie below it."""

    path: list[str]
    count: int


class DiffExample(msgspec.Struct, frozen=True, kw_only=True, rename={"class_": "class"}):
    """A difference. `look_closer`: the command that shows both sides of this job."""

    class_: str
    kind: str
    severity: str
    locator: str
    queue: str
    state: str
    key: str
    field: str
    expected: str
    actual: str
    look_closer: str


class DiffSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a diff.

    `rollup`: every line of every level, the whole run first; the counts of the lines below a line sum to its own.
    `trimmed`: queues whose older events one side has no longer, so that events of most jobs could not be compared.
    `hidden`: how many values differ for a reason that a rule gives, by rule.
    """

    expected: str
    actual: str
    jobs: tuple[int, int]
    total: int
    by_class: dict[str, int]
    rollup: list[RollupLine]
    examples: list[DiffExample]
    trimmed: list[str]
    switched_off: list[str]
    hidden: dict[str, int] = {}


def summarise(comparison: SnapshotComparison[SnapshotFolder], compared: Compared) -> DiffSummary:
    """Count and choose examples; only these come to the driver."""
    found = compared.found
    lines = rollup_of(found)
    by_class = _by_class(found, lines)
    classes = [name for name in DIFFERENCE_CLASSES if name in by_class]
    return _summary(comparison, lines, by_class, first_of_each(found, "class", classes), compared.hidden)


def summarise_local(comparison: SnapshotComparison[SnapshotFolder], compared: LocalDiff) -> DiffSummary:
    """The same of differences that are all here."""
    paths = Counter(
        tuple(each[level] for level in LEVELS[:depth]) for each in compared.found for depth in range(len(LEVELS) + 1)
    )
    lines = [RollupLine(path=list(path), count=count) for path, count in paths.most_common(MOST_ROLLUP_LINES)]
    by_class = dict(Counter(each["class"] for each in compared.found))
    ordered = sorted(
        compared.found,
        key=lambda each: (DIFFERENCE_CLASSES.index(each["class"]), each["key"], each["locator"], each["field"]),
    )
    examples = [each for _, of_one in groupby(ordered, key=itemgetter("class")) for each in islice(of_one, EXAMPLES)]
    return _summary(comparison, in_tree_order(lines), by_class, examples, compared.hidden)


def _summary(
    comparison: SnapshotComparison[SnapshotFolder],
    lines: list[RollupLine],
    by_class: Mapping[str, int],
    examples: Iterable[Mapping[str, Any]],
    hidden: dict[str, int],
) -> DiffSummary:
    return DiffSummary(
        expected=comparison.expected.name,
        actual=comparison.actual.name,
        jobs=(comparison.expected.manifest.jobs, comparison.actual.manifest.jobs),
        total=sum(by_class.values()),
        by_class={name: by_class[name] for name in DIFFERENCE_CLASSES if name in by_class},
        rollup=lines,
        examples=[_example(comparison, row) for row in examples],
        trimmed=trimmed_queues(comparison),
        switched_off=list(comparison.switched_off),
        hidden=hidden,
    )


class BrokenExample(msgspec.Struct, frozen=True, kw_only=True):
    """A place at which a store breaks a check. `locator`: which part of the key."""

    check: str
    severity: str
    key: str
    locator: str
    message: str


class CheckSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The places of one store that break a check, counted by check, with examples of each."""

    snapshot: str
    jobs: int
    total: int
    by_check: dict[str, int]
    examples: list[BrokenExample]


def summarise_checks(stored: StoredSnapshot, found: DataFrame) -> CheckSummary:
    """Count and choose examples; only these come to the driver."""
    broken = found.persist()
    by_check = {row["kind"]: row["count"] for row in broken.groupBy("kind").count().orderBy("kind").collect()}
    rows = first_of_each(broken, "kind", list(by_check))
    broken.unpersist()
    return CheckSummary(
        snapshot=stored.name,
        jobs=stored.manifest.jobs,
        total=sum(by_check.values()),
        by_check=by_check,
        examples=[
            BrokenExample(
                check=row["kind"],
                severity=row["severity"],
                key=row["key"],
                locator=row["field"],
                message=row["actual"],
            )
            for row in rows
        ],
    )


def rollup_of(found: DataFrame) -> list[RollupLine]:
    """Counts of all levels, in the order of a tree: each line before those below it, larger ones first."""
    counted = found.rollup(*LEVELS).agg(sql.count("*").alias("n"), sql.grouping_id().alias("left_out"))
    rows = counted.orderBy(sql.desc("n")).limit(MOST_ROLLUP_LINES).collect()
    depth = {2**missing - 1: len(LEVELS) - missing for missing in range(len(LEVELS) + 1)}
    lines = [
        RollupLine(path=[row[level] or "" for level in LEVELS[: depth[row["left_out"]]]], count=row["n"])
        for row in rows
    ]
    return in_tree_order(lines)


def _by_class(found: DataFrame, lines: Sequence[RollupLine]) -> dict[str, int]:
    """Differences of each class: from the roll-up where it has all lines, else counted."""
    if len(lines) == MOST_ROLLUP_LINES:
        return {row["class"]: row["count"] for row in found.groupBy("class").count().collect()}
    summed: Counter[str] = Counter()
    for line in lines:
        if len(line.path) == _TO_CLASS:
            summed[line.path[-1]] += line.count
    return dict(summed)


def in_tree_order(lines: Sequence[RollupLine]) -> list[RollupLine]:
    """Each line before those below it, larger ones first."""
    counts = {tuple(line.path): line.count for line in lines}

    def key(line: RollupLine) -> tuple[tuple[int, str], ...]:
        return tuple(
            (-counts.get(tuple(line.path[: depth + 1]), 0), line.path[depth]) for depth in range(len(line.path))
        )

    return sorted(lines, key=key)


def first_of_each(found: DataFrame, column: str, values: Sequence[str]) -> list[dict[str, Any]]:
    """A few differences with each of these values in a column, in the order of the values and of their keys."""
    if not values:
        return []
    of_one = Window.partitionBy(column).orderBy("key", "locator", "field")
    numbered = found.withColumn("number", sql.row_number().over(of_one))
    rows = [row.asDict() for row in numbered.where(sql.col("number") <= EXAMPLES).collect()]
    return sorted(rows, key=lambda row: (values.index(row[column]), row["number"]))


def _example(comparison: SnapshotComparison[SnapshotFolder], row: Mapping[str, Any]) -> DiffExample:
    values = {column: readable(row[column] or "") for column in DIFFERENCE_COLUMNS}
    sides = (comparison.expected.name, comparison.actual.name)
    command = look_closer(*sides, values["queue"], values["locator"], values["key"])
    return DiffExample(class_=values.pop("class"), look_closer=command, **values)


def look_closer(expected: str, actual: str, queue: str, locator: str, key: str) -> str:
    """The command that shows both sides of the job that a difference is about, or of its queue."""
    words = ["bullmq-conformance", "diff", expected, actual, *(["--queue", queue] if queue else [])]
    is_about_job = locator == "membership.state" or locator.partition(".")[0] in _ABOUT_JOBS
    if is_about_job and key.startswith(f"{queue}:"):
        words += ["--job", key.removeprefix(f"{queue}:")]
    return shlex.join(words)
