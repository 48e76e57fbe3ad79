"""What a history check says, for people and for CI: counts by check, examples, JUnit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql
from rich.console import Console
from rich.table import Table

from reports.history.judging import CHECKS
from reports.render.junit import Outcome, junit_text

EXAMPLES = 20
"""Findings of each check that are shown."""

FILE = "history.json"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A finding. `evidence`: lines of the history, as JSON."""

    check: str
    job: str
    message: str
    evidence: str


class HistoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome: findings by check (all checks, also those without any), and examples of them."""

    history: str
    snapshot: str
    by_check: dict[str, int]
    examples: list[Shown]

    @property
    def total(self) -> int:
        """Number of findings."""
        return sum(self.by_check.values())


def result_of(found: DataFrame, history: str, snapshot: str) -> HistoryResult:
    """Count, and take examples; only these come to the driver."""
    kept = found.persist()
    counts = {row["check"]: row["count"] for row in kept.groupBy("check").count().collect()}
    within = Window.partitionBy("check").orderBy("job", "message")
    rows = kept.withColumn("n", sql.row_number().over(within)).where(sql.col("n") <= EXAMPLES).drop("n").collect()
    return HistoryResult(
        history=history,
        snapshot=snapshot,
        by_check={check.name: counts.get(check.name, 0) for check in CHECKS},
        examples=[Shown(**row.asDict()) for row in rows],
    )


def write_history_reports(folder: Path, result: HistoryResult) -> list[Path]:
    """Write `history.json` and `junit.xml`; answers their paths."""
    outcomes = [
        Outcome(
            name=check,
            failure=f"{count} findings" if count else "",
            details="\n".join(f"{each.job}: {each.message}" for each in result.examples if each.check == check),
        )
        for check, count in result.by_check.items()
    ]
    written = {
        FILE: msgspec.json.format(msgspec.json.encode(result), indent=1).decode() + "\n",
        "junit.xml": junit_text("history", outcomes),
    }
    for name, content in written.items():
        (folder / name).write_text(content, "utf-8")
    return [folder / name for name in written]


def print_history(result: HistoryResult, console: Console) -> None:
    """Show the outcome and an example of each check that failed."""
    told = f"{result.total:,} findings" if result.total else "No findings: every job had a life that it may have."
    console.print(told, style="bold red" if result.total else "bold green", highlight=False)
    table: Any = Table("check", "findings", "job", "example", box=None, pad_edge=False)
    for check, count in result.by_check.items():
        first = next((each for each in result.examples if each.check == check), None)
        table.add_row(check, f"{count:,}", first.job if first else "", first.message if first else "")
    console.print(table)
