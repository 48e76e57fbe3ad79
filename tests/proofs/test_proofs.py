"""Every proof holds on the oracle, each shows both sides, and one that is refuted says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.environment.prepare import EnvironmentOptions
from conformance.ledger.loader import load_ledger
from conformance.participants.expect import equal
from conformance.participants.participant import Participant
from conformance.proofs.about_scripts import slot
from conformance.proofs.proof import Proof, ProofRunner, all_proofs, proof, proof_runner

PROOFS = [proof for proofs in all_proofs().values() for proof in proofs]


@pytest.fixture(scope="module")
def runner() -> Iterator[ProofRunner]:
    with proof_runner(EnvironmentOptions()) as found:
        yield found


@pytest.mark.parametrize("disputed", PROOFS, ids=lambda disputed: f"{disputed.row}-{disputed.name}")
def test_the_oracle_does_what_the_ledger_says(runner: ProofRunner, disputed: Proof) -> None:
    result = runner.run(disputed)
    assert result.holds, result.text
    assert result.text == f"paper says: {load_ledger().row(disputed.row).paper}\nNode 5.62.0 does: {result.seen}"
    assert result.seen


def test_every_dispute_has_a_proof() -> None:
    disputed = {row.id for row in load_ledger().values() if row.status == "disputed"}
    assert disputed == set(all_proofs())


def _refuted(oracle: Participant) -> str:
    equal(oracle.queue().add("job"), "7", "the first job has the id 7")
    return "never said"


def _refused(oracle: Participant) -> str:
    oracle.queue().add("job", {}, priority=-0.5)
    return "never said"


@pytest.mark.parametrize(
    ("steps", "expected"), [(_refuted, "the first job has the id 7: expected 7, got 1"), (_refused, "priority")]
)
def test_a_refuted_proof_is_noticed(runner: ProofRunner, steps: object, expected: str) -> None:
    assert callable(steps)
    result = runner.run(Proof("add.id.counter", "wrong", "Do it wrong.", "frozen", steps))
    assert not result.holds
    assert expected in result.text.lower()
    assert "Node 5.62.0 does NOT do what the ledger says: " in result.text


def _documented(_oracle: Participant) -> str:
    """Do nothing."""
    return ""


@pytest.mark.parametrize("about", ["add.lifo", "no.such-row", "FR-1.3", "FR-99"])
def test_a_proof_needs_a_dispute(about: str) -> None:
    with pytest.raises(ValueError, match=f"proof of {about}"):
        proof(about)(_documented)


def test_a_proof_needs_a_docstring() -> None:
    with pytest.raises(ValueError, match="docstring"):
        proof("lock.token")(_refuted)


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


def test_empty_braces_are_no_tag() -> None:
    assert slot("a{}b") != slot("")
