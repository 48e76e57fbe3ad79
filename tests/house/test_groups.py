"""Tests that share something dear stay in one process: a JVM, a wheel, a compiled program, a server of a module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_long_tests_start_first_and_are_shared_between_processes(request: pytest.FixtureRequest) -> None:
    """Unless a module names a group of its own, for instance because its tests share a store or a compiled program."""
    tests = [item for item in request.session.items if item.path.is_relative_to(TESTS)]
    long = [item for item in tests if item.get_closest_marker("long")]
    for item in long if _is_grouping(request) else ():
        after_parameters = item.nodeid.rpartition("]")[2]
        group = after_parameters.rpartition("@")[2] if "@" in after_parameters else ""
        processes = item.get_closest_marker("long").kwargs.get("processes")  # type: ignore[union-attr]
        if processes is None:
            assert group != item.path.relative_to(TESTS).as_posix(), item.nodeid
        else:
            assert group in {f"{item.path.stem}-{number}" for number in range(processes)}, item.nodeid
    started = [item.nodeid for item in tests if not item.nodeid.endswith("@spark")]
    assert not _is_grouping(request) or started[: len(long)] == [item.nodeid for item in long]


SKIPPED = """
import pytest

@pytest.mark.parametrize("address", ["a@b", "c d"])
@pytest.mark.xdist_group("group")
def test_skipped(address):
    pytest.skip("not here")

def test_run():
    pass
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    """Run the tests of a folder with the settings of `tests/conftest.py`. Returns what pytest prints."""
    (folder / "conftest.py").write_text("from tests.conftest import *\n")
    command = [sys.executable, "-m", "pytest", *arguments]
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def test_skipped_tests_are_written_as_pytest_takes_them(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SKIPPED)
    written = run_pytest(tmp_path, "-n", "1", "--dist", "loadgroup", "--write-skipped", "skipped")
    assert "1 passed, 2 skipped" in written
    assert "2 skipped in" in run_pytest(tmp_path, "@skipped")
