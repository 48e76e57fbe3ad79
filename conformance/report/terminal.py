"""The report on a terminal, and progress during a run: a live bar, or plain lines without a terminal."""

from __future__ import annotations

import io
import itertools
import os
from collections import Counter
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from conformance.gate.conclusion import ConclusionState
from conformance.gate.outcomes import REPORTED_VERDICTS, ReportedVerdict
from conformance.gate.records import ScenarioRecord
from conformance.pages.terminal import terminal_block, terminal_parts, terminal_text
from conformance.pages.text import clip, visible
from conformance.report.bug_report import FOLDER, file_name
from conformance.report.causes import Cause
from conformance.report.summary import (
    NO_ROWS,
    LabelledValue,
    RequirementRows,
    RequirementSummary,
    ScenarioSummary,
    Summary,
    cause_facts,
    open_facts,
    reason_of,
    requirement_facts,
    run_facts,
    scenario_facts,
    scenario_verdict,
    verdict_facts,
)
from conformance.report.verdicts import SYMBOLS

STYLES: dict[ReportedVerdict, str] = {
    "fail": "bold red",
    "error": "bold magenta",
    "stale": "bold red",
    "inconclusive": "yellow",
    "warn": "yellow",
    "info": "cyan",
    "expected-fail": "dark_orange",
    "unchecked": "yellow",
    "changed": "yellow",
    "unsupported": "bright_black",
    "pass": "green",
}

STATE_STYLES: dict[ConclusionState, str] = {
    "conformant": "bold green",
    "holds": "bold cyan",
    "not-conformant": "bold red",
    "undecided": "bold yellow",
}

NARROW: dict[ReportedVerdict, str] = {"inconclusive": "open", "expected-fail": "known", "unsupported": "unsup."}
"""Short column heads, so that the table fits 80 columns; the legend explains them."""

GAP = Text()
"""An empty line."""

CAUSES_IN_FULL = 30
"""Failing causes that are shown in full; the others get one line each."""
LONGEST_LINE = 200
"""Characters of a cause in one line."""


def render_terminal(summary: Summary) -> str:
    """Render the whole report as plain text, 80 columns wide."""
    console = Console(file=io.StringIO(), width=80, color_system=None, force_terminal=False, legacy_windows=False)
    print_summary(summary, console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def print_summary(summary: Summary, console: Console) -> None:
    """Print the whole report on a console. Colours follow rich: none without a terminal, none with NO_COLOR.

    Everything that comes from a client is printed as `Text`, never as console markup, so that it can neither style nor
    hide anything.
    """
    for block in _blocks(summary):
        console.print(block, soft_wrap=isinstance(block, Text), highlight=False)


def _blocks(summary: Summary) -> Iterator[RenderableType]:
    """Yield the parts of the report. A `Text` may be wider than the terminal, so that command lines can be copied."""
    yield _facts(run_facts(summary.run), indent=0)
    yield from _incomplete(summary)
    yield from _verdict(summary)
    yield from _failures(summary)
    yield from _warnings(summary)
    if summary.areas:
        yield GAP
        yield _table(summary)
        yield from _legend(summary)
    for requirement in summary.troubled():
        if not requirement.causes or requirement.reported in ("expected-fail", "stale"):
            yield from _requirement(requirement)
    for scenario in summary.unattributed:
        yield from _unattributed(scenario)
    if summary.problems:
        yield GAP
        yield _lines("Problems of the run", summary.problems)
    yield from _incomplete(summary)
    yield GAP
    yield _sentence(summary)


def _verdict(summary: Summary) -> Iterator[RenderableType]:
    """Yield the verdict, the status of each profile, and the undecided requirements."""
    yield GAP
    yield _sentence(summary)
    if summary.conclusion.profiles:
        yield GAP
        yield _facts(verdict_facts(summary.conclusion), indent=0)
    not_decided = open_facts(summary.conclusion)
    if not_decided:
        yield GAP
        yield Text("Not decided", style="bold")
        yield _facts(not_decided, indent=2)


def _sentence(summary: Summary) -> Text:
    return terminal_text(visible(summary.conclusion.sentence), style=STATE_STYLES[summary.conclusion.state])


def _incomplete(summary: Summary) -> Iterator[RenderableType]:
    if not summary.completeness.complete:
        yield GAP
        yield terminal_text(summary.completeness.sentence, style="bold yellow")


def _table(summary: Summary) -> Table:
    words = [word for word in REPORTED_VERDICTS if word in summary.counts]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("area", overflow="fold", footer="all")
    for word in words:
        table.add_column(terminal_text(NARROW.get(word, word), style=STYLES[word]), justify="right")
    table.add_column("all", justify="right")
    for area in summary.areas:
        cells = [_number(area.counts.get(word, 0), word) for word in words]
        table.add_row(terminal_text(visible(area.name)), *cells, terminal_text(str(len(area.requirements))))
    table.add_section()
    totals = [_number(summary.counts.get(word, 0), word) for word in words]
    table.add_row(Text("all", style="bold"), *totals, terminal_text(str(len(summary.requirements))))
    return table


def _number(number: int, word: ReportedVerdict) -> Text:
    return terminal_text(str(number), style=STYLES[word]) if number else Text("·", style="bright_black")


def _legend(summary: Summary) -> Iterator[Text]:
    spelled = [f"{short} = {word}" for word, short in NARROW.items() if word in summary.counts]
    if spelled:
        yield terminal_text(", ".join(spelled), style="bright_black")


def _requirement(requirement: RequirementSummary) -> Iterator[RenderableType]:
    yield GAP
    yield _title(requirement.reported, requirement.id, requirement.level or "level unknown")
    yield _facts(requirement_facts(requirement), indent=2)
    if requirement.reported not in ("expected-fail", "stale"):
        yield from itertools.chain.from_iterable(_reproduce(line) for line in _reproduce_lines(requirement))


def _failures(summary: Summary) -> Iterator[RenderableType]:
    """Yield the causes that fail a requirement, in their order."""
    failing = [cause for cause in summary.causes if cause.verdict == "fail"]
    rows = {requirement.id: requirement for requirement in summary.requirements}
    for cause in failing[:CAUSES_IN_FULL]:
        yield GAP
        yield _title("fail", f"{cause.number}. {cause.line}", cause.level or "level unknown")
        yield _facts([*requirement_facts(rows[cause.finding.requirement]), *cause_facts(cause)], indent=2)
        yield from _reproduce(cause.example.reproduce)
        yield terminal_text(f"   report    {FOLDER}/{file_name(cause)}", style="bright_black")
    if len(failing) > CAUSES_IN_FULL:
        yield GAP
        yield from (_cause_line(cause, "fail") for cause in failing[CAUSES_IN_FULL:])


def _warnings(summary: Summary) -> Iterator[RenderableType]:
    """Yield one line for each cause that only warns and is not in known.toml."""
    minor = [cause for cause in summary.causes if cause.verdict in ("warn", "info")]
    if minor:
        yield GAP
    yield from (_cause_line(cause, cause.verdict) for cause in minor)


def _cause_line(cause: Cause, word: ReportedVerdict) -> Text:
    requirement = visible(cause.finding.requirement, keep_newlines=False)
    line = visible(clip(f"{cause.number}. {cause.line}", LONGEST_LINE), keep_newlines=False)
    return terminal_parts((f"{SYMBOLS[word]} {word}", STYLES[word]), f"  {line}  ({requirement})")


def _reproduce_lines(requirement: RequirementSummary) -> list[str]:
    """Pick one command line of a scenario in which the requirement did not pass."""
    lines = [
        scenario.reproduce for scenario in requirement.scenarios if scenario.requirements.get(requirement.id) != "pass"
    ]
    return [line for line in lines if line][:1]


def _unattributed(scenario: ScenarioSummary) -> Iterator[RenderableType]:
    record = scenario.record
    yield GAP
    yield _title(record.verdict, record.id, "scenario")
    yield _facts(scenario_facts(record), indent=2)
    yield from _reproduce(record.reproduce)


def _reproduce(line: str) -> Iterator[Text]:
    if line:
        yield terminal_text(f"   reproduce {visible(line, keep_newlines=False)}", style="bold")


def _title(reported: ReportedVerdict, name: str, remark: str) -> Text:
    return terminal_parts(
        (f"{SYMBOLS[reported]} {reported.upper()}", STYLES[reported]),
        "  ",
        (visible(name, keep_newlines=False), "bold"),
        f"  ({remark})",
    )


def _facts(facts: list[LabelledValue], *, indent: int) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=indent)
    grid.add_column(style="bright_black", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in facts:
        grid.add_row("", terminal_text(label), terminal_block(value))  # a value may have lines of its own
    return grid


def _lines(title: str, lines: tuple[str, ...]) -> Text:
    return Text("\n").join([terminal_text(title, style="bold"), *(terminal_block(f"  - {line}") for line in lines)])


QUIET: frozenset[ReportedVerdict] = frozenset({"pass", "unsupported", "warn", "info"})
"""Verdicts of scenarios that get no line during the run; warnings are shown by cause at the end."""

HEARTBEATS = 10
"""How often plain mode prints progress, so that a CI log is neither silent nor endless."""


class LiveProgress:
    """Shows the progress of a run, and each scenario with a problem: call `start`, `scenario` for each, `stop`.

    `rows` soften what is shown by level. `live` forces or forbids the bar; by default it is used on a terminal that
    can move its cursor, outside CI.
    """

    def __init__(
        self, console: Console | None = None, rows: RequirementRows = NO_ROWS, *, live: bool | None = None
    ) -> None:
        self._console = console or Console(stderr=True)
        self._rows = rows
        self._live = _can_redraw(self._console) if live is None else live
        self._counts: Counter[ReportedVerdict] = Counter()
        self._planned = 0
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def start(self, planned: int) -> None:
        """Start a run of `planned` scenarios."""
        self._planned = planned
        if not self._live:
            self._console.print(terminal_text(f"running {planned} scenarios"))
            return
        self._bar = Progress(
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[counts]}", markup=False),
            console=self._console,
            # pytest owns stdout and stderr while tests are running.
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        )
        self._task = self._bar.add_task("", total=planned, counts="")
        self._bar.start()

    def scenario(self, record: ScenarioRecord) -> None:
        """Count one scenario, and print a line if it did not simply pass."""
        reported = scenario_verdict(record, self._rows)
        self._counts[reported] += 1
        if reported not in QUIET:
            self._console.print(_scenario_line(record, reported), soft_wrap=True, highlight=False)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._counts.total(), counts=self._counted(words=False))
        elif self._is_heartbeat():
            self._console.print(
                terminal_text(f"{self._counts.total()}/{self._planned}  {self._counted(words=True)}"), soft_wrap=True
            )

    def stop(self) -> None:
        """Remove the bar; may be called twice, and without `start`."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _counted(self, *, words: bool) -> str:
        """Return the counts so far; a bar only has room for symbols."""
        seen = [word for word in reversed(REPORTED_VERDICTS) if self._counts[word]]
        return "  ".join(f"{SYMBOLS[word]} {self._counts[word]}{f' {word}' if words else ''}" for word in seen)

    def _is_heartbeat(self) -> bool:
        step = max(1, self._planned // HEARTBEATS)
        done = self._counts.total()
        return done % step == 0 or done == self._planned


def _scenario_line(record: ScenarioRecord, reported: ReportedVerdict) -> Text:
    reason = f"  {visible(reason_of(record), keep_newlines=False)}" if reason_of(record) else ""
    return terminal_parts(
        (f"{SYMBOLS[reported]} {reported}", STYLES[reported]), f"  {visible(record.id, keep_newlines=False)}", reason
    )


def _can_redraw(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal and not os.environ.get("CI")
