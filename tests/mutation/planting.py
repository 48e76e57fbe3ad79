"""Defects of the kit itself: one generated change in a copy of the tree, and the tests that reach it."""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, islice
from pathlib import Path

from conformance.mutants.generated.arrival import place_of
from conformance.mutants.generated.change import GeneratedMutant
from conformance.mutants.generated.python_operators import Module, python_mutants

ROOT = Path(__file__).parents[2]
ROOMS = ("conformance/gate", "conformance/observe", "conformance/checkers", "conformance/participants", "reports")


@dataclass(frozen=True)
class PlantedDefect:
    """A change to a module of the kit; `number` is its place in the sample, `path` is below the root of the tree."""

    number: int
    path: str
    mutant: GeneratedMutant

    def plant(self, tree: Path) -> None:
        """Write the changed module into a copy of the tree."""
        _write(tree / self.path, self.mutant.edit.applied((ROOT / self.path).read_bytes()))

    def remove(self, tree: Path) -> None:
        """Write the healthy module."""
        _write(tree / self.path, (ROOT / self.path).read_bytes())

    def __str__(self) -> str:
        code = self.mutant.code((ROOT / self.path).read_bytes())
        return f"{self.number} {self.path}:{self.mutant.line} {self.mutant.operator}: {code}"


def sample(size: int, seed: int) -> list[PlantedDefect]:
    """Draw defects evenly from the rooms, and only inside functions: every process runs what is outside."""
    drawn = random.Random(seed)
    chosen: list[tuple[str, GeneratedMutant]] = []
    for index, room in enumerate(ROOMS):
        share = (size + index) // len(ROOMS)
        defects = list(_defects_of(room))
        drawn.shuffle(defects)
        chosen += list(islice(filter(_is_in_a_function, defects), share))
    return [PlantedDefect(number, path, mutant) for number, (path, mutant) in enumerate(chosen)]


def plant_markers(tree: Path, defects: Sequence[PlantedDefect]) -> None:
    """Let each defect's place in a copy of the tree report the tests that reach it (`tests.mutation.reach`)."""
    for path, group in groupby(sorted(defects, key=lambda defect: defect.path), key=lambda defect: defect.path):
        module = Module.of(path, (ROOT / path).read_bytes())
        places = [(defect, *place_of(module, defect.mutant.edit.start)) for defect in group]
        for defect, block, statement in [(defect, block, block[index]) for defect, block, index in places]:
            call = ast.parse(f"__import__('tests.mutation.reach', fromlist=['note']).note({defect.number})").body[0]
            block.insert(block.index(statement), call)
        _write(tree / path, ast.unparse(module.tree).encode())


@cache
def _defects_of(room: str) -> list[tuple[str, GeneratedMutant]]:
    found = []
    for file in sorted((ROOT / room).rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        mutants = python_mutants(Module.of(path, file.read_bytes()), lambda _: ())
        found += [(path, mutant) for mutant in mutants]
    return found


def _is_in_a_function(defect: tuple[str, GeneratedMutant]) -> bool:
    path, mutant = defect
    module = Module.of(path, (ROOT / path).read_bytes())
    return place_of(module, mutant.edit.start)[0] is not module.tree.body


def _write(file: Path, text: bytes) -> None:
    file.write_bytes(text)
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):  # it may have the same second and size
        compiled.unlink(missing_ok=True)
