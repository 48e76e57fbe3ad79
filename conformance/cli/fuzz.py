"""`fuzz` and `replay`: search for differences in generated sequences, and run one of them again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.text import Text

from conformance.cli.options import configured
from conformance.environment.clients import client_names, find_toolchain
from conformance.environment.prepare import announce, client_under_test
from conformance.fuzz.options import FuzzConfig, ReplayConfig
from conformance.fuzz.replay import Replay, ReplayedStep, ReplayHeader, ReplayOutcome, read_replay, run_replay
from conformance.fuzz.target import open_target
from conformance.pages.terminal import terminal_text
from conformance.problems import EnvironmentProblem, Undecidable
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.servers import open_server
from conformance.steps.records import step_line
from conformance.versions.mixed.replay import is_mixed_replay, read_mixed_replay
from conformance.versions.mixed.session import MixedSession

if TYPE_CHECKING:
    from conformance.fuzz.session import FuzzVerdict

EXIT_CODES: Mapping[FuzzVerdict, int] = {"nothing": 0, "findings": 1, "undecided": Undecidable.exit_code}
FIXED, FAILS = 0, 1


@click.command(context_settings={"ignore_unknown_options": True})
@configured(FuzzConfig)
def fuzz(config: FuzzConfig) -> int:
    """Search for differences between a client, named or started by COMMAND (after `--`), and the oracle.

    Exit codes: 0 none found, 1 findings, 2 wrong usage, 3 environment or driver broken, 4 none found by too short a
    search. To continue an earlier search, run it again with the same --out.
    """
    # Imported here, because Hypothesis takes long to load and no other verb needs it.
    from conformance.fuzz.session import run_fuzz  # noqa: PLC0415

    config = msgspec.structs.replace(config, client=client_under_test(config.client, config.command))
    return EXIT_CODES[run_fuzz(config, Console(highlight=False))]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("file", type=click.Path(path_type=Path))
@configured(ReplayConfig)
def replay(config: ReplayConfig, file: Path) -> int:
    """Run the steps of FILE, and show what differs after each step.

    Client, packages and oracle are those of the file unless they are given; in a file of `versions mixed`, --client is
    the newer and --partner the older release. COMMAND (after `--`) starts the driver of
    another client. Exit codes: 0 no difference, 1 it still differs, 2 wrong usage or a bad file, 3 environment or
    driver broken.
    """
    if is_mixed_replay(file):
        return _replay_mixed(config, file)
    content = read_replay(file)
    config = _with_parties_of(content.header, config)
    with ExitStack() as stack:
        console = Console(highlight=False)
        target = open_target(config, stack, content.header.mode)
        console.print(terminal_text(target.parties), soft_wrap=True)
        played = run_replay(target, content)
    show(console, content, played)
    if played.unplayed and not played.fails:
        raise EnvironmentProblem(f"{file} says nothing about this client: {played.unplayed}")
    return FAILS if played.fails else FIXED


def _replay_mixed(config: ReplayConfig, file: Path) -> int:
    """Run a file of `versions mixed`: both releases alone, and then as the file assigns the roles."""
    content = read_mixed_replay(file)
    header = content.header
    toolchain = find_toolchain(config.node, announce)
    older = toolchain.partner(config.partner or header.older)
    chosen = toolchain.launch(config.client or Path(config.command[0]).name, config.command) if config.command else None
    newer = chosen or toolchain.partner(config.client or header.newer)
    with open_server(config.redis or None, announce=announce) as server:
        outcome = MixedSession(older, newer, server).replay(content)
    console = Console(highlight=False)
    console.print(
        terminal_text(f"{header.feature}: recorded as {header.word} ({header.detail})", style="bold"), soft_wrap=True
    )
    for number, step in enumerate(content.steps, start=1):
        console.print(terminal_text(f"{number:3} {step_line(step)}"), soft_wrap=True)
    for line in outcome.lines:
        console.print(terminal_text(line), soft_wrap=True)
    safe = outcome.harm.word == "nothing"
    said = "no difference" if safe else f"{outcome.harm.word}: {outcome.harm.detail}"
    console.print(terminal_text(said, style="bold green" if safe else "bold red"), soft_wrap=True)
    return FIXED if safe else FAILS


def _with_parties_of(header: ReplayHeader, config: ReplayConfig) -> ReplayConfig:
    """The options with client, packages, oracle and partner of the file, unless the user chose others."""
    client, packages = config.client, config.packages
    if not client and not config.command and header.client.partition("@")[0] in client_names():
        client, packages = header.client, packages or list(header.packages)
    return msgspec.structs.replace(
        config,
        client=client_under_test(client, config.command),
        packages=packages,
        oracle=config.oracle or (header.bullmq if header.bullmq != BULLMQ_VERSION else ""),
        partner=config.partner or header.partner,
    )


def show(console: Console, content: Replay, played: ReplayOutcome) -> None:
    """Print the steps, each with the differences that it shows."""
    header = content.header
    about = f"found on {header.client} {header.version} with seed {header.seed}, mode {header.mode}"
    console.print(terminal_text(header.title, style="bold"), soft_wrap=True)
    console.print(terminal_text(about, style="dim"), soft_wrap=True)
    for number, step in enumerate(played.steps, start=1):
        _show_step(console, number, step)
    rest = len(content.steps) - len(played.steps)
    if rest:
        console.print(terminal_text(f"    {rest} more steps were not run: the two sides have diverged", style="dim"))
    if not played.fails:
        console.print(Text("no difference", style="bold green"))
    elif played.shows(content):
        console.print(Text("it still differs as recorded in the file", style="bold red"))
    else:
        console.print(Text("it differs, but not as recorded in the file", style="bold red"))


def _show_step(console: Console, number: int, played: ReplayedStep) -> None:
    console.print(terminal_text(f"{number:3} {step_line(played.step)}"), soft_wrap=True)
    for difference in played.differences:
        console.print(terminal_text(f"      ✗ {difference}", style="red"), soft_wrap=True)
    for difference in played.beside:
        console.print(terminal_text(f"      · already known: {difference}", style="dim"), soft_wrap=True)
