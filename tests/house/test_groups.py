"""Tests that share something dear stay in one process: a JVM, a wheel, a compiled program, a server of a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LONG, PLAYERS

TESTS = Path(__file__).parents[1]


def _is_grouping(request: pytest.FixtureRequest) -> bool:
    """Whether this is a process of xdist that was told to keep groups together."""
    return bool(request.config.getoption("loadgroup", default=False))


@pytest.mark.xdist_group("house")
def test_xdist_keeps_groups_together(request: pytest.FixtureRequest) -> None:
    """xdist's scheduler knows a group by the end of its tests' ids. pytest 9.2 with xdist 3.8 left it out."""
    assert not _is_grouping(request) or request.node.nodeid.endswith("@house")


def test_a_module_stays_in_one_process(request: pytest.FixtureRequest) -> None:
    assert not _is_grouping(request) or request.node.nodeid.endswith("@house/test_groups.py")


def test_tests_that_take_long_are_shared_between_processes_and_begun_first(request: pytest.FixtureRequest) -> None:
    ids = [item.nodeid for item in request.session.items if item.path.is_relative_to(TESTS)]
    long = [name for name in ids if name.split("::")[0].removeprefix("tests/") in LONG]
    matrix = [name for name in long if "/test_mutants_matrix.py::" in name]
    grouped = [name for name in long if name not in matrix and "@" in name.rpartition("]")[2]]
    assert [name for name in grouped if not name.endswith("@wheel")] == []
    players = {f"matrix-{number}" for number in range(PLAYERS["matrix"])}
    assert not _is_grouping(request) or {name.rpartition("@")[2] for name in matrix} <= players
    begun = [name for name in ids if not name.endswith("@spark")]
    assert not _is_grouping(request) or begun[: len(long)] == long


def test_every_module_that_takes_long_is_there() -> None:
    assert [name for name in LONG if not (TESTS / name).is_file()] == []
