"""The roll-up of a diff: counts from the run down to single fields, examples, and how to look closer."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from reports.diff.snapshot_comparison import SnapshotComparison, trimmed_queues
from reports.diff.tally import LEVELS, DifferenceTally
from reports.diff.values import DIFFERENCE_CLASSES, DIFFERENCE_COLUMNS, readable

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


def summarise(comparison: SnapshotComparison, found: DifferenceTally) -> DiffSummary:
    """The outcome as reports have it."""
    return DiffSummary(
        expected=comparison.expected.name,
        actual=comparison.actual.name,
        jobs=(comparison.expected.manifest.jobs, comparison.actual.manifest.jobs),
        total=found.total,
        by_class={name: found.counts[name] for name in DIFFERENCE_CLASSES if name in found.counts},
        rollup=rollup_of(found),
        examples=[_example(comparison, row) for name in DIFFERENCE_CLASSES for row in found.examples.get(name, ())],
        trimmed=trimmed_queues(comparison),
        switched_off=list(comparison.switched_off),
        hidden=found.hidden_by_rule(),
    )


def rollup_of(found: DifferenceTally) -> list[RollupLine]:
    """Counts of all levels, in the order of a tree: each line before those below it, larger ones first."""
    paths: Counter[tuple[str, ...]] = Counter()
    for path, count in found.paths.items():
        for depth in range(len(LEVELS) + 1):
            paths[path[:depth]] += count
    lines = [
        RollupLine(path=[readable(part) for part in path], count=count)
        for path, count in paths.most_common(MOST_ROLLUP_LINES)
    ]
    return in_tree_order(lines)


def in_tree_order(lines: Sequence[RollupLine]) -> list[RollupLine]:
    """Each line before those below it, larger ones first."""
    counts = {tuple(line.path): line.count for line in lines}

    def key(line: RollupLine) -> tuple[tuple[int, str], ...]:
        return tuple(
            (-counts.get(tuple(line.path[: depth + 1]), 0), line.path[depth]) for depth in range(len(line.path))
        )

    return sorted(lines, key=key)


def _example(comparison: SnapshotComparison, row: Mapping[str, Any]) -> DiffExample:
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
