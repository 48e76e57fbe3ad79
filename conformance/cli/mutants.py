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
from conformance.pages.terminal import terminal_text

ENOUGH, TOO_FEW = 0, 1


@click.command()
@configured(MutantConfig)
def mutants(config: MutantConfig) -> int:
    """Hunt mutants: small changes to the Lua scripts and to the reference client, each made by a rule with a seed.

    Exit codes: 0 enough were killed, 1 fewer than --at-least (or an idle scenario has no entry in idle.toml), 2 wrong
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
    for outcome in session.outcomes(
        lambda text: console.print(terminal_text(text)), lambda mutant: _show(console, session, mutant)
    ):
        _summarise(console, outcome)
        outcomes.append(outcome)
    if config.page is not None:
        command = shlex.join(["bullmq-conformance", *sys.argv[1:]])
        write_record(KillMatrixRecord.of(outcomes, command), config.page)
    fails = any(outcome.rate.is_below(config.at_least, significant=config.significant) for outcome in outcomes)
    return TOO_FEW if fails else ENOUGH


def _show(console: Console, session: MutantSession, mutant: JudgedMutant) -> None:
    """One line per killed mutant; a survivor with the text of the change."""
    hunted = mutant.hunted
    match hunted.fate:
        case "killed":
            by = f"{hunted.case}  {hunted.requirement}{' (warns)' if hunted.warns else ''}"
            console.print(terminal_text(f"killed     {mutant.key}  by {by}  {hunted.took_s:.1f} s"))
        case "survived" | "unreached":
            noticed_nothing = f"{hunted.passed} of {hunted.reach} cases notice nothing"
            seen = hunted.message or (noticed_nothing if hunted.passed else "no case gets there")
            judged = f", {mutant.judgement.verdict}: {mutant.judgement.reason}" if mutant.judgement else ""
            console.print(
                terminal_text(f"{hunted.fate:10} {mutant.key}  {seen}{judged}", style="" if mutant.judgement else "red")
            )
            if mutant.judgement is None:
                _show_change(console, session, session.mutant(mutant.key))
        case _:
            why = hunted.message or "; ".join(hunted.problems[:2])
            console.print(terminal_text(f"{hunted.fate:10} {mutant.key}  {why}", style="yellow"))
    if mutant.is_misjudged:
        console.print(Text("           it was judged invisible: correct judgements.toml", style="red"))


def _show_idle(console: Console, session: MutantSession) -> int:
    """Print a line for each scenario that no mutant fails."""
    proven = []
    for scenario in session.proven():
        proven.append(scenario)
        if scenario.is_unexplained:
            console.print(
                terminal_text(
                    f"idle       {scenario.scenario}  no mutant fails it, and idle.toml has no reason", style="red"
                )
            )
        elif scenario.is_explained_in_vain:
            console.print(
                terminal_text(
                    f"not idle   {scenario.scenario}  {scenario.mutant} fails it: remove it from idle.toml",
                    style="yellow",
                )
            )
        elif not scenario.mutant:
            console.print(terminal_text(f"idle       {scenario.scenario}  {scenario.reason}"))
    idle = [scenario for scenario in proven if not scenario.mutant]
    console.print(
        terminal_text(f"{len(proven) - len(idle)} of {len(proven)} scenarios are failed by a mutant", style="bold")
    )
    return TOO_FEW if any(scenario.is_unexplained for scenario in proven) else ENOUGH


def _show_change(console: Console, session: MutantSession, mutant: GeneratedMutant) -> None:
    before, after = lines_of_change(session.text(mutant), mutant.edit)
    console.print(terminal_text(f"  {mutant.file}:{mutant.line}  {mutant.key}", style="dim"))
    for sign, lines, style in (("-", before, "red"), ("+", after, "green")):
        for line in lines:
            console.print(terminal_text(f"  {sign} {line}", style=style))


def _summarise(console: Console, outcome: SweepOutcome) -> None:
    drawn = "" if outcome.seed is None else f", seed {outcome.seed}"
    judged = [f"{len(outcome.judged(verdict))} {verdict}" for verdict in ("equivalent", "unreachable")]
    others = [
        f"{outcome.count(fate)} {word}" for fate, word in (("undecided", "undecided"), ("broken", "do not start"))
    ]
    console.print(
        terminal_text(
            f"killed {outcome.rate} of {len(outcome.mutants)} mutants{drawn}, tier {outcome.tier}", style="bold"
        )
    )
    console.print(terminal_text(f"  besides {', '.join([*judged, *others])}; {outcome.only_warned} only by a warning"))
    for title, rates in (("source", outcome.by_language), ("area", outcome.by_area), ("operator", outcome.by_operator)):
        console.print(terminal_text(f"  by {title}: " + "; ".join(f"{name} {rate}" for name, rate in rates.items())))
    for mutant in outcome.misjudged:
        console.print(terminal_text(f"  judged invisible, but killed: {mutant.key}", style="red"))
