"""`bullmq-conformance`: one click command per verb, and one way in which problems end the program."""

from __future__ import annotations

import sys

import click
from rich.console import Console

from conformance.cli.driver import driver
from conformance.cli.explain import explain
from conformance.cli.list import list_requirements
from conformance.cli.report import report
from conformance.cli.run import run
from conformance.gate.version import KIT_VERSION
from conformance.problems import Problem

INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(KIT_VERSION, prog_name="bullmq-conformance")
def cli() -> None:
    """Decide whether a BullMQ client speaks the protocol of Node.js BullMQ 5.62.0.

    Exit codes: 0 conformant, 1 not, 2 wrong usage, 3 environment or driver broken, 5 nothing selected.
    """


for command in (run, list_requirements, explain, driver, report):
    cli.add_command(command)


def main() -> None:
    """Run the program; a Problem is one line on stderr and its exit code, never a traceback."""
    try:
        code = cli.main(standalone_mode=False)
    except Problem as problem:
        code = _complain(problem.what, problem.hint, problem.exit_code)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        code = _complain("interrupted", "", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(what: str, hint: str, code: int) -> int:
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    console.print(f"error: {what}", style="bold red")
    if hint:
        console.print(f"hint: {hint}")
    return code
