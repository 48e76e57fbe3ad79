"""Reports from a results file: a page with matrix, timelines and findings, JUnit XML, a table in Markdown."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from junitparser import Skipped

from chaos.process_lanes import ProcessLane, label_rows
from chaos.results import FILE, InvariantCell, ResultRow, ResultsHeader, Timeline, WindowRow, read_results
from conformance.checkers.histories.history_checks import ALL_CHECKS
from conformance.observe.tap.rules import PHASES
from conformance.pages.junit import JunitCase, JunitProblem, JunitSuite, junit_document
from conformance.pages.page import html_page, page_environment
from conformance.pages.terminal import terminal_line
from conformance.problems import EnvironmentProblem

HEIGHT = 420
PLOT_WIDTH = 1100
"""About as wide as the page (px)."""
NAME_HEIGHT = 12
LANE_WIDTH, LANE_HEIGHT, LANE_MARGIN = 1000, 16, 130
"""Of the timeline of processes (px); the margin holds their names."""
TICKS = 10
FINDINGS_IN_MARKDOWN = 5


def timeline_plot(timeline: Timeline) -> str:
    """HTML of one plot, without the script that draws it (see `plot_program`); empty if plotly is missing."""
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
    # All at once: plotly's `add_vrect` checks all shapes before it adds one, and a soak has hundreds.
    names = _names(timeline)
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


def _names(timeline: Timeline) -> list[dict[str, Any]]:
    """The names of the faults, in enough rows that none covers another."""
    scale = PLOT_WIDTH / max(timeline.end_ms, 1)
    texts = [f"{window.fault} {window.target}".strip() for window in timeline.windows]
    starts = [window.began_ms * scale for window in timeline.windows]
    rows = label_rows(list(zip(starts, texts, strict=True)))
    return [
        {**_name(window, text), "yshift": -NAME_HEIGHT * row}
        for window, text, row in zip(timeline.windows, texts, rows, strict=True)
    ]


def _name(window: WindowRow, text: str) -> dict[str, Any]:
    return {
        "text": text,
        "font": {"size": 10},
        "xref": "x",
        "yref": "y domain",
        "x": window.began_ms / 1000,
        "y": 1,
        "xanchor": "left",
        "yanchor": "top",
        "showarrow": False,
    }


def lanes_drawing(timeline: Timeline) -> str:
    """SVG of one lane per process, with the faults behind them; empty for old results without lanes."""
    if not timeline.lanes:
        return ""
    scale = (LANE_WIDTH - LANE_MARGIN) / max(timeline.end_ms, 1)
    texts = [f"{window.fault} {window.target}".strip() for window in timeline.windows]
    starts = [LANE_MARGIN + window.began_ms * scale for window in timeline.windows]
    rows = label_rows(list(zip(starts, texts, strict=True)))
    top = NAME_HEIGHT * (max(rows, default=-1) + 1) + 4
    windows = [
        {
            "x": f"{x:.1f}",
            "width": f"{_width(window.began_ms, window.ended_ms, scale):.1f}",
            "y": 10 + NAME_HEIGHT * row,
            "text": text,
        }
        for window, x, row, text in zip(timeline.windows, starts, rows, texts, strict=True)
    ]
    lanes = [
        {"name": f"{lane.process} {lane.kind}", "y": top + LANE_HEIGHT * number, "spans": _drawn(lane, scale)}
        for number, lane in enumerate(timeline.lanes)
    ]
    ticks = [
        {
            "x": f"{LANE_MARGIN + timeline.end_ms * number / TICKS * scale:.0f}",
            "text": f"{timeline.end_ms * number / TICKS / 1000:.1f} s",
        }
        for number in range(TICKS)
    ]
    height = top + LANE_HEIGHT * len(lanes) + 18
    page = page_environment("chaos").get_template("lanes.svg.html")
    return str(page.render(width=LANE_WIDTH, height=height, windows=windows, lanes=lanes, ticks=ticks))


def _drawn(lane: ProcessLane, scale: float) -> list[dict[str, str]]:
    return [
        {
            "x": f"{LANE_MARGIN + span.began_ms * scale:.1f}",
            "width": f"{_width(span.began_ms, span.ended_ms, scale):.1f}",
            "ending": span.ending,
            "text": f"{span.count} {lane.kind}, {span.ending}, {span.began_ms:.0f} to {span.ended_ms:.0f} ms",
        }
        for span in lane.spans
    ]


def _width(began_ms: float, ended_ms: float, scale: float) -> float:
    """At least a hairline, so that a span without duration is visible."""
    return max((ended_ms - began_ms) * scale, 0.6)


def plot_program() -> str:
    """The script that draws plots in a browser; empty if plotly is missing."""
    if importlib.util.find_spec("plotly") is None:
        return ""
    offline: Any = importlib.import_module("plotly.offline")
    return str(offline.get_plotlyjs())


PLAIN_NAME = re.compile(r"[\w@.,: -]+")
"""Names of clients, faults and crash points: nothing in them means anything in Markdown."""
SYMBOLS = {"ok": "✓", "fail": "✗", "unknown": "?", "explained": "≈", "none": "·"}
MEANINGS = {
    "ok": "holds",
    "fail": "does not hold",
    "unknown": "no violation was found, but not everything could be judged",
    "explained": "does not hold, and neither does it with Node.js itself; see the ledger",
    "none": "the run had nothing to judge",
}


def render_all(folder: Path) -> list[Path]:
    """Write every report next to the results. Raises UsageProblem, EnvironmentProblem."""
    header, results, complete = read_results(folder / FILE)
    reports: Mapping[str, Callable[[], str]] = {
        "report.html": lambda: html(header, results, complete=complete),
        "junit.xml": lambda: junit(results, complete=complete),
        "summary.md": lambda: markdown(results, complete=complete),
    }
    written = []
    for name, make in reports.items():
        try:
            (folder / name).write_text(make(), "utf-8")
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {folder / name}: {error.strerror}") from error
        written.append(folder / name)
    return written


def symbol_of(cell: InvariantCell | None) -> str:
    """The kind of symbol of a cell."""
    if cell is None or (cell.verdict == "ok" and not cell.examined):
        return "none"
    return cell.verdict


def html(header: ResultsHeader, results: Sequence[ResultRow], *, complete: bool) -> str:
    """One self-contained page."""
    runs = [result for result in results if result.kind == "faults"]
    return html_page(
        "chaos",
        "chaos.html",
        header=header,
        complete=complete,
        runs=runs,
        crashes=crash_table(results),
        points=PHASES,
        checks=ALL_CHECKS,
        symbol_of=symbol_of,
        symbols=SYMBOLS,
        meanings=MEANINGS,
        plots={id(run): timeline_plot(run.timeline) for run in runs if run.timeline is not None},
        lanes={id(run): lanes_drawing(run.timeline) for run in runs if run.timeline is not None},
        key=id,
        program=plot_program() if runs else "",
        failing=[result for result in results if result.failed or result.troubles or result.missed],
        explained=[result for result in results if any(cell.verdict == "explained" for cell in result.cells.values())],
    )


def crash_table(results: Sequence[ResultRow]) -> dict[tuple[str, str, str], dict[str, ResultRow]]:
    """Crash points by client, script and hurt; each with its three points."""
    table: dict[tuple[str, str, str], dict[str, ResultRow]] = {}
    for result in results:
        if result.kind == "crash":
            script, point, hurt = result.name.split(" ")
            table.setdefault((result.client, script, hurt), {})[point] = result
    return dict(sorted(table.items()))


def state_of(result: ResultRow | None) -> str:
    """The kind of symbol of a whole run."""
    if result is None or result.lacks:
        return "none"
    if result.failed or result.missed:
        return "fail"
    return "explained" if any(cell.verdict == "explained" for cell in result.cells.values()) else "ok"


def junit(results: Sequence[ResultRow], *, complete: bool) -> str:
    """A suite per client and kind; a failed run names the invariants and the command that repeats it."""
    suites: dict[str, list[JunitCase]] = {}
    for result in results:
        suites.setdefault(f"{result.client} {result.kind}", []).append(_junit_case(result))
    if not complete:
        broken_off = JunitProblem(message="the run broke off", kind="incomplete")
        suites["run"] = [JunitCase(name="run is complete", class_name="chaos", problem=broken_off)]
    described = [JunitSuite(name=name, cases=cases) for name, cases in suites.items()]
    return junit_document(described, name="bullmq-conformance chaos")


def _junit_case(result: ResultRow) -> JunitCase:
    problem = None
    if result.lacks:
        problem = JunitProblem(result=Skipped, message=f"the client has no {result.lacks}")
    elif result.failed or result.missed:
        message = ", ".join(result.failed) or "the point was not reached"
        problem = JunitProblem(message=message, kind="fail", details="\n".join(_details(result)))
    name, class_name = f"{result.name} [{result.topology}]", f"chaos.{result.client}"
    return JunitCase(name=name, class_name=class_name, seconds=result.seconds, problem=problem)


def _details(result: ResultRow) -> list[str]:
    lines = [f"reproduce: {result.reproduce}"]
    lines += [f"memory: {process} grew from {much}" for process, much in result.growth.items()]
    for name in filter(result.cells.get, result.failed):
        for finding in result.cells[name].findings:
            lines += [f"{name}: {finding.job} {finding.message}", *(f"    {line}" for line in finding.lines)]
    return lines


def markdown(results: Sequence[ResultRow], *, complete: bool) -> str:
    """The matrix, and the table of crash points."""
    names = [check.name for check in ALL_CHECKS]
    rows = ["# Chaos", ""]
    rows += [] if complete else ["**The run is incomplete.**", ""]
    runs = [result for result in results if result.kind == "faults"]
    if runs:
        rows += [
            f"| client | fault | topology | jobs | {' | '.join(names)} |",
            f"|---|---|---|---|{'---|' * len(names)}",
        ]
        for run in runs:
            symbols = " | ".join(SYMBOLS[symbol_of(run.cells.get(name))] for name in names)
            rows.append(f"| {_cell(run.client)} | {_cell(run.name)} | {run.topology} | {run.jobs} | {symbols} |")
        rows.append("")
    table = crash_table(results)
    if table:
        rows += [f"| client | script | hurt | {' | '.join(PHASES)} |", f"|---|---|---|{'---|' * len(PHASES)}"]
        for (client, script, hurt), points in table.items():
            symbols = " | ".join(SYMBOLS[state_of(points.get(point))] for point in PHASES)
            rows.append(f"| {_cell(client)} | {_cell(script)} | {_cell(hurt)} | {symbols} |")
        rows.append("")
    rows += [f"{SYMBOLS[kind]} {meaning}" + "  " for kind, meaning in MEANINGS.items()]
    rows += _findings_in_markdown(results)
    return "\n".join(rows) + "\n"


def _findings_in_markdown(results: Sequence[ResultRow]) -> list[str]:
    """The findings of each run; a cell of the matrix only shows that there are some."""
    rows: list[str] = []
    for result in results:
        wrong = _wrong_in_markdown(result)
        if wrong:
            rows += ["", f"### {_quoted(f'{result.client}: {result.name} [{result.topology}]')}", "", *wrong]
            rows += [f"- repeat it with {_quoted(result.reproduce)}"] if result.reproduce else []
    return ["", "## What does not hold", *rows] if rows else []


def _wrong_in_markdown(result: ResultRow) -> list[str]:
    rows = [
        f"- {'calls' if error.culprit == 'client' else 'not run'}: {_quoted(str(error))}" for error in result.troubles
    ]
    rows += [] if not result.missed else [f"- never reached: {_quoted(result.why or 'for an unknown reason')}"]
    rows += [f"- memory: {process} grew from {_quoted(much)}" for process, much in result.growth.items()]
    for name in filter(result.cells.get, result.failed):
        findings = result.cells[name].findings
        shown = [_quoted(f"{finding.job} {finding.message}".strip()) for finding in findings[:FINDINGS_IN_MARKDOWN]]
        rows += [f"- **{name}**: {text}" for text in shown]
        rows += (
            [f"- **{name}**: {len(findings)} findings, see report.html"] if len(findings) > FINDINGS_IN_MARKDOWN else []
        )
    rows += [f"- **{name}** unknown: {_quoted('; '.join(result.cells[name].reasons))}" for name in result.unproven]
    return rows


def _quoted(text: str) -> str:
    """Text as code, so that it is not interpreted as Markdown or HTML."""
    shown = " ".join(terminal_line(text).split()).replace("`", "'")
    return f"`{shown}`"


def _cell(text: str) -> str:
    """Text in a cell of a table: as it is if it is a plain name, else as code."""
    return text if PLAIN_NAME.fullmatch(text) else _quoted(text).replace("|", r"\|")
