"""Reports from a results file: a page with matrix, timelines and findings, JUnit XML, a table in Markdown."""

from __future__ import annotations

import importlib
import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from junitparser import Failure, JUnitXml, TestCase, TestSuite

from chaos.results import FILE, InvariantCell, ResultRow, ResultsHeader, Timeline, WindowRow, read_results
from conformance.checkers.histories.history_checks import ALL_CHECKS
from conformance.observe.tap.rules import PHASES
from conformance.problems import EnvironmentProblem

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


SYMBOLS = {"ok": "✓", "fail": "✗", "unknown": "?", "explained": "≈", "none": "·"}
MEANINGS = {
    "ok": "holds",
    "fail": "does not hold",
    "unknown": "nothing speaks against it, but not everything could be judged",
    "explained": "does not hold, as with Node itself; the ledger says so",
    "none": "the run had nothing of the kind",
}

_new_document: Any = JUnitXml  # without annotations in the package


def render_all(folder: Path) -> list[Path]:
    """Write every report beside the results. Raises UsageProblem, EnvironmentProblem."""
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
    environment = Environment(
        loader=PackageLoader("chaos", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    runs = [result for result in results if result.kind == "faults"]
    return environment.get_template("chaos.html").render(
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
        key=id,
        program=plot_program() if runs else "",
        failing=[result for result in results if result.failed or not result.reached],
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
    if result is None:
        return "none"
    if result.failed or not result.reached:
        return "fail"
    return "explained" if any(cell.verdict == "explained" for cell in result.cells.values()) else "ok"


def junit(results: Sequence[ResultRow], *, complete: bool) -> str:
    """A suite per client and kind; a run that fails says which invariants, and how to repeat it."""
    document = _new_document("bullmq-conformance chaos")
    suites: dict[str, TestSuite] = {}
    for result in results:
        suite = suites.setdefault(f"{result.client} {result.kind}", TestSuite(f"{result.client} {result.kind}"))
        case = TestCase(f"{result.name} [{result.topology}]", f"chaos.{result.client}", result.seconds)
        if result.failed or not result.reached:
            failure = Failure(", ".join(result.failed) or "the point was not reached", "fail")
            failure.text = "\n".join(_details(result))
            case.result = [failure]
        suite.add_testcase(case)
    if not complete:
        suite = TestSuite("run")
        case = TestCase("run is complete", "chaos", 0)
        case.result = [Failure("the run broke off", "incomplete")]
        suite.add_testcase(case)
        suites["run"] = suite
    for suite in suites.values():
        document.add_testsuite(suite)
    written = io.BytesIO()
    document.write(written, pretty=True)
    return written.getvalue().decode("utf-8")


def _details(result: ResultRow) -> list[str]:
    lines = [f"reproduce: {result.reproduce}"]
    lines += [f"memory: {process} grew from {much}" for process, much in result.growth.items()]
    for name in filter(result.cells.get, result.failed):
        for found in result.cells[name].findings:
            lines += [f"{name}: {found.job} {found.message}", *(f"    {line}" for line in found.lines)]
    return lines


def markdown(results: Sequence[ResultRow], *, complete: bool) -> str:
    """The matrix, and the table of crash points."""
    names = [check.name for check in ALL_CHECKS]
    rows = ["# Chaos", ""]
    rows += [] if complete else ["**The run broke off.**", ""]
    runs = [result for result in results if result.kind == "faults"]
    if runs:
        rows += [f"| client | fault | topology | {' | '.join(names)} |", f"|---|---|---|{'---|' * len(names)}"]
        for run in runs:
            symbols = " | ".join(SYMBOLS[symbol_of(run.cells.get(name))] for name in names)
            rows.append(f"| {run.client} | {run.name} | {run.topology} | {symbols} |")
        rows.append("")
    table = crash_table(results)
    if table:
        rows += [f"| client | script | hurt | {' | '.join(PHASES)} |", f"|---|---|---|{'---|' * len(PHASES)}"]
        for (client, script, hurt), points in table.items():
            symbols = " | ".join(SYMBOLS[state_of(points.get(point))] for point in PHASES)
            rows.append(f"| {client} | {script} | {hurt} | {symbols} |")
        rows.append("")
    rows += [f"{SYMBOLS[kind]} {meaning}" + "  " for kind, meaning in MEANINGS.items()]
    return "\n".join(rows) + "\n"
