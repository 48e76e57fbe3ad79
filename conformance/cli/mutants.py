"""`mutants`: change the reference client by generated mutations, and check that the scenarios fail."""

from __future__ import annotations

import shlex
import sys

import click
from rich.console import Console
from rich.text import Text

from conformance.cli.options import configured
from conformance.mutants.generated.change import GeneratedMutant, lines_of_change
from conformance.mutants.generated.command import MutantConfig, MutantSession
from conformance.mutants.generated.outcome import JudgedMutant, SweepOutcome
from conformance.mutants.generated.record import KillMatrixRecord, write_record

ENOUGH, TOO_FEW = 0, 1


@click.command()
@configured(MutantConfig)
def mutants(config: MutantConfig) -> int:
    """Hunt mutants: small changes to the Lua scripts and to the reference client, each made by a rule with a seed.

    Exit codes: 0 enough were killed, 1 fewer than --at-least (or a scenario is idle, and nobody has said why), 2 wrong
    usage, 3 environment or kit broken.
    """
    console = Console(highlight=False, soft_wrap=True)
    session = MutantSession(config)
    if config.only_list:
        for mutant in session.chosen():
            _show_change(console, session, mutant)
        return ENOUGH
    if config.only_idle:
        return _show_idle(console, session)
    outcomes = []
    for outcome in session.outcomes(lambda text: console.print(Text(text)), lambda each: _show(console, session, each)):
        _summarise(console, outcome)
        outcomes.append(outcome)
    if config.page is not None:
        command = shlex.join(["bullmq-conformance", *sys.argv[1:]])
        write_record(KillMatrixRecord.of(outcomes, command), config.page)
    return (
        TOO_FEW if any(outcome.rate.is_below(config.at_least, surely=config.surely) for outcome in outcomes) else ENOUGH
    )


def _show(console: Console, session: MutantSession, each: JudgedMutant) -> None:
    """One line per killed mutant; a survivor with the text of the change."""
    hunted = each.hunted
    match hunted.fate:
        case "killed":
            by = f"{hunted.case}  {hunted.requirement}{' (warns)' if hunted.warns else ''}"
            console.print(Text(f"killed     {each.key}  by {by}  {hunted.took_s:.1f} s"))
        case "survived" | "unreached":
            noticed_nothing = f"{hunted.passed} of {hunted.reach} cases notice nothing"
            seen = hunted.message or (noticed_nothing if hunted.passed else "no case gets there")
            judged = f", {each.judgement.verdict}: {each.judgement.reason}" if each.judgement else ""
            console.print(Text(f"{hunted.fate:10} {each.key}  {seen}{judged}", style="" if each.judgement else "red"))
            if each.judgement is None:
                _show_change(console, session, session.mutant(each.key))
        case _:
            why = hunted.message or "; ".join(hunted.problems[:2])
            console.print(Text(f"{hunted.fate:10} {each.key}  {why}", style="yellow"))
    if each.is_misjudged:
        console.print(Text("           it is judged to be invisible: mend judgements.toml", style="red"))


def _show_idle(console: Console, session: MutantSession) -> int:
    """One line for each scenario that no mutant fails."""
    proven = []
    for each in session.proven():
        proven.append(each)
        if each.is_unexplained:
            console.print(Text(f"idle       {each.scenario}  no mutant fails it, and nobody has said why", style="red"))
        elif each.is_explained_in_vain:
            console.print(Text(f"not idle   {each.scenario}  {each.mutant} fails it: mend idle.toml", style="yellow"))
        elif not each.mutant:
            console.print(Text(f"idle       {each.scenario}  {each.reason}"))
    idle = [each for each in proven if not each.mutant]
    console.print(Text(f"{len(proven) - len(idle)} of {len(proven)} scenarios are failed by a mutant", style="bold"))
    return TOO_FEW if any(each.is_unexplained for each in proven) else ENOUGH


def _show_change(console: Console, session: MutantSession, mutant: GeneratedMutant) -> None:
    before, after = lines_of_change(session.text(mutant), mutant.edit)
    console.print(Text(f"  {mutant.file}:{mutant.line}  {mutant.key}", style="dim"))
    for sign, lines, style in (("-", before, "red"), ("+", after, "green")):
        for line in lines:
            console.print(Text(f"  {sign} {line}", style=style))


def _summarise(console: Console, outcome: SweepOutcome) -> None:
    drawn = "" if outcome.seed is None else f", seed {outcome.seed}"
    judged = [f"{len(outcome.judged(verdict))} {verdict}" for verdict in ("equivalent", "unreachable")]
    others = [
        f"{outcome.count(fate)} {word}" for fate, word in (("undecided", "undecided"), ("broken", "do not start"))
    ]
    console.print(
        Text(f"killed {outcome.rate} of {len(outcome.mutants)} mutants{drawn}, tier {outcome.tier}", style="bold")
    )
    console.print(Text(f"  beside them {', '.join([*judged, *others])}; {outcome.only_warned} only by a warning"))
    for title, rates in (("source", outcome.by_language), ("area", outcome.by_area), ("operator", outcome.by_operator)):
        console.print(Text(f"  by {title}: " + "; ".join(f"{name} {rate}" for name, rate in rates.items())))
    for each in outcome.misjudged:
        console.print(Text(f"  judged to be invisible, and killed: {each.key}", style="red"))
