"""Differences as plain rows, without those that another difference explains. No Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from conformance.observe.differences import severity_of
from reports.diff.checks import ABOUT_ALL_JOBS
from reports.diff.values import DIFFERENCE_COLUMNS, batch_of_rows
from reports.snapshot.folders import Folder

DifferenceRow: TypeAlias = "Mapping[str, str]"
"""A difference by column."""

DifferenceRows: TypeAlias = "list[DifferenceRow]"

RETYPED = "wrong-type"
ABOUT_ALL = tuple(f"invariant.{check.name}" for check in ABOUT_ALL_JOBS)
"""Locators of findings about all jobs of a queue together."""

PRESENCE = frozenset({"missing-job", "extra-job"})
"""Kinds of differences of a job that only one side has."""


def by_column(values: Sequence[str]) -> DifferenceRow:
    """Name the values of a row by their columns."""
    return dict(zip(DIFFERENCE_COLUMNS, values, strict=True))


def unexplained(by_queue: Iterable[DifferenceRow], uneven: Collection[str], retyped: Collection[str]) -> DifferenceRows:
    """Leave out what another difference explains.

    `uneven`: queues with a missing or extra job, which explains markers and counters. `retyped`: jobs in whose place
    the other side has a key of another type; their difference reports the key.
    """
    return [
        row
        for row in by_queue
        if not (_follows_presence(row) and row["queue"] in uneven)
        and not (row["locator"].startswith("unknown.") and row["key"] in retyped)
    ]


def _follows_presence(row: DifferenceRow) -> bool:
    """Whether a missing or extra job explains it."""
    locator = row["locator"]
    return locator.startswith(("marker", "counter")) or locator in ABOUT_ALL


def with_types(by_job: Iterable[DifferenceRow], foreign: Mapping[str, str]) -> DifferenceRows:
    """The differences of jobs. If the other side has a key of another type in place of a hash, the type differs.

    `foreign`: the types of such keys, by queue and name.
    """
    return [_with_type(row, foreign) for row in by_job]


def _with_type(row: DifferenceRow, foreign: Mapping[str, str]) -> DifferenceRow:
    if row["kind"] not in PRESENCE or row["key"] not in foreign:
        return row
    types = ("hash", foreign[row["key"]])
    expected, actual = types if row["kind"] == "missing-job" else types[::-1]
    severity = severity_of("job", RETYPED)
    return {**row, "class": "type", "kind": RETYPED, "severity": severity, "expected": expected, "actual": actual}


def write_difference_rows(rows: Sequence[DifferenceRow], folder: Folder, name: str) -> None:
    """Write differences as a Parquet file of this name; nothing if there are none. Raises OSError."""
    if rows:
        batch = batch_of_rows([[row[column] for column in DIFFERENCE_COLUMNS] for row in rows])
        folder.write_table(f"{name}.zstd.parquet", pa.Table.from_batches([batch]), compression="zstd")
