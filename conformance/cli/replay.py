"""`replay`: play a replay file again, on the client that showed it or on another."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from conformance.fuzz.opening import open_stage
from conformance.fuzz.replay_file import Replay, read_replay
from conformance.fuzz.replaying import Playback, Played, play_back
from conformance.fuzz.steps import told
from conformance.gate.preparing.clients import client_names
from conformance.problems import EnvironmentProblem

FIXED, FAILS = 0, 1


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--client", default="", help="Another client than the one in the file: reference, node, ...")
@click.option("--redis", default="", help="URL, binary:PATH, bundled or container[:IMAGE]; default: local.")
@click.option("--node", default="", help="Node.js binary (>= 18) for the oracle.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def replay(file: Path, client: str, redis: str, node: str, command: tuple[str, ...]) -> int:
    """Play FILE, step by step, and show what is different after each step.

    COMMAND (after `--`) starts the driver of another client. Exit codes: 0 no difference, 1 it still differs, 2 wrong
    usage or a bad file, 3 environment or driver broken.
    """
    content = read_replay(file)
    if not client and not command:
        client = content.header.client if content.header.client in client_names() else ""
    with ExitStack() as stack:
        mode = content.header.mode
        stage = open_stage(stack, mode, client=client, command=command, redis=redis, node=node, announce=_announce)
        played = play_back(stage, content)
    show(Console(highlight=False), content, played)
    if played.unplayed and not played.fails:
        raise EnvironmentProblem(f"{file} says nothing about this client: {played.unplayed}")
    return FAILS if played.fails else FIXED


def show(console: Console, content: Replay, played: Playback) -> None:
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


def _show_step(console: Console, number: int, played: Played) -> None:
    console.print(Text(f"{number:3} {told(played.step)}"), soft_wrap=True)
    for difference in played.differences:
        console.print(Text(f"      ✗ {difference}", style="red"), soft_wrap=True)
    for difference in played.beside:
        console.print(Text(f"      · known already: {difference}", style="dim"), soft_wrap=True)


def _announce(text: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(text)
