"""Scenarios that no mutant fails, so that no run has shown yet that they can fail.

The reason to keep each one is data next to this file:

    [[idle]]
    scenario = "area/name"
    reason = "what it guards against, and why no mutant shows it"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from conformance.gate.trial_result import TrialResult
from conformance.mutants.matrix import ScenarioCase
from conformance.mutants.registry import MUTANTS, Mutant
from conformance.problems import EnvironmentProblem

REASONS = Path(str(files("conformance.mutants"))) / "idle.toml"
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class MutantTrial(Protocol):
    """Runs a case with a mutant as the client (`MutantRunner`)."""

    def evidence(self, mutant: Mutant, case: ScenarioCase) -> TrialResult:
        """The result of one scenario on a mutant."""
        ...


@dataclass(frozen=True)
class ProvenScenario:
    """A scenario and a mutant that fails it; without one, `reason` says why it is kept, if a reason is recorded."""

    scenario: str
    mutant: str = ""
    reason: str = ""

    @property
    def is_unexplained(self) -> bool:
        """Whether no mutant fails it, and no reason is recorded."""
        return not self.mutant and not self.reason

    @property
    def is_explained_in_vain(self) -> bool:
        """Whether a reason is recorded, but a mutant fails it."""
        return bool(self.mutant and self.reason)


class _Idle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scenario: _Text
    reason: _Text


class _IdleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    idle: tuple[_Idle, ...] = ()


def load_reasons(path: Path = REASONS) -> dict[str, str]:
    """Why scenarios are kept that no mutant fails. Raises EnvironmentProblem for a file that cannot be read."""
    try:
        return {entry.scenario: entry.reason for entry in msgspec.toml.decode(path.read_bytes(), type=_IdleFile).idle}
    except (OSError, msgspec.DecodeError) as error:
        raise EnvironmentProblem(
            f"the reasons in {path} cannot be read: {error}", hint="repair the file, or reinstall bullmq-conformance"
        ) from error


def cases_by_scenario(cases: Iterable[ScenarioCase]) -> dict[str, list[ScenarioCase]]:
    """The cases of each scenario."""
    found: dict[str, list[ScenarioCase]] = {}
    for case in cases:
        found.setdefault(case.id, []).append(case)
    return found


def mutants_against(cases: Sequence[ScenarioCase]) -> list[Mutant]:
    """The mutants that violate a row of the scenario; those first that name it, or the row that it is about."""
    scenario = cases[0]
    rows = {row for case in cases for row in case.scenario.requirements}
    named = set().union(*(case.names for case in cases))
    main = scenario.scenario.requirements[0]
    chosen = [mutant for mutant in MUTANTS.values() if rows & set(mutant.rows) and not mutant.needs]
    return sorted(chosen, key=lambda mutant: (not named & set(mutant.by), main not in mutant.rows))


def prove(
    runner: MutantTrial,
    scenarios: Mapping[str, Sequence[ScenarioCase]],
    known: Mapping[str, str],
    reasons: Mapping[str, str],
) -> Iterator[ProvenScenario]:
    """For each scenario a mutant that fails it. `known`: mutants that have been seen to fail one, by scenario."""
    for name, cases in scenarios.items():
        mutant = _failing(runner, cases) or known.get(name, "")
        yield ProvenScenario(name, mutant, reasons.get(name, ""))


def _failing(runner: MutantTrial, cases: Sequence[ScenarioCase]) -> str:
    for mutant in mutants_against(cases):
        for case in cases:
            evidence = runner.evidence(mutant, case)
            if evidence.findings and not evidence.error:
                return mutant.name
    return ""
