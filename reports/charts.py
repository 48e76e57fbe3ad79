"""The charts of the reports: SVG elements inside a page, without a script or a separate file."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from reports.comparison import ComparedGroup
from reports.load.backlog import BacklogSample
from reports.load.histograms import Latency
from reports.load.rate_search import RateSearch
from reports.load.result import TimeSlice
from reports.load.thresholds import parse_threshold

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bullmq-conformance",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
}
_SIZE = (7.2, 3.4)
_COLOURS = ("#0b6e99", "#c05621", "#2f855a", "#805ad5", "#b83280", "#718096", "#975a16", "#2b6cb0")
_SINCE_START = "time since the start of the schedule (s)"
_TICKS = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


class _Chart:
    """Axes to draw on, and the SVG when the drawing is finished."""

    def __init__(self, axes: Any) -> None:
        self.axes = axes
        self.svg = Markup("")


@contextmanager
def _chart(title: str, *, size: tuple[float, float] = _SIZE, **labels: Any) -> Iterator[_Chart]:
    """Draw inside the block. The style applies only to axes and lines that are made in it.

    Scales are set before the drawing, because they replace the ticks; limits after it, because they end autoscaling.
    """
    # matplotlib takes half a second to import, and most commands draw no chart.
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        chart = _Chart(figure.subplots())
        chart.axes.set(**{name: labels.pop(name) for name in ("xscale", "yscale") if name in labels})
        yield chart
        chart.axes.set(**labels)
        _write_plain_numbers(chart.axes)
        if chart.axes.get_legend_handles_labels()[0]:
            chart.axes.legend(fontsize=9)
        chart.svg = _svg(figure, title)


def _write_plain_numbers(axes: Any) -> None:
    """On a logarithmic axis, label 1, 2 and 5 of each power of ten with plain numbers, not powers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415 - see _chart

    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log" and not isinstance(axis.get_major_locator(), FixedLocator):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.set_minor_formatter(NullFormatter())


def rate_chart(slices: Sequence[TimeSlice]) -> Markup:
    """Jobs offered by the schedule, added and finished per second over time."""
    seconds, width = _times(slices)
    labels: dict[str, Any] = {"xlabel": _SINCE_START, "ylabel": "jobs per second", "ylim": (0, None)}
    with _chart("Jobs offered, added and finished per second over time", **labels) as chart:
        for name, colour in (("offered", _COLOURS[5]), ("added", _COLOURS[0]), ("finished", _COLOURS[2])):
            values = [getattr(part, name) / width for part in slices]
            if any(values):
                chart.axes.step(seconds, values, where="post", label=name, color=colour)
    return chart.svg


def throughput_chart(points: Sequence[BacklogSample]) -> Markup:
    """Jobs added and finished per second over time, from samples: for loads whose events were trimmed."""
    seconds = [point.at_ms / 1000 for point in points]
    added = [point.added for point in points]
    finished = [point.counts.get("completed", 0) + point.counts.get("failed", 0) for point in points]
    labels: dict[str, Any] = {"xlabel": _SINCE_START, "ylabel": "jobs per second", "ylim": (0, None)}
    with _chart("Jobs added and finished per second over time", **labels) as chart:
        for name, totals, colour in (("added", added, _COLOURS[0]), ("finished", finished, _COLOURS[2])):
            chart.axes.plot(seconds[1:], rates(seconds, totals), label=name, color=colour)
    return chart.svg


def backlog_chart(points: Sequence[BacklogSample]) -> Markup:
    """Members of each container that jobs pass through, over time."""
    seconds = [point.at_ms / 1000 for point in points]
    names = [name for name in (points[0].counts if points else {}) if name not in {"completed", "failed"}]
    labels: dict[str, Any] = {"xlabel": _SINCE_START, "ylabel": "backlog (jobs)", "ylim": (0, None)}
    with _chart("Backlog by state over time", **labels) as chart:
        for name, colour in zip(names, _COLOURS, strict=False):
            values = [point.counts.get(name, 0) for point in points]
            if any(values):
                chart.axes.plot(seconds, values, label=name, color=colour)
    return chart.svg


def over_time_chart(slices: Sequence[TimeSlice], name: str) -> Markup:
    """Percentiles of one latency over time, by when the jobs were scheduled."""
    having = [part for part in slices if name in part.latencies]
    seconds, _ = _times(having)
    labels: dict[str, Any] = {"xlabel": "scheduled at (s since the start)", "ylabel": "latency (ms)", "yscale": "log"}
    with _chart(f"{name} over time, in milliseconds", **labels) as chart:
        for percentile, colour in zip(("50", "99", "100"), _COLOURS, strict=False):
            values = [max(part.latencies[name][percentile], 1.0) for part in having]
            chart.axes.plot(
                seconds, values, label=f"p{percentile}", color=colour, marker="." if len(values) < 3 else ""
            )
    return chart.svg


def latency_chart(latencies: Mapping[str, Latency]) -> Markup:
    """Every latency by percentile. Both axes are logarithmic; the x axis is 1 / (share of slower jobs)."""
    labels: dict[str, Any] = {"xlabel": "percentile", "ylabel": "latency (ms)", "yscale": "log", "xscale": "log"}
    with _chart("Latency percentiles in milliseconds", **labels) as chart:
        rarest = 1.0
        for (name, latency), colour in zip(latencies.items(), _COLOURS, strict=False):
            points = [(_one_of(float(p), latency.count), value) for p, value in latency.percentiles.items()]
            chart.axes.plot(
                [rank for rank, _ in points],
                [max(value, 0.01) for _, value in points],
                marker=".",
                label=name,
                color=colour,
            )
            rarest = max(rarest, *(rank for rank, _ in points))
        shown = [tick for tick in _TICKS if _one_of(tick, 10**9) <= rarest * 1.5]
        chart.axes.set_xticks([_one_of(tick, 10**9) for tick in shown], [f"p{tick:g}" for tick in shown])
        chart.axes.minorticks_off()
    return chart.svg


def _one_of(percentile: float, count: int) -> float:
    """Return N such that one of N jobs is slower than this percentile; at most the number of jobs."""
    return min(100.0 / (100.0 - percentile), float(max(count, 1))) if percentile < 100 else float(max(count, 1))


@dataclass(frozen=True, kw_only=True)
class TrendPoint:
    """A load as a point in time. `label`: the line that it belongs to; `taken_at`: ISO 8601; `ms` None: spoilt.

    `latency`: the one that `ms` is of. `phase`: what happened to jobs `per_second`, "added" or "finished".
    """

    label: str
    taken_at: str
    latency: str
    ms: float | None
    phase: str
    per_second: float


def trend_chart(points: Sequence[TrendPoint], title: str, unit: str, *, of: str) -> Markup:
    """One value of several loads by the date of each load."""
    with _chart(title, ylabel=f"{title.partition(' of')[0].partition(',')[0]}, {unit}", ylim=(0, None)) as chart:
        for label, colour in zip(sorted({point.label for point in points}), _COLOURS, strict=False):
            own = sorted(
                (point.taken_at, value)
                for point in points
                if point.label == label and (value := getattr(point, of)) is not None
            )
            times = [datetime.fromisoformat(taken_at) for taken_at, _ in own]
            chart.axes.plot(times, [value for _, value in own], marker="o", label=label, color=colour)
        chart.axes.tick_params(axis="x", rotation=20)
    return chart.svg


def comparison_chart(groups: Sequence[ComparedGroup], measure: str) -> Markup:
    """The mean of one measure for each group, with its interval."""
    shown = [(group.label, each) for group in groups for each in group.measures if each.measure == measure]
    unit = shown[0][1].unit if shown else ""
    size = (7.2, 1.0 + 0.5 * max(1, len(shown)))
    with _chart(f"{measure} ({unit})", size=size, xlabel=f"{measure} ({unit})", xlim=(0, None)) as chart:
        labels = [label for label, _ in shown][::-1]
        means = [each.mean for _, each in shown][::-1]
        widths = [each.half_width or 0.0 for _, each in shown][::-1]
        chart.axes.barh(labels, means, xerr=widths, color=_COLOURS[0], capsize=3, height=0.5)
    return chart.svg


def search_chart(search: RateSearch, threshold: str) -> Markup:
    """The value of a threshold at each tried rate, and its bound as a line."""
    wanted = parse_threshold(threshold)
    measured = f"p{wanted.percentile} (ms)" if wanted.percentile else f"{wanted.measure} (jobs/s)"
    labels: dict[str, Any] = {"xlabel": "offered rate (jobs/s)", "ylabel": measured, "xscale": "log", "yscale": "log"}
    with _chart(f"{measured} by offered rate", **labels) as chart:
        chart.axes.axhline(wanted.bound, color=_COLOURS[1], linestyle="--", linewidth=1, label=threshold)
        for outcome, colour in (("passed", _COLOURS[2]), ("failed", _COLOURS[1]), ("undecided", _COLOURS[5])):
            found = [
                (trial.rate, value)
                for trial in search.trials
                if trial.outcome == outcome and (value := trial.measured.get(threshold)) is not None
            ]
            if found:
                rates_tried, values = zip(*found, strict=True)
                chart.axes.plot(rates_tried, values, "o", label=outcome, color=colour)
    return chart.svg


def class_chart(by_class: Mapping[str, int]) -> Markup:
    """Differences by class."""
    names = list(by_class)[::-1]
    size = (7.2, 0.9 + 0.4 * max(1, len(by_class)))
    with _chart("Differences by class", size=size, xlabel="differences (number)") as chart:
        chart.axes.bar_label(chart.axes.barh(names, [by_class[name] for name in names], color=_COLOURS[1]), padding=3)
        chart.axes.xaxis.get_major_locator().set_params(integer=True)
    return chart.svg


def rates(seconds: Sequence[float], totals: Sequence[int]) -> list[float]:
    """Growth per second from each point to the next."""
    steps = zip(seconds, seconds[1:], totals, totals[1:], strict=False)
    return [max(0.0, (after - before) / max(end - start, 1e-3)) for start, end, before, after in steps]


def _times(slices: Sequence[TimeSlice]) -> tuple[list[float], float]:
    """The start of each slice and the length of a slice, in s."""
    seconds = [part.at_ms / 1000 for part in slices]
    return seconds, (seconds[1] - seconds[0] if len(seconds) > 1 else 1.0)


def _svg(figure: Figure, title: str) -> Markup:
    """A figure as an SVG element with a title for screen readers; it fills the width of its parent."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    element = text[text.index("<svg") :]
    head, _, rest = element.partition(">")
    attributes = head.split(" viewBox=")[1].split('"')[1]
    opening = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
    return Markup(f'{opening} viewBox="{attributes}" aria-label="{title}"><title>{title}</title>{rest}')  # noqa: S704
