"""Which of the collected scenarios a run takes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest

from conformance.gate.run.config import RunConfig
from conformance.gate.scenario import TIERS, Scenario
from conformance.ledger.loader import Ledger

LEVELS = ("MUST", "SHOULD", "MAY")


def scenario_of(item: pytest.Item) -> Scenario | None:
    """The scenario behind a pytest item, None for an ordinary test."""
    made: Any = getattr(getattr(item, "function", None), "scenario", None)
    return made if isinstance(made, Scenario) else None


def area_of(item: pytest.Item) -> str:
    """The area: the module's name without `test_`."""
    return item.path.stem.removeprefix("test_").replace("_", "-")


def scenario_id(item: pytest.Item) -> str:
    """`area/name`, with the parameters of a parametrised scenario in brackets."""
    return f"{area_of(item)}/{item.name.removeprefix('test_')}"


def is_selected(item: pytest.Item, config: RunConfig, ledger: Ledger) -> bool:
    """Whether tier, level and --select take this scenario."""
    made = scenario_of(item)
    if made is None:
        return True
    return (
        TIERS.index(made.tier) <= TIERS.index(config.tier)
        and any(LEVELS.index(ledger.row(one).level) <= LEVELS.index(config.level) for one in made.requirements)
        and (not config.select or any(_matches(item, made, pattern) for pattern in config.select))
    )


def _matches(item: pytest.Item, made: Scenario, pattern: str) -> bool:
    names = (scenario_id(item), scenario_id(item).split("[")[0], area_of(item), *made.requirements)
    return any(name == pattern or fnmatchcase(name, pattern) for name in names)


def running_order(item: pytest.Item) -> int:
    """Slow scenarios first: they mostly wait, and the others fill the time of the other processes."""
    made = scenario_of(item)
    return 0 if made is not None and made.slow else 1
