"""The lists of known failures of the clients: every entry is explained and speaks of what there is."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from conformance.environment.clients import client_folders
from conformance.gate.known_failures import KnownFailure, load_known, unexplained
from conformance.gate.options import known_folder
from conformance.ledger.loader import load_ledger
from conformance.upstream.redis_libraries import OTHERS

SCENARIOS = Path(str(files("conformance.scenarios")))
FOLDERS = [*client_folders().values(), *map(known_folder, OTHERS)]
LISTS = sorted(path for folder in FOLDERS for path in folder.glob("known*.toml"))


def entries(path: Path) -> tuple[KnownFailure, ...]:
    return load_known(path, set(load_ledger()))


def is_there(scenario: str) -> bool:
    """Whether a scenario of that name (`area/name`) is defined."""
    area, _, name = scenario.partition("/")
    module = SCENARIOS / f"test_{area.replace('-', '_')}.py"
    return module.exists() and re.search(rf"^def test_{name}\(", module.read_text("utf-8"), re.MULTILINE) is not None


@pytest.mark.parametrize("path", LISTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_entry_is_explained_and_names_a_scenario_that_there_is(path: Path) -> None:
    known = entries(path)
    assert known, "a list without entries says nothing"
    assert unexplained(known) == 0
    named = {entry.scenario for entry in known if not re.search(r"[*?[]", entry.scenario)}
    assert [scenario for scenario in sorted(named) if not is_there(scenario)] == []


def test_a_scenario_that_is_gone_is_noticed() -> None:
    assert is_there("add/a_priority_above_the_limit_is_refused")
    assert not is_there("add/a_priority_above_the_limit_is_welcome")
    assert not is_there("nowhere/a_priority_above_the_limit_is_refused")
