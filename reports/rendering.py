"""The reports of a load, a diff and a history check, each computed from its result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from conformance.protocol.states import UNFINISHED_CONTAINERS
from reports.diff.summary import DiffSummary
from reports.diff.values import DIFFERENCE_CLASSES
from reports.documents import (
    JunitCase,
    backlog_chart,
    class_chart,
    html_page,
    junit_text,
    latency_chart,
    markdown_text,
    throughput_chart,
    write_index,
)
from reports.history import HistoryResult
from reports.load.measurements import MEANINGS, PERCENTILES, LoadResult

LOAD_PAGE = "load.html"
_SEEN = "from the event's entry in the stream to the moment at which a reader of the stream had it"


def write_load_reports(folder: Path, result: LoadResult) -> list[Path]:
    """Write `load.html`, `load.md`, `junit.xml` and the index of the folder above; returns their paths."""
    names = [f"{percentile:g}" for percentile in PERCENTILES]
    html, markdown, junit = folder / LOAD_PAGE, folder / "load.md", folder / "junit.xml"
    html.write_text(load_page(result, names), "utf-8")
    markdown.write_text(markdown_text("load.md", result=result, percentiles=names), "utf-8")
    junit.write_text(junit_text("load", load_cases(result)), "utf-8")
    return [html, markdown, junit, write_index(folder.parent)]


def load_cases(result: LoadResult) -> list[JunitCase]:
    """What a load has to achieve: all jobs added, and where there are workers, nothing left to do."""
    planned, added = result.workload.jobs, result.produced.jobs
    left = {name: count for name, count in result.final.items() if name in UNFINISHED_CONTAINERS and count}
    return [
        JunitCase(
            name="all jobs added",
            failure="" if added == planned else f"{added} of {planned} jobs were added",
            seconds=result.produced.seconds,
        ),
        *([_finished(result, left)] if result.workers else []),
    ]


def _finished(result: LoadResult, left: Mapping[str, int]) -> JunitCase:
    waiting = ", ".join(f"{name} {count}" for name, count in left.items())
    return JunitCase(
        name="all jobs finished",
        failure=f"{sum(left.values())} jobs are left" if left else "",
        details=waiting,
        seconds=result.finished.seconds,
    )


def load_page(result: LoadResult, names: list[str]) -> str:
    """The page about one load."""
    return html_page(
        "load.html",
        result=result,
        percentiles=names,
        meanings={**MEANINGS, "finished-to-seen": _SEEN},
        throughput=throughput_chart(result.series),
        backlog=backlog_chart(result.series),
        latency=latency_chart(result.latencies),
    )


DIFF_PAGE = "diff.html"
DIFF_FILE = "diff.json"


def verdict_of(summary: DiffSummary) -> str:
    """The outcome in one line."""
    if not summary.total:
        return "No differences: both stores hold the same."
    differences = "difference" if summary.total == 1 else "differences"
    return f"{summary.total:,} {differences}, by class: {', '.join(summary.by_class)}."


def write_diff_reports(folder: Path, summary: DiffSummary) -> list[Path]:
    """Write all reports into the folder, and the index of the folder above; returns their paths."""
    verdict = verdict_of(summary)
    written = {
        DIFF_PAGE: html_page("diff.html", summary=summary, verdict=verdict, chart=class_chart(summary.by_class)),
        "diff.md": markdown_text("diff.md", summary=summary, verdict=verdict),
        DIFF_FILE: msgspec.json.format(msgspec.json.encode(summary), indent=1).decode() + "\n",
        "junit.xml": diff_junit(summary),
    }
    for name, content in written.items():
        (folder / name).write_text(content, "utf-8")
    return [*(folder / name for name in written), write_index(folder.parent)]


def diff_junit(summary: DiffSummary) -> str:
    """One test case per class: it fails where there are differences of that class."""
    return junit_text("diff", (_diff_case(summary, name) for name in DIFFERENCE_CLASSES))


def _diff_case(summary: DiffSummary, name: str) -> JunitCase:
    lines = [
        f"{example.key} {example.locator}: expected {example.expected}, got {example.actual}"
        for example in summary.examples
        if example.class_ == name
    ]
    failure = f"{summary.by_class[name]} differences" if name in summary.by_class else ""
    return JunitCase(name=name, failure=failure, details="\n".join(lines))


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


HISTORY_FILE = "history.json"


def write_history_reports(folder: Path, result: HistoryResult) -> list[Path]:
    """Write `history.json` and `junit.xml`; returns their paths."""
    outcomes = [
        JunitCase(
            name=check,
            failure=f"{count} findings" if count else "",
            details="\n".join(
                f"{finding.job}: {finding.message}" for finding in result.examples if finding.check == check
            ),
        )
        for check, count in result.by_check.items()
    ]
    written = {
        HISTORY_FILE: msgspec.json.format(msgspec.json.encode(result), indent=1).decode() + "\n",
        "junit.xml": junit_text("history", outcomes),
    }
    for name, content in written.items():
        (folder / name).write_text(content, "utf-8")
    return [folder / name for name in written]


def print_history(result: HistoryResult, console: Console) -> None:
    """Show the outcome and an example of each check that failed."""
    verdict = f"{result.total:,} findings" if result.total else "No findings: every job had a life that it may have."
    console.print(verdict, style="bold red" if result.total else "bold green", highlight=False)
    table: Any = Table("check", "findings", "job", "example", box=None, pad_edge=False)
    for check, count in result.by_check.items():
        first = next((finding for finding in result.examples if finding.check == check), None)
        table.add_row(check, f"{count:,}", first.job if first else "", first.message if first else "")
    console.print(table)
