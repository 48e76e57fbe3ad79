"""Which cases of tier full are run in core: those that pass what too few of core's own pass."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from conformance.mutants.generated.core_choice import as_toml, choose, chosen_cases
from conformance.mutants.generated.reach import CaseReach, case_names
from conformance.mutants.matrix import ScenarioCase, all_cases
from conformance.participants.marks import CORE_CASES, case_text, core_cases, least_tier_of, tier_of


def reach(case: str, *lines: int, took_ms: float = 10.0) -> CaseReach:
    return CaseReach(case=case, passed={"script": list(lines)}, whole=[], took_ms=took_ms, healthy=True)


def names(*own_and_others: list[CaseReach], passes: int = 1) -> list[str]:
    own, others = own_and_others
    return [reach.case for reach in choose(own, others, passes)]


def test_what_core_passes_needs_no_other_case() -> None:
    assert names([reach("own", 1, 2)], [reach("a", 1), reach("b", 2)]) == []


def test_who_passes_most_of_what_is_missing_comes_first() -> None:
    others = [reach("one", 2), reach("three", 2, 3, 4), reach("two", 3, 4)]
    assert names([reach("own", 1)], others) == ["three"]


def test_of_two_that_pass_the_same_the_quicker_is_chosen() -> None:
    assert names([], [reach("slow", 1, took_ms=900), reach("quick", 1)]) == ["quick"]


def test_a_place_is_passed_as_often_as_is_asked_for() -> None:
    others = [reach("a", 1), reach("b", 1), reach("c", 1)]
    assert names([], others, passes=2) == ["a", "b"]
    assert names([reach("own", 1)], others, passes=2) == ["a"]


def test_a_place_that_no_other_case_passes_is_not_waited_for() -> None:
    assert names([], [reach("a", 1)], passes=2) == ["a"]


def missing_names(named: Mapping[str, frozenset[str]], cases: Mapping[str, ScenarioCase]) -> list[str]:
    """The cases in the file that are not cases of tier full."""
    there = {
        (case.id, case_text(case.scenario, case.arguments)) for case in cases.values() if case.scenario.tier == "full"
    }
    return [
        f"{scenario}[{text}]" for scenario, texts in named.items() for text in texts if (scenario, text) not in there
    ]


@pytest.fixture(scope="module")
def cases() -> dict[str, ScenarioCase]:
    return case_names(all_cases())


def test_every_case_that_the_file_names_exists(cases: dict[str, ScenarioCase]) -> None:
    assert missing_names(core_cases(), cases) == []
    assert missing_names({"waiting/nothing": frozenset({"at-all"})}, cases) == ["waiting/nothing[at-all]"]


def test_every_case_that_the_file_names_is_run_in_core(cases: dict[str, ScenarioCase]) -> None:
    named = [
        case for case in cases.values() if case_text(case.scenario, case.arguments) in core_cases().get(case.id, ())
    ]
    assert named
    assert {tier_of(case.scenario, case.arguments) for case in named} == {"core"}


def test_assignments_that_core_does_not_run_are_not_chosen(cases: dict[str, ScenarioCase]) -> None:
    """Whatever they alone pass."""
    of_full = {
        name: case for name, case in cases.items() if case.scenario.tier == "full" and "assignment" in case.arguments
    }
    assert {tier_of(case.scenario, case.arguments) for case in of_full.values()} >= {"full"}
    reaches = {name: reach(name, line) for line, name in enumerate(of_full)}
    chosen = chosen_cases(of_full, reaches)
    texts = {(scenario, text) for scenario, found in chosen.items() for text in found}
    in_core = {
        (case.id, case_text(case.scenario, case.arguments))
        for case in of_full.values()
        if case.arguments["assignment"].in_core
    }
    assert texts == in_core


def test_a_case_that_is_named_is_of_core_and_its_siblings_are_not(cases: dict[str, ScenarioCase]) -> None:
    scenario, texts = next((name, texts) for name, texts in core_cases().items() if "" not in texts)
    siblings = [case for case in cases.values() if case.id == scenario]
    tiers = {case_text(case.scenario, case.arguments): tier_of(case.scenario, case.arguments) for case in siblings}
    assert {text for text, tier in tiers.items() if tier == "core"} == texts
    assert "full" in tiers.values()
    assert least_tier_of(siblings[0].scenario) == "core"


def test_what_is_chosen_can_be_written_and_read(cases: dict[str, ScenarioCase]) -> None:
    """Also where a scenario has no parameters. Of core's own nothing is chosen."""
    full = [name for name, case in cases.items() if case.scenario.tier == "full"][:3]
    own = next(name for name, case in cases.items() if case.scenario.tier == "core")
    reaches = {name: reach(name, line) for line, name in enumerate([*full, own])}
    chosen = chosen_cases({name: cases[name] for name in (*full, own)}, reaches)
    assert sum(map(len, chosen.values())) == len(full)
    assert cases[own].id not in chosen
    assert all(f'"{scenario}" = [' in as_toml(chosen) for scenario in chosen)


def test_what_is_kept_is_not_chosen_again(cases: dict[str, ScenarioCase]) -> None:
    one, other = [name for name, case in cases.items() if case.scenario.tier == "full"][:2]
    both = {name: cases[name] for name in (one, other)}
    kept = {cases[one].id: frozenset({case_text(cases[one].scenario, cases[one].arguments)})}
    assert chosen_cases(both, {one: reach(one, 1), other: reach(other, 1)}, kept) != {}
    assert chosen_cases(both, {one: reach(one, 1), other: reach(other)}, kept) == {}


def test_the_file_is_as_it_is_written() -> None:
    kept = CORE_CASES.read_text(encoding="utf-8")
    assert as_toml({scenario: sorted(texts) for scenario, texts in core_cases().items()}) == kept
