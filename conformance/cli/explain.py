"""`explain`: what one requirement says, who says so, and which scenarios look at it."""

from __future__ import annotations

import difflib

import click
from rich.console import Console

from conformance.gate.catalogue import scenarios_by_requirement
from conformance.ledger.loader import Requirement, load_ledger
from conformance.problems import UsageProblem


@click.command()
@click.argument("requirement")
def explain(requirement: str) -> None:
    """Explain one REQUIREMENT, by its id."""
    ledger = load_ledger()
    if requirement not in ledger:
        close = difflib.get_close_matches(requirement, list(ledger), n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(close)}?" if close else "`bullmq-conformance list` prints every id"
        raise UsageProblem(f"unknown requirement {requirement!r}", hint=hint)
    _print(ledger.row(requirement))


def _print(row: Requirement) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{row.id}  ({row.level}, area {row.area})", style="bold")
    console.print(row.statement)
    facts = {
        "stated in": row.source,
        "the oracle": row.oracle,
        "claims": ", ".join(row.claims),
        "differences at": ", ".join(row.owns),
        "scenarios": "\n           ".join(scenarios_by_requirement().get(row.id, [])),
        "run them": f"bullmq-conformance run --select {row.id}",
    }
    for name, text in facts.items():
        if text:
            console.print(f"{name}: {text}")
