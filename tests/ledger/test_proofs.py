"""Every disputed row is proven on the oracle, each proof shows both sides, and a refuted proof is reported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.environment.prepare import EnvironmentOptions
from conformance.gate.proof import DISPUTED, Proof, ProofRunner, all_proofs, proof_runner
from conformance.gate.selection import all_scenarios
from conformance.ledger.loader import load_ledger
from conformance.participants.expect import equal
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.disputed_scripts import slot


@pytest.fixture(scope="module")
def runner() -> Iterator[ProofRunner]:
    with proof_runner(EnvironmentOptions()) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("row", all_proofs())
def test_the_oracle_does_what_the_ledger_says(runner: ProofRunner, row: str) -> None:
    results = [runner.run(proof) for proof in all_proofs()[row]]
    assert [result.text for result in results if not result.holds] == []
    assert any(result.checks for result in results), "no scenario of this row states a check"


def test_scenarios_about_the_oracle_only_are_about_disputed_rows() -> None:
    disputed = {row.id for row in load_ledger().values() if row.status == "disputed"}
    named = {row for _, scenario in all_scenarios(DISPUTED) for row in scenario.requirements}
    assert named <= disputed == set(all_proofs())


def test_a_run_does_not_take_scenarios_about_the_oracle_only() -> None:
    assert not {name for name, _ in all_scenarios()} & {name for name, _ in all_scenarios(DISPUTED)}


@scenario("add.id.counter")
def _refuted(client: Participant) -> None:
    """The first id is 7."""
    equal(client.queue().add("job"), "7", "the first job has the id 7")


@scenario("add.id.counter")
def _refused(client: Participant) -> None:
    """A priority can be a negative fraction."""
    client.queue().add("job", {}, priority=-0.5)


@pytest.mark.parametrize(
    ("wrong", "expected"), [(_refuted, 'the first job has the id 7: expected "7", got "1"'), (_refused, "priority")]
)
def test_a_refuted_proof_is_noticed(runner: ProofRunner, wrong: object, expected: str) -> None:
    result = runner.run(Proof("add.id.counter", wrong.scenario))  # type: ignore[attr-defined]
    assert not result.holds
    assert expected in result.text.lower()
    assert "Node 5.62.0 does NOT do what the ledger says: " in result.text


def test_every_case_of_a_scenario_is_run(runner: ProofRunner) -> None:
    [proof] = [proof for proof in all_proofs()["retry.exhausted"] if proof.scenario.name == "the_last_attempt_is_final"]
    assert proof.cases == ({"attempts": 0}, {"attempts": 1}, {"attempts": 2})
    result = runner.run(proof)
    assert [check for check in result.checks if check.endswith('failed: ["failed"]')] == [
        f'[{attempts}] after the last try the job is failed: ["failed"]' for attempts in (0, 1, 2)
    ]


def test_proofs_are_in_the_order_of_the_ledger() -> None:
    assert list(all_proofs()) == [row for row in load_ledger() if row in all_proofs()]
    assert {proof.row for proof in all_proofs()["lock.token"]} == {"lock.token"}


@pytest.mark.parametrize(
    ("key", "number"),
    [("123456789", 12739), ("bull:myqueue:wait", 8258), ("bull:myqueue:active", 5693), ("bull:{myqueue}:wait", 9917)],
)
def test_slots_are_those_of_redis(key: str, number: int) -> None:
    assert slot(key) == number
    assert slot(f"x{{{key}}}y") == number if "{" not in key else True


@pytest.mark.slow
def test_empty_braces_are_not_a_tag() -> None:
    assert slot("a{}b") != slot("")
