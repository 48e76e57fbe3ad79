"""`ledger`: how much of the ledger is looked at, and the ledger as a page."""

from __future__ import annotations

from collections import Counter

import click
from rich.console import Console
from rich.table import Table

from conformance.gate.run.catalogue import scenarios_by_requirement
from conformance.ledger.coverage import Coverage, coverage_of
from conformance.ledger.loader import STATUSES, load_claims, load_ledger
from conformance.ledger.page import requirements_page
from conformance.mutants.registry import killed_rows

INCOMPLETE = 1


@click.group()
def ledger() -> None:
    """Look at the ledger as a whole: what is covered, and all of it as a page."""


@ledger.command()
@click.option("--strict", is_flag=True, help="Exit with 1 if anything is missing.")
def coverage(strict: bool) -> int:
    """Count rows, scenarios and mutants by area, and list what is missing."""
    found = coverage_of(load_ledger(), load_claims(), scenarios_by_requirement(), killed_rows())
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(_table(found))
    for gap in found.gaps:
        console.print(f"{gap.kind}: {gap.id}" + (f"  ({gap.why})" if gap.why else ""))
    console.print(_sum(found))
    return INCOMPLETE if strict and found.gaps else 0


@ledger.command()
def page() -> None:
    """Print docs/requirements.md."""
    click.echo(requirements_page(load_ledger()), nl=False)


def _table(found: Coverage) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("area", min_width=max(len(area.area) for area in found.areas))
    for title in ("rows", *STATUSES, "scenarios", "mutants", "missing"):
        table.add_column(title, justify="right")
    for area in found.areas:
        counts = [area.rows, *(area.by_status[status] for status in STATUSES)]
        counts += [area.with_scenario, area.with_mutant, area.missing_scenarios]
        table.add_row(area.area, *map(str, counts))
    return table


def _sum(found: Coverage) -> str:
    kinds = Counter(gap.kind for gap in found.gaps)
    missing = ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items())) or "nothing"
    rows, scenarios = sum(area.rows for area in found.areas), sum(area.with_scenario for area in found.areas)
    mutants = sum(area.with_mutant for area in found.areas)
    return f"{rows} rows, {scenarios} with scenario, {mutants} with mutant; missing: {missing}"
