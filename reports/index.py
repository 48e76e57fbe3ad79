"""The page that lists all runs in the folders below it, and charts loads over time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from conformance.pages.page import html_page
from conformance.problems import UsageProblem
from reports.charts import TrendPoint, trend_chart
from reports.load.result import LoadResult, read_result
from reports.load.thresholds import whole_way

INDEX = "index.html"
TREND_PERCENTILE = "99"


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A run that the index lists."""

    name: str
    page: str
    kind: str
    outcome: str


def write_index(folder: Path) -> Path:
    """Write the index of all runs in the folders below; returns its path."""
    path = folder / INDEX
    charts = list(_trend_charts(list(trend_under(folder))))
    path.write_text(html_page("reports", "index.html", runs=list(runs_under(folder)), trend=charts), "utf-8")
    return path


def _trend_charts(points: Sequence[TrendPoint]) -> Iterator[Markup]:
    """A chart for each latency and each phase of which there is more than one date: an axis has one kind of value."""
    for name in sorted({point.latency for point in points}):
        of_latency = [point for point in points if point.latency == name]
        if _is_trend(of_latency):
            yield trend_chart(of_latency, f"p{TREND_PERCENTILE} of {name}", "latency (ms)", of="ms")
    for phase in ("added", "finished"):
        of_phase = [point for point in points if point.phase == phase]
        if _is_trend(of_phase):
            yield trend_chart(of_phase, f"Jobs {phase} per second", "jobs/s", of="per_second")


def _is_trend(points: Sequence[TrendPoint]) -> bool:
    return len({point.taken_at for point in points}) > 1


def runs_under(folder: Path) -> Iterator[ListedRun]:
    """Every load, diff and check in the folders below, by name."""
    for child in sorted(folder.iterdir()):
        if (child / "load.json").is_file() and (child / "load.html").is_file():
            found = json.loads((child / "load.json").read_text("utf-8"))
            outcome = f"{found['produced']['jobs']:,} jobs added, {found['finished']['jobs']:,} finished"
            yield ListedRun(name=child.name, page=f"{child.name}/load.html", kind="load", outcome=outcome)
        if (child / "diff.json").is_file():
            total = json.loads((child / "diff.json").read_text("utf-8"))["total"]
            outcome = f"{total:,} differences" if total else "no differences"
            yield ListedRun(name=child.name, page=f"{child.name}/diff.html", kind="diff", outcome=outcome)
        if (child / "check.json").is_file():
            total = json.loads((child / "check.json").read_text("utf-8"))["total"]
            outcome = f"{total:,} places break a check" if total else "sound"
            yield ListedRun(name=child.name, page=f"{child.name}/check.html", kind="check", outcome=outcome)


def trend_under(folder: Path) -> Iterator[TrendPoint]:
    """Each load below, as a point in time; each workload is a separate line of the chart."""
    for child in sorted(folder.iterdir()):
        try:
            result = read_result(child)
        except UsageProblem:
            continue
        if result.taken_at:
            yield _point(result)


def _point(result: LoadResult) -> TrendPoint:
    latency = whole_way(result)
    found = result.latencies.get(latency)
    phase = result.finished if result.workers else result.produced
    return TrendPoint(
        label=f"{result.producer} → {', '.join(result.workers) or 'no workers'} ({result.workload.digest[:4]})",
        taken_at=result.taken_at,
        latency=latency,
        phase="finished" if result.workers else "added",
        ms=found.percentiles[TREND_PERCENTILE] if found and not result.spoilt_by_harness else None,
        per_second=phase.per_second,
    )
