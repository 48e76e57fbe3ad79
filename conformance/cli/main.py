"""`bullmq-conformance`: one click command per verb, and one way in which problems end the program."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from rich.console import Console

from conformance.cli.chaos import chaos
from conformance.cli.driver import driver
from conformance.cli.fuzz import fuzz, replay
from conformance.cli.report import report
from conformance.cli.requirements import explain, ledger, list_requirements
from conformance.cli.run import run
from conformance.cli.spark import diff, history, load, snapshot
from conformance.driver.errors import DriverBroken
from conformance.gate.records import KIT_VERSION
from conformance.problems import Problem

INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(KIT_VERSION, prog_name="bullmq-conformance")
def cli() -> None:
    """Decide whether a BullMQ client speaks the protocol of Node.js BullMQ: 5.62.0, or any version (--oracle).

    Exit codes: 0 what was asked for holds, 1 not conformant, 2 wrong usage, 3 environment, driver or kit broken,
    4 undecided, 5 nothing selected.
    """


for command in (
    run,
    list_requirements,
    explain,
    ledger,
    driver,
    report,
    fuzz,
    replay,
    load,
    snapshot,
    diff,
    history,
    chaos,
):
    cli.add_command(command)


def main() -> None:
    """Run the program; a Problem is one line on stderr and its exit code, never a traceback."""
    try:
        code = cli.main(standalone_mode=False)
    except Problem as problem:
        code = _complain(what_of(problem), problem.hint, problem.exit_code, log_of(problem))
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        code = _complain("interrupted", "", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def what_of(problem: Problem) -> str:
    """What is wrong; a broken driver is named by its command, because a run has two of them."""
    driver_name = problem.driver if isinstance(problem, DriverBroken) else ""
    return f"driver `{driver_name}`: {problem.what}" if driver_name else problem.what


def log_of(problem: Problem) -> list[str]:
    """The last lines of a broken driver's stderr: mostly they tell why."""
    return list(problem.log) if isinstance(problem, DriverBroken) else []


def _complain(what: str, hint: str, code: int, log: Sequence[str] = ()) -> int:
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    console.print(f"error: {what}", style="bold red")
    if hint:
        console.print(f"hint: {hint}")
    for line in log:
        console.print(f"driver log: {line}", style="dim")
    return code
