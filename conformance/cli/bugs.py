"""`bugs`: the real bugs of BullMQ and its ports, which of them the kit catches, and the proof."""

from __future__ import annotations

import random
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import click
import msgspec
from rich.console import Console

from conformance.bugs.corpus import Bug, Corpus, Status, load_blind_draw, load_corpus
from conformance.bugs.page import bugs_page, recall_text
from conformance.bugs.proof import BugProof, Prover
from conformance.cli.options import configured
from conformance.gate.separate_run import StoredRuns
from conformance.options import Option
from conformance.pages.terminal import terminal_block, terminal_text
from conformance.problems import EnvironmentProblem, NothingSelected, UsageProblem
from conformance.upstream.package import cache_folder

PROVEN, REFUTED, BROKEN = 0, 1, 3


@click.group()
def bugs() -> None:
    """List the real bugs of BullMQ and its ports, and prove which of them the kit catches."""


class BugListConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `bugs list`."""

    caught: Annotated[bool, Option("Only bugs that the kit catches.")] = False
    open: Annotated[bool, Option("Only bugs that a test could show, and that the kit does not catch.")] = False
    not_visible: Annotated[bool, Option("Only bugs that no test from outside can show.")] = False
    port: Annotated[str, Option("Only bugs of this port, such as node or python.")] = ""
    area: Annotated[str, Option("Only bugs of this area, such as stalled or flows.")] = ""


class ProofConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `bugs prove`."""

    sample: Annotated[int | None, Option("Number of caught bugs to draw.", at_least=1)] = None
    seed: Annotated[str, Option("Seed of the sample, such as a date.")] = "0"
    every: Annotated[bool, Option("Every caught bug.", "--all")] = False
    jobs: Annotated[
        int | None, Option("Processes of each run; default: three for each core, at most 8.", at_least=1)
    ] = None


@bugs.command("list")
@configured(BugListConfig)
def list_bugs(config: BugListConfig) -> int:
    """List the bugs, each with its harm and the requirement that it violates."""
    wanted: dict[Status, bool] = {
        "caught": config.caught,
        "open": config.open,
        "not visible": config.not_visible,
    }
    here = [bug for bug in load_corpus().values() if config.port in {"", bug.port} and config.area in {"", bug.area}]
    chosen = [bug for bug in here if wanted[bug.status] or not any(wanted.values())]
    if not chosen:
        raise NothingSelected("no bug matches these options", hint="`bullmq-conformance bugs list` prints all")
    console = Console(soft_wrap=True, highlight=False)
    for bug in chosen:
        console.print(terminal_text(f"{bug.id:<15}", style=f"link {bug.url}"), terminal_text(_facts_of(bug)))
        console.print(terminal_text(f"    {bug.harm}", style="dim"))
    console.print(terminal_block(f"\n{len(chosen)} bugs; caught of those that are visible: {recall_text(here)}"))
    return 0


def _facts_of(bug: Bug) -> str:
    fixed = f"fixed in {bug.fixed}" if bug.fixed else "not fixed"
    return "  ".join(filter(None, (f"{bug.status:<11}", f"{fixed:<18}", f"{bug.area:<14}", bug.requirement)))


@bugs.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@configured(ProofConfig)
def prove(config: ProofConfig, ids: Sequence[str]) -> int:
    """Run the scenarios of bugs with the release that has each and with the one that fixes it.

    Exit codes: 0 every bug was caught, 1 one was not, 2 wrong usage, 3 a release or another prerequisite is missing.
    """
    chosen = _chosen(load_corpus(), ids, config)
    console = Console(soft_wrap=True, highlight=False)
    runs = StoredRuns(folder=cache_folder() / "bugs", announce=lambda _text: None, jobs=config.jobs)
    return worst_code([_shown(console, Prover(runs), bug) for bug in chosen])


def worst_code(codes: Sequence[int]) -> int:
    """Return the exit code of several proofs: a bug that is not caught matters more than a missing release."""
    return REFUTED if REFUTED in codes else max(codes, default=PROVEN)


@bugs.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def page(file: Path) -> None:
    """Write the page about the bugs (Markdown) to FILE."""
    file.write_text(bugs_page(load_corpus(), load_blind_draw()), "utf-8")


def _chosen(corpus: Corpus, ids: Sequence[str], config: ProofConfig) -> list[Bug]:
    """The bugs to prove. Raises UsageProblem if nothing or two things are asked for, or for an unknown id."""
    if sum((bool(ids), config.sample is not None, config.every)) != 1:
        raise UsageProblem("nothing to prove", hint="give ids of `bugs list`, or --sample N, or --all: one of them")
    for bug_id in ids:
        if bug_id not in corpus:
            close = get_close_matches(bug_id, corpus)
            hint = f"did you mean {' or '.join(close)}?" if close else "`bullmq-conformance bugs list` prints all"
            raise UsageProblem(f"unknown bug {bug_id!r}", hint=hint)
    if ids:
        return [corpus[bug_id] for bug_id in ids]
    caught = [bug for bug in corpus.values() if bug.status == "caught"]
    if config.sample is None:
        return caught
    return random.Random(config.seed).sample(caught, min(config.sample, len(caught)))


def _shown(console: Console, prover: Prover, bug: Bug) -> int:
    """Prove a bug, print one line, and return its exit code."""
    try:
        proof = prover.prove(bug)
    except EnvironmentProblem as problem:
        console.print(terminal_text(f"broken   {bug.id}  {problem}", style="yellow"))
        return BROKEN
    console.print(terminal_text(_line_of(proof), style="" if proof.holds else "red"))
    return PROVEN if proof.holds else REFUTED


def _line_of(proof: BugProof) -> str:
    bug = proof.bug
    if proof.holds:
        return f"caught   {bug.id}  {bug.requirement} by {proof.scenario}: {proof.seen}"
    verdicts = f"{proof.with_bug} with the bug, {proof.with_fix} with the fix"
    return f"missed   {bug.id}  {bug.requirement}: {verdicts}{': ' if proof.seen else ''}{proof.seen}"
