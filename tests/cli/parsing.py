"""Parse a call of the program with its real parser, without running it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from conformance.cli.verbs import cli


def parse_call(words: Sequence[str]) -> None:
    """Parse the words after `bullmq-conformance`. Raises click.UsageError for an unknown verb, option or choice.

    A file that does not exist is accepted: the words may come from a page or from another machine.
    """
    command: click.Command = cli
    given = list(words)
    while isinstance(command, click.Group):
        name, subcommand, given = command.resolve_command(click.Context(command), given)
        assert subcommand is not None, name
        command = subcommand
    try:
        command.make_context(command.name, given)
    except click.BadParameter as problem:
        if "does not exist" not in str(problem):
            raise
    except click.exceptions.Exit:
        pass  # --help, --version
