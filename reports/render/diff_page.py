"""The reports of a diff: terminal, HTML, markdown, JSON, JUnit. Each is computed from the summary."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from reports.diff.summary import DiffSummary
from reports.diff.table import CLASSES
from reports.render.charts import class_chart
from reports.render.index import write_index
from reports.render.junit import Outcome, junit_text
from reports.render.pages import page, text

PAGE = "diff.html"
FILE = "diff.json"


def verdict_of(summary: DiffSummary) -> str:
    """The outcome in one line."""
    if not summary.total:
        return "No differences: both stores hold the same."
    differences = "difference" if summary.total == 1 else "differences"
    return f"{summary.total:,} {differences}, by class: {', '.join(summary.by_class)}."


def write_diff_reports(folder: Path, summary: DiffSummary) -> list[Path]:
    """Write all reports into the folder, and the index of the folder above; answers their paths."""
    verdict = verdict_of(summary)
    written = {
        PAGE: page("diff.html", summary=summary, verdict=verdict, chart=class_chart(summary.by_class)),
        "diff.md": text("diff.md", summary=summary, verdict=verdict),
        FILE: msgspec.json.format(msgspec.json.encode(summary), indent=1).decode() + "\n",
        "junit.xml": junit(summary),
    }
    for name, content in written.items():
        (folder / name).write_text(content, "utf-8")
    return [*(folder / name for name in written), write_index(folder.parent)]


def junit(summary: DiffSummary) -> str:
    """One test case per class: it fails where there are differences of that class."""
    return junit_text("diff", (_outcome(summary, name) for name in CLASSES))


def _outcome(summary: DiffSummary, name: str) -> Outcome:
    shown = (example for example in summary.examples if example.class_ == name)
    lines = [f"{each.key} {each.locator}: expected {each.expected}, got {each.actual}" for each in shown]
    failure = f"{summary.by_class[name]} differences" if name in summary.by_class else ""
    return Outcome(name=name, failure=failure, details="\n".join(lines))


def print_diff(summary: DiffSummary, console: Console) -> None:
    """Show the outcome, the classes, and one example of each."""
    console.print(verdict_of(summary), style="bold red" if summary.total else "bold green", highlight=False)
    if not summary.total:
        return
    table = Table("class", "count", "example", "expected", "actual", box=None, pad_edge=False)
    for name, count in summary.by_class.items():
        first = next(example for example in summary.examples if example.class_ == name)
        table.add_row(name, f"{count:,}", f"{first.locator} at {first.key}", first.expected, first.actual)
    console.print(table)
