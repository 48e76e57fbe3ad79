"""The reports of a diff, a check and a history, each computed from its result."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup
from rich.console import Console
from rich.table import Table

from conformance.pages.junit import JunitCase, JunitSuite, junit_check, junit_document
from conformance.pages.page import html_page, markdown_text
from conformance.pages.terminal import terminal_line, terminal_text
from reports.check.store_check import ALL_CHECKS
from reports.check.summary import CheckSummary
from reports.diff.summary import DiffSummary
from reports.diff.values import DIFFERENCE_CLASSES
from reports.history import HistoryResult

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
        DIFF_PAGE: html_page("reports", "diff.html", summary=summary, verdict=verdict, chart=_chart_of(summary)),
        "diff.md": markdown_text(
            "reports", "diff.md", summary=summary, verdict=verdict, trimmed=list(map(terminal_line, summary.trimmed))
        ),
        DIFF_FILE: msgspec.json.format(msgspec.json.encode(summary), indent=1).decode() + "\n",
        "junit.xml": diff_junit(summary),
    }
    for name, content in written.items():
        (folder / name).write_text(content, "utf-8")
    return [*(folder / name for name in written), _index_of(folder)]


def _chart_of(summary: DiffSummary) -> Markup | None:
    """The differences by class; None where there are none."""
    if not summary.total:
        return None
    from reports.charts import class_chart  # noqa: PLC0415 - matplotlib comes with it, and takes a second

    return class_chart(summary.by_class)


def _index_of(folder: Path) -> Path:
    """Write the index of all runs next to the folder."""
    from reports.index import write_index  # noqa: PLC0415 - pandas comes with it, and takes a second

    return write_index(folder.parent)


def junit_text(suite: str, cases: Iterable[JunitCase]) -> str:
    """A JUnit file with one suite."""
    return junit_document([JunitSuite(name=suite, cases=list(cases))])


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
    return junit_check(name, failure=failure, details="\n".join(lines))


TRIMMED_SHOWN = 5
"""Names of queues in the sentence about trimmed events."""


def print_diff(summary: DiffSummary, console: Console) -> None:
    """Show the outcome, the classes, and one example of each."""
    console.print(
        terminal_text(verdict_of(summary)), style="bold red" if summary.total else "bold green", highlight=False
    )
    if summary.hidden:
        counts = ", ".join(f"{rule} {count:,}" for rule, count in summary.hidden.items())
        console.print(terminal_text(f"Values hidden by rules: {counts}."), highlight=False)
    if summary.trimmed:
        more = ", …" if len(summary.trimmed) > TRIMMED_SHOWN else ""
        names = ", ".join(map(terminal_line, summary.trimmed[:TRIMMED_SHOWN])) + more
        console.print(
            terminal_text(
                f"Events trimmed in {names}: only those of jobs whose first event both sides still have were compared."
            ),
            highlight=False,
        )
    if not summary.total:
        return
    table = Table("class", "count", "example", "expected", "actual", box=None, pad_edge=False)
    for name, count in summary.by_class.items():
        first = next(example for example in summary.examples if example.class_ == name)
        shown = (f"{first.locator} at {first.key}", first.expected, first.actual)
        table.add_row(terminal_text(name), f"{count:,}", *map(terminal_text, shown))
    console.print(table)


CHECK_PAGE = "check.html"
CHECK_FILE = "check.json"
CHECK_NAMES = tuple(dict.fromkeys(check.name for check in ALL_CHECKS))


def write_check_reports(folder: Path, summary: CheckSummary) -> list[Path]:
    """Write a page, `check.json`, `junit.xml` with a test case for every check, and the index; returns their paths."""
    written = {
        CHECK_PAGE: html_page("reports", "check.html", summary=summary, verdict=check_verdict(summary), age=age_text),
        CHECK_FILE: msgspec.json.format(msgspec.json.encode(summary), indent=1).decode() + "\n",
        "junit.xml": junit_text("check", (_check_case(summary, name) for name in CHECK_NAMES)),
    }
    for name, content in written.items():
        (folder / name).write_text(content, "utf-8")
    return [*(folder / name for name in written), _index_of(folder)]


def check_verdict(summary: CheckSummary) -> str:
    """The outcome in one line."""
    warnings = summary.total - summary.damages
    beside = f" {warnings:,} {'warning' if warnings == 1 else 'warnings'}." if warnings else ""
    if summary.damages:
        places = "place breaks" if summary.damages == 1 else "places break"
        return f"{summary.damages:,} {places} a check.{beside}"
    return f"Sound: {summary.jobs:,} jobs and what belongs to them pass all {len(CHECK_NAMES)} checks.{beside}"


def _check_case(summary: CheckSummary, name: str) -> JunitCase:
    damages = {cause.cause for cause in summary.causes if cause.level == "damage"}
    lines = [
        f"{example.key} {example.locator}: {example.message}" for example in summary.examples if example.check == name
    ]
    is_damage = any(example.cause in damages for example in summary.examples if example.check == name)
    failure = f"{summary.by_check[name]} places" if is_damage else ""
    return junit_check(name, failure=failure, details="\n".join(lines))


def print_checks(summary: CheckSummary, console: Console) -> None:
    """Show the outcome, and for each cause its number, its age, an example and its repair."""
    style = "bold red" if summary.damages else "bold yellow" if summary.total else "bold green"
    console.print(terminal_text(check_verdict(summary)), style=style, highlight=False)
    for found in summary.causes:
        first = found.examples[0]
        more = f" (and {found.more:,} that were read once)" if found.more else ""
        console.print()
        console.print(
            terminal_text(f"{found.count:,} {found.cause}{more}{age_text(found.age_ms, ' for ')}: {found.what}"),
            style="red" if found.level == "damage" else "yellow",
            highlight=False,
        )
        console.print(terminal_text(f"  example: {first.key}: {first.message}"), highlight=False)
        console.print(terminal_text(f"  why: {found.why}"), highlight=False)
        for call in found.repair:
            console.print(terminal_text(f"  repair: {call}"), highlight=False)
    if summary.looks > 1:
        console.print(
            terminal_text(
                f"Read {summary.looks} times; {summary.fleeting:,} places looked wrong once and did not stay."
            ),
            highlight=False,
        )


_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def age_text(age_ms: int | None, before: str = "") -> str:
    """An age in its largest unit, after some words; empty if it is not known."""
    if age_ms is None:
        return ""
    size, unit = next(((size, unit) for size, unit in _UNITS if age_ms >= size), (1, "ms"))
    return f"{before}{age_ms // size} {unit}"


HISTORY_FILE = "history.json"


def write_history_reports(folder: Path, result: HistoryResult) -> list[Path]:
    """Write `history.json` and `junit.xml`; returns their paths."""
    outcomes = [
        junit_check(
            check,
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
    verdict = (
        f"{result.total:,} findings" if result.total else "No findings: every job went through allowed states only."
    )
    console.print(verdict, style="bold red" if result.total else "bold green", highlight=False)
    table: Any = Table("check", "findings", "job", "example", box=None, pad_edge=False)
    for check, count in result.by_check.items():
        first = next((finding for finding in result.examples if finding.check == check), None)
        shown = (first.job, first.message) if first else ("", "")
        table.add_row(terminal_text(check), f"{count:,}", *map(terminal_text, shown))
    console.print(table)
