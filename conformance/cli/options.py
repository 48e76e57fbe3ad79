"""What several verbs share on the command line: options about the environment, and durations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from conformance.gate.options import duration_ms, run_options

Verb = TypeVar("Verb", bound=Callable[..., Any])


class Duration(click.ParamType[float]):
    """A time such as `200ms`, `90s`, `5m`, `1h`, or a number of seconds; the verb gets it in ms.

    `positive`: zero is refused.
    """

    name = "duration"

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ARG002 - click's own signature
        """Read the text. Raises UsageProblem."""
        return duration_ms(str(value), param.opts[0] if param else "duration", positive=self._positive)


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
