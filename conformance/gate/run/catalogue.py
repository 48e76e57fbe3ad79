"""All scenarios that the kit has, found without running pytest."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from conformance.gate.scenario import Scenario

SCENARIOS = "conformance.scenarios"


def all_scenarios() -> Iterator[tuple[str, Scenario]]:
    """Id (`area/name`) and scenario, by area."""
    package = importlib.import_module(SCENARIOS)
    for folder in package.__path__:
        for path in sorted(Path(folder).glob("test_*.py")):
            module = importlib.import_module(f"{SCENARIOS}.{path.stem}")
            area = path.stem.removeprefix("test_").replace("_", "-")
            for value in vars(module).values():
                made = getattr(value, "scenario", None)
                if isinstance(made, Scenario):
                    yield f"{area}/{made.name}", made


def scenarios_by_requirement() -> dict[str, list[str]]:
    """Ids of the scenarios that speak about each requirement."""
    found: dict[str, list[str]] = {}
    for name, made in all_scenarios():
        for requirement in made.requirements:
            found.setdefault(requirement, []).append(name)
    return found
