"""What several verbs share on the command line: options about the environment, and durations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from conformance.gate.options import run_options
from conformance.problems import UsageProblem

Verb = TypeVar("Verb", bound=Callable[..., Any])

_UNITS_MS = {"ms": 1, "s": 1000, "": 1000, "m": 60_000, "h": 3_600_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")


class Duration(click.ParamType[float]):
    """A time such as `200ms`, `90s`, `5m`, `1h`, or a number of seconds; the verb gets it in ms.

    `positive`: zero is refused.
    """

    name = "duration"

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ARG002 - click's own signature
        """Read the text. Raises UsageProblem."""
        found = _DURATION.fullmatch(str(value).strip())
        duration_ms = float(found[1]) * _UNITS_MS[found[2]] if found else -1.0
        if duration_ms < 0 or (self._positive and duration_ms == 0):
            option = param.opts[0] if param else "duration"
            raise UsageProblem(f"{option} {value!r} is no time", hint="write it as 200ms, 90s, 5m or 1h")
        return duration_ms


def run_options_of(*names: str) -> Callable[[Verb], Verb]:
    """The named options of a run, declared in `conformance.gate.options`, on another verb; all where none is named.

    `client` has no default here: a verb also takes the command of a driver in its place.
    """

    def decorate(verb: Verb) -> Verb:
        for option in reversed([option for option in run_options() if not names or option.name in names]):
            settings: dict[str, Any] = {"default": () if option.repeatable else option.default, "help": option.help}
            settings |= {"type": click.Choice(option.choices), "show_default": True} if option.choices else {}
            settings |= {"multiple": True} if option.repeatable else {}
            settings |= {"type": option.kind, "show_default": True} if option.kind in {int, float} else {}
            settings |= {"is_flag": True} if option.kind is bool else {}
            settings |= {"default": ""} if option.name == "client" else {}
            verb = click.option(option.flag, option.name, **settings)(verb)
        return verb

    return decorate
