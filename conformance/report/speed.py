"""Results of `bench` as terminal text, Markdown and JSON."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from conformance.pages.terminal import terminal_text
from conformance.pages.text import count, visible
from conformance.problems import UsageProblem, printable
from conformance.report.output import write_text
from conformance.speed.records import SPEED_FILE, GateOutcome, MeasuredRatio, SpeedReport

HEADINGS = ("measure", "client", "oracle", "ratio", "interval", "what")
STYLES: dict[GateOutcome, str] = {"holds": "green", "fails": "bold red", "undecided": "yellow"}


def print_speed(report: SpeedReport, console: Console) -> None:
    """Print the table, the clients, and the outcome of each gate."""
    table = Table(*HEADINGS)
    for ratio in report.ratios:
        table.add_row(*(terminal_text(cell) for cell in cells(ratio)))
    console.print(table)
    for line in facts(report):
        console.print(terminal_text(line), soft_wrap=True)
    for gate in report.gates:
        console.print(
            terminal_text(f"{gate.outcome}: {gate.text}: {visible(gate.reason)}"),
            style=STYLES[gate.outcome],
            soft_wrap=True,
        )


def render_terminal_speed(report: SpeedReport) -> str:
    """Render the same as text."""
    text = io.StringIO()
    print_speed(report, Console(file=text, width=120, color_system=None))
    return text.getvalue()


def render_markdown_speed(report: SpeedReport) -> str:
    """Render a table and a list, for a pull request."""
    rows = [HEADINGS, tuple("---" for _ in HEADINGS), *(cells(ratio) for ratio in report.ratios)]
    lines = [f"| {' | '.join(_escaped(cell) for cell in row)} |" for row in rows]
    gates = [f"- **{gate.outcome}**: {gate.text}: {_escaped(gate.reason)}" for gate in report.gates]
    return "\n".join(["# Speed relative to the oracle", "", *lines, "", *map(_escaped, facts(report)), "", *gates, ""])


def render_json_speed(report: SpeedReport) -> str:
    """Render the whole report with its exit code."""
    document = {**msgspec.to_builtins(report), "exit_code": report.exit_code}
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


SPEED_FORMATS: dict[str, tuple[str, Callable[[SpeedReport], str]]] = {
    "terminal": ("bench.txt", render_terminal_speed),
    "markdown": ("bench.md", render_markdown_speed),
    "json": (SPEED_FILE, render_json_speed),
}
"""File name and renderer by format name."""


def speed_formats(names: list[str]) -> list[str]:
    """Return the named formats, all if none is named. Raises UsageProblem for an unknown one."""
    for name in names:
        if name not in SPEED_FORMATS:
            raise UsageProblem(f"unknown report format {name!r}", hint=f"choose from {', '.join(SPEED_FORMATS)}")
    return names or list(SPEED_FORMATS)


def write_speed(report: SpeedReport, out: Path, formats: list[str]) -> Iterator[Path]:
    """Write the report in each format. Raises EnvironmentProblem for an unwritable folder."""
    for name in formats:
        file_name, render = SPEED_FORMATS[name]
        yield write_text(out / file_name, render(report))


def cells(ratio: MeasuredRatio) -> tuple[str, ...]:
    """Return one row: numbers, or why there are none."""
    if ratio.median is None or ratio.low is None or ratio.high is None:
        return (ratio.measure, "", "", ratio.state.replace("-", " "), "", visible(ratio.reason, keep_newlines=False))
    shown = (f"{number(ratio.client)} {ratio.unit}", f"{number(ratio.oracle)} {ratio.unit}")
    return (ratio.measure, *shown, f"{ratio.median:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}", ratio.meaning)


def number(value: float | None) -> str:
    """Format with three significant digits: `12,500`, `34.5`, `0.123`."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def facts(report: SpeedReport) -> list[str]:
    """Return clients, Redis, rounds, and the confidence of the intervals."""
    measured = [ratio for ratio in report.ratios if ratio.confidence is not None]
    sure = min((ratio.confidence or 0.0 for ratio in measured), default=0.0)
    return [
        f"{visible(report.client)} compared with {visible(report.oracle)}, on {visible(report.redis)}",
        f"{count(report.rounds, 'round')} of {count(report.jobs, 'job')}, in turns; above 1 is better than the oracle",
        f"each interval holds the true ratio with a probability of {sure:.0%}",
        f"machine load (1 min): {report.load[0]:.1f} before, {report.load[1]:.1f} after",
    ]


def _escaped(text: str) -> str:
    return printable(visible(text, keep_newlines=False)).replace("|", "\\|").replace("<", "&lt;")
