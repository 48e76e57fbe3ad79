"""The hunt for planted defects: what is drawn, what is planted, and which tests are tried in which order."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation import costs, reach
from tests.mutation.__main__ import BATCH_S, Cost, batches, read_costs, read_reach
from tests.mutation.planting import ROOMS, ROOT, PlantedDefect, plant_markers, sample


@pytest.fixture(scope="module")
def defects() -> list[PlantedDefect]:
    return sample(10, seed=1)


@pytest.mark.slow
def test_every_room_has_its_share_and_a_seed_draws_the_same(defects: list[PlantedDefect]) -> None:
    assert [sum(defect.path.startswith(f"{room}/") for defect in defects) for room in ROOMS] == [2] * 5
    assert sample(10, seed=1) == defects
    assert sample(10, seed=2) != defects


@pytest.mark.slow
def test_a_defect_is_planted_and_removed(defects: list[PlantedDefect], tmp_path: Path) -> None:
    for defect in defects:
        file = tmp_path / defect.path
        file.parent.mkdir(parents=True, exist_ok=True)
        defect.plant(tmp_path)
        assert ast.dump(ast.parse(file.read_bytes())) != ast.dump(ast.parse((ROOT / defect.path).read_bytes()))
        defect.remove(tmp_path)
        assert file.read_bytes() == (ROOT / defect.path).read_bytes()


@pytest.mark.slow
def test_markers_are_in_functions_only(defects: list[PlantedDefect], tmp_path: Path) -> None:
    for defect in defects:
        (tmp_path / defect.path).parent.mkdir(parents=True, exist_ok=True)
    plant_markers(tmp_path, defects)
    for defect in defects:
        tree = ast.parse((tmp_path / defect.path).read_bytes())
        assert f".note({defect.number})" in ast.unparse(tree)
        assert not any(".note(" in ast.unparse(node) for node in tree.body if isinstance(node, ast.Expr))


MODULE = """
import pytest
from tests.mutation.reach import note

@pytest.fixture(scope="module")
def shared(): note(1)

@pytest.mark.xdist_group("group")
@pytest.mark.parametrize("number", [7])
def test_reaching(shared, number): note(number)

def test_failing(): assert sum(range(10**6)) < 0
"""


def test_costs_failures_and_what_tests_reach_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(MODULE)
    variables = {costs.FOLDER: str(tmp_path), reach.FOLDER: str(tmp_path), costs.FAILED: str(tmp_path / "failed")}
    words = ["-p", "tests.mutation.costs", "-n", "1", "--dist", "loadgroup", "--rootdir", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    subprocess.run([sys.executable, "-m", "pytest", *words], cwd=tmp_path, env=environment, check=False, timeout=60)
    assert read_reach(tmp_path) == {1: ["test_some.py"], 7: ["test_some.py::test_reaching[7]"]}
    assert set(read_costs(tmp_path)) == {"test_some.py::test_reaching[7]", "test_some.py::test_failing"}
    assert (tmp_path / "failed").read_text() == "test_some.py::test_failing"


def test_the_quickest_come_first_and_a_module_means_all_its_tests() -> None:
    cost = {
        name: Cost(cpu_s=0, wall_s=wall_s)
        for name, wall_s in (("a::x", BATCH_S), ("a::y", 1), ("b::z", 2), ("c::z", 0))
    }
    assert list(batches(["a", "b::z"], cost)) == [["a::y", "b::z"], ["a::x"]]
