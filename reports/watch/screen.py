"""The output of a watch: a live table on a terminal, lines elsewhere, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from conformance.pages.terminal import terminal_text
from conformance.pages.text import count
from conformance.pages.text import moment as moment_text
from conformance.protocol import keys
from reports.watch.judgement import CAUSES, WatchFinding
from reports.watch.session import WatchedQueue, WatchMoment

LINES_EVERY_MS = 60_000
"""Between two lines about a queue without findings, where the output is not a terminal."""

MOST_QUEUES = 40
"""Rows of the table; queues with findings come first."""


class Screen(Protocol):
    """Shows each moment of a watch."""

    def show(self, moment: WatchMoment) -> None:
        """Show it."""
        ...

    def close(self) -> None:
        """Leave the output as it is."""
        ...


class PlainLines:
    """Findings as they start and end, and all queues once a minute."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown_ms = 0

    def show(self, moment: WatchMoment) -> None:
        """Print what is new."""
        when = moment_text(moment.at_ms)
        if moment.error:
            self._console.print(terminal_text(f"no look: {moment.error}"))
            return
        if moment.at_ms - self._shown_ms >= LINES_EVERY_MS:
            self._shown_ms = moment.at_ms
            for queue, state in moment.queues.items():
                self._console.print(terminal_text(f"{when}  {_line(queue, state)}"))
        for finding in moment.started:
            first, *examples = _finding_lines(finding)
            self._console.print(terminal_text(f"{when}  {first}", style="bold red"))
            for example in examples:
                self._console.print(terminal_text(example))
        for finding in moment.ended:
            self._console.print(terminal_text(f"{when}  {finding.kind} {finding.queue}: over"))

    def close(self) -> None:
        """Nothing to do."""


class JsonLines:
    """One JSON object for each look."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, moment: WatchMoment) -> None:
        """Print it as one line of ASCII."""
        self._console.file.write(f"{json_line(moment)}\n")
        self._console.file.flush()

    def close(self) -> None:
        """Nothing to do."""


class LiveTable:
    """A table that is drawn again with every look."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, moment: WatchMoment) -> None:
        """Draw it."""
        self._live.update(table_of(moment), refresh=True)

    def close(self) -> None:
        """Leave the last table."""
        self._live.stop()


def table_of(moment: WatchMoment) -> Group:
    """All queues, those with findings first, and what was found."""
    table = Table(box=box.SIMPLE)
    for name in ("queue", "workers", "waiting", "active", "delayed", "added/s", "taken/s", "stalls/min", "findings"):
        table.add_column(name, justify="left" if name in {"queue", "findings"} else "right")
    ordered = sorted(moment.queues.items(), key=lambda entry: (not entry[1].findings, entry[0]))
    for queue, state in ordered[:MOST_QUEUES]:
        cells = (queue, *_numbers(state), ", ".join(finding.kind for finding in state.findings) or "-")
        table.add_row(*map(terminal_text, cells), style="bold red" if state.findings else "")
    left = [f"and {len(ordered) - MOST_QUEUES} more queues"] if len(ordered) > MOST_QUEUES else []
    error = [f"no look: {moment.error}"] if moment.error else []
    lines = [*left, *error, *(line for finding in moment.findings for line in _finding_lines(finding))]
    return Group(terminal_text(moment_text(moment.at_ms)), table, *map(terminal_text, lines))


def _numbers(state: WatchedQueue) -> Iterator[str]:
    look = state.look
    yield str(len(look.workers))
    yield f"{look.backlog:,}{' (paused)' if look.is_paused else ''}"
    yield f"{look.sizes[keys.ACTIVE]:,}"
    yield f"{look.sizes[keys.DELAYED]:,}"
    yield _rate(state.added_per_s)
    yield _rate(state.claims_per_s)
    yield str(state.stalls_in_a_minute)


def _rate(per_s: float | None) -> str:
    return "-" if per_s is None else f"{per_s:,.1f}"


def _line(queue: str, state: WatchedQueue) -> str:
    look = state.look
    parts = (
        count(len(look.workers), "worker"),
        f"{look.backlog:,} waiting{' (paused)' if look.is_paused else ''}",
        f"{look.sizes[keys.ACTIVE]:,} active",
        f"{look.sizes[keys.DELAYED]:,} delayed",
        f"{_rate(state.claims_per_s)} taken/s",
        f"{state.stalls_in_a_minute} stalls/min",
    )
    return f"{queue}: {', '.join(parts)}"


def _finding_lines(finding: WatchFinding) -> Iterator[str]:
    yield f"{finding.kind} {finding.queue}: {finding.message}"
    yield from (f"    {example}" for example in finding.examples)
    yield f"    why: {CAUSES[finding.kind].why}"
    yield from (f"    repair: {call}" for call in CAUSES[finding.kind].repair)


def json_line(moment: WatchMoment) -> str:
    """A moment as JSON that controls neither a terminal nor a CI system."""
    return json.dumps(moment_data(moment)).replace("##[", "##\\u005b").replace("\x7f", "\\u007f")


def moment_data(moment: WatchMoment) -> dict[str, Any]:
    """A moment as plain values; times in Unix ms."""
    return {
        "at_ms": moment.at_ms,
        "error": moment.error,
        "queues": {
            queue: {
                "jobs": dict(state.look.sizes),
                "workers": len(state.look.workers),
                "paused": state.look.is_paused,
                "marker": state.look.has_marker,
                "overdue": state.look.overdue,
                "stalls_in_a_minute": state.stalls_in_a_minute,
                "claims_per_s": state.claims_per_s,
                "added_per_s": state.added_per_s,
            }
            for queue, state in moment.queues.items()
        },
        "findings": [msgspec.to_builtins(finding) for finding in moment.findings],
    }
