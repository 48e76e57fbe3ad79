"""`list`: every requirement of the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.checkers.snapshot_checks import checks_table
from conformance.checkers.traffic import ALL_CHECKS as TRAFFIC_CHECKS
from conformance.gate.preparing.clients import client_names
from conformance.ledger.loader import load_ledger
from conformance.observe.canonical import rules_table
from conformance.problems import NothingSelected


@click.command("list")
@click.argument("patterns", nargs=-1)
@click.option("--clients", "what", flag_value="clients", help="List the clients that `run --client` takes.")
@click.option("--rules", "what", flag_value="rules", help="List the canonical rules, and why each exists.")
@click.option("--checks", "what", flag_value="checks", help="List what is checked after every scenario.")
def list_requirements(patterns: tuple[str, ...], what: str | None) -> None:
    """List requirements: all, or those whose id or area matches one of the glob PATTERNS."""
    console = Console(soft_wrap=True, highlight=False)
    if what is not None:
        _list_others(console, what)
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


def _list_others(console: Console, what: str) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for row in _others(what):
        table.add_row(*map(Text, row))
    console.print(table)


def _others(what: str) -> Iterator[Sequence[str]]:
    if what == "clients":
        yield from ([name] for name in client_names())
    elif what == "rules":
        yield from rules_table()
    else:
        yield from ([name, severity, meaning] for name, severity, _, meaning in checks_table())
        yield from ([check.name, check.severity, check.doc] for check in TRAFFIC_CHECKS)


def _matches(requirement: str, area: str, pattern: str) -> bool:
    return fnmatchcase(requirement, pattern) or area == pattern
