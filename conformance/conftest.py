"""`pytest conformance/`: wires the gate to pytest, and its records to the run file, the live view and the reports."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from conformance.environment import garbage
from conformance.environment.prepare import announce, settled
from conformance.gate.options import RunConfig, add_options, from_pytest
from conformance.gate.plugin import GatePlugin, Listener, runner
from conformance.gate.ratchet import known_writers
from conformance.problems import Problem
from conformance.report.output import SummaryCollector, listeners_for
from conformance.report.terminal import print_summary

__all__ = ["pytest_addoption", "pytest_configure", "pytest_terminal_summary", "runner"]

SUMMARY = pytest.StashKey[SummaryCollector]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of a run."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the gate, unless the calling program has already registered one."""
    garbage.raise_thresholds()  # xdist's workers are processes of their own
    if any(isinstance(plugin, GatePlugin) for plugin in config.pluginmanager.get_plugins()):
        return
    try:
        run = settled(from_pytest(config))
        config.option.oracle = (
            run.oracle
        )  # xdist's workers get the exact version, so that they need no lookup in the registry
        plugin = GatePlugin(run, _listeners(config, run), announce)
    except Problem as problem:
        pytest.exit(str(problem), returncode=problem.exit_code)
    config.pluginmanager.register(plugin)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what `bullmq-conformance run` prints at its end; nothing if no scenario ran."""
    collector = config.stash.get(SUMMARY, None)
    if collector is None or collector.summary is None:
        return
    terminalreporter.section("BullMQ conformance")
    console = Console(file=io.StringIO(), force_terminal=terminalreporter.hasmarkup, legacy_windows=False)
    print_summary(collector.summary, console)
    assert isinstance(console.file, io.StringIO)
    terminalreporter.write(console.file.getvalue())


def _listeners(config: pytest.Config, run: RunConfig) -> list[Listener]:
    if hasattr(config, "workerinput"):
        return []
    listeners: list[Listener] = listeners_for(Path(run.out) if run.out else None, run.format, live=False)
    collector = config.stash[SUMMARY] = SummaryCollector()
    return [*listeners, collector.record, *known_writers(run, announce)]
