"""The requirements that a driver could reach with one more operation."""

from __future__ import annotations

from conformance.driver.messages import ClientInfo, Ready
from conformance.driver.ops import REGISTRY
from conformance.gate.reach import Reach, reach_of
from conformance.ledger.loader import load_ledger
from conformance.ledger.operations import load_operations

BASICS = ["open", "close", "reset"]


def reach(*ops: str, capabilities: tuple[str, ...] = (), reads_events: bool = False) -> Reach:
    client = ClientInfo(name="mine", language="cobol", version="1")
    ready = Ready(protocol=1, client=client, ops=[*BASICS, *ops], capabilities=list(capabilities))
    return reach_of(ready, reads_events=reads_events)


def unlocks(found: Reach) -> dict[str, int]:
    return {prospect.what: prospect.unlocks for prospect in found.prospects}


def examined(op: str) -> set[str]:
    return {row.id for row in load_ledger().values() if row.examined and op in load_operations().about(row.id)}


def test_who_only_opens_decides_nothing_and_sees_what_is_worth_most() -> None:
    nothing = reach()
    assert nothing.decidable == 0
    assert [prospect.unlocks for prospect in nothing.prospects] == sorted(unlocks(nothing).values(), reverse=True)
    assert nothing.prospects[0].what == "resolve and the capability managed-worker"


def test_what_an_operation_promises_is_what_it_brings() -> None:
    before, after = reach(), reach("queue.add")
    assert after.decidable - before.decidable == unlocks(before)["queue.add"]
    assert unlocks(after)["queue.pause"] == len(examined("queue.pause") - examined("queue.add"))
    assert "queue.add" not in unlocks(after)


def test_a_loop_brings_the_steps_of_a_manual_worker_as_well() -> None:
    loop = reach("queue.add", "resolve", capabilities=("managed-worker",))
    assert "resolve and the capability managed-worker" not in unlocks(loop)
    assert unlocks(loop).get("the capability manual-worker", 0) == 0
    assert loop.decidable > reach("queue.add", "resolve").decidable


def test_single_calls_of_a_worker_count_with_their_capability_only() -> None:
    calls = ("worker.getNextJob", "worker.moveToCompleted")
    assert reach(*calls, capabilities=("manual-worker",)).decidable > reach(*calls).decidable


def test_a_reader_of_events_is_a_prospect_until_it_works() -> None:
    assert "the role events" in unlocks(reach("queue.add"))
    assert "the role events" not in unlocks(reach("queue.add", reads_events=True))


def test_who_declares_everything_has_no_prospects() -> None:
    everything = reach(*REGISTRY, capabilities=("manual-worker", "managed-worker"), reads_events=True)
    assert everything.prospects == ()
    assert everything.decidable > 0.9 * everything.examined
