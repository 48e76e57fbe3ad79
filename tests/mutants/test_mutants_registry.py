"""What the mutants declare agrees with the ledger and the scenarios."""

from __future__ import annotations

import pytest

from conformance.gate.selection import scenarios_by_requirement
from conformance.ledger.loader import load_ledger
from conformance.mutants.cases import all_cases
from conformance.mutants.damage import Damage
from conformance.mutants.registry import all_mutants, find_mutant, killed_rows, mutant
from conformance.participants.marks import DIRECTIONS
from conformance.problems import UsageProblem


def test_every_row_that_is_named_exists() -> None:
    named = {row for one in all_mutants().values() for row in one.rows}
    assert sorted(named - set(load_ledger())) == []


def test_every_area_with_scenarios_has_a_mutant() -> None:
    ledger = load_ledger()
    areas = {ledger.row(row).area for row in scenarios_by_requirement()}
    assert sorted(areas - {ledger.row(row).area for row in killed_rows()}) == []


def test_every_row_of_a_scenario_is_killed_or_known_to_be_missed() -> None:
    """A row that no mutant violates is a check that nobody has ever seen fail."""
    missed = {row for one in all_mutants().values() for row in one.missed}
    assert sorted(set(scenarios_by_requirement()) - set(killed_rows()) - missed) == []


def test_only_must_rows_are_excused_to_a_warning() -> None:
    ledger = load_ledger()
    assert [one.name for one in all_mutants().values() for row in one.warns if ledger.row(row).level != "MUST"] == []


def test_every_scenario_that_is_named_exists() -> None:
    known = {case.id for case in all_cases()}
    assert [one.name for one in all_mutants().values() if set(one.by) - known] == []


def test_killed_rows_name_their_mutants() -> None:
    assert "marker.missing" in killed_rows()["order.marker.base"]
    assert "keys.own-index" in killed_rows()["order.no-other-keys"]


def test_every_mutant_says_what_is_broken_in_one_sentence() -> None:
    assert [one.name for one in all_mutants().values() if not one.what.endswith(".") or "\n" in one.what] == []


def test_an_unknown_name_is_the_users_mistake() -> None:
    with pytest.raises(UsageProblem, match=r"no mutant 'nobody'.*marker\.missing"):
        find_mutant("nobody")


def _documented(_damage: Damage) -> None:
    """Break nothing."""


def _undocumented(_damage: Damage) -> None: ...


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="name must be new"):
        mutant("marker.missing", kills=("order.marker.base",))(_documented)


def test_a_mutant_needs_rows_and_a_docstring() -> None:
    with pytest.raises(ValueError, match="rows to kill"):
        mutant("test.no-rows")(_documented)
    with pytest.raises(ValueError, match="docstring"):
        mutant("test.no-docstring", kills=("order.marker.base",))(_undocumented)


def test_cases_are_those_that_pytest_would_run() -> None:
    by_id = {case.id: [other.arguments for other in all_cases() if other.id == case.id] for case in all_cases()}
    assert by_id["add/a_plain_job_enters_wait_at_the_left"] == [{}]
    assert by_id["add/an_integer_id_is_refused"] == [{"job_id": "12"}, {"job_id": "-5"}]
    assert [one["direction"] for one in by_id["interop/plain_jobs_are_completed_by_the_other"]] == list(DIRECTIONS)
    assert len(by_id["getters/jobs_are_listed_in_order"]) == 8
    assert by_id["getters/changing_a_priority"][0] == {"before": 0, "after": 5}
