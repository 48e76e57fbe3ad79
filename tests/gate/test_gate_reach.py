"""The requirements that a driver could reach with one more operation."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.driver.messages import ClientInfo, Ready
from conformance.driver.ops import REGISTRY
from conformance.gate.reach import Reach, reach_of
from conformance.ledger.loader import examined_rows
from conformance.ledger.operations import load_operations
from conformance.ledger.profiles import load_profiles
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.report.run_file import Run
from conformance.report.summary import summarise
from tests.report.sample_runs import header

ROOT = Path(__file__).parents[2]

BASICS = ["open", "close", "reset"]


def reach(*ops: str, capabilities: tuple[str, ...] = (), roles: tuple[str, ...] = ()) -> Reach:
    client = ClientInfo(name="mine", language="cobol", version="1")
    ready = Ready(protocol=1, client=client, ops=[*BASICS, *ops], capabilities=list(capabilities))
    return reach_of(ready, roles=set(roles))


def unlocks(found: Reach) -> dict[str, int]:
    return {prospect.what: prospect.unlocks for prospect in found.prospects}


def examined(op: str) -> set[str]:
    return {row for row in examined_rows() if op in load_operations().about(row)}


@pytest.mark.parametrize("page", ["README.md", "docs/reference/verdicts.md"])
def test_a_driver_check_a_run_and_the_documentation_count_the_same_requirements(page: str) -> None:
    run = summarise(Run(header=header(), scenarios=(), footer=None), examined_rows(BULLMQ_VERSION), load_profiles())
    everything = run.conclusion.share.requirements
    of_worker = next(status.requirements for status in run.conclusion.profiles if status.name == "worker")
    assert reach().examined == everything
    text = (ROOT / page).read_text("utf-8")
    example = f"3 of {of_worker} fail). 112 of {everything} requirements decided"
    assert example in text, f"write in {page}: {example}"


def test_a_client_that_only_opens_decides_nothing_and_gets_the_best_prospects() -> None:
    nothing = reach()
    assert nothing.decidable == 0
    assert [prospect.unlocks for prospect in nothing.prospects] == sorted(unlocks(nothing).values(), reverse=True)
    assert nothing.prospects[0].what == "the role worker, resolve and the capability managed-worker"


def test_an_operation_unlocks_the_requirements_that_it_promises() -> None:
    before, after = reach(), reach("queue.add")
    assert after.decidable - before.decidable == unlocks(before)["queue.add"]
    assert unlocks(after)["queue.pause"] == len(examined("queue.pause") - examined("queue.add"))
    assert "queue.add" not in unlocks(after)


def test_a_loop_brings_the_steps_of_a_manual_worker_as_well() -> None:
    loop = reach("queue.add", "resolve", capabilities=("managed-worker",))
    assert "the role worker, resolve and the capability managed-worker" not in unlocks(loop)
    manual = next(what for what in unlocks(loop) if "manual-worker" in what)
    assert unlocks(loop)[manual] < unlocks(reach("queue.add"))[manual], "its locks are all that a loop leaves undecided"
    assert loop.decidable > reach("queue.add", "resolve").decidable


def test_single_calls_of_a_worker_count_with_their_capability_only() -> None:
    calls = ("worker.getNextJob", "worker.moveToCompleted")
    assert reach(*calls, capabilities=("manual-worker",)).decidable > reach(*calls).decidable


def test_a_reader_of_events_is_a_prospect_until_it_works() -> None:
    assert "the role events" in unlocks(reach("queue.add"))
    assert "the role events" not in unlocks(reach("queue.add", roles=("events", "flow")))


def test_roles_are_ranked_together_with_operations() -> None:
    flows = "the role flow (flow.add, flow.addBulk, flow.getFlow)"
    without = reach("queue.add")
    assert flows in unlocks(without)
    assert not {"flow.add", "flow.addBulk", "flow.getFlow"} & set(unlocks(without)), "no handle could take these calls"
    with_flows = reach("queue.add", "flow.add", "flow.addBulk", "flow.getFlow", roles=("flow",))
    assert with_flows.decidable - without.decidable == unlocks(without)[flows]


def test_operations_of_a_role_that_the_driver_cannot_open_decide_nothing() -> None:
    assert reach("queue.add", "flow.add").decidable == reach("queue.add").decidable
    assert reach("queue.add", "flow.add", roles=("flow",)).decidable > reach("queue.add").decidable


def test_a_client_that_declares_everything_has_no_prospects() -> None:
    everything = reach(*REGISTRY, capabilities=("manual-worker", "managed-worker"), roles=("events", "flow"))
    assert everything.prospects == ()
    assert everything.decidable > 0.9 * everything.examined
