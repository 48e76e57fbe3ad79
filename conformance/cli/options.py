"""Declared options on the command line: each field of a verb's struct becomes an option of click."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from conformance.options import PROGRAM, DeclaredOption, DurationMs, duration_ms, duration_text, options_of

Config = TypeVar("Config", bound=msgspec.Struct)
Result = TypeVar("Result")


class Duration(click.ParamType[float]):
    """A duration such as `200ms`, `90s`, `5m`, `1h`, or a number of seconds; the verb gets it in ms.

    `positive`: zero is refused.
    """

    name = "duration"

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ARG002 - click's own signature
        """Read the text. Raises UsageProblem."""
        return duration_ms(str(value), param.opts[0] if param else "duration", positive=self._positive)


def configured(config: type[Config]) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Give a verb all options of a struct; the verb gets the struct as its first argument.

    If the struct has a field `command`, the verb also takes the command of a driver after `--`; a field `invocation` is
    filled with the words of the command line.
    """
    fields = config.__struct_fields__

    def decorate(verb: Callable[..., Result]) -> Callable[..., Result]:
        @wraps(verb)
        def with_config(**given: Any) -> Result:
            values = {name: given.pop(name) for name in fields if name in given}
            if "invocation" in fields:
                values["invocation"] = [PROGRAM, *sys.argv[1:]]
            return verb(config(**values), **given)

        decorated: Callable[..., Result] = with_config
        if "command" in fields:
            decorated = click.argument("command", nargs=-1, type=click.UNPROCESSED)(decorated)
        for option in reversed(options_of(config)):
            decorated = _click_option(option)(decorated)
        return decorated

    return decorate


def _click_option(option: DeclaredOption) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    declared = option.declared
    flags = [option.flag, *([declared.short] if declared.short else [])]
    settings: dict[str, Any] = {"help": option.help, "metavar": declared.metavar or None}
    if option.required:
        settings["required"] = True
    else:
        settings["default"] = _click_default(option)
        settings["show_default"] = settings["default"] not in {None, "", ()}
    if option.kind is bool:
        return click.option(*flags, option.name, is_flag=True, default=False, help=option.help)
    return click.option(*flags, option.name, type=_click_type(option), multiple=option.repeatable, **settings)


def _click_default(option: DeclaredOption) -> Any:
    # `--client` also has a driver's command as its alternative, and click cannot say that a default was not typed.
    if option.name == "client":
        return ""
    return duration_text(option.default) if option.kind is DurationMs and option.default is not None else option.default


def _click_type(option: DeclaredOption) -> Any:
    declared = option.declared
    if option.choices:
        return click.Choice(option.choices)
    if option.kind is DurationMs:
        return Duration(positive=declared.positive)
    if option.kind is Path:
        return click.Path(path_type=Path, exists=declared.existing_file, dir_okay=not declared.existing_file)
    if declared.at_least is None and declared.at_most is None:
        return option.kind
    if option.kind is int:
        return click.IntRange(_whole(declared.at_least), _whole(declared.at_most))
    return click.FloatRange(declared.at_least, declared.at_most)


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)
