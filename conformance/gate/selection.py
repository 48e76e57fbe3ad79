"""Selection: all scenarios, and those that a run takes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from conformance.gate.options import RunConfig
from conformance.gate.records import LEVELS
from conformance.ledger.loader import Ledger
from conformance.ledger.profiles import load_profiles
from conformance.participants.marks import TIERS, Scenario, Tier, least_tier_of, tier_of
from conformance.protocol.versions import in_range
from conformance.servers.setting import NewCluster, RedisUrl, parse_setting

SCENARIOS = "conformance.scenarios"


def all_scenarios(files: str = "test_*.py") -> Iterator[tuple[str, Scenario]]:
    """Yield id (`area/name`) and scenario, by area. `files`: glob over modules; the default are those of `run`."""
    package = importlib.import_module(SCENARIOS)
    for folder in package.__path__:
        # Sorted, so that the order does not depend on the file system.
        for path in sorted(Path(folder).glob(files)):
            module = importlib.import_module(f"{SCENARIOS}.{path.stem}")
            area = path.stem.removeprefix("test_").replace("_", "-")
            for value in vars(module).values():
                found = getattr(value, "scenario", None)
                if isinstance(found, Scenario):
                    yield f"{area}/{found.name}", found


def cases_of(scenario: Scenario) -> tuple[dict[str, Any], ...]:
    """The arguments of each case of a scenario: every combination of its `parametrize` marks, as pytest makes them."""
    # The marks are on the pytest function, which has replaced the scenario's own in its module.
    test = vars(importlib.import_module(scenario.function.__module__))[scenario.function.__name__]
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    axes = []
    for names, values in (mark.args[:2] for mark in marks):
        words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        axes.append([dict(zip(words, value if len(words) > 1 else (value,), strict=True)) for value in values])
    return tuple({name: value for part in parts for name, value in part.items()} for parts in product(*axes))


def scenarios_by_requirement() -> dict[str, list[str]]:
    """Return the ids of the scenarios that cover each requirement."""
    found: dict[str, list[str]] = {}
    for name, scenario in all_scenarios():
        for requirement in scenario.requirements:
            found.setdefault(requirement, []).append(name)
    return found


def scenario_of(item: pytest.Item) -> Scenario | None:
    """Return the scenario of a pytest item, None for an ordinary test."""
    scenario: Any = getattr(getattr(item, "function", None), "scenario", None)
    return scenario if isinstance(scenario, Scenario) else None


def area_of(node: pytest.Item | pytest.Collector) -> str:
    """Return the area of an item or module: the module's name without `test_`."""
    return node.path.stem.removeprefix("test_").replace("_", "-")


def scenario_id(item: pytest.Item) -> str:
    """Return `area/name`, with the parameters of a parametrised scenario in brackets."""
    return f"{area_of(item)}/{item.name.removeprefix('test_')}"


def is_selected(item: pytest.Item, config: RunConfig, ledger: Ledger) -> bool:
    """Whether tier, level, --profile and --select take this scenario, and Redis is what it needs."""
    scenario = scenario_of(item)
    if scenario is None:
        return True
    return not _objections(config, scenario, scenario_id(item), ledger, tier=tier_of_item(item, scenario))


def may_be_selected(name: str, scenario: Scenario, config: RunConfig, ledger: Ledger) -> bool:
    """Whether a run can take any case of this scenario.

    If not, pytest makes no items of its cases: the items of all scenarios take longer than a small run.
    """
    # Without cases, because version ranges of single cases must not keep the whole scenario out.
    objections = _objections(config, replace(scenario, cases={}), name, ledger)
    # A pattern with brackets can only be decided per item.
    by_parameters = any(_may_match_a_case(name, pattern) for pattern in config.select)
    return not [objection for objection in objections if not (objection == OUTSIDE_SELECT and by_parameters)]


def tier_of_item(item: pytest.Item, scenario: Scenario) -> Tier:
    """Return the smallest tier that runs the scenario with the parameters of this item."""
    return tier_of(scenario, getattr(getattr(item, "callspec", None), "params", {}))


NEEDS_A_CLUSTER = "need a Redis Cluster"
OUTSIDE_SELECT = "outside --select"


def _objections(
    config: RunConfig, scenario: Scenario, name: str, ledger: Ledger, *, tier: Tier | None = None
) -> list[str]:
    """Return the reasons that keep a scenario out of a run; empty if the run takes it.

    `ledger`: the rows for the oracle's version. `tier`: overrides the scenario's smallest tier.
    """
    tier = tier or least_tier_of(scenario)
    rows = [ledger.row(requirement) for requirement in scenario.requirements if requirement in ledger]
    areas = (name.split("/", maxsplit=1)[0], *(row.area for row in rows))
    names = (name, name.split("[", maxsplit=1)[0], *areas, *scenario.requirements)
    parameters = name.partition("[")[2].removesuffix("]")
    others = [versions for versions in scenario.ranges_of(parameters) if not in_range(config.oracle_version, versions)]
    kept_out_by = {
        NEEDS_A_CLUSTER: not is_possible(scenario, config),
        f"about BullMQ {' and '.join(others)}": bool(others),
        f"in tier {tier}": TIERS.index(tier) > TIERS.index(config.tier),
        f"below level {config.level}": all(LEVELS.index(row.level) > LEVELS.index(config.level) for row in rows),
        "outside --profile": bool(config.profile)
        and not _profiles_of(scenario) & {*load_profiles().with_bases(config.profile)},
        "no hand-over": config.handovers and scenario.style != "handover",
        OUTSIDE_SELECT: bool(config.select) and not any(_matches(names, pattern) for pattern in config.select),
    }
    return [reason for reason, applies in kept_out_by.items() if applies]


def is_possible(scenario: Scenario, config: RunConfig) -> bool:
    """Whether this run's Redis meets the scenario's needs."""
    return scenario.needs != "cluster" or _is_cluster(config.redis)


def _is_cluster(setting: str) -> bool:
    wanted = parse_setting(setting)
    return isinstance(wanted, NewCluster) or (isinstance(wanted, RedisUrl) and wanted.mode == "cluster")


def _profiles_of(scenario: Scenario) -> set[str]:
    """Return the profiles of a scenario's requirements."""
    found = (load_profiles().profile_of(requirement) for requirement in scenario.requirements)
    return {profile.name for profile in found if profile is not None}


def chosen_scenarios(config: RunConfig, ledger: Ledger) -> list[str]:
    """Return the ids (`area/name`) of the scenarios that this run takes."""
    return [name for name, scenario in all_scenarios() if not _objections(config, scenario, name, ledger)]


def left_out(config: RunConfig, ledger: Ledger) -> list[str]:
    """Return the ids (`area/name`) of the scenarios that only this run's Redis keeps out."""
    return [
        name for name, scenario in all_scenarios() if _objections(config, scenario, name, ledger) == [NEEDS_A_CLUSTER]
    ]


def requirements_not_run(config: RunConfig, ledger: Ledger) -> dict[str, str]:
    """Return the reason for each examined requirement that no scenario of the run covers."""
    least: dict[str, list[str]] = {}
    for name, scenario in all_scenarios():
        objections = _objections(config, scenario, name, ledger)
        for requirement in scenario.requirements:
            # The shortest list: the scenario that came closest to being run explains best what to change.
            least[requirement] = min(least.get(requirement, objections), objections, key=len)
    return {row.id: " and ".join(least[row.id]) for row in ledger.values() if row.examined and least.get(row.id)}


def _matches(names: Sequence[str], pattern: str) -> bool:
    # Brackets in ids enclose parameters; they are not character sets.
    return any(fnmatchcase(name, pattern.replace("[", "[[]")) for name in names)


def _may_match_a_case(name: str, pattern: str) -> bool:
    """Whether a pattern can match `name[PARAMETERS]`: then a prefix of the pattern matches `name[`."""
    return any(_matches((f"{name}[",), pattern[:end]) for end in range(1, len(pattern) + 1))


def running_order(item: pytest.Item) -> int:
    """Sort key: slow scenarios first. They mostly wait, and the other processes run the rest meanwhile."""
    scenario = scenario_of(item)
    return 0 if scenario is not None and scenario.slow else 1
