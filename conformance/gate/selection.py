"""Selection: all scenarios, and those that a run takes."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.gate.known_failures import KnownFailure, WholeRun, without_parameters
from conformance.gate.options import RunConfig
from conformance.gate.records import LEVELS
from conformance.ledger.loader import Ledger, load_ledger
from conformance.ledger.profiles import load_profiles
from conformance.participants.marks import TIERS, Scenario, Tier, least_tier_of, tier_of
from conformance.problems import NothingSelected, UsageProblem
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
            area = area_of_module(path.stem)
            for value in vars(module).values():
                found = getattr(value, "scenario", None)
                if isinstance(found, Scenario):
                    yield f"{area}/{found.name}", found


def cases_of(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """Return the arguments of each case of a scenario by the text that is in brackets in the id of its pytest item.

    The cases are all combinations of the `parametrize` marks; without one, the only case is called "".
    """
    # The marks are on the pytest function, which has replaced the scenario's own in its module.
    test = vars(importlib.import_module(scenario.function.__module__))[scenario.function.__name__]
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    return {
        "-".join(text for text, _ in parts): {name: value for _, values in parts for name, value in values.items()}
        for parts in product(*map(_values_of, marks))
    }


def _values_of(mark: pytest.Mark) -> list[tuple[str, dict[str, Any]]]:
    """Return the values of one `parametrize` mark, each with the text that pytest makes of it."""
    names, values = mark.args[:2]
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [dict(zip(words, value if len(words) > 1 else (value,), strict=True)) for value in values]
    ids = mark.kwargs.get("ids")
    if isinstance(ids, Sequence):
        texts = [_escaped(str(text)) for text in ids]
    else:
        texts = [
            "-".join(_text_of(value, ids, f"{name}{index}") for name, value in row.items())
            for index, row in enumerate(rows)
        ]
    return list(zip(_unique(texts), rows, strict=True))


def _unique(texts: Sequence[str]) -> Iterator[str]:
    """Yield the texts; those that occur more than once are numbered."""
    numbers: Counter[str] = Counter()
    for text in texts:
        number = f"{'_' if text[-1:].isdigit() else ''}{numbers[text]}"
        yield f"{text}{number}" if texts.count(text) > 1 else text
        numbers[text] += 1


def _text_of(value: object, ids: Callable[[Any], object] | None, otherwise: str) -> str:
    """Return the text of a value in the id of an item, by the rules of pytest."""
    if ids is not None:
        value = ids(value)
    return _escaped(str(value)) if value is None or isinstance(value, str | float | int) else otherwise


def _escaped(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii")


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
    """Return the area of an item or module."""
    return area_of_module(node.path.stem)


def area_of_module(name: str) -> str:
    """Return the area of the scenarios in a module: its name without `test_`."""
    return name.removeprefix("test_").replace("_", "-")


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
OUTSIDE_PYTESTS_SELECTION = "outside pytest's selection"


def _objections(
    config: RunConfig, scenario: Scenario, name: str, ledger: Ledger, *, tier: Tier | None = None
) -> list[str]:
    """Return the reasons that keep a scenario out of a run; empty if the run takes it.

    `ledger`: the rows for the oracle's version. `tier`: overrides the scenario's smallest tier.
    """
    tier = tier or least_tier_of(scenario)
    rows = [ledger.row(requirement) for requirement in scenario.requirements if requirement in ledger]
    names = _names_of(name, scenario, ledger)
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


def _names_of(name: str, scenario: Scenario, ledger: Ledger) -> tuple[str, ...]:
    """Return everything that a pattern can match: id with and without parameters, areas, requirements."""
    areas = (ledger.row(requirement).area for requirement in scenario.requirements if requirement in ledger)
    return (name, without_parameters(name), name.split("/", maxsplit=1)[0], *areas, *scenario.requirements)


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


@cache
def _all_cases() -> tuple[tuple[str, Scenario, Tier], ...]:
    """Id with parameters, scenario and smallest tier of every case of all scenarios."""
    return tuple(
        (f"{name}[{text}]" if text else name, scenario, tier_of(scenario, arguments))
        for name, scenario in all_scenarios()
        for text, arguments in cases_of(scenario).items()
    )


def selected_cases(config: RunConfig, ledger: Ledger) -> frozenset[str]:
    """Return the ids, with parameters, of everything that the options of a run select."""
    return frozenset(
        name for name, scenario, tier in _all_cases() if not _objections(config, scenario, name, ledger, tier=tier)
    )


def whole_runs(config: RunConfig) -> WholeRun:
    """Return what a whole run of each tier takes on this run's oracle and Redis."""
    ledger = load_ledger(config.oracle_version)

    @cache
    def whole_run(tier: Tier) -> frozenset[str]:
        return selected_cases(RunConfig(oracle=config.oracle, redis=config.redis, tier=tier), ledger)

    return whole_run


def check_patterns(patterns: Sequence[str]) -> None:
    """Raise NothingSelected for a pattern of --select that matches no scenario of the kit."""
    ledger = load_ledger()
    for pattern in patterns:
        if not any(_matches(_names_of(name, scenario, ledger), pattern) for name, scenario, _ in _all_cases()):
            names = {name for case, scenario, _ in _all_cases() for name in _names_of(case, scenario, ledger)}
            hint = f"no scenario checks it; `bullmq-conformance explain {pattern}` says why"
            raise NothingSelected(
                f"no scenario matches {pattern} of --select",
                hint=hint if pattern in ledger else _closest(pattern, names),
            )


def check_listed_scenarios(entries: Iterable[KnownFailure], path: Path | None) -> None:
    """Raise UsageProblem for an entry whose `scenario` matches no scenario of the kit."""
    names = [name for name, _, _ in _all_cases()]
    for entry in entries:
        if entry.scenario != "*" and not any(entry.is_about(name) for name in names):
            raise UsageProblem(
                f"--known {path}: no scenario matches {entry.scenario!r} (the entry of {entry.requirement})",
                hint=_closest(entry.scenario, {*names, *map(without_parameters, names)}),
            )


def _closest(pattern: str, names: Collection[str]) -> str:
    """Return the patterns that are spelled like this one and match something, as a hint."""
    # Compared up to the first wildcard, with the beginnings of names: the rest of the pattern may be right.
    fixed = pattern[: next((index for index, character in enumerate(pattern) if character in "*?"), len(pattern))]
    beginnings = {name[: end.end()] for name in names for end in re.finditer(r"[./]|$", name)}
    similar = get_close_matches(fixed, sorted(beginnings), cutoff=0.75)
    repaired = [beginning + pattern[len(fixed) :] for beginning in similar]
    close = [text for text in repaired if any(_matches((name,), text) for name in names)]
    return f"did you mean {' or '.join(close)}?" if close else "`bullmq-conformance list` prints every id"


def patterns_without_effect(config: RunConfig, ledger: Ledger) -> dict[str, str]:
    """Return the patterns of --select none of whose scenarios this run takes, each with the reason."""
    reasons = {}
    for pattern in config.select:
        alone = msgspec.structs.replace(config, select=[pattern])
        objections = [_objections(alone, scenario, name, ledger, tier=tier) for name, scenario, tier in _all_cases()]
        matching = [against for against in objections if OUTSIDE_SELECT not in against]
        if matching and all(matching):
            # The shortest list: the scenario that came closest to being run explains best what to change.
            closest = min(matching, key=len)
            reasons[pattern] = " and ".join(closest)
    return reasons


def chosen_scenarios(config: RunConfig, ledger: Ledger) -> list[str]:
    """Return the ids (`area/name`) of the scenarios that this run takes."""
    return [name for name, scenario in all_scenarios() if not _objections(config, scenario, name, ledger)]


def left_out(config: RunConfig, ledger: Ledger) -> list[str]:
    """Return the ids (`area/name`) of the scenarios that only this run's Redis keeps out."""
    return [
        name for name, scenario in all_scenarios() if _objections(config, scenario, name, ledger) == [NEEDS_A_CLUSTER]
    ]


def requirements_not_run(config: RunConfig, ledger: Ledger, without: Collection[str] = frozenset()) -> dict[str, str]:
    """Return the reason for each examined requirement that no scenario of the run covers.

    `without`: scenarios (`area/name`) that the options select and pytest's own selection leaves out.
    """
    least: dict[str, list[str]] = {}
    for name, scenario in all_scenarios():
        objections = _objections(config, scenario, name, ledger)
        if not objections and name in without:
            objections = [OUTSIDE_PYTESTS_SELECTION]
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
