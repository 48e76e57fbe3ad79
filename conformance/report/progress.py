"""The run while it is going: a live bar on a terminal, plain lines everywhere else.

The pytest plugin calls `start`, then `scenario` for every record, then `stop`.
"""

from __future__ import annotations

import os
from collections import Counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from conformance.gate.records import ScenarioRecord
from conformance.report.rows import NO_ROWS, Rows
from conformance.report.summary import show_scenario
from conformance.report.terminal import STYLES
from conformance.report.text import visible
from conformance.report.verdicts import SHOWN, SYMBOLS, Shown

QUIET: frozenset[Shown] = frozenset({"pass", "unsupported"})
"""Scenarios that get no line of their own while the run is going."""

HEARTBEATS = 10
"""Plain mode says how far it is this many times, so that a CI log is neither silent nor endless."""


class LiveProgress:
    """Shows how far a run is, and each scenario with trouble as it happens.

    `rows` soften what is shown by level. `live` forces or forbids the bar; by default it is used on a terminal that
    can move its cursor, outside CI.
    """

    def __init__(self, console: Console | None = None, rows: Rows = NO_ROWS, *, live: bool | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._rows = rows
        self._live = _can_redraw(self._console) if live is None else live
        self._counts: Counter[Shown] = Counter()
        self._planned = 0
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def start(self, planned: int) -> None:
        """Begin a run of `planned` scenarios."""
        self._planned = planned
        if not self._live:
            self._console.print(Text(f"running {planned} scenarios"))
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
        shown = show_scenario(record, self._rows)
        self._counts[shown] += 1
        if shown not in QUIET:
            self._console.print(_line(record, shown), soft_wrap=True, highlight=False)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._counts.total(), counts=self._counted(words=False))
        elif self._is_heartbeat():
            self._console.print(
                Text(f"{self._counts.total()}/{self._planned}  {self._counted(words=True)}"), soft_wrap=True
            )

    def stop(self) -> None:
        """Take the bar away; stopping twice, or without a start, is fine."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _counted(self, *, words: bool) -> str:
        """Say how many of each so far; a bar has room for symbols only."""
        seen = [one for one in reversed(SHOWN) if self._counts[one]]
        return "  ".join(f"{SYMBOLS[one]} {self._counts[one]}{f' {one}' if words else ''}" for one in seen)

    def _is_heartbeat(self) -> bool:
        step = max(1, self._planned // HEARTBEATS)
        done = self._counts.total()
        return done % step == 0 or done == self._planned


def _line(record: ScenarioRecord, shown: Shown) -> Text:
    reason = f"  {visible(record.reason, keep_newlines=False)}" if record.reason else ""
    return Text.assemble(
        (f"{SYMBOLS[shown]} {shown}", STYLES[shown]), f"  {visible(record.id, keep_newlines=False)}", reason
    )


def _can_redraw(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal and not os.environ.get("CI")
