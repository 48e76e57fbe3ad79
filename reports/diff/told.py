"""Differences as plain rows: which of them explain others, as `reports.diff.plan` tells it in Spark. No Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from conformance.observe.differences import severity_of
from reports.diff.broken import ABOUT_ALL_JOBS
from reports.diff.values import DIFFERENCE_COLUMNS, batch_of_rows
from reports.snapshot.folders import Folder

ToldDifference: TypeAlias = "Mapping[str, str]"
"""A difference by column."""

RETYPED = "wrong-type"
ABOUT_ALL = tuple(f"invariant.{check.name}" for check in ABOUT_ALL_JOBS)
"""Places of what the checks say of all jobs of a queue together."""

_PRESENCE = frozenset({"missing-job", "extra-job"})


def told(row: Sequence[str]) -> ToldDifference:
    """A row of values by column."""
    return dict(zip(DIFFERENCE_COLUMNS, row, strict=True))


def together(by_queue: Iterable[ToldDifference], by_job: Iterable[ToldDifference]) -> list[ToldDifference]:
    """All differences but those that another one explains; those of jobs last."""
    jobs, keys = list(by_job), list(by_queue)
    uneven = {each["queue"] for each in jobs if each["kind"] in _PRESENCE}
    retyped = list(_retyped(jobs, keys))
    places = {each["key"] for each in retyped if each["kind"] == RETYPED and each["locator"] == "job"}
    explained = [
        each
        for each in keys
        if not (_follows_presence(each) and each["queue"] in uneven)
        and not (each["locator"].startswith("unknown.") and each["key"] in places)
    ]
    return [*explained, *retyped]


def _follows_presence(each: ToldDifference) -> bool:
    """Whether a job too few or too many explains it."""
    locator = each["locator"]
    return locator.startswith(("marker", "counter")) or locator in ABOUT_ALL


def _retyped(by_job: Sequence[ToldDifference], by_queue: Sequence[ToldDifference]) -> Iterator[ToldDifference]:
    """The differences of jobs; a hash in whose place the other side has a key of another type is one of type."""
    foreign = {
        each["key"]: each["locator"].rpartition(".")[2]
        for each in by_queue
        if each["locator"].startswith("unknown.") and each["kind"] in ("extra-key", "missing-key")
    }
    for each in by_job:
        if each["kind"] in _PRESENCE and each["key"] in foreign:
            types = ("hash", foreign[each["key"]])
            expected, actual = types if each["kind"] == "missing-job" else types[::-1]
            severity = severity_of("job", RETYPED)
            changes = {"class": "type", "kind": RETYPED, "severity": severity, "expected": expected, "actual": actual}
            yield {**each, **changes}
        else:
            yield each


def write_told(found: Sequence[ToldDifference], folder: Folder) -> None:
    """Keep differences as Parquet, in place of what is there. Raises OSError."""
    folder.clear()
    rows = batch_of_rows([[each[column] for column in DIFFERENCE_COLUMNS] for each in found])
    folder.write_table("part-00000.zstd.parquet", pa.Table.from_batches([rows]), compression="zstd")
