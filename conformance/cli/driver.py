"""`bullmq-conformance driver`: for those who write a driver. `new` writes a skeleton, `check` tries a driver."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from conformance.driver.authoring import SKELETONS, CheckStep, check_driver, write_skeleton
from conformance.driver.messages import Ready
from conformance.driver.smoke import EVENTS_STEP, FLOW_STEP, SMOKE_STEPS
from conformance.driver.transports import ChildProcess
from conformance.environment.clients import Launch, find_toolchain
from conformance.gate.reach import EVENTS, FLOW, Reach, reach_of, unlocked_by
from conformance.pages.terminal import terminal_line, terminal_parts, terminal_text
from conformance.pages.text import count
from conformance.servers import FORMS, RedisInstance, open_server
from conformance.servers.connection import explained

OK, NOT_OK, BROKEN = 0, 1, 3

MOST_PROSPECTS = 3
"""Shown without --all: more would be a list of everything that is missing."""

ROLE_STEPS = {EVENTS_STEP: EVENTS, FLOW_STEP: FLOW}
"""The steps that open a handle of an optional role."""


@click.group("driver")
def driver() -> None:
    """Write a driver for your client, and check it."""


@driver.command("check", context_settings={"ignore_unknown_options": True})
@click.option("--redis", "setting", metavar="WHERE", help=f"{FORMS}.  [default: what this machine has]")
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses what is random in the check.")
@click.option("--client", default="", help="A client by name, in the environment that it would get in a run.")
@click.option(
    "--all", "everything", is_flag=True, help="Print everything that the driver lacks, not only the most valuable."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def check(setting: str | None, seed: int, client: str, everything: bool, command: tuple[str, ...]) -> None:
    """Try the driver of COMMAND or of a named client: handshake, honesty, a queue, a job, workers, flows, events.

    Exit codes: 0 everything that is declared works, 1 something does not, 2 wrong usage, 3 the driver is broken or
    there is no Redis.
    """
    if bool(client) == bool(command):
        raise click.UsageError("one driver is needed: your command after `--`, or --client NAME")
    console = Console()

    def announce(line: str) -> None:
        console.print(terminal_text(line), style="dim", markup=False)

    launch = find_toolchain("", announce).launch(client) if client else Launch("driver", list(command))
    with open_server(setting, announce=announce) as server:
        steps, ready = _check(launch, server, seed)
    for step in steps:
        _print_step(console, step if step.tried else replace(step, hint=""))
    _print_summary(console, steps)
    if ready is not None:
        _print_prospects(console, reach_of(ready, roles=_roles(steps)), everything=everything)
        _print_next(console, _ranked(steps, ready))
    click.get_current_context().exit(_exit_code(steps))


@driver.command("new")
@click.argument("language", type=click.Choice(list(SKELETONS)))
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write to.  [default: LANGUAGE-driver]")
def new(language: str, out: Path | None) -> None:
    """Write a commented skeleton of a driver in LANGUAGE; it passes the handshake and refuses everything else."""
    folder = out or Path(f"{language}-driver")
    for path in write_skeleton(language, folder):
        click.echo(terminal_line(f"wrote {path}"))
    skeleton = SKELETONS[language]
    build = f"{shlex.join(skeleton.build)} && " if skeleton.build else ""
    click.echo("\nnext:")
    click.echo(terminal_line(f"  cd {shlex.quote(str(folder))}"))
    click.echo(terminal_line(f"  {build}bullmq-conformance driver check -- {shlex.join(skeleton.command)}"))


def _check(launch: Launch, server: RedisInstance, seed: int) -> tuple[list[CheckStep], Ready | None]:
    """Try the driver. Its declaration is None if the handshake failed."""
    prefix = server.fresh_prefix()
    declared: list[Ready] = []

    def start() -> ChildProcess:
        connection = ChildProcess.start(launch.command, seed=seed, env=launch.environment)
        declared.append(connection.ready)
        return connection

    with ExitStack() as stack:
        stack.enter_context(explained(server))
        redis: Any = stack.enter_context(server.connect())
        stack.callback(server.remove_traces, prefix)
        steps = check_driver(start, address=server.for_drivers, redis=redis, prefix=prefix, seed=seed)
    return steps, next(iter(declared), None)


def _print_step(console: Console, step: CheckStep) -> None:
    """Print a step in plain text; what the driver said is never taken for markup."""
    mark, style = ("ok  ", "green") if step.ok else ("FAIL", "bold red")
    if not step.tried:
        mark, style = "-   ", "dim"
    console.print(terminal_parts((mark, style), f"  {step.name:<18} ", step.detail), soft_wrap=True)
    if step.hint:
        console.print(terminal_text(f"{'':<25}{step.hint}", style="yellow" if not step.ok else "dim"), soft_wrap=True)


def _print_summary(console: Console, steps: Sequence[CheckStep]) -> None:
    failed = [step.name for step in steps if not step.ok]
    if steps[-1].broken:
        console.print(Text("the driver is broken; fix the last step first", style="bold red"))
    elif failed:
        console.print(terminal_text(f"not yet: {', '.join(failed)}", style="bold red"))
    else:
        console.print(Text("the driver works as far as it declares", style="bold green"))


def _roles(steps: Sequence[CheckStep]) -> frozenset[str]:
    """Return the optional roles whose handles the driver opens."""
    return frozenset(ROLE_STEPS[step.name] for step in steps if step.tried and step.name in ROLE_STEPS)


def _print_prospects(console: Console, reach: Reach, *, everything: bool) -> None:
    """Print how much a run can decide with the driver, and the additions that are worth most."""
    so_far = f"a run can decide {reach.decidable} of {reach.examined} requirements with it"
    whole = f"{so_far}: it declares everything that counts"
    console.print(terminal_text(so_far if reach.prospects else whole), soft_wrap=True)
    shown = reach.prospects if everything else reach.prospects[:MOST_PROSPECTS]
    for prospect in shown:
        text = f"  with {prospect.what} you unlock {count(prospect.unlocks, 'requirement')}"
        console.print(terminal_text(text, style="yellow"), soft_wrap=True)
    if more := len(reach.prospects) - len(shown):
        console.print(terminal_text(f"  … and {more} more: add --all", style="dim"))


def _ranked(steps: Sequence[CheckStep], ready: Ready) -> list[tuple[int, str]]:
    """Return what to do for each step that was not tried, with the requirements it unlocks; the most valuable first."""
    of_name, roles = {step.name: step for step in SMOKE_STEPS}, _roles(steps)
    hints = []
    for step in steps:
        if not step.tried and step.hint:
            smoke, role = of_name[step.name], ROLE_STEPS.get(step.name, "")
            unlocks = unlocked_by(ready, roles, ops=smoke.needs, capability=smoke.capability, role=role)
            hints.append((unlocks, step.hint))
    return sorted(hints, key=lambda hint: -hint[0])


def _print_next(console: Console, hints: Sequence[tuple[int, str]]) -> None:
    for unlocks, hint in hints:
        text = f"{hint} (unlocks {count(unlocks, 'requirement')})"
        console.print(terminal_text(text, style="dim"), soft_wrap=True)


def _exit_code(steps: Sequence[CheckStep]) -> int:
    if steps[-1].broken:
        return BROKEN
    return OK if all(step.ok for step in steps) else NOT_OK
