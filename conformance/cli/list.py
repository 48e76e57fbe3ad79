"""`list`: every requirement of the ledger."""

from __future__ import annotations

from fnmatch import fnmatchcase

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.gate.clients import client_names
from conformance.ledger.loader import load_ledger
from conformance.problems import NothingSelected


@click.command("list")
@click.argument("patterns", nargs=-1)
@click.option("--clients", is_flag=True, help="List the clients that `--client` takes instead.")
def list_requirements(patterns: tuple[str, ...], clients: bool) -> None:
    """List requirements: all, or those whose id or area matches one of the glob PATTERNS."""
    console = Console(soft_wrap=True, highlight=False)
    if clients:
        for name in client_names():
            console.print(name, markup=False)
        return
    ledger = load_ledger()
    chosen = [
        row for row in ledger.values() if not patterns or any(_matches(row.id, row.area, one) for one in patterns)
    ]
    if not chosen:
        raise NothingSelected(
            f"no requirement matches {' '.join(patterns)}", hint="`bullmq-conformance list` prints all"
        )
    table = Table(box=None, pad_edge=False)
    for title in ("level", "requirement", "statement"):
        table.add_column(title, no_wrap=title != "statement")
    for row in chosen:
        table.add_row(row.level, row.id, Text(row.statement))
    console.print(table)


def _matches(requirement: str, area: str, pattern: str) -> bool:
    return fnmatchcase(requirement, pattern) or area == pattern
