"""`list`, `explain` and `ledger`: every requirement, the scenarios that check it, and the coverage."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import click
from rich.console import Console
from rich.table import Table

from conformance.checkers.snapshot_checks import checks_table
from conformance.checkers.traffic import ALL_CHECKS as TRAFFIC_CHECKS
from conformance.environment.clients import client_entries
from conformance.environment.prepare import EnvironmentOptions
from conformance.gate.proof import Proof, ProofRunner, all_proofs, proof_runner
from conformance.gate.selection import scenarios_by_requirement
from conformance.ledger.loader import STATUSES, Ledger, Requirement, examined_rows, load_claims, load_ledger
from conformance.ledger.overview import LedgerCoverage, coverage_of, requirements_page
from conformance.ledger.profiles import load_profiles
from conformance.mutants.registry import killed_rows
from conformance.observe.canonical import rules_table
from conformance.pages.terminal import terminal_block, terminal_text
from conformance.problems import NothingSelected, UsageProblem
from conformance.report.specification import part_of


@click.command("list")
@click.argument("patterns", nargs=-1)
@click.option("--clients", "what", flag_value="clients", help="List the clients that `run --client` takes.")
@click.option("--rules", "what", flag_value="rules", help="List the canonical rules, and why each exists.")
@click.option("--checks", "what", flag_value="checks", help="List what is checked after every scenario.")
@click.option("--profiles", "what", flag_value="profiles", help="List what a client can be conformant as.")
def list_requirements(patterns: tuple[str, ...], what: str | None) -> None:
    """List requirements: all, or those whose id or area matches one of the glob PATTERNS."""
    console = Console(soft_wrap=True, highlight=False)
    if what == "profiles":
        _list_profiles(console)
        return
    if what is not None:
        _list_others(console, what)
        return
    ledger = load_ledger()
    for pattern in patterns:
        if not any(_matches(row.id, row.area, pattern) for row in ledger.values()):
            close = difflib.get_close_matches(pattern, [*ledger.areas, *ledger])
            hint = f"did you mean {' or '.join(close)}?" if close else "`bullmq-conformance list` prints all"
            raise NothingSelected(f"no requirement matches {pattern}", hint=hint)
    chosen = [
        row
        for row in ledger.values()
        if not patterns or any(_matches(row.id, row.area, pattern) for pattern in patterns)
    ]
    table = Table(box=None, pad_edge=False)
    for title in ("level", "requirement", "statement"):
        table.add_column(title, no_wrap=title != "statement")
    for row in chosen:
        table.add_row(terminal_text(row.level), terminal_text(row.id), terminal_text(row.statement))
    console.print(table)


def _list_profiles(console: Console) -> None:
    """Print each profile with what a driver has to declare for it, and the requirements that it consists of."""
    table = load_profiles()
    requirements = table.rows_by_profile(examined_rows())
    for profile in table.values():
        rows = requirements[profile.name]
        needed = ", ".join((*profile.operations, *profile.capabilities)) or "nothing: it is about every client"
        console.print(terminal_text(f"{profile.name}: {profile.title}"), style="bold")
        console.print(terminal_text(f"  needs         {needed}{' and a Redis Cluster' if profile.needs else ''}"))
        if profile.base:
            console.print(terminal_text(f"  together with {profile.base}"))
        console.print(terminal_block(f"  requirements  {len(rows)}: {', '.join(rows)}\n"))


def _list_others(console: Console, what: str) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for row in _other_rows(what):
        table.add_row(*map(terminal_text, row))
    console.print(table)


def _other_rows(what: str) -> Iterator[Sequence[str]]:
    if what == "clients":
        yield from ([entry.name, entry.description, entry.obstacle or "ready"] for entry in client_entries())
    elif what == "rules":
        yield from rules_table()
    else:
        yield from ([name, severity, meaning] for name, severity, _, meaning in checks_table())
        yield from ([check.name, check.severity, check.doc] for check in TRAFFIC_CHECKS)


def _matches(requirement: str, area: str, pattern: str) -> bool:
    return fnmatchcase(requirement, pattern) or area == pattern


REFUTED = 1


@click.command()
@click.argument("requirement", required=False)
@click.option("--prove", is_flag=True, help="Show on a private Redis what the oracle does where the row is disputed.")
@click.option("--all", "everything", is_flag=True, help="With --prove: prove every disputed row.")
@click.option("--node", default="", help="Path of the Node.js that runs the oracle.")
@click.option("--redis", default="", help="With --prove: as in `run`; default: a private one.")
def explain(requirement: str | None, prove: bool, everything: bool, node: str, redis: str) -> int:
    """Explain one REQUIREMENT, by its id or by the id of a claim of the specification (FR-2.3)."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    options = EnvironmentOptions(node=node, redis=redis)
    if everything:
        if requirement is not None or not prove:
            raise UsageProblem("--all names no requirement, and needs --prove", hint="explain --prove --all")
        return _prove_everything(console, options)
    if requirement is None:
        raise UsageProblem("which requirement?", hint="`bullmq-conformance list` prints every id")
    row = _find(load_ledger(), requirement)
    _print_requirement(row, console)
    for claim in _listed_claims(row, requirement):
        console.print(terminal_text(f"in a run's folder: specification.html#{claim}"))
    return _prove(row, console, options) if prove else 0


def _find(ledger: Ledger, requirement: str) -> Requirement:
    claims = ledger.by_claim()
    row = ledger.get(requirement) or claims.get(requirement.upper())
    if row is None:
        close = difflib.get_close_matches(requirement, [*ledger, *claims], n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(close)}?" if close else "`bullmq-conformance list` prints every id"
        raise UsageProblem(f"unknown requirement {requirement!r}", hint=hint)
    return row


def _listed_claims(row: Requirement, asked: str) -> list[str]:
    """Return the claims of the specification's list that the user asked about: the named one, or all of the row."""
    claims = [claim for claim in row.claims if part_of(claim)]
    return [claim for claim in claims if claim == asked.upper()] or claims


def _print_requirement(row: Requirement, console: Console) -> None:
    console.print(terminal_text(f"{row.id}  ({row.level}, area {row.area})"), style="bold")
    console.print(terminal_text(row.statement))
    scenarios = scenarios_by_requirement().get(row.id, [])
    profile = load_profiles().profile_of(row.id)
    facts = {
        "profile": profile.name if row.examined and profile else "",
        "status": f"{row.status}: {row.reason}" if row.reason else row.status,
        "stated in": row.source,
        "the paper": row.paper,
        "the oracle": row.oracle,
        "holds for": f"BullMQ {row.versions}" if row.versions else "",
        **{f"from {text.since} on": text.statement or text.oracle for text in row.later},
        "claims": ", ".join(f"{claim} ({load_claims().get(claim, 'unknown')})" for claim in row.claims),
        "differences at": ", ".join(row.owns),
        "scenarios": "\n           ".join(scenarios),
        "run them": f"bullmq-conformance run --select {row.id}" if scenarios else "",
        "measure it": f"bullmq-conformance bench {row.bench} -- COMMAND" if row.bench else "",
        "prove it": f"bullmq-conformance explain {row.id} --prove" if row.id in all_proofs() else "",
    }
    for name, text in facts.items():
        if text:
            console.print(terminal_text(f"{name}: {text}"))


def _prove(row: Requirement, console: Console, options: EnvironmentOptions) -> int:
    """Run the proofs of a row. Returns 1 if the oracle does not do what the ledger says, else 0."""
    proofs = all_proofs().get(row.id, ())
    if not proofs:
        hint = "disputed rows have one: `bullmq-conformance explain order.delayed.score --prove`"
        raise UsageProblem(f"there is no proof of {row.id}, which is {row.status}", hint=hint)
    with proof_runner(options) as runner:
        return REFUTED if _refuted(proofs, runner, console) else 0


def _prove_everything(console: Console, options: EnvironmentOptions) -> int:
    """Run every proof, and list the refuted rows last. Returns 1 if there is one, else 0."""
    refuted = []
    with proof_runner(options) as runner:
        for name, proofs in all_proofs().items():
            console.print(terminal_block(f"\n{name}"), style="bold")
            if _refuted(proofs, runner, console):
                refuted.append(name)
    count = sum(map(len, all_proofs().values()))
    verdict = f"refuted: {', '.join(refuted)}" if refuted else "all of them hold"
    console.print(terminal_block(f"\n{count} proofs of {len(all_proofs())} disputed rows; {verdict}"))
    return REFUTED if refuted else 0


def _refuted(proofs: Sequence[Proof], runner: ProofRunner, console: Console) -> bool:
    """Run and print proofs. Returns whether one of them fails, or none of them states a check."""
    results = [runner.run(proof) for proof in proofs]
    console.print(terminal_text(f"paper says: {results[0].paper}"))
    for result in results:
        if result.checks or result.failure:
            console.print(terminal_block(f"\n{result.proof.title}\n{result.text}"))
    return not all(result.holds for result in results) or not any(result.checks for result in results)


INCOMPLETE = 1
LEAST_WIDTH = 100


@click.group()
def ledger() -> None:
    """Summarise the ledger: its coverage, or its index as a page."""


@ledger.command()
@click.option("--strict", is_flag=True, help="Exit with 1 if anything is missing.")
def coverage(strict: bool) -> int:
    """Count rows, scenarios and mutants by area, and list what is missing."""
    found = coverage_of(load_ledger(), load_claims(), scenarios_by_requirement(), killed_rows())
    console = Console(soft_wrap=True, highlight=False, markup=False)
    # Ten columns need more than 80 characters; on a narrow terminal, a wrapped line loses nothing.
    console.width = max(console.width, LEAST_WIDTH)
    console.print(_coverage_table(found))
    for gap in found.gaps:
        console.print(terminal_text(f"{gap.kind}: {gap.id}" + (f"  ({gap.why})" if gap.why else "")))
    console.print(terminal_text(_coverage_line(found)))
    return INCOMPLETE if strict and found.gaps else 0


@ledger.command()
def page() -> None:
    """Print docs/reference/requirements.md."""
    click.echo(requirements_page(load_ledger(), load_profiles()), nl=False)


def _coverage_table(found: LedgerCoverage) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("area", min_width=max(len(area.area) for area in found.areas))
    for title in ("rows", *STATUSES, "scenarios", "mutants", "missing"):
        table.add_column(title, justify="right")
    for area in found.areas:
        counts = [area.rows, *(area.by_status[status] for status in STATUSES)]
        counts += [area.with_scenario, area.with_mutant, area.missing_scenarios]
        table.add_row(terminal_text(area.area), *(terminal_text(str(count)) for count in counts))
    return table


def _coverage_line(found: LedgerCoverage) -> str:
    kinds = Counter(gap.kind for gap in found.gaps)
    missing = ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items())) or "nothing"
    rows, scenarios = sum(area.rows for area in found.areas), sum(area.with_scenario for area in found.areas)
    mutants = sum(area.with_mutant for area in found.areas)
    return f"{rows} rows, {scenarios} with scenario, {mutants} with mutant; missing: {missing}"
