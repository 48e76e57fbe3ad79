"""`mutants`: break the reference client in ways that nobody chose, and see whether the scenarios notice."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from conformance.cli.options import run_options_of
from conformance.mutants.generated.change import GeneratedMutant, lines_of_change
from conformance.mutants.generated.command import MutantOptions, MutantSession, default_jobs
from conformance.mutants.generated.outcome import JudgedMutant, SweepOutcome
from conformance.mutants.generated.record import KillMatrixRecord, write_record
from conformance.participants.marks import TIERS

ENOUGH, TOO_FEW = 0, 1


@click.command()
@click.option("--sample", "size", type=click.IntRange(1), default=30, show_default=True, help="How many mutants.")
@click.option("--seed", "seeds", type=int, multiple=True, default=(0,), show_default=True, help="Draws; repeatable.")
@click.option("--area", default="", help="Only mutants of one area: adding, claiming, finishing, ...")
@click.option("--file", default="*", show_default=True, help="Glob over scripts and modules: 'lua *', moveToActive.")
@click.option("--mutant", "keys", multiple=True, help="Only this mutant (key or glob); repeatable. Nothing is drawn.")
@click.option(
    "--tier",
    "tiers",
    type=click.Choice(TIERS),
    multiple=True,
    default=("full",),
    show_default=True,
    help="Scenarios that may notice; repeatable.",
)
@click.option("--at-least", type=click.FloatRange(0, 100), default=0.0, help="Fail below so many percent killed.")
@click.option("--surely", is_flag=True, help="Fail only if the whole interval is below: a small sample varies.")
@click.option("--cases", type=click.IntRange(0), default=150, show_default=True, help="Most per mutant; 0: all.")
@click.option("--quick", is_flag=True, help="Only the first case of each scenario may notice, and no slow one.")
@click.option("--slow", is_flag=True, help="Slow cases may notice as well: they play for long what others play once.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Processes; default: twice the cores.")
@click.option("--list", "only_list", is_flag=True, help="Show the mutants, and play nothing.")
@click.option("--idle", "only_idle", is_flag=True, help="List the scenarios that no mutant fails; nothing is drawn.")
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the kill matrix there (Markdown), and its record beside it.",
)
@run_options_of("node")
def mutants(  # noqa: PLR0917 - click passes every option by name
    size: int,
    seeds: tuple[int, ...],
    area: str,
    file: str,
    keys: tuple[str, ...],
    tiers: tuple[str, ...],
    at_least: float,
    surely: bool,
    cases: int,
    quick: bool,
    slow: bool,
    jobs: int | None,
    only_list: bool,
    only_idle: bool,
    page: Path | None,
    node: str,
) -> int:
    """Hunt mutants: small changes to the Lua scripts and to the reference client, each made by a rule with a seed.

    Exit codes: 0 enough were killed, 1 fewer than --at-least (or a scenario is idle, and nobody has said why), 2 wrong
    usage, 3 environment or kit broken.
    """
    console = Console(highlight=False, soft_wrap=True)
    options = MutantOptions(
        size=size,
        seeds=seeds,
        area=area,
        file=file,
        keys=keys,
        tiers=tiers,
        node=node,
        jobs=jobs or default_jobs(),
        most_cases=cases or sys.maxsize,
        quick=quick,
        slow=slow,
    )
    session = MutantSession(options)
    if only_list:
        for mutant in session.chosen():
            _show_change(console, session, mutant)
        return ENOUGH
    if only_idle:
        return _show_idle(console, session)
    outcomes = []
    for outcome in session.outcomes(lambda text: console.print(Text(text)), lambda each: _show(console, session, each)):
        _summarise(console, outcome)
        outcomes.append(outcome)
    if page is not None:
        write_record(KillMatrixRecord.of(outcomes, _command()), page)
    return TOO_FEW if any(outcome.rate.is_below(at_least, surely=surely) for outcome in outcomes) else ENOUGH


def _command() -> str:
    words = sys.argv[1:]
    return shlex.join(["bullmq-conformance", *words])


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
