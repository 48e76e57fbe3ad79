"""`bullmq-conformance`: one click command per verb."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

import click

from conformance.gate.records import KIT_VERSION

MODULES_OF_VERBS: Mapping[str, str] = {
    "run": "run",
    "list": "requirements",
    "explain": "requirements",
    "ledger": "requirements",
    "driver": "driver",
    "report": "report",
    "matrix": "matrix",
    "versions": "versions",
    "fuzz": "fuzz",
    "replay": "fuzz",
    "bugs": "bugs",
    "mutants": "mutants",
    "bench": "bench",
    "permissions": "permissions",
    "load": "spark",
    "snapshot": "spark",
    "diff": "spark",
    "check": "spark",
    "history": "spark",
    "watch": "watch",
    "chaos": "chaos",
}
"""The module of `conformance.cli` that defines each verb, in the order of the help."""


class VerbGroup(click.Group):
    """Imports the module of a verb only when it is used: importing all of them takes longer than a small verb."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order of the table."""
        del ctx
        return list(MODULES_OF_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb; None if no verb has that name."""
        del ctx
        if cmd_name not in MODULES_OF_VERBS:
            return None
        return next(command for command in _commands_of(MODULES_OF_VERBS[cmd_name]) if command.name == cmd_name)


def loaded_verbs() -> Iterator[click.Command]:
    """The command of every verb, with its module imported."""
    for module in dict.fromkeys(MODULES_OF_VERBS.values()):
        yield from _commands_of(module)


def _commands_of(module: str) -> Iterator[click.Command]:
    """The top-level commands of a module, without the subcommands of a group such as `driver`."""
    names = vars(import_module(f"conformance.cli.{module}")).values()
    commands = [value for value in names if isinstance(value, click.Command)]
    inner = {id(command) for verb in commands if isinstance(verb, click.Group) for command in verb.commands.values()}
    yield from (command for command in commands if id(command) not in inner)


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(KIT_VERSION, prog_name="bullmq-conformance")
def cli() -> None:
    """Check whether a BullMQ client is compatible with Node.js BullMQ: 5.62.0, or any version (--oracle).

    Exit codes: 0 the check passed, 1 not conformant, 2 wrong usage, 3 environment, driver or kit broken,
    4 undecided, 5 nothing selected, 130 interrupted (Ctrl-C, SIGTERM, SIGHUP).
    """
