"""Flows: what the failure of a child does to its parent."""

from __future__ import annotations

import pytest

from conformance.driver.ops import job as job_ops
from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import children_of, let_stall, node, open_flow_handles, run_next, with_option

FAILURE_OPTIONS = (
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
)


@scenario("flow.fail.none")
def test_a_failed_child_without_option(client: Participant) -> None:
    """The parent waits for ever."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("bad")))
    worker.fail(worker.claim_one().id, "boom")
    equal(queue.redis.state("parent"), ["waiting-children"], "the parent still waits")
    equal(children_of(queue, "parent", "dependencies"), ["bad"], "the child is still a dependency")


@scenario("flow.fail.parent")
def test_a_failed_child_fails_its_parents(client: Participant) -> None:
    """The failure goes up level by level; each is failed by the worker that takes it."""
    flow, queue, _ = open_flow_handles(client)
    flow.add(node("top", node("middle", node("bad", failParentOnFailure=True), failParentOnFailure=True)))
    worker = client.worker("throw", processor_args={"message": "boom"})
    client.eventually(
        lambda: queue.redis.members("failed"), lambda failed: len(failed) == 3, "the failure goes up to the top"
    )
    worker.close()
    equal(queue.redis.field("bad", "failedReason"), "boom", "the child failed by its own error")
    reason = f"child {queue.redis.key('bad')} failed"
    equal(queue.redis.field("middle", "failedReason"), reason, "its parent names the child that failed")
    equal(children_of(queue, "middle", "unsuccessful"), ["bad"], "the child is among the unsuccessful ones")


@scenario("flow.fail.parent", bullmq="<5.80.7 || >=6")
def test_a_parent_with_a_failed_child_cannot_complete(client: Participant) -> None:
    """A worker that ignores the deferred failure is refused."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("bad", failParentOnFailure=True)))
    worker.fail(worker.claim_one().id, "boom")
    parent = queue.redis.hash("parent")
    holds(parent.get("defa"), "the parent has a deferred failure", seen=parent)
    equal(worker.claim_one("token-2").id, "parent", "the parent is the next to run")
    with client.refuses("failed-children", "a parent with a failed child does not complete"):
        worker.complete("parent", None, "token-2")


@scenario("flow.fail.parent", bullmq=">=5.80.7,<6")
def test_a_parent_with_a_failed_child_is_failed_by_the_fetch(client: Participant) -> None:
    """The deferred failure is applied when the parent is fetched, and no worker gets the parent."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("bad", failParentOnFailure=True)))
    worker.fail(worker.claim_one().id, "boom")
    equal(queue.redis.state("parent"), ["wait"], "the parent waits to be failed")
    equal(worker.claim("token-2"), None, "it is not handed out")
    equal(queue.redis.state("parent"), ["failed"], "the parent has failed")


@scenario("flow.fail.continue")
def test_a_failed_child_lets_its_parent_continue(client: Participant) -> None:
    """The parent runs at once; it completes when it has dropped the children that are left."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("bad", continueParentOnFailure=True), node("other")))
    worker.fail(worker.claim_one().id, "boom")
    equal(queue.redis.state("parent"), ["wait"], "the parent does not wait for the other child")
    equal(queue.redis.hash("parent:failed"), {queue.redis.key("bad"): "boom"}, "it knows of the failure")
    equal(worker.claim_one("token-2").id, "parent", "the parent is the next to run")
    with client.refuses("pending-dependencies", "a parent with pending children does not complete"):
        worker.complete("parent", None, "token-2")
    queue.call(job_ops.RemoveUnprocessedChildren(job="parent"))
    equal(queue.redis.value("other"), None, "the other child is gone")


def _fail_one_of_two(client: Participant, option: str) -> QueueHandle:
    """Fail one child with this option, complete the other one, and run the parent."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("bad", **with_option(option)), node("good")))
    worker.fail(worker.claim_one().id, "boom")
    equal(queue.redis.state("parent"), ["waiting-children"], "the parent still waits for the other child")
    run_next(worker, "good", {"v": 1})
    equal(queue.redis.state("parent"), ["wait"], "now the parent is released")
    queue.call(job_ops.GetIgnoredChildrenFailures(job="parent"))
    run_next(worker, "parent")
    return queue


@scenario("flow.fail.ignore")
def test_a_failed_child_that_is_ignored(client: Participant) -> None:
    """The parent runs when no other child is left, and knows of the failure."""
    queue = _fail_one_of_two(client, "ignoreDependencyOnFailure")
    equal(queue.redis.hash("parent:failed"), {queue.redis.key("bad"): "boom"}, "the failure is remembered")


@scenario("flow.fail.remove")
def test_a_failed_child_that_is_forgotten(client: Participant) -> None:
    """The parent runs when no other child is left, and knows nothing of the failure."""
    queue = _fail_one_of_two(client, "removeDependencyOnFailure")
    equal(queue.redis.exists("parent:failed"), False, "nothing is remembered")


@pytest.mark.parametrize("option", FAILURE_OPTIONS)
@scenario("flow.fail.none", "flow.release")
def test_a_child_that_is_retried_has_not_failed_yet(client: Participant, option: str) -> None:
    """Only the last attempt counts."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("child", attempts=2, **with_option(option))))
    worker.fail(worker.claim_one().id, "boom")
    equal(queue.redis.state("parent"), ["waiting-children"], "the parent still waits")
    run_next(worker, "child")
    equal(queue.redis.state("parent"), ["wait"], "the parent is released")


@pytest.mark.parametrize("option", FAILURE_OPTIONS)
@scenario("stalled.limit", "flow.release")
def test_a_child_that_stalls_too_often_has_failed(client: Participant, option: str) -> None:
    """Its parent goes on as after any other failure of the child."""
    flow, queue, _ = open_flow_handles(client)
    flow.add(node("parent", node("lost", **with_option(option))))
    worker = client.worker(maxStalledCount=0)
    worker.claim_one()
    let_stall(queue, worker, "lost")
    # The check defers the failure; the worker that takes the job next fails it.
    client.worker("noop")
    client.eventually(lambda: queue.redis.state("lost"), lambda state: state == ["failed"], "the child fails")
    client.eventually(
        lambda: queue.redis.state("parent"), lambda state: state in (["completed"], ["failed"]), "its parent goes on"
    )


@pytest.mark.parametrize("option", FAILURE_OPTIONS)
@scenario("flow.fail.parent", "flow.release")
def test_a_failure_goes_up_by_the_option_of_each_level(client: Participant, option: str) -> None:
    """A child fails its parent, and the parent's own option decides about the parent above."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("top", node("middle", node("bad", failParentOnFailure=True), **with_option(option))))
    worker.fail(worker.claim_one().id, "boom")
    client.worker("noop")
    client.eventually(lambda: queue.redis.state("middle"), lambda state: state == ["failed"], "the middle one fails")
    client.eventually(
        lambda: queue.redis.state("top"), lambda state: state in (["completed"], ["failed"]), "the top goes on"
    )


@pytest.mark.parametrize("kept", [True, 1], ids=["remove", "keep-one"])
@scenario("flow.fail.parent", "lifecycle.remove-on-fail")
def test_a_parent_that_fails_through_its_child_is_removed_by_its_option(client: Participant, kept: bool | int) -> None:
    """`removeOnFail` holds for every failure, and the failure still goes up."""
    flow, queue, worker = open_flow_handles(client)
    middle = node("middle", node("bad", failParentOnFailure=True), failParentOnFailure=True, removeOnFail=kept)
    flow.add(node("top", middle))
    worker.fail(worker.claim_one().id, "boom")
    client.worker("noop")
    client.eventually(lambda: queue.redis.state("top"), lambda state: state == ["failed"], "the top fails")


@scenario("flow.fail.parent", "dedup.simple.ends", bullmq="<6")
def test_a_parent_that_fails_through_its_child_frees_its_id(client: Participant) -> None:
    """A deduplication without time to live ends with its owner, also if its child ends it."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("bad", failParentOnFailure=True), deduplication={"id": "its"}))
    worker.fail(worker.claim_one().id, "boom")
    client.worker("noop")
    client.eventually(lambda: queue.redis.state("parent"), lambda state: state == ["failed"], "the parent fails")
    equal(queue.redis.exists("de:its"), False, "the id is free again", where="dedup.job")
