"""The kill matrix: the gate notices every mutant, in every row that the mutant violates, and every race has one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.ledger.loader import load_ledger
from conformance.mutants.damage import Damage
from conformance.mutants.matrix import MutantResult, MutantRunner, ScenarioCase, all_cases
from conformance.mutants.registry import MUTANTS, Mutant

pytestmark = pytest.mark.long(8, processes=3)

QUICK = [
    case for case in all_cases() if not (case.scenario.slow or case.scenario.needs or case.scenario.clock == "real")
]
FIRST_OF_AREA = {case.id.split("/")[0]: case for case in reversed(QUICK)}


def _nothing(_damage: Damage) -> None:
    """Break nothing."""


def _healthy(*rows: str) -> Mutant:
    return Mutant("healthy", "Nothing is broken.", rows, _nothing)


def _explained(result: MutantResult) -> str:
    seen = result.finding.message if result.finding else "\n    ".join(dict.fromkeys(result.seen))
    return f"{result.row}: wanted {result.wanted}, got {result.verdict}; seen: {seen}"


ON_A_CLUSTER = [mutant for mutant in MUTANTS.values() if mutant.needs == "cluster"]
ELSEWHERE = [mutant for mutant in MUTANTS.values() if mutant.needs == ""]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ELSEWHERE, ids=lambda mutant: mutant.name)
def test_the_gate_notices(mutant: Mutant, runner: MutantRunner) -> None:
    _assert_noticed(mutant, runner)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ON_A_CLUSTER, ids=lambda mutant: mutant.name)
def test_the_gate_notices_on_a_cluster(mutant: Mutant, cluster_runner: MutantRunner) -> None:
    _assert_noticed(mutant, cluster_runner)


def test_a_healthy_client_leaves_nothing_to_find_on_a_cluster(cluster_runner: MutantRunner) -> None:
    for case in all_cases():
        if case.scenario.needs == "cluster":
            evidence = cluster_runner.evidence(_healthy(), case)
            assert (evidence.error, [finding.message for finding in evidence.findings]) == ("", [])


def test_keys_under_a_refused_name_are_not_read_as_those_of_a_queue(runner: MutantRunner) -> None:
    mutant = MUTANTS.find("edge.unchecked-queue-name")
    cases = [case for case in all_cases() if "edge.queue-names.refused" in case.scenario.requirements]
    blamed = [{finding.requirement for finding in runner.evidence(mutant, case).findings} for case in cases]
    assert blamed == [{"edge.queue-names.refused"}] * len(cases)
    assert cases


def _assert_noticed(mutant: Mutant, runner: MutantRunner) -> None:
    results = runner.results(mutant)
    assert [result.row for result in results] == list(mutant.rows)
    assert [error for result in results for error in result.errors] == []
    survived = [_explained(result) for result in results if not result.killed]
    assert not survived, f"{mutant.what}\n" + "\n".join(survived)


@pytest.mark.parametrize("case", FIRST_OF_AREA.values(), ids=lambda case: case.id)
def test_a_healthy_client_leaves_nothing_to_find(case: ScenarioCase, runner: MutantRunner) -> None:
    evidence = runner.evidence(_healthy(), case)
    assert not evidence.error
    assert [finding.message for finding in evidence.findings] == []


def test_a_mutant_that_breaks_nothing_survives(runner: MutantRunner) -> None:
    rows = ("add.plain.waits", "add.lifo", "pause.answer")
    results = runner.results(_healthy(*rows))
    assert [(result.row, result.killed) for result in results] == [(row, False) for row in rows]
    assert all("no finding" in result.seen[0] for result in results)


def test_a_warning_does_not_kill_a_must_row(runner: MutantRunner) -> None:
    own_index = MUTANTS["keys.own-index"]
    bold = replace(own_index, kills=own_index.warns, warns=())
    [result] = runner.results(bold)
    assert load_ledger().row(result.row).level == "MUST"
    assert (result.killed, result.verdict) == (False, "warn")


def test_the_client_is_healthy_again_after_a_mutant(runner: MutantRunner) -> None:
    result = runner.results(MUTANTS["keys.own-index"])[0]
    assert result.killed
    [again] = runner.results(_healthy(result.row))
    assert not again.killed


def test_an_error_of_a_worker_is_noticed_in_every_scenario(runner: MutantRunner) -> None:
    [case] = [case for case in all_cases() if case.id == "liveness/a_drained_worker_takes_the_next_job"]
    evidence = runner.evidence(MUTANTS.find("worker.complains"), case)
    assert evidence.reached_end
    [finding] = [finding for finding in evidence.findings if finding.where == "worker.error"]
    assert (finding.requirement, finding.actual) == ("liveness.no-errors", "no job")
    allowed = replace(case, scenario=replace(case.scenario, without={"worker-errors": "a test of the kit"}))
    assert runner.evidence(MUTANTS.find("worker.complains"), allowed).findings == []


PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "corner-cases.md"

CAUGHT = {
    "races-locks/a_completion_meets_a_check_without_lock": "race.lock-looked-at-before",
    "races-locks/a_completion_meets_a_check_with_lock": "stalled.locks-ignored",
    "races-locks/a_completion_meets_the_first_check": "stalled.first-check",
    "races-locks/a_completion_meets_the_next_owner": "race.lock-looked-at-before",
    "races-locks/a_renewal_meets_a_check_with_lock": "stalled.renewed-suspected",
    "races-locks/a_renewal_meets_a_check_without_lock": "race.renewal-looks-before",
    "races-locks/two_workers_finish_under_one_token": "race.lock-looked-at-before",
    "races-locks/two_workers_claim_under_one_token": "race.token-made-own",
    "races-workers/closing_meets_a_fetch": "race.close-abandons-fetch",
    "races-workers/closing_meets_a_read": "race.closed-reader-crashes",
    "races-workers/closing_meets_what_a_finish_fetches": "race.stop-drops-fetched",
    "races-workers/pausing_meets_what_a_finish_fetches": "race.stop-drops-fetched",
    "races-workers/pausing_a_worker_meets_its_fetch": "race.pause-forgets-fetch",
    "races-workers/stopping_meets_the_wake_up": "race.stop-swallows-wake-up",
    "races/a_pause_meets_a_fetch": "race.pause-looked-for-before",
    "races/a_retry_meets_a_removal": "race.retry-looks-before",
    "races/a_promotion_meets_the_time": "race.promotion-looks-before",
    "races/an_addition_meets_a_drain": "race.drain-sweeps",
    "races/an_addition_meets_an_obliteration": "race.obliteration-sweeps",
    "races/a_progress_meets_the_completion": "race.progress-looks-before",
    "races/two_producers_add_one_id": "race.id-looked-for-before",
    "races-family/the_last_two_children_end_at_once": "race.children-counted-before",
    "races-family/a_removal_meets_the_claim_of_the_child": "race.removal-looks-before",
    "races-family/a_removal_meets_the_end_of_the_sibling": "race.children-counted-before",
    "races-family/last_children_end_at_once": "race.children-counted-before",
    "races-family/removals_meet_claims_of_the_child": "race.removal-looks-before",
    "races-family/removals_meet_ends_of_the_sibling": "race.children-counted-before",
    "races-running/completions_meet_checks": "race.lock-looked-at-before",
    "races-running/completions_meet_the_next_owners": "race.lock-looked-at-before",
    "races-running/renewals_meet_checks": "race.renewal-looks-before",
    "races-running/two_workers_with_one_token": "race.lock-looked-at-before",
    "races-running/pauses_meet_fetches": "race.pause-looked-for-before",
    "races-running/retries_meet_removals": "race.retry-looks-before",
    "races-running/promotions_meet_the_time": "race.promotion-looks-before",
    "races-running/additions_meet_drains": "race.drain-sweeps",
    "races-running/additions_meet_obliterations": "race.obliteration-sweeps",
    "races-running/progress_meets_completions": "race.progress-looks-before",
    "races-running/producers_add_the_same_ids": "race.id-looked-for-before",
    "races-workers/closes_meet_fetches": "race.close-abandons-fetch",
    "races-workers/worker_pauses_meet_fetches": "race.pause-forgets-fetch",
}
"""The mutant that each scenario has to catch."""


def _cases() -> list[ScenarioCase]:
    return [case for case in all_cases() if case.id.startswith("races")]


def test_every_scenario_about_races_has_its_mutant() -> None:
    assert sorted({case.id for case in _cases()}) == sorted(CAUGHT)


@pytest.mark.parametrize("scenario", CAUGHT)
def test_the_scenario_catches_it(scenario: str, runner: MutantRunner) -> None:
    mutant = MUTANTS.find(CAUGHT[scenario])
    caught = []
    for case in (case for case in _cases() if case.id == scenario):
        evidence = runner.evidence(mutant, case)
        assert not evidence.error
        caught += [finding for finding in evidence.findings if finding.requirement == case.scenario.requirements[0]]
        if caught:
            return
    pytest.fail(f"{scenario} finds nothing wrong with {mutant.name}: {mutant.what}")


def test_the_page_about_races_names_every_row() -> None:
    page = PAGE.read_text("utf-8")
    assert [row.id for row in load_ledger().values() if row.area == "race" and f"`{row.id}`" not in page] == []
