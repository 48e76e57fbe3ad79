"""`explain`: what one requirement says, who says so, which scenarios look at it, and a proof where it is disputed."""

from __future__ import annotations

import difflib

import click
from rich.console import Console

from conformance.gate.run.catalogue import scenarios_by_requirement
from conformance.ledger.loader import Ledger, Requirement, load_claims, load_ledger
from conformance.problems import UsageProblem
from conformance.proofs.registry import all_proofs
from conformance.proofs.stage import stage

REFUTED = 1


@click.command()
@click.argument("requirement")
@click.option("--prove", is_flag=True, help="Show on a private Redis what the oracle does where the row is disputed.")
@click.option("--node", default="", help="Path of the Node.js that runs the oracle.")
@click.option("--redis", default="", help="With --prove: as in `run`; default: a private one.")
def explain(requirement: str, prove: bool, node: str, redis: str) -> int:
    """Explain one REQUIREMENT, by its id or by the id of a claim of the specification (FR-2.3)."""
    row = _find(load_ledger(), requirement)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    _print(row, console)
    return _prove(row, console, node=node, redis=redis) if prove else 0


def _find(ledger: Ledger, requirement: str) -> Requirement:
    claims = ledger.by_claim()
    row = ledger.get(requirement) or claims.get(requirement.upper())
    if row is None:
        close = difflib.get_close_matches(requirement, [*ledger, *claims], n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(close)}?" if close else "`bullmq-conformance list` prints every id"
        raise UsageProblem(f"unknown requirement {requirement!r}", hint=hint)
    return row


def _print(row: Requirement, console: Console) -> None:
    console.print(f"{row.id}  ({row.level}, area {row.area})", style="bold")
    console.print(row.statement)
    scenarios = scenarios_by_requirement().get(row.id, [])
    facts = {
        "status": f"{row.status}: {row.reason}" if row.reason else row.status,
        "stated in": row.source,
        "the paper": row.paper,
        "the oracle": row.oracle,
        "claims": ", ".join(f"{claim} ({load_claims().get(claim, 'unknown')})" for claim in row.claims),
        "differences at": ", ".join(row.owns),
        "scenarios": "\n           ".join(scenarios),
        "run them": f"bullmq-conformance run --select {row.id}" if scenarios else "",
        "prove it": f"bullmq-conformance explain {row.id} --prove" if row.id in all_proofs() else "",
    }
    for name, text in facts.items():
        if text:
            console.print(f"{name}: {text}")


def _prove(row: Requirement, console: Console, *, node: str, redis: str) -> int:
    """Run the proofs of a row. Exit code 1 where the oracle does not do what the ledger says."""
    proofs = all_proofs().get(row.id, ())
    if not proofs:
        hint = "other disputed rows have one: `bullmq-conformance explain order.delayed.score --prove`"
        raise UsageProblem(f"there is no proof of {row.id}, which is {row.status}", hint=hint)
    refuted = False
    with stage(node=node or None, redis=redis or None, announce=_announce) as open_stage:
        for proof in proofs:
            shown = open_stage.show(proof)
            refuted = refuted or not shown.holds
            console.print(f"\n{proof.what}\n{shown.text}")
    return REFUTED if refuted else 0


def _announce(line: str) -> None:
    click.echo(line, err=True)
