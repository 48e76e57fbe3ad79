"""The scenarios as single cases: one per set of parameters and direction, to be run without pytest."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from conformance.gate.selection import SCENARIOS
from conformance.participants.marks import Scenario


@dataclass(frozen=True)
class Case:
    """One run of a scenario: `id` is `area/name`, `arguments` what pytest would pass."""

    id: str
    scenario: Scenario
    arguments: Mapping[str, Any]


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case of every scenario."""
    return tuple(case for area, function in _tests() for case in _cases(area, function))


def _tests() -> Iterator[tuple[str, Callable[..., None]]]:
    package = importlib.import_module(SCENARIOS)
    for path in sorted(Path(package.__path__[0]).glob("test_*.py")):
        module = importlib.import_module(f"{SCENARIOS}.{path.stem}")
        area = path.stem.removeprefix("test_").replace("_", "-")
        for function in vars(module).values():
            if inspect.isfunction(function) and isinstance(getattr(function, "scenario", None), Scenario):
                yield area, function


def _cases(area: str, function: Callable[..., None]) -> Iterator[Case]:
    scenario: Any = vars(function)["scenario"]
    marks: list[pytest.Mark] = [mark for mark in vars(function).get("pytestmark", ()) if mark.name == "parametrize"]
    for chosen in product(*map(_choices, marks)):
        arguments = {name: value for choice in chosen for name, value in choice.items()}
        yield Case(f"{area}/{scenario.name}", scenario, arguments)


def _choices(mark: pytest.Mark) -> list[dict[str, Any]]:
    """The sets of arguments of one `parametrize`."""
    names, values = mark.args[:2]
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    return [dict(zip(names, value if len(names) > 1 else (value,), strict=True)) for value in values]
