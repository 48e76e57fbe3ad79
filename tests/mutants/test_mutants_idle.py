"""Scenarios that no mutant fails are found, and explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.findings import Finding
from conformance.gate.trial_result import TrialResult
from conformance.mutants.idle import ProvenScenario, cases_by_scenario, load_reasons, mutants_against, prove
from conformance.mutants.matrix import ScenarioCase, all_cases
from conformance.mutants.registry import Mutant
from conformance.problems import EnvironmentProblem

SCENARIOS = cases_by_scenario(all_cases())
IDS = "add/an_integer_id_is_refused"
FOUND = Finding(
    requirement="add.lifo",
    source="assertion",
    kind="wrong-value",
    severity="wrong-behaviour",
    where="answer",
    key="",
    expected="1",
    actual="2",
    message="it differs",
)


class CannedTrial:
    """Runs nothing: one mutant fails one case, and the kit breaks on others."""

    def __init__(self, failing: str, argument: str, error: str = "") -> None:
        self._failing, self._argument, self._error = failing, argument, error

    def evidence(self, mutant: Mutant, case: ScenarioCase) -> TrialResult:
        fails = mutant.name == self._failing and self._argument in case.arguments.values()
        return TrialResult(findings=[FOUND] if fails else [], error=self._error)


def _proven(trial: CannedTrial, known: dict[str, str] | None = None) -> ProvenScenario:
    [found] = prove(trial, {IDS: SCENARIOS[IDS]}, known or {}, {IDS: "it is kept"})
    return found


def test_a_scenario_is_proven_by_a_mutant_that_fails_any_of_its_cases() -> None:
    [name, *_] = [mutant.name for mutant in mutants_against(SCENARIOS[IDS])]
    assert _proven(CannedTrial(name, "-5")) == ProvenScenario(IDS, name, "it is kept")
    assert _proven(CannedTrial(name, "-5")).is_explained_in_vain


def test_an_error_of_the_kit_proves_nothing() -> None:
    [name, *_] = [mutant.name for mutant in mutants_against(SCENARIOS[IDS])]
    assert _proven(CannedTrial(name, "-5", error="Redis is gone")) == ProvenScenario(IDS, "", "it is kept")


def test_a_kill_of_a_hunt_is_a_proof() -> None:
    assert _proven(CannedTrial("", ""), {IDS: "a generated one"}).mutant == "a generated one"


def test_an_idle_scenario_without_a_reason_is_unexplained() -> None:
    assert [proven.is_unexplained for proven in prove(CannedTrial("", ""), {IDS: SCENARIOS[IDS]}, {}, {})] == [True]
    assert not _proven(CannedTrial("", "")).is_unexplained


def test_only_scenarios_that_exist_are_explained() -> None:
    assert sorted(set(load_reasons()) - set(SCENARIOS)) == []


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "idle.toml"
    wrong.write_text('[[idle]]\nscenario = "a/b"\n', encoding="utf-8")
    with pytest.raises(EnvironmentProblem, match=r"idle\.toml cannot be read"):
        load_reasons(wrong)
