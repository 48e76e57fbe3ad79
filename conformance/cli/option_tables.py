"""`python -m conformance.cli.option_tables`: writes the tables of all options to docs/reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from conformance.cli.verbs import loaded_verbs
from conformance.options import PROGRAM

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

PAGES = {"cli.md": "run", "cli-more-verbs.md": "fuzz", "cli-stores.md": "load"}
"""The pages, each with its first verb: no page is longer than 250 lines."""


def option_pages() -> dict[str, str]:
    """The pages by file name: for each verb its call, its purpose, and a table of its options."""
    verbs = list(loaded_verbs())
    names = [verb.name for verb in verbs]
    starts = [names.index(first) for first in PAGES.values()]
    parts = [verbs[start:stop] for start, stop in zip(starts, [*starts[1:], None], strict=True)]
    return {page: _page(page, part) for page, part in zip(PAGES, parts, strict=True)}


def _page(name: str, verbs: Sequence[click.Command]) -> str:
    others = ", ".join(f"[{first} and the verbs after it]({page})" for page, first in PAGES.items() if page != name)
    title = "Command line" if name == next(iter(PAGES)) else f"Command line: {PAGES[name]} and more"
    head = f"""# {title}

Look up the options of a verb; `{PROGRAM} VERB --help` prints the same. On other pages:
{others}.
COMMAND is the command of your driver. A duration is written as `200ms`, `90s`, `5m` or `1h`.

<!-- Written by `make generate` from the declarations of the options; do not edit. -->
"""
    return "\n".join([head, *(section for verb in verbs for section in _sections(verb, verb.name or ""))])


def _sections(command: click.Command, name: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            yield from _sections(subcommand, f"{name} {subcommand.name}")
        return
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    words = [PROGRAM, name, *(["[OPTIONS]"] if options else []), *(_argument(argument) for argument in arguments)]
    summary = " ".join((command.help or "").split("\n\n", 1)[0].split())
    yield f"## {name}\n\n`{' '.join(words)}`\n\n{summary}\n"
    if options:
        yield "| Option | Value | Default | Meaning |\n|---|---|---|---|"
        yield from (_row(option) for option in options)
        yield ""


def _argument(argument: click.Argument) -> str:
    if argument.name == "command":
        return "[-- COMMAND...]"
    name = argument.metavar or (argument.name or "").upper()
    name = f"{name}..." if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def _row(option: click.Option) -> str:
    flags = ", ".join(f"`{flag}`" for flag in sorted(option.opts, key=len, reverse=True))
    cells = (flags, _value(option), _default(option), option.help or "")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return ", ".join(f"`{choice}`" for choice in option.type.choices)
    if option.metavar:
        return f"`{option.metavar}`"
    bounds = option.type
    if isinstance(bounds, click.IntRange | click.FloatRange):
        kind = "integer" if isinstance(bounds, click.IntRange) else "number"
        least = "" if bounds.min is None else f" ≥ {bounds.min:g}"
        most = "" if bounds.max is None else f" ≤ {bounds.max:g}"
        return f"{kind}{least}{most}"
    return {"float": "number"}.get(bounds.name, bounds.name)


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    if option.is_flag or not option.show_default:
        return ""
    values = option.default if isinstance(option.default, list | tuple) else [option.default]
    return ", ".join(f"`{value}`" for value in values)


if __name__ == "__main__":
    for name, page in option_pages().items():
        (FOLDER / name).write_text(page, encoding="utf-8")
