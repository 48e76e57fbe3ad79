"""Two snapshots to compare, and all that follows from their manifests before a row is read. No Spark."""

from __future__ import annotations

from dataclasses import dataclass

from reports.diff.values import DiffSettings, DiffSide
from reports.snapshot.digests.rows import DigestedFolder, digested
from reports.snapshot.folders import Folder
from reports.snapshot.format import SnapshotFolder

MOST_ROWS_OF_A_WHOLE_QUEUE = 100_000
"""Rows of both sides that are compared in one piece: of a queue with generated ids, or only of its jobs with one."""


@dataclass(frozen=True, kw_only=True)
class SnapshotComparison:
    """Two snapshots, and how to compare them. `folder` is where the differences go, as Parquet."""

    expected: SnapshotFolder
    actual: SnapshotFolder
    folder: Folder
    switched_off: tuple[str, ...] = ()
    queue: str = ""
    job: str = ""

    @property
    def sides(self) -> tuple[SnapshotFolder, SnapshotFolder]:
        """Expected and actual."""
        return self.expected, self.actual

    @property
    def folders(self) -> tuple[DigestedFolder, DigestedFolder]:
        """Both, to be read in the same number of buckets."""
        return digested(self.expected, self.buckets), digested(self.actual, self.buckets)

    @property
    def buckets(self) -> int:
        """In how many buckets both can be read."""
        return min(side.manifest.buckets for side in self.sides)

    def rows(self, table: str) -> int:
        """How many rows the side has that has more."""
        return max(side.manifest.rows.get(table, 0) for side in self.sides)


def settings_of(comparison: SnapshotComparison) -> DiffSettings:
    """The facts that the rules need. Raises UsageProblem for an unknown rule."""
    expected, actual = (
        DiffSide(prefix=kept.manifest.prefix, taken_ms=kept.manifest.until_ms) for kept in comparison.sides
    )
    settings = DiffSettings(
        expected=expected,
        actual=actual,
        switched_off=comparison.switched_off,
        trimmed=frozenset(trimmed_queues(comparison)),
    )
    settings.rules()
    return settings


def trimmed_queues(comparison: SnapshotComparison) -> list[str]:
    """Queues whose older events one side has no longer."""
    names = {
        name for side in comparison.sides for name, facts in side.manifest.queues.items() if not facts.events_complete
    }
    return sorted(names)


def queues_with_generated_ids(comparison: SnapshotComparison) -> tuple[list[str], list[str]]:
    """Queues with ids that rules rename: those to be compared as a whole, and those that are too large for that."""
    sides = [kept.manifest.queues for kept in comparison.sides]
    names = {name for side in sides for name, facts in side.items() if facts.generated_ids}
    names &= {comparison.queue} if comparison.queue else names
    rows = {name: sum(side[name].rows for side in sides if name in side) for name in sorted(names)}
    large = [name for name, count in rows.items() if count > MOST_ROWS_OF_A_WHOLE_QUEUE]
    return [name for name in rows if name not in large], large
