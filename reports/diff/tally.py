"""The outcome of a comparison or a check, in memory that does not grow with the number of differences. No Spark."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reports.diff.explanation import PRESENCE, RETYPED, DifferenceRow

LEVELS = ("queue", "state", "class", "locator")
"""From the whole run to a single field of a hash (the locator names it); below that are the keys, in Parquet."""

EXAMPLES = 20
"""Differences of each class that reports show in full."""


@dataclass(kw_only=True)
class DifferenceTally:
    """Counts and examples of differences.

    `paths`: how many differences have these values of LEVELS. `counts`, `examples`: by the value of `by`. `hidden`:
    values that rules hide. `uneven`: queues with a missing or extra job. `retyped`: keys of jobs in whose place the
    other side has a key of another type. `moved`: queue and id of jobs whose presence or state differs.
    """

    by: str = "class"
    paths: Counter[tuple[str, ...]] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    examples: defaultdict[str, list[DifferenceRow]] = field(default_factory=lambda: defaultdict(list))
    hidden: Counter[str] = field(default_factory=Counter)
    uneven: set[str] = field(default_factory=set)
    retyped: set[str] = field(default_factory=set)
    moved: set[tuple[str, str]] = field(default_factory=set)

    def add(self, rows: Sequence[DifferenceRow]) -> None:
        """Count rows."""
        for row in rows:
            self.paths[tuple(row[level] for level in LEVELS)] += 1
            self.counts[row[self.by]] += 1
            if row["kind"] in PRESENCE:
                self.uneven.add(row["queue"])
            if row["kind"] == RETYPED and row["locator"] == "job":
                self.retyped.add(row["key"])
            if row["locator"] in ("job", "membership.state"):
                self.moved.add((row["queue"], row["key"].removeprefix(f"{row['queue']}:")))
        self._keep(rows)

    def merge(self, other: DifferenceTally) -> None:
        """Count everything that another part of the store has."""
        self.paths += other.paths
        self.counts += other.counts
        self.hidden += other.hidden
        self.uneven |= other.uneven
        self.retyped |= other.retyped
        self.moved |= other.moved
        self._keep(row for rows in other.examples.values() for row in rows)

    def _keep(self, rows: Iterable[DifferenceRow]) -> None:
        found: defaultdict[str, list[DifferenceRow]] = defaultdict(list)
        for row in rows:
            found[row[self.by]].append(row)
        for value, listed in found.items():
            self.examples[value] = heapq.nsmallest(EXAMPLES, [*self.examples[value], *listed], key=_place)

    @property
    def total(self) -> int:
        """The number of differences."""
        return self.paths.total()

    def hidden_by_rule(self) -> dict[str, int]:
        """How many values each rule hides, the most first."""
        counted = sorted(self.hidden.items(), key=lambda item: (-item[1], item[0]))
        return {rule: count for rule, count in counted if count}


def _place(row: Mapping[str, str]) -> tuple[str, ...]:
    return row["key"], row["locator"], row["field"]
