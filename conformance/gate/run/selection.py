"""Which of the collected scenarios a run takes."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import pytest

from conformance.gate.run.catalogue import all_scenarios
from conformance.gate.run.config import RunConfig
from conformance.gate.scenario import TIERS, Scenario
from conformance.ledger.loader import Ledger
from conformance.servers.setting import Address, NewCluster, parse_setting

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
    """Whether tier, level and --select take this scenario, and Redis is what it needs."""
    made = scenario_of(item)
    if made is None:
        return True
    return _takes(config, made, scenario_id(item), ledger) and is_possible(made, config)


def is_possible(made: Scenario, config: RunConfig) -> bool:
    """Whether the Redis of this run is what the scenario needs."""
    return made.needs != "cluster" or _is_cluster(config.redis)


def _is_cluster(setting: str) -> bool:
    wanted = parse_setting(setting)
    return isinstance(wanted, NewCluster) or (isinstance(wanted, Address) and wanted.mode == "cluster")


def left_out(config: RunConfig, ledger: Ledger) -> list[str]:
    """Ids (`area/name`) of the scenarios that this run would take if its Redis were what they need."""
    return [
        name for name, made in all_scenarios() if not is_possible(made, config) and _takes(config, made, name, ledger)
    ]


def _takes(config: RunConfig, made: Scenario, name: str, ledger: Ledger) -> bool:
    names = (name, name.split("[", maxsplit=1)[0], name.split("/", maxsplit=1)[0], *made.requirements)
    return (
        TIERS.index(made.tier) <= TIERS.index(config.tier)
        and any(LEVELS.index(ledger.row(one).level) <= LEVELS.index(config.level) for one in made.requirements)
        and (not config.select or any(_matches(names, pattern) for pattern in config.select))
    )


def _matches(names: Sequence[str], pattern: str) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for name in names)


def running_order(item: pytest.Item) -> int:
    """Slow scenarios first: they mostly wait, and the others fill the time of the other processes."""
    made = scenario_of(item)
    return 0 if made is not None and made.slow else 1
