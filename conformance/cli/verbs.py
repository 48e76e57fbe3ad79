"""`bullmq-conformance`: one click command per verb."""

from __future__ import annotations

import click

from conformance.cli.chaos import chaos
from conformance.cli.driver import driver
from conformance.cli.fuzz import fuzz, replay
from conformance.cli.matrix import matrix
from conformance.cli.mutants import mutants
from conformance.cli.report import report
from conformance.cli.requirements import explain, ledger, list_requirements
from conformance.cli.run import run
from conformance.cli.spark import check, diff, history, load, snapshot
from conformance.gate.records import KIT_VERSION


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(KIT_VERSION, prog_name="bullmq-conformance")
def cli() -> None:
    """Decide whether a BullMQ client speaks the protocol of Node.js BullMQ: 5.62.0, or any version (--oracle).

    Exit codes: 0 what was asked for holds, 1 not conformant, 2 wrong usage, 3 environment, driver or kit broken,
    4 undecided, 5 nothing selected, 130 interrupted (Ctrl-C, SIGTERM, SIGHUP).
    """


for command in (
    run,
    list_requirements,
    explain,
    ledger,
    driver,
    report,
    matrix,
    fuzz,
    replay,
    mutants,
    load,
    snapshot,
    diff,
    check,
    history,
    chaos,
):
    cli.add_command(command)
