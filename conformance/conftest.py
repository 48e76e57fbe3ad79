"""`pytest conformance/`: wires the gate to pytest, and its records to the run file, the live view and the reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import garbage
from conformance.environment.prepare import announce, settled
from conformance.gate.options import RunConfig, add_options, from_pytest
from conformance.gate.plugin import GatePlugin, Listener, runner
from conformance.gate.ratchet import known_writers
from conformance.problems import Problem
from conformance.report.output import listeners_for

__all__ = ["pytest_addoption", "pytest_configure", "runner"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of a run."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the gate, unless the calling program has already registered one."""
    garbage.seldom_looked_for()  # xdist's workers are processes of their own
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


def _listeners(config: pytest.Config, run: RunConfig) -> list[Listener]:
    if hasattr(config, "workerinput"):
        return []
    listeners: list[Listener] = listeners_for(Path(run.out) if run.out else None, run.format, live=False)
    return listeners + known_writers(run, announce)
