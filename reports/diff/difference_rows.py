"""Differences as plain rows, without those that another difference explains (with Spark: `reports.diff.plan`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from conformance.observe.differences import severity_of
from reports.diff.checks import ABOUT_ALL_JOBS
from reports.diff.values import DIFFERENCE_COLUMNS, batch_of_rows
from reports.snapshot.folders import Folder

DifferenceRow: TypeAlias = "Mapping[str, str]"
"""A difference by column."""

RETYPED = "wrong-type"
ABOUT_ALL = tuple(f"invariant.{check.name}" for check in ABOUT_ALL_JOBS)
"""Locators of findings about all jobs of a queue together."""

_PRESENCE = frozenset({"missing-job", "extra-job"})


def by_column(values: Sequence[str]) -> DifferenceRow:
    """Name the values of a row by their columns."""
    return dict(zip(DIFFERENCE_COLUMNS, values, strict=True))


def unexplained(by_queue: Iterable[DifferenceRow], by_job: Iterable[DifferenceRow]) -> list[DifferenceRow]:
    """Return all differences that no other difference explains; those of jobs last."""
    jobs, keys = list(by_job), list(by_queue)
    uneven = {row["queue"] for row in jobs if row["kind"] in _PRESENCE}
    retyped = list(_retyped(jobs, keys))
    places = {row["key"] for row in retyped if row["kind"] == RETYPED and row["locator"] == "job"}
    explained = [
        row
        for row in keys
        if not (_follows_presence(row) and row["queue"] in uneven)
        and not (row["locator"].startswith("unknown.") and row["key"] in places)
    ]
    return [*explained, *retyped]


def _follows_presence(row: DifferenceRow) -> bool:
    """Whether a missing or extra job explains it."""
    locator = row["locator"]
    return locator.startswith(("marker", "counter")) or locator in ABOUT_ALL


def _retyped(by_job: Sequence[DifferenceRow], by_queue: Sequence[DifferenceRow]) -> Iterator[DifferenceRow]:
    """The differences of jobs. If the other side has a key of another type in place of a hash, the type differs."""
    foreign = {
        row["key"]: row["locator"].rpartition(".")[2]
        for row in by_queue
        if row["locator"].startswith("unknown.") and row["kind"] in ("extra-key", "missing-key")
    }
    for row in by_job:
        if row["kind"] in _PRESENCE and row["key"] in foreign:
            types = ("hash", foreign[row["key"]])
            expected, actual = types if row["kind"] == "missing-job" else types[::-1]
            severity = severity_of("job", RETYPED)
            changes = {"class": "type", "kind": RETYPED, "severity": severity, "expected": expected, "actual": actual}
            yield {**row, **changes}
        else:
            yield row


def write_difference_rows(differences: Sequence[DifferenceRow], folder: Folder) -> None:
    """Write differences as Parquet; replaces the content of the folder. Raises OSError."""
    folder.clear()
    rows = batch_of_rows([[row[column] for column in DIFFERENCE_COLUMNS] for row in differences])
    folder.write_table("part-00000.zstd.parquet", pa.Table.from_batches([rows]), compression="zstd")
