"""Keys of flows and schedulers that Redis has evicted: what hangs together comes apart, and the rest goes on."""

from __future__ import annotations

import pytest

from conformance.driver.ops import job as job_ops
from conformance.participants.expect import equal
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import node, open_flow_handles, run_next, with_option

PARENT_LOST = {
    "required-fields": "the hash of the parent was evicted",
    "waits-for-something": "nothing releases a parent that was evicted",
    "one-state": "the parent was evicted",
    "no-ghosts": "the parent was evicted",
    "owned-keys": "the parent was evicted",
    "oracle-health": "the parent was evicted",
}


@pytest.mark.parametrize("lost", ["parent", "parent:dependencies", "waiting-children"])
@scenario("eviction.flow", without=PARENT_LOST)
def test_children_finish_without_their_parent(client: Participant, lost: str) -> None:
    """A child finishes although keys of its parent were lost; but the parent is never released."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("first"), node("second")))
    queue.redis.delete(lost)
    run_next(worker, "first")
    run_next(worker, "second")
    equal([queue.redis.state(job) for job in ("first", "second")], [["completed"]] * 2, "both children are completed")
    equal(worker.claim(), None, "the parent is not handed out")
    queue.add("later")
    equal(worker.claim_one().name, "later", "the worker goes on")


@pytest.mark.parametrize("how", ["failParentOnFailure", "ignoreDependencyOnFailure", "removeDependencyOnFailure"])
@scenario("eviction.flow", without=PARENT_LOST)
def test_a_child_can_fail_without_its_parent(client: Participant, how: str) -> None:
    """The child is failed even if the failure cannot be applied to its parent."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("child", **with_option(how))))
    queue.redis.delete("parent")
    worker.claim_one()
    worker.fail("child")
    equal(queue.redis.state("child"), ["failed"], "the child is failed")


@scenario("eviction.flow")
def test_a_parent_goes_on_without_lost_results(client: Participant) -> None:
    """Results of children that were evicted are missing; the parent still runs."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("first"), node("second")))
    run_next(worker, "first", 1)
    queue.redis.delete("parent:processed")
    run_next(worker, "second", 2)
    values = queue.call(job_ops.GetChildrenValues(job="parent")).values
    equal(list(values.values()), ["2"], "only what came later is there")
    equal(worker.claim_one().id, "parent", "the parent is handed out")


_NO_RECORD = {
    "required-fields": "the record was evicted",
    "schedulers": "the record was evicted",
    "oracle-health": "the record was evicted",
}


@scenario("eviction.scheduler", without=_NO_RECORD, bullmq="<5.62.1")
def test_an_iteration_without_its_scheduler_is_put_off(client: Participant) -> None:
    """The next iteration cannot be made, so the current one is delayed and not run; other jobs are."""
    queue, worker = client.queue(), client.worker()
    job = queue.schedule("tick", {"every": 1000}, name="tick")
    assert job is not None
    queue.redis.delete("repeat:tick")
    equal(worker.claim("token-1"), None, "the iteration is not handed out")
    equal(queue.redis.state(job.id), ["delayed"], "it is delayed, and not lost")
    queue.add("other")
    equal(worker.claim_one("token-2").name, "other", "the worker goes on")


@scenario("eviction.scheduler", without=_NO_RECORD, bullmq=">=5.62.1")
def test_an_iteration_without_its_scheduler_stays_active(client: Participant) -> None:
    """The next iteration cannot be made, so the current one is not handed out: it is left to the stalled check."""
    queue, worker = client.queue(), client.worker()
    job = queue.schedule("tick", {"every": 1000}, name="tick")
    assert job is not None
    queue.redis.delete("repeat:tick")
    equal(worker.claim("token-1"), None, "the iteration is not handed out")
    equal(queue.redis.state(job.id), ["active"], "it is active, and not lost")
    queue.add("other")
    equal(worker.claim_one("token-2").name, "other", "the worker goes on")


@scenario("eviction.scheduler", without={"schedulers": "the entry was evicted"})
def test_a_scheduler_without_entry_ends(client: Participant) -> None:
    """The current iteration runs, and none follows."""
    queue, worker = client.queue(), client.worker()
    job = queue.schedule("tick", {"every": 1000}, name="tick")
    assert job is not None
    queue.redis.delete("repeat")
    equal(worker.claim_one().id, job.id, "the iteration is handed out")
    equal(queue.redis.members("delayed"), [], "no other follows")
