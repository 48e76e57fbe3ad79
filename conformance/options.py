"""Options of the command line, each declared once, as a field of a struct.

    class LoadConfig(msgspec.Struct, frozen=True, kw_only=True):
        jobs: Annotated[int | None, Option("Number of jobs.", at_least=1)] = None

A field that is annotated with an `Option` is one. Its name is the flag, and its type says what the values are, whether
the option may be repeated, and which choices there are. The command line (`conformance.cli.options`), the reproduce
lines and the tables in docs/reference/cli.md all follow from the declaration.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

import msgspec

from conformance.problems import UsageProblem

PROGRAM = "bullmq-conformance"

DurationMs = NewType("DurationMs", float)
"""The type of an option that takes a duration such as `90s`; the value is in ms."""


@dataclass(frozen=True)
class Option:
    """The part of a declaration besides name, type and default.

    `flag`: if it is not the name of the field; `short`: a second, short flag. `metavar`: what the help shows for the
    value. `choices`: if the type is not a Literal. `at_least`, `at_most`: bounds of a number. `positive`: a duration
    must not be zero. `existing_file`: the path must be a file. `reproduce`: a failure may depend on the option, so the
    line that reproduces a scenario repeats it.
    """

    help: str
    flag: str = ""
    short: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    positive: bool = False
    existing_file: bool = False
    reproduce: bool = False


@dataclass(frozen=True, kw_only=True)
class DeclaredOption:
    """An option with all that its field says.

    `choices`: empty for any value. `kind`: str, int, float, bool (a flag), Path or DurationMs. `default`:
    msgspec.NODEFAULT if the option is required.
    """

    name: str
    flag: str
    declared: Option
    default: Any
    choices: tuple[str, ...]
    repeatable: bool
    kind: Any

    @property
    def help(self) -> str:
        """The description."""
        return self.declared.help

    @property
    def reproduce(self) -> bool:
        """Whether a failure may depend on the option."""
        return self.declared.reproduce

    @property
    def required(self) -> bool:
        """Whether the option has no default."""
        return self.default is msgspec.NODEFAULT

    def words(self, config: msgspec.Struct) -> Iterator[str]:
        """The words that set the option to its value in `config`; none if that is the default."""
        value = getattr(config, self.name)
        if value == self.default:
            return
        if self.kind is bool:
            yield self.flag
            return
        for element in value if self.repeatable else [value]:
            yield from (self.flag, duration_text(element) if self.kind is DurationMs else str(element))


@cache  # every scenario has a reproduce line, and reading the types takes longer than making the line
def options_of(config: type[msgspec.Struct]) -> tuple[DeclaredOption, ...]:
    """The options of a struct in the order of their declaration, before those that it inherits."""
    fields = {field.name: field for field in msgspec.structs.fields(config)}
    names = dict.fromkeys(name for owner in config.__mro__ for name in getattr(owner, "__annotations__", ()))
    return tuple(_options(fields[name] for name in names if name in fields))


def _options(fields: Iterator[msgspec.structs.FieldInfo]) -> Iterator[DeclaredOption]:
    for field in fields:
        declared = next((extra for extra in get_args(field.type)[1:] if isinstance(extra, Option)), None)
        if get_origin(field.type) is not Annotated or declared is None:
            continue
        kind = _without_none(get_args(field.type)[0])
        repeatable = get_origin(kind) is Sequence
        kind = get_args(kind)[0] if repeatable else kind
        is_literal = get_origin(kind) is Literal
        yield DeclaredOption(
            name=field.name,
            flag=declared.flag or f"--{field.name.replace('_', '-')}",
            declared=declared,
            default=field.default,
            choices=get_args(kind) if is_literal else declared.choices,
            repeatable=repeatable,
            kind=str if is_literal else kind,
        )


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in {Union, UnionType}:
        return kind
    (kept,) = (member for member in get_args(kind) if member is not NoneType)
    return kept


def option_words(config: msgspec.Struct) -> list[str]:
    """The words that give every option its value in `config`; defaults are left out."""
    return [word for option in options_of(type(config)) for word in option.words(config)]


def command_line(verb: str, words: Sequence[str]) -> str:
    """A call of the program that a shell can run."""
    return shlex.join([PROGRAM, verb, *words])


_UNITS_MS = {"ms": 1, "s": 1000, "": 1000, "m": 60_000, "h": 3_600_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")


def duration_ms(text: str, option: str, *, positive: bool = True) -> float:
    """Read a duration such as `200ms`, `90s`, `5m`, `1h`, or a number of seconds; returns ms.

    Raises UsageProblem, which names the option, for any other text, and for zero if it must be `positive`.
    """
    parts = _DURATION.fullmatch(text.strip())
    duration = float(parts[1]) * _UNITS_MS[parts[2]] if parts else -1.0
    if duration < 0 or (positive and duration == 0):
        raise UsageProblem(f"invalid duration {text!r} for {option}", hint="examples: 200ms, 90s, 5m, 1h")
    return duration


def duration_text(duration: float) -> str:
    """Write a duration in ms with the largest unit that needs no fraction, as in `5m`; `duration_ms` reads it again."""
    for unit in ("h", "m", "s"):
        if duration and duration % _UNITS_MS[unit] == 0:
            return f"{duration / _UNITS_MS[unit]:.0f}{unit}"
    return f"{duration:.15g}ms" if duration else "0s"
