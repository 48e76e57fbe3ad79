"""The report on a terminal: who was tested, a table, what is wrong, and the conclusion as the last line.

Everything that comes from a client is printed as `Text`, never as console markup, so that it can neither style nor
hide anything. Colours follow rich: none without a terminal, none with NO_COLOR.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from conformance.report.conclusion import State
from conformance.report.facts import Fact, group_facts, requirement_facts, run_facts
from conformance.report.summary import RequirementSummary, ScenarioSummary, Summary
from conformance.report.text import visible
from conformance.report.verdicts import SHOWN, SYMBOLS, Shown

STYLES: dict[Shown, str] = {
    "fail": "bold red",
    "error": "bold magenta",
    "stale": "bold red",
    "inconclusive": "yellow",
    "warn": "yellow",
    "info": "cyan",
    "expected-fail": "dark_orange",
    "unsupported": "bright_black",
    "pass": "green",
}

STATE_STYLES: dict[State, str] = {
    "conformant": "bold green",
    "not-conformant": "bold red",
    "undecided": "bold yellow",
}

NARROW: dict[Shown, str] = {"inconclusive": "open", "expected-fail": "known", "unsupported": "unsup."}
"""Column heads that must be short for the table to fit 80 columns; the legend spells them out."""

GAP = Text()
"""An empty line."""

FINDINGS_PER_REQUIREMENT = 5


def render(summary: Summary) -> str:
    """Render the whole report as plain text, 80 columns wide."""
    console = Console(file=io.StringIO(), width=80, color_system=None, force_terminal=False, legacy_windows=False)
    print_summary(summary, console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def print_summary(summary: Summary, console: Console) -> None:
    """Print the whole report on a console."""
    for block in _blocks(summary):
        console.print(block, soft_wrap=isinstance(block, Text), highlight=False)


def _blocks(summary: Summary) -> Iterator[RenderableType]:
    """Yield the parts of the report. A `Text` may run over the edge, so that command lines can be copied."""
    yield _facts(run_facts(summary.run), indent=0)
    yield from _incomplete(summary)
    if summary.areas:
        yield GAP
        yield _table(summary)
        yield from _legend(summary)
    for requirement in summary.troubled():
        yield from _requirement(requirement)
    for scenario in summary.unattributed:
        yield from _unattributed(scenario)
    if summary.problems:
        yield GAP
        yield _lines("Problems of the run", summary.problems)
    yield from _incomplete(summary)
    yield GAP
    yield Text(visible(summary.conclusion.sentence), style=STATE_STYLES[summary.conclusion.state])


def _incomplete(summary: Summary) -> Iterator[RenderableType]:
    if not summary.completeness.complete:
        yield GAP
        yield Text(summary.completeness.sentence, style="bold yellow")


def _table(summary: Summary) -> Table:
    words = [one for one in SHOWN if one in summary.counts]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("area", overflow="fold", footer="all")
    for word in words:
        table.add_column(Text(NARROW.get(word, word), style=STYLES[word]), justify="right")
    table.add_column("all", justify="right")
    for area in summary.areas:
        cells = [_number(area.counts.get(word, 0), word) for word in words]
        table.add_row(Text(visible(area.name)), *cells, str(len(area.requirements)))
    table.add_section()
    totals = [_number(summary.counts.get(word, 0), word) for word in words]
    table.add_row(Text("all", style="bold"), *totals, str(len(summary.requirements)))
    return table


def _number(number: int, word: Shown) -> Text:
    return Text(str(number), style=STYLES[word]) if number else Text("·", style="bright_black")


def _legend(summary: Summary) -> Iterator[Text]:
    spelled = [f"{short} = {word}" for word, short in NARROW.items() if word in summary.counts]
    if spelled:
        yield Text(", ".join(spelled), style="bright_black")


def _requirement(requirement: RequirementSummary) -> Iterator[RenderableType]:
    yield GAP
    yield _title(requirement.shown, requirement.id, requirement.level or "level unknown")
    yield _facts(requirement_facts(requirement), indent=2)
    if requirement.shown in ("expected-fail", "stale"):
        return
    shown = requirement.findings[:FINDINGS_PER_REQUIREMENT]
    for group in shown:
        yield GAP
        yield _facts(group_facts(group), indent=2)
        yield from _reproduce(group.reproduce)
    if len(requirement.findings) > len(shown):
        yield Text(f"  and {len(requirement.findings) - len(shown)} more findings (see the HTML report)")
    if not shown:
        yield from itertools.chain.from_iterable(_reproduce(line) for line in _reproduce_lines(requirement))


def _reproduce_lines(requirement: RequirementSummary) -> list[str]:
    """Pick one command line of a scenario in which the requirement did not pass."""
    lines = [one.reproduce for one in requirement.scenarios if one.requirements.get(requirement.id) != "pass"]
    return [line for line in lines if line][:1]


def _unattributed(scenario: ScenarioSummary) -> Iterator[RenderableType]:
    record = scenario.record
    yield GAP
    yield _title(record.verdict, record.id, "scenario")
    yield _facts([("scenario", visible(record.title)), ("reason", visible(record.reason))], indent=2)
    yield from _reproduce(record.reproduce)


def _reproduce(line: str) -> Iterator[Text]:
    if line:
        yield Text(f"   reproduce {visible(line, keep_newlines=False)}", style="bold")


def _title(shown: Shown, name: str, remark: str) -> Text:
    return Text.assemble(
        (f"{SYMBOLS[shown]} {shown.upper()}", STYLES[shown]),
        "  ",
        (visible(name, keep_newlines=False), "bold"),
        f"  ({remark})",
    )


def _facts(facts: list[Fact], *, indent: int) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=indent)
    grid.add_column(style="bright_black", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in facts:
        grid.add_row("", Text(label), Text(value))
    return grid


def _lines(title: str, lines: tuple[str, ...]) -> Text:
    return Text("\n").join([Text(title, style="bold"), *(Text(f"  - {visible(line)}") for line in lines)])
