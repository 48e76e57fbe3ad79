"""The reports of a load, a comparison of loads and a search for the highest rate, each computed from its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from conformance.pages.junit import JunitCase, junit_check
from conformance.pages.page import html_page, markdown_text
from conformance.pages.terminal import terminal_block, terminal_text
from conformance.protocol.states import UNFINISHED_CONTAINERS
from reports.charts import (
    backlog_chart,
    comparison_chart,
    latency_chart,
    over_time_chart,
    rate_chart,
    search_chart,
    throughput_chart,
)
from reports.comparison import LoadComparison
from reports.index import write_index
from reports.load.histograms import SHOWN, Latency
from reports.load.latencies import MEANINGS, OVER_TIME
from reports.load.rate_search import RateSearch, search_sentence
from reports.load.result import LoadResult
from reports.load.run import SERVICE
from reports.store_pages import junit_text

LOAD_PAGE = "load.html"
_OTHER_MEANINGS = {
    SERVICE: "duration of one call of the client that adds a batch of at most 1,000 jobs",
}


def write_load_reports(folder: Path, result: LoadResult) -> list[Path]:
    """Write `load.html`, `load.md`, `junit.xml` and the index of the folder above; returns their paths."""
    html, markdown, junit = folder / LOAD_PAGE, folder / "load.md", folder / "junit.xml"
    html.write_text(load_page(result), "utf-8")
    markdown.write_text(
        markdown_text(
            "reports",
            "load.md",
            result=result,
            percentiles=SHOWN,
            offered=result.offered_per_second,
            notes=load_notes(result),
        ),
        "utf-8",
    )
    junit.write_text(junit_text("load", load_cases(result)), "utf-8")
    return [html, markdown, junit, write_index(folder.parent)]


def load_cases(result: LoadResult) -> list[JunitCase]:
    """Requirements of a load: all jobs are added and, if there are workers, finished."""
    planned, added = result.workload.jobs, result.produced.jobs
    left = {name: count for name, count in result.final.items() if name in UNFINISHED_CONTAINERS and count}
    return [
        junit_check(
            "all jobs added",
            failure="" if added == planned else f"{added} of {planned} jobs were added",
            seconds=result.produced.seconds,
        ),
        *([_finished(result, left)] if result.workers else []),
        *([junit_check("the harness was on time", failure=result.spoilt_by_harness)] if result.workload.rate else []),
    ]


def _finished(result: LoadResult, left: Mapping[str, int]) -> JunitCase:
    waiting = ", ".join(f"{name} {count}" for name, count in left.items())
    return junit_check(
        "all jobs finished",
        failure=f"{sum(left.values())} jobs are left" if left else "",
        details=waiting,
        seconds=result.finished.seconds,
    )


def load_page(result: LoadResult) -> str:
    """The page about one load."""
    return html_page(
        "reports",
        "load.html",
        result=result,
        percentiles=SHOWN,
        taken_at=result.taken_at,
        offered=result.offered_per_second,
        groups=_groups(result),
        meanings={name: text for name, text in {**MEANINGS, **_OTHER_MEANINGS}.items() if name in result.latencies},
        notes=load_notes(result),
        rate=rate_chart(result.slices) if result.slices else throughput_chart(result.series),
        backlog=backlog_chart(result.series),
        over_time={name: over_time_chart(result.slices, name) for name in OVER_TIME if _has(result, name)},
        latency=latency_chart(result.latencies),
    )


def _groups(result: LoadResult) -> dict[str, dict[str, dict[str, Latency]]]:
    """The latencies of each group, if there is more than one."""
    found = {"kind of job": result.by_kind, "queue": result.by_queue}
    return {title: groups for title, groups in found.items() if len(groups) > 1}


def _has(result: LoadResult, name: str) -> bool:
    return any(name in part.latencies for part in result.slices)


def load_notes(result: LoadResult) -> list[str]:
    """Limits of the numbers that a reader has to know."""
    notes = []
    if result.schedule:
        notes.append(
            f"All producers were connected after {result.waited_s:.1f} s, the last one {result.apart_s:.1f} s behind "
            "the first; the schedule started then, and no latency includes this."
        )
    if len(result.schedule) > 1:
        notes.append(
            f"The load was resumed ({len(result.schedule) - 1} times): the schedule continued where it had stopped, "
            "and the rate of adding leaves the time between out. Jobs that were there before waited for it."
        )
    if result.timed < result.produced.jobs:
        notes.append(
            f"Redis has trimmed older events: latencies are those of the {result.timed:,} of {result.produced.jobs:,} "
            "jobs whose events remain, and there are no charts over time. A larger --events keeps all events."
        )
    if not result.workload.rate:
        notes.append(
            "The load had no rate: jobs were added as fast as possible, so only service times are given. How long a "
            "job waited would only show its place in the run."
        )
    return notes


def verdict_of_comparison(comparison: LoadComparison) -> str:
    """The outcome in one line."""
    if comparison.worse:
        return f"Worse than the first: {'; '.join(f'{measure} of {label}' for label, measure in comparison.worse)}."
    if comparison.undecided:
        return f"Nothing is certainly worse; {len(comparison.undecided)} measures need more repetitions to decide."
    return "Nothing is worse than the first."


COMPARISON_FILE = "compare.json"
_CHARTED = ("added", "finished", "scheduled-to-added p99", "scheduled-to-finished p99")


def write_comparison_reports(folder: Path, comparison: LoadComparison) -> list[Path]:
    """Write `compare.html`, `compare.json` and `junit.xml`; returns their paths."""
    known = {each.measure for each in comparison.groups[0].measures}
    charts = {name: comparison_chart(comparison.groups, name) for name in _CHARTED if name in known}
    verdict = verdict_of_comparison(comparison)
    written = {
        "compare.html": html_page("reports", "comparison.html", comparison=comparison, verdict=verdict, charts=charts),
        COMPARISON_FILE: msgspec.json.format(msgspec.json.encode(comparison), indent=1).decode() + "\n",
        "junit.xml": junit_text("compare", _comparison_cases(comparison)),
    }
    for name, content in written.items():
        (folder / name).write_text(content, "utf-8")
    return [folder / name for name in written]


def _comparison_cases(comparison: LoadComparison) -> Iterator[JunitCase]:
    for group in comparison.groups[1:]:
        for each in group.measures:
            failure = f"{each.ratio:.2f} times the first" if each.change == "worse" else ""
            yield junit_check(f"{group.label}: {each.measure}", failure=failure)


def print_comparison(comparison: LoadComparison, console: Console) -> None:
    """Show every measure of every group."""
    style = "bold red" if comparison.worse else "bold green"
    console.print(terminal_text(verdict_of_comparison(comparison)), style=style, highlight=False, markup=False)
    for group in comparison.groups:
        console.print(
            terminal_block(f"\n{group.label} ({len(group.runs)} runs)"), style="bold", highlight=False, markup=False
        )
        table = Table("measure", "mean", "± 95 %", "unit", "to first", "change", box=None, pad_edge=False)
        for each in group.measures:
            width = "one run" if each.half_width is None else f"{each.half_width:,.1f}"
            table.add_row(
                terminal_text(each.measure),
                terminal_text(f"{each.mean:,.1f}"),
                terminal_text(width),
                terminal_text(each.unit),
                terminal_text(f"{each.ratio:.2f}"),
                terminal_text(each.change),
            )
        console.print(table)


SEARCH_PAGE = "find-rate.html"


def write_search_reports(
    folder: Path, search: RateSearch, label: str, command: str, *, linked: bool = True
) -> list[Path]:
    """Write `find-rate.html` and `find-rate.json`; returns their paths. `linked`: the page links to each trial."""
    thresholds = list(search.trials[0].measured)
    page = html_page(
        "reports",
        "find-rate.html",
        search=search,
        label=label,
        command=command,
        thresholds=thresholds,
        linked=linked,
        verdict=search_sentence(search),
        chart=search_chart(search, thresholds[0]),
    )
    (folder / SEARCH_PAGE).write_text(page, "utf-8")
    written = msgspec.json.format(msgspec.json.encode(search), indent=1).decode() + "\n"
    (folder / "find-rate.json").write_text(written, "utf-8")
    return [folder / SEARCH_PAGE, folder / "find-rate.json"]
