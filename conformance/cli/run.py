"""`run`: check a client against the oracle."""

from __future__ import annotations

import io
import os
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec
import pytest
from _pytest.terminal import TerminalReporter
from rich.console import Console

from conformance import interruption
from conformance.cli.options import configured
from conformance.environment.prepare import KeptDrivers, announce, client_under_test, prepare, settled
from conformance.environment.prerequisites import insist, required_names
from conformance.gate.bench import client_log
from conformance.gate.options import RunConfig, words_of
from conformance.gate.plugin import GatePlugin, Listener, logs_folder, nothing_selected
from conformance.gate.ratchet import known_writers
from conformance.problems import EnvironmentProblem
from conformance.report.output import listeners_for

PACKAGE = Path(str(files("conformance")))
MOST_JOBS = 8


@click.command()
@configured(RunConfig)
@click.option("--jobs", type=click.IntRange(1), default=None, help="Processes that run scenarios; default: cores + 1.")
@click.option("--require", default="", help="Prerequisites that must not be missing, e.g. docker,java,node.")
def run(config: RunConfig, jobs: int | None, require: str) -> int:
    """Check a client: a named one, or the driver started by COMMAND (after `--`)."""
    insist(required_names(require), node=config.node)
    name = client_under_test(config.client, config.command)
    return run_gate(msgspec.structs.replace(config, client=name), jobs or usual_jobs())


def usual_jobs() -> int:
    """One process more than there are cores: scenarios wait much, those of a client that fails still more."""
    return min((os.cpu_count() or 1) + 1, MOST_JOBS)


def run_gate(config: RunConfig, jobs: int) -> int:
    """Run the scenarios that the configuration selects in so many processes, show them, and return the exit code.

    Raises a Problem for whatever is wrong with the options or the environment.
    """
    config = settled(config)
    listeners: list[Listener] = listeners_for(Path(config.out) if config.out else None, config.format, live=True)
    listeners += known_writers(config, announce)
    plugin, quiet = GatePlugin(config, listeners, announce), QuietPytest()
    # In one process the scenarios go on with the drivers that have proved themselves.
    keep = KeptDrivers(client_log(logs_folder(config))) if jobs == 1 else None
    with prepare(config, announce, prove=True, keep=keep) as environment:
        plugin.use(environment)
        try:
            # Pytest's own folders outlive it, and xdist makes one for each process.
            with TemporaryDirectory(prefix="bullmq-conformance-pytest-") as folder:
                words = [*_pytest_words(config, jobs), "--basetemp", str(Path(folder, "tmp"))]
                code = pytest.main(words, plugins=[plugin, quiet])
            if code == pytest.ExitCode.INTERRUPTED:
                raise KeyboardInterrupt  # inside: who ends the environment removes what an interrupted run has left
        finally:
            _show_cursor()
    if plugin.problem is not None:
        raise plugin.problem
    if plugin.exit_code is not None:
        return plugin.exit_code
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise nothing_selected(config)
    raise EnvironmentProblem(f"the run broke off (pytest ended with {code}):\n{quiet.output.getvalue()}")


def _pytest_words(config: RunConfig, jobs: int) -> list[str]:
    words = [str(PACKAGE / "scenarios"), "--rootdir", str(PACKAGE), "-c", os.devnull]
    words += ["-p", "no:cacheprovider", "--import-mode=importlib", "--strict-markers"]
    words += ["-p", "no:hypothesispytest"]  # it imports all of Hypothesis at the end, and no scenario is a property
    words += ["-p", "no:unraisableexception"]  # it looks for garbage five times at the end, and would tell nobody
    words += ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 else ["-p", "no:xdist"]
    return [*words, *words_of(config)]


def _show_cursor() -> None:
    """Give the terminal its cursor back: a live view that was interrupted has hidden it."""
    Console(stderr=True).show_cursor(show=True)


class QuietPytest:
    """Sends what pytest would print into `output`, where it is found if pytest itself breaks."""

    def __init__(self) -> None:
        self.output = io.StringIO()

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Replace the reporter by one that writes elsewhere; xdist and others still find it under its name."""
        manager = config.pluginmanager
        loud = manager.get_plugin("terminalreporter")
        if loud is not None:
            manager.unregister(loud)
            manager.register(QuietReporter(config, self.output), "terminalreporter")


class QuietReporter(TerminalReporter):  # type: ignore[misc]  # final, and hooks cannot be dropped otherwise
    """Pytest's reporter, which does not look at where an interruption came from: nobody reads that."""

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Do nothing but take it.

        A signal may hit an instruction that has no line number, and then pytest's own words about it break the run off
        (`TypeError: unsupported operand type(s) for -: 'NoneType' and 'int'`). Pytest forgets it before it has
        cleaned up.
        """
        del excinfo
        interruption.arrived()

    def _report_keyboardinterrupt(self) -> None:
        """Print nothing of it at the end either: there is no record of it."""
