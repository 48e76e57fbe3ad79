"""What all reports are made of: HTML pages with charts inside, the index of all runs, and JUnit XML."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib as mpl
from jinja2 import Environment, PackageLoader, StrictUndefined
from junitparser import Failure, JUnitXml, TestCase, TestSuite
from markupsafe import Markup
from matplotlib.figure import Figure

from reports.load.measurements import BacklogSample, Latency

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bullmq-conformance",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}
_SIZE = (7.2, 3.4)
_COLOURS = ("#0b6e99", "#c05621", "#2f855a", "#805ad5", "#b83280", "#718096", "#975a16", "#2b6cb0")


def throughput_chart(points: Sequence[BacklogSample]) -> Markup:
    """Jobs added and finished per second over time."""
    seconds = [point.at_ms / 1000 for point in points]
    added = [point.added for point in points]
    finished = [point.counts.get("completed", 0) + point.counts.get("failed", 0) for point in points]
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    for name, totals, colour in (("added", added, _COLOURS[0]), ("finished", finished, _COLOURS[2])):
        axes.plot(seconds[1:], rates(seconds, totals), label=name, color=colour, linewidth=1.6)
    axes.set(xlabel="seconds since the start of the schedule", ylabel="jobs per second", ylim=(0, None))
    axes.legend(frameon=False)
    return svg(figure, "Jobs added and finished per second over time")


def backlog_chart(points: Sequence[BacklogSample]) -> Markup:
    """Members of each container that jobs pass through, over time."""
    seconds = [point.at_ms / 1000 for point in points]
    names = [name for name in (points[0].counts if points else {}) if name not in {"completed", "failed"}]
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    for name, colour in zip(names, _COLOURS, strict=False):
        values = [point.counts.get(name, 0) for point in points]
        if any(values):
            axes.plot(seconds, values, label=name, color=colour, linewidth=1.6)
    axes.set(xlabel="seconds since the start of the schedule", ylabel="jobs", ylim=(0, None))
    if axes.lines:
        axes.legend(frameon=False)
    return svg(figure, "Backlog by state over time")


def latency_chart(latencies: Mapping[str, Latency]) -> Markup:
    """Percentiles of every latency, on a logarithmic scale."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    for (name, latency), colour in zip(latencies.items(), _COLOURS, strict=False):
        values = [max(value, 1.0) for value in latency.percentiles.values()]
        axes.plot(list(latency.percentiles), values, marker="o", label=name, color=colour, linewidth=1.6)
    axes.set(xlabel="percentile", ylabel="ms", yscale="log")
    axes.legend(frameon=False, fontsize=9)
    return svg(figure, "Latency percentiles in milliseconds")


def class_chart(by_class: Mapping[str, int]) -> Markup:
    """Differences by class."""
    figure = Figure(figsize=(7.2, 0.9 + 0.4 * max(1, len(by_class))), layout="constrained")
    axes = figure.subplots()
    names = list(by_class)[::-1]
    bars = axes.barh(names, [by_class[name] for name in names], color=_COLOURS[1])
    axes.bar_label(bars, padding=3)
    axes.set(xlabel="differences")
    return svg(figure, "Differences by class")


def rates(seconds: Sequence[float], totals: Sequence[int]) -> list[float]:
    """Growth per second from each point to the next."""
    steps = zip(seconds, seconds[1:], totals, totals[1:], strict=False)
    return [max(0.0, (after - before) / max(end - start, 1e-3)) for start, end, before, after in steps]


def svg(figure: Figure, title: str) -> Markup:
    """A figure as an SVG element with a title for those who do not see it; it is as wide as its place."""
    written = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    element = text[text.index("<svg") :]
    head, _, rest = element.partition(">")
    attributes = head.split(" viewBox=")[1].split('"')[1]
    opening = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
    return Markup(f'{opening} viewBox="{attributes}" aria-label="{title}"><title>{title}</title>{rest}')  # noqa: S704


_ENVIRONMENT = Environment(
    loader=PackageLoader("reports"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _number(value: float) -> str:
    """With thin groups of thousands, and no decimals that say nothing."""
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:,.1f}"


_ENVIRONMENT.filters["number"] = _number


def html_page(template: str, **values: Any) -> str:
    """A page from one of the templates."""
    style = (files("reports") / "templates" / "page.css").read_text("utf-8")
    return _ENVIRONMENT.get_template(template).render(style=style, **values)


def markdown_text(template: str, **values: Any) -> str:
    """Markdown from one of the templates; nothing is escaped."""
    return _ENVIRONMENT.overlay(autoescape=False).get_template(template).render(**values)


INDEX = "index.html"


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
    path.write_text(html_page("index.html", runs=list(runs_under(folder))), "utf-8")
    return path


def runs_under(folder: Path) -> Iterator[ListedRun]:
    """Every load and diff in the folders below, by name."""
    for child in sorted(folder.iterdir()):
        if (child / "load.json").is_file() and (child / "load.html").is_file():
            found = json.loads((child / "load.json").read_text("utf-8"))
            outcome = f"{found['produced']['jobs']:,} jobs added, {found['finished']['jobs']:,} finished"
            yield ListedRun(name=child.name, page=f"{child.name}/load.html", kind="load", outcome=outcome)
        if (child / "diff.json").is_file():
            total = json.loads((child / "diff.json").read_text("utf-8"))["total"]
            outcome = f"{total:,} differences" if total else "no differences"
            yield ListedRun(name=child.name, page=f"{child.name}/diff.html", kind="diff", outcome=outcome)


@dataclass(frozen=True, kw_only=True)
class JunitCase:
    """One test case. `failure` empty: it passed. `details`: what else there is to read. `seconds`: where measured."""

    name: str
    failure: str = ""
    details: str = ""
    seconds: float = 0.0


def junit_text(suite_name: str, outcomes: Iterable[JunitCase]) -> str:
    """A document with one suite."""
    suite = TestSuite(suite_name)
    for outcome in outcomes:
        case = TestCase(outcome.name, classname=suite_name, time=outcome.seconds)
        if outcome.failure:
            failure = Failure(outcome.failure, suite_name)
            failure.text = outcome.details
            case.result = [failure]
        suite.add_testcase(case)
    document: Any = JUnitXml("bullmq-conformance")
    document.add_testsuite(suite)
    document.update_statistics()
    written = document.tostring()
    return written.decode() if isinstance(written, bytes) else str(written)
