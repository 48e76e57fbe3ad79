"""`fuzz` and `replay`: look for differences in sequences that nobody wrote, and play one of them again."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from conformance.cli.options import Duration, run_options_of
from conformance.environment.clients import client_names
from conformance.environment.prepare import EnvironmentOptions, client_under_test
from conformance.fuzz.replay import Replay, ReplayedStep, ReplayOutcome, read_replay, run_replay
from conformance.fuzz.steps import MODES, Mode, step_line
from conformance.fuzz.target import open_target
from conformance.problems import EnvironmentProblem
from conformance.protocol.scripts import BULLMQ_VERSION

NOTHING, FINDINGS = 0, 1
FIXED, FAILS = 0, 1


@click.command(context_settings={"ignore_unknown_options": True})
@run_options_of("client", "packages", "oracle", "partner", "node")
@click.option("--mode", type=click.Choice(MODES), default="differential", show_default=True, help="How to play.")
@click.option(
    "--budget",
    "budget_ms",
    type=Duration(positive=True),
    default="5m",
    show_default=True,
    help="How long: 90s, 5m, 1h.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses the sequences.")
@click.option("--out", default="fuzz-out", show_default=True, help="Folder for findings, examples and coverage.")
@click.option("--redis", default="", help="URL, binary:PATH, bundled or container[:IMAGE]; default: local.")
@click.option(
    "--ignore", multiple=True, help="Glob over places (`job.opts.*`, `meta*`) that are no findings; repeatable."
)
@click.option("--without", multiple=True, help="Glob over operations (`queue.pause`) that are not called; repeatable.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def fuzz(  # noqa: PLR0917 - click passes every option by name
    client: str,
    mode: Mode,
    budget_ms: float,
    seed: int,
    out: str,
    redis: str,
    packages: tuple[str, ...],
    oracle: str,
    partner: str,
    node: str,
    ignore: tuple[str, ...],
    without: tuple[str, ...],
    command: tuple[str, ...],
) -> int:
    """Look for differences between a client, named or started by COMMAND (after `--`), and the oracle.

    Exit codes: 0 none found, 1 findings, 2 wrong usage, 3 environment or driver broken. Run it again with the same
    --out to go on where it ended.
    """
    # Only here: Hypothesis takes its time to load, and no other verb needs it.
    from conformance.fuzz.session import FuzzOptions, run_fuzz  # noqa: PLC0415

    environment = EnvironmentOptions(
        client=client_under_test(client, command),
        command=command,
        packages=packages,
        oracle=oracle,
        partner=partner,
        redis=redis,
        node=node,
    )
    options = FuzzOptions(mode, budget_ms / 1000, seed, Path(out), environment, ignore, without)
    return FINDINGS if run_fuzz(options, Console(highlight=False)) else NOTHING


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--client", default="", help="Another client than the one in the file: reference, node, ...")
@click.option("--redis", default="", help="URL, binary:PATH, bundled or container[:IMAGE]; default: local.")
@run_options_of("packages", "oracle", "partner", "node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def replay(  # noqa: PLR0917 - click passes every option by name
    file: Path,
    client: str,
    redis: str,
    packages: tuple[str, ...],
    oracle: str,
    partner: str,
    node: str,
    command: tuple[str, ...],
) -> int:
    """Play FILE, step by step, and show what is different after each step.

    Client, its packages and the oracle are those of the file unless they are given. COMMAND (after `--`) starts the
    driver of another client. Exit codes: 0 no difference, 1 it still differs, 2 wrong usage or a bad file, 3
    environment or driver broken.
    """
    content = read_replay(file)
    header = content.header
    if not client and not command and header.client.partition("@")[0] in client_names():
        client, packages = header.client, packages or tuple(header.packages)
    if not oracle and header.bullmq != BULLMQ_VERSION:
        oracle = header.bullmq
    with ExitStack() as stack:
        options = EnvironmentOptions(
            client=client_under_test(client, command),
            command=command,
            packages=packages,
            oracle=oracle,
            partner=partner or header.partner,
            redis=redis,
            node=node,
        )
        console = Console(highlight=False)
        target = open_target(options, stack, header.mode)
        console.print(Text(target.parties), soft_wrap=True)
        played = run_replay(target, content)
    show(console, content, played)
    if played.unplayed and not played.fails:
        raise EnvironmentProblem(f"{file} says nothing about this client: {played.unplayed}")
    return FAILS if played.fails else FIXED


def show(console: Console, content: Replay, played: ReplayOutcome) -> None:
    """Print the steps, with the differences beside the step that shows them."""
    header = content.header
    about = f"found on {header.client} {header.version} with seed {header.seed}, mode {header.mode}"
    console.print(Text(header.title, style="bold"), soft_wrap=True)
    console.print(Text(about, style="dim"), soft_wrap=True)
    for number, step in enumerate(played.steps, start=1):
        _show_step(console, number, step)
    rest = len(content.steps) - len(played.steps)
    if rest:
        console.print(Text(f"    {rest} more steps were not taken: the two sides have gone apart", style="dim"))
    if not played.fails:
        console.print(Text("no difference", style="bold green"))
    elif played.shows(content):
        console.print(Text("it still differs as the file says", style="bold red"))
    else:
        console.print(Text("it differs, but not as the file says", style="bold red"))


def _show_step(console: Console, number: int, played: ReplayedStep) -> None:
    console.print(Text(f"{number:3} {step_line(played.step)}"), soft_wrap=True)
    for difference in played.differences:
        console.print(Text(f"      ✗ {difference}", style="red"), soft_wrap=True)
    for difference in played.beside:
        console.print(Text(f"      · known already: {difference}", style="dim"), soft_wrap=True)
