"""Results of earlier runs, in the user's cache: baselines by case, and the results of cases on mutants."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from conformance.mutants.generated.change import GeneratedMutant
from conformance.mutants.generated.hunt import HuntedCase, Kill
from conformance.mutants.generated.reach import CaseReach, kit_hash, passing_hash
from conformance.upstream.package import cache_folder

Entry = TypeVar("Entry", bound=msgspec.Struct)


class _KnownReach(msgspec.Struct, frozen=True):
    scenario: str
    reach: CaseReach


class _KnownResult(msgspec.Struct, frozen=True):
    scenario: str
    mutant: str
    said: HuntedCase


class Store:
    """Files to which lines are added; two of them have a new name for each state of the code that they depend on.

    An entry is valid as long as the scenario of its case is unchanged. `scenarios`: hash by case. Results on a mutant
    are found by the change itself, not by the mutant's name.
    """

    def __init__(self, scenarios: Mapping[str, str], folder: Path | None = None) -> None:
        self._scenarios = dict(scenarios)
        self._folder = folder or cache_folder() / "mutants"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._reaches = self._folder / f"reach-{passing_hash()}.jsonl"
        # Without a hash, because it only orders cases and stays useful with a changed kit.
        self._kills = self._folder / "kills.jsonl"
        self._sayings = self._folder / f"said-{kit_hash()}.jsonl"

    def reaches(self) -> dict[str, CaseReach]:
        """The baseline as far as it is known and holds."""
        known = _read(self._reaches, _KnownReach)
        return {entry.reach.case: entry.reach for entry in known if self._holds(entry.reach.case, entry.scenario)}

    def keep_reach(self, reach: CaseReach) -> None:
        """Add a case to the baseline."""
        _append(self._reaches, _KnownReach(self._scenarios[reach.case], reach))

    def sayings(self) -> dict[str, dict[str, HuntedCase]]:
        """The results of cases, by mutant (its `fingerprint`) and case."""
        found: dict[str, dict[str, HuntedCase]] = {}
        for entry in _read(self._sayings, _KnownResult):
            if self._holds(entry.said.case, entry.scenario):
                found.setdefault(entry.mutant, {})[entry.said.case] = entry.said
        return found

    def keep_sayings(self, mutant: GeneratedMutant, sayings: Iterable[HuntedCase]) -> None:
        """Add what cases said of a mutant."""
        for said in sayings:
            _append(self._sayings, _KnownResult(self._scenarios[said.case], fingerprint(mutant), said))

    def kills(self) -> list[Kill]:
        """Which cases noticed what, also with an older kit: it only says what to try first."""
        return _read(self._kills, Kill)

    def keep_kill(self, kill: Kill) -> None:
        """Add what a case noticed."""
        _append(self._kills, kill)

    def _holds(self, case: str, scenario: str) -> bool:
        return self._scenarios.get(case) == scenario


def fingerprint(mutant: GeneratedMutant) -> str:
    """The change itself: file, place and replacement."""
    edit = mutant.edit
    text = f"{mutant.language} {mutant.file} {edit.start} {edit.end} {edit.replacement}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _append(path: Path, entry: msgspec.Struct) -> None:
    # One write per line: several runs may add to the file.
    with path.open("ab", buffering=0) as file:
        file.write(msgspec.json.encode(entry) + b"\n")


def _read(path: Path, kind: type[Entry]) -> list[Entry]:
    if not path.exists():
        return []
    decoder = msgspec.json.Decoder(kind)
    # A line without its end was cut by an interruption.
    return [decoder.decode(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]
