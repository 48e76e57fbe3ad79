"""Every proof holds on the oracle, each shows both sides, and one that is refuted says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.ledger.loader import load_ledger
from conformance.participants.expect import equal
from conformance.participants.participant import Participant
from conformance.proofs.about_scripts import slot
from conformance.proofs.registry import Proof, all_proofs, proof
from conformance.proofs.stage import Stage, stage

PROOFS = [one for proofs in all_proofs().values() for one in proofs]


@pytest.fixture(scope="module")
def theatre() -> Iterator[Stage]:
    with stage(announce=print) as opened:
        yield opened


@pytest.mark.parametrize("one", PROOFS, ids=lambda one: f"{one.row}-{one.name}")
def test_the_oracle_does_what_the_ledger_says(theatre: Stage, one: Proof) -> None:
    shown = theatre.show(one)
    assert shown.holds, shown.text
    assert shown.text == f"paper says: {load_ledger().row(one.row).paper}\nNode 5.62.0 does: {shown.seen}"
    assert shown.seen


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
    ("steps", "told"), [(_refuted, "the first job has the id 7: expected 7, got 1"), (_refused, "priority")]
)
def test_a_refuted_proof_is_noticed(theatre: Stage, steps: object, told: str) -> None:
    assert callable(steps)
    shown = theatre.show(Proof("add.id.counter", "wrong", "Do it wrong.", "frozen", steps))
    assert not shown.holds
    assert told in shown.text.lower()
    assert "Node 5.62.0 does NOT do what the ledger says: " in shown.text


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
    assert {one.row for one in all_proofs()["lock.token"]} == {"lock.token"}


@pytest.mark.parametrize(
    ("key", "number"),
    [("123456789", 12739), ("bull:myqueue:wait", 8258), ("bull:myqueue:active", 5693), ("bull:{myqueue}:wait", 9917)],
)
def test_slots_are_those_of_redis(key: str, number: int) -> None:
    assert slot(key) == number
    assert slot(f"x{{{key}}}y") == number if "{" not in key else True


def test_empty_braces_are_no_tag() -> None:
    assert slot("a{}b") != slot("")
