"""Races: every single scenario about them, held or free, catches a client that is wrong in just this race."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.ledger.loader import load_ledger
from conformance.mutants.cases import Case, all_cases
from conformance.mutants.matrix import Arena
from conformance.mutants.registry import find_mutant

PAGE = Path(__file__).parents[2] / "docs" / "races.md"

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


def _cases() -> list[Case]:
    return [case for case in all_cases() if case.id.startswith("races")]


def test_every_scenario_about_races_has_its_mutant() -> None:
    assert sorted({case.id for case in _cases()}) == sorted(CAUGHT)


@pytest.mark.parametrize("scenario", CAUGHT)
def test_the_scenario_catches_it(scenario: str, arena: Arena) -> None:
    mutant = find_mutant(CAUGHT[scenario])
    caught = []
    for case in (case for case in _cases() if case.id == scenario):
        evidence = arena.evidence(mutant, case)
        assert not evidence.error
        caught += [one for one in evidence.findings if one.requirement == case.scenario.requirements[0]]
        if caught:
            return
    pytest.fail(f"{scenario} finds nothing wrong with {mutant.name}: {mutant.what}")


def test_the_page_about_races_names_every_row() -> None:
    page = PAGE.read_text("utf-8")
    assert [row.id for row in load_ledger().values() if row.area == "race" and f"`{row.id}`" not in page] == []
