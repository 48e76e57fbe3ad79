"""The reports of a load: HTML, markdown, and the index over all runs beside it. Each is computed from `load.json`."""

from __future__ import annotations

from pathlib import Path

from reports.load.result import LoadResult
from reports.measure.histograms import PERCENTILES
from reports.measure.jobs import MEANINGS
from reports.render.charts import backlog_chart, latency_chart, throughput_chart
from reports.render.index import write_index
from reports.render.pages import page, text

PAGE = "load.html"
_SEEN = "from the event's entry in the stream to the moment at which a reader of the stream had it"


def write_load_reports(folder: Path, result: LoadResult) -> list[Path]:
    """Write `load.html`, `load.md` and the index of the folder above; answers their paths."""
    names = [f"{percentile:g}" for percentile in PERCENTILES]
    html, markdown = folder / PAGE, folder / "load.md"
    html.write_text(load_page(result, names), "utf-8")
    markdown.write_text(text("load.md", result=result, percentiles=names), "utf-8")
    return [html, markdown, write_index(folder.parent)]


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
