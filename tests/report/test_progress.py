"""The progress of a run, live and plain."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from conformance.report.run_file import Run, read_run
from conformance.report.summary import RequirementRows
from conformance.report.terminal import LiveProgress


@pytest.fixture
def full(run_path: Callable[[str], Path]) -> Run:
    return read_run(run_path("full"))


def console_of(*, terminal: bool, term: str = "xterm") -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, _environ={"TERM": term})


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def go_through(run: Run, progress: LiveProgress) -> None:
    progress.start(len(run.scenarios))
    for record in run.scenarios:
        progress.scenario(record)
    progress.stop()


def test_plain_lines_without_a_terminal(full: Run, rows: RequirementRows) -> None:
    console = console_of(terminal=False)
    go_through(full, LiveProgress(console, rows))
    lines = written(console).splitlines()
    assert lines[0] == "running 12 scenarios"
    assert "✗ fail  lock.stale" in lines
    assert not any("events." in line for line in lines), "warnings are shown by cause, at the end"
    assert lines[-1].startswith("12/12  - 1 unsupported  ✓ 2 pass")
    assert "\x1b" not in written(console)
    assert not any("flow.children" in line for line in lines), "unsupported scenarios are only counted"


def test_the_bar_moves_on_a_terminal(full: Run, rows: RequirementRows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    console = console_of(terminal=True)
    go_through(full, LiveProgress(console, rows))
    assert "12/12" in written(console)
    assert "\x1b[?25h" in written(console), "the cursor is shown again"
    assert "lock.stale" in written(console)


@pytest.mark.parametrize(("ci", "term"), [("true", "xterm"), ("", "dumb")])
def test_no_bar_in_ci_or_on_a_dumb_terminal(
    ci: str, term: str, full: Run, rows: RequirementRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    console = console_of(terminal=True, term=term)
    go_through(full, LiveProgress(console, rows))
    assert "running 12 scenarios" in written(console)
    assert "\x1b[?25l" not in written(console), "the cursor was never hidden"


def test_a_long_run_is_not_a_long_log(full: Run) -> None:
    console = console_of(terminal=False)
    passing = full.scenarios[0]
    progress = LiveProgress(console)
    progress.start(1000)
    for _ in range(1000):
        progress.scenario(passing)
    assert len(written(console).splitlines()) == 11


def test_hostile_ids_do_not_reach_the_terminal(run_path: Callable[[str], Path]) -> None:
    console = console_of(terminal=False)
    go_through(read_run(run_path("hostile")), LiveProgress(console))
    assert "error<script>" in written(console)
    assert "\n::set-output" not in written(console)


def test_stopping_twice_or_unstarted_is_fine() -> None:
    progress = LiveProgress(console_of(terminal=True), live=True)
    progress.stop()
    progress.start(0)
    progress.stop()
    progress.stop()
