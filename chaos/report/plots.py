"""Timelines with the windows of faults shaded, as pictures for the page (needs plotly; without it, none)."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from chaos.report.results import Timeline, WindowRow

HEIGHT = 420


def timeline_plot(timeline: Timeline) -> str:
    """HTML of one plot, without the program that draws it (see `plot_program`); empty where plotly is missing."""
    if importlib.util.find_spec("plotly") is None:
        return ""
    subplots: Any = importlib.import_module("plotly.subplots")
    graph: Any = importlib.import_module("plotly.graph_objects")
    figure = subplots.make_subplots(
        rows=3,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.06,
        subplot_titles=("jobs ended per s", "from waiting to the end, median (ms)", "backlog (jobs)"),
    )
    times = [(number + 0.5) * timeline.step_ms / 1000 for number in range(len(timeline.throughput))]
    per_s = [count * 1000 / timeline.step_ms for count in timeline.throughput]
    figure.add_trace(graph.Scatter(x=times, y=per_s, mode="lines"), row=1, col=1)
    figure.add_trace(graph.Scatter(x=times, y=timeline.latency_ms, mode="markers"), row=2, col=1)
    backlog = timeline.backlog
    figure.add_trace(
        graph.Scatter(x=[at / 1000 for at, _ in backlog], y=[count for _, count in backlog], mode="lines"), row=3, col=1
    )
    # All at once: plotly's own `add_vrect` looks at all shapes before it adds one, and a soak has hundreds.
    names = [_name(window) for window in timeline.windows]
    shades = [_shade(window, axis) for window in timeline.windows for axis in ("", "2", "3")]
    figure.update_layout(shapes=shades, annotations=[*figure.layout.annotations, *names])
    figure.update_layout(height=HEIGHT, showlegend=False, margin={"l": 40, "r": 10, "t": 40, "b": 30})
    figure.update_xaxes(title_text="s", row=3, col=1)
    return str(figure.to_html(full_html=False, include_plotlyjs=False))


def _shade(window: WindowRow, axis: str) -> dict[str, Any]:
    return {
        "type": "rect",
        "xref": f"x{axis}",
        "yref": f"y{axis} domain",
        "x0": window.began_ms / 1000,
        "x1": window.ended_ms / 1000,
        "y0": 0,
        "y1": 1,
        "fillcolor": "#d62728",
        "opacity": 0.15,
        "line": {"width": 0},
    }


def _name(window: WindowRow) -> dict[str, Any]:
    return {
        "text": f"{window.fault} {window.target}",
        "xref": "x",
        "yref": "y domain",
        "x": window.began_ms / 1000,
        "y": 1,
        "xanchor": "left",
        "yanchor": "top",
        "showarrow": False,
    }


def plot_program() -> str:
    """The program that draws plots in a browser; empty where plotly is missing."""
    if importlib.util.find_spec("plotly") is None:
        return ""
    offline: Any = importlib.import_module("plotly.offline")
    return str(offline.get_plotlyjs())
