"""The reports of a load: HTML, markdown, JUnit, and the index over all runs. Each is computed from `load.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reports.load.result import WAITING, LoadResult
from reports.measure.histograms import PERCENTILES
from reports.measure.jobs import MEANINGS
from reports.render.charts import backlog_chart, latency_chart, throughput_chart
from reports.render.index import write_index
from reports.render.junit import Outcome, junit_text
from reports.render.pages import page, text

PAGE = "load.html"
_SEEN = "from the event's entry in the stream to the moment at which a reader of the stream had it"


def write_load_reports(folder: Path, result: LoadResult) -> list[Path]:
    """Write `load.html`, `load.md`, `junit.xml` and the index of the folder above; answers their paths."""
    names = [f"{percentile:g}" for percentile in PERCENTILES]
    html, markdown, junit = folder / PAGE, folder / "load.md", folder / "junit.xml"
    html.write_text(load_page(result, names), "utf-8")
    markdown.write_text(text("load.md", result=result, percentiles=names), "utf-8")
    junit.write_text(junit_text("load", outcomes_of(result)), "utf-8")
    return [html, markdown, junit, write_index(folder.parent)]


def outcomes_of(result: LoadResult) -> list[Outcome]:
    """What a load has to achieve: all jobs added, and where there are workers, nothing left to do."""
    wanted, added = result.workload.jobs, result.produced.jobs
    left = {name: count for name, count in result.final.items() if name in WAITING and count}
    return [
        Outcome(
            name="all jobs added",
            failure="" if added == wanted else f"{added} of {wanted} jobs were added",
            seconds=result.produced.seconds,
        ),
        *([_finished(result, left)] if result.workers else []),
    ]


def _finished(result: LoadResult, left: Mapping[str, int]) -> Outcome:
    shown = ", ".join(f"{name} {count}" for name, count in left.items())
    return Outcome(
        name="all jobs finished",
        failure=f"{sum(left.values())} jobs are left" if left else "",
        details=shown,
        seconds=result.finished.seconds,
    )


def load_page(result: LoadResult, names: list[str]) -> str:
    """The page about one load."""
    return page(
        "load.html",
        result=result,
        percentiles=names,
        meanings={**MEANINGS, "finished-to-seen": _SEEN},
        throughput=throughput_chart(result.series),
        backlog=backlog_chart(result.series),
        latency=latency_chart(result.latencies),
    )
