"""The kill matrix: the gate notices every mutant, in every row that the mutant violates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.ledger.loader import load_ledger
from conformance.mutants.cases import Case, all_cases
from conformance.mutants.damage import Damage
from conformance.mutants.matrix import Arena, Outcome
from conformance.mutants.registry import Mutant, all_mutants

QUICK = [
    case for case in all_cases() if not (case.scenario.slow or case.scenario.needs or case.scenario.clock == "real")
]
FIRST_OF_AREA = {case.id.split("/")[0]: case for case in reversed(QUICK)}


def _nothing(_damage: Damage) -> None:
    """Break nothing."""


def _healthy(*rows: str) -> Mutant:
    return Mutant("healthy", "Nothing is broken.", kills=rows, warns=(), missed=(), by=(), inflict=_nothing)


def _told(outcome: Outcome) -> str:
    seen = outcome.finding.message if outcome.finding else "\n    ".join(dict.fromkeys(outcome.seen))
    return f"{outcome.row}: wanted {outcome.wanted}, got {outcome.verdict}; seen: {seen}"


ON_A_CLUSTER = [mutant for mutant in all_mutants().values() if mutant.needs == "cluster"]
ELSEWHERE = [mutant for mutant in all_mutants().values() if mutant.needs == ""]


@pytest.mark.parametrize("mutant", ELSEWHERE, ids=lambda mutant: mutant.name)
def test_the_gate_notices(mutant: Mutant, arena: Arena) -> None:
    _assert_noticed(mutant, arena)


@pytest.mark.parametrize("mutant", ON_A_CLUSTER, ids=lambda mutant: mutant.name)
def test_the_gate_notices_on_a_cluster(mutant: Mutant, cluster_arena: Arena) -> None:
    _assert_noticed(mutant, cluster_arena)


def test_a_healthy_client_leaves_nothing_to_find_on_a_cluster(cluster_arena: Arena) -> None:
    for case in all_cases():
        if case.scenario.needs == "cluster":
            evidence = cluster_arena.evidence(_healthy(), case)
            assert (evidence.error, [finding.message for finding in evidence.findings]) == ("", [])


def _assert_noticed(mutant: Mutant, arena: Arena) -> None:
    outcomes = arena.outcomes(mutant)
    assert [outcome.row for outcome in outcomes] == list(mutant.rows)
    assert [error for outcome in outcomes for error in outcome.errors] == []
    survived = [_told(outcome) for outcome in outcomes if not outcome.killed and outcome.row not in mutant.missed]
    assert not survived, f"{mutant.what}\n" + "\n".join(survived)
    noticed = [outcome.row for outcome in outcomes if outcome.killed and outcome.row in mutant.missed]
    assert not noticed, f"a hole is closed: move {noticed} of {mutant.name} from `missed` to `kills`"


@pytest.mark.parametrize("case", FIRST_OF_AREA.values(), ids=lambda case: case.id)
def test_a_healthy_client_leaves_nothing_to_find(case: Case, arena: Arena) -> None:
    evidence = arena.evidence(_healthy(), case)
    assert not evidence.error
    assert [finding.message for finding in evidence.findings] == []


def test_a_mutant_that_breaks_nothing_survives(arena: Arena) -> None:
    rows = ("add.plain.waits", "add.lifo", "pause.answer")
    outcomes = arena.outcomes(_healthy(*rows))
    assert [(outcome.row, outcome.killed) for outcome in outcomes] == [(row, False) for row in rows]
    assert all("no finding" in outcome.seen[0] for outcome in outcomes)


def test_a_warning_does_not_kill_a_must_row(arena: Arena) -> None:
    own_index = all_mutants()["keys.own-index"]
    bold = replace(own_index, kills=own_index.warns, warns=())
    [outcome] = arena.outcomes(bold)
    assert load_ledger().row(outcome.row).level == "MUST"
    assert (outcome.killed, outcome.verdict) == (False, "warn")


def test_the_client_is_healthy_again_after_a_mutant(arena: Arena) -> None:
    [outcome] = arena.outcomes(all_mutants()["keys.own-index"])
    assert outcome.killed
    [again] = arena.outcomes(_healthy(outcome.row))
    assert not again.killed
