"""The code that each case passes on a healthy client (Lua statements, Python lines), and how long it takes."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path

import msgspec

from conformance.mutants.generated.change import GeneratedMutant, Place
from conformance.mutants.matrix import ScenarioCase

ROOT = Path(str(files("conformance")))
_KIT = ("*.py", "*.mjs", "*.yaml", "*.json")
_NOT_THE_KIT = frozenset({"scenarios", "mutants", "clients", "cli", "report", "fuzz"})
"""Rooms that have no part in what one case says; scenarios are hashed one by one."""
_DECIDES_WHAT_IS_PASSED = frozenset({"reference_impl", "participants", "protocol", "node_harness"})


class CaseReach(msgspec.Struct, frozen=True, kw_only=True):
    """One case on a healthy client.

    `passed`: by file, the lines (Python) or first bytes of statements (Lua), ascending. `whole`: scripts whose
    statements could not be recorded, because the case has its own Redis. `healthy`: whether the client passed it.
    """

    case: str
    passed: dict[str, list[int]]
    whole: list[str]
    took_ms: float
    healthy: bool

    def reaches(self, place: Place) -> bool:
        """Whether the case passes the place."""
        if place.file in self.whole:
            return True
        passed = self.passed.get(place.file, [])
        index = bisect.bisect_left(passed, place.first)
        return index < len(passed) and passed[index] <= place.last

    @property
    def size(self) -> int:
        """How much it passes in all."""
        return sum(map(len, self.passed.values()))


def reaching(mutant: GeneratedMutant, reaches: Iterable[CaseReach]) -> Iterator[CaseReach]:
    """The cases that pass what the mutant changes."""
    for reach in reaches:
        if reach.healthy and any(reach.reaches(place) for place in mutant.places):
            yield reach


def case_names(cases: Iterable[ScenarioCase]) -> dict[str, ScenarioCase]:
    """Every case under a name of its own: `area/name`, with the parameters in brackets, as pytest has it."""
    named: dict[str, ScenarioCase] = {}
    for case in cases:
        words = printable("-".join(str(value) for value in case.arguments.values())[:60])
        name = f"{case.id}[{words}]" if case.arguments else case.id
        while name in named:
            name += "'"
        named[name] = case
    return named


def printable(text: str) -> str:
    """The text on one line, in characters that can be written to a file."""
    return repr(text.encode("utf-8", "backslashreplace").decode())[1:-1]


def kit_hash() -> str:
    """Changes with everything that decides what a case says of a client, but for the scenarios themselves."""
    return _hash_of(path for path in _files_of_the_kit() if path.relative_to(ROOT).parts[0] not in _NOT_THE_KIT)


def passing_hash() -> str:
    """Changes with everything that decides which code a case passes, but for the scenarios themselves."""
    return _hash_of(path for path in _files_of_the_kit() if path.relative_to(ROOT).parts[0] in _DECIDES_WHAT_IS_PASSED)


def _files_of_the_kit() -> list[Path]:
    return sorted(path for pattern in _KIT for path in ROOT.rglob(pattern))


def scenario_hashes(cases: Mapping[str, ScenarioCase]) -> dict[str, str]:
    """By case: the hash of the module that has the scenario, and of what scenarios share."""
    folder = ROOT / "scenarios"
    shared = _hash_of(sorted((folder / "support").rglob("*.py")))
    modules = {case.scenario.function.__module__.rpartition(".")[2] for case in cases.values()}
    hashes = {module: _hash_of([folder / f"{module}.py"]) for module in modules}
    return {name: shared + hashes[case.scenario.function.__module__.rpartition(".")[2]] for name, case in cases.items()}


def _hash_of(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
