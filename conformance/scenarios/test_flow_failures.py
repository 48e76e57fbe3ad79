"""Flows: what the failure of a child does to its parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import worker as worker_ops
from conformance.driver.ops.worker import Outcome
from conformance.participants.expect import behind, equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import (
    add_child,
    children_of,
    let_stall,
    node,
    open_flow_handles,
    run_next,
    wait_for_finished,
    with_option,
)

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
    wait_for_finished(client, 1, state="failed")
    client.eventually(
        lambda: queue.redis.members("failed"), lambda failed: len(failed) == 3, "the failure goes up to the top"
    )
    worker.close()
    equal(
        queue.redis.field("bad", "failedReason"), "boom", "the child failed by its own error", where="job.failedReason"
    )
    reason = f"child {queue.redis.key('bad')} failed"
    equal(
        queue.redis.field("middle", "failedReason"),
        reason,
        "its parent names the child that failed",
        where="job.failedReason",
    )
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
    equal(queue.redis.hash("parent:failed"), {queue.redis.key("bad"): "boom"}, "its failures name the child")
    equal(worker.claim_one("token-2").id, "parent", "the parent is the next to run")
    with client.refuses("pending-dependencies", "a parent with pending children does not complete"):
        worker.complete("parent", None, "token-2")
    queue.call(job_ops.RemoveUnprocessedChildren(job="parent"))
    equal(queue.redis.value("other"), None, "the other child is gone")


@scenario("flow.fail.continue", "flow.child.linked")
def test_a_parent_completes_after_it_has_continued(client: Participant) -> None:
    """A child that has failed is not pending any more."""
    flow, _, worker = open_flow_handles(client)
    flow.add(node("parent", node("bad", continueParentOnFailure=True)))
    worker.fail(worker.claim_one().id, "boom")
    run_next(worker, "parent")


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


@scenario("flow.children-values", "flow.fail.ignore")
def test_the_dependencies_of_a_parent_name_ignored_failures(client: Participant) -> None:
    """The reason of a child that is ignored is a plain text, and not a value as JSON."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("bad", ignoreDependencyOnFailure=True), node("good"), node("pending")))
    worker.fail(worker.claim_one().id, "boom")
    run_next(worker, "good", {"v": 1})
    found = queue.call(job_ops.GetDependencies(job="parent"))
    equal(found.ignored, {queue.redis.key("bad"): "boom"}, "the failure is listed as it was raised")


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
        lambda: queue.redis.state("parent"), lambda state: state in (["completed"], ["failed"]), "its parent ends"
    )


@pytest.mark.parametrize("option", FAILURE_OPTIONS)
@scenario("flow.release", "flow.fail.parent")
def test_a_failure_goes_up_by_the_option_of_each_level(client: Participant, option: str) -> None:
    """A child fails its parent, and the parent's own option decides about the parent above."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("top", node("middle", node("bad", failParentOnFailure=True), **with_option(option))))
    worker.fail(worker.claim_one().id, "boom")
    client.worker("noop")
    with behind("flow.fail.parent"):
        client.eventually(
            lambda: queue.redis.state("middle"), lambda state: state == ["failed"], "the middle one fails"
        )
    client.eventually(
        lambda: queue.redis.state("top"), lambda state: state in (["completed"], ["failed"]), "the top goes on"
    )


@pytest.mark.parametrize("kept", [True, 1], ids=["remove", "keep-one"])
@scenario("lifecycle.remove-on-fail", "flow.fail.parent")
def test_a_parent_that_fails_through_its_child_is_removed_by_its_option(client: Participant, kept: bool | int) -> None:
    """`removeOnFail` holds for every failure, and the failure still goes up."""
    flow, queue, worker = open_flow_handles(client)
    middle = node("middle", node("bad", failParentOnFailure=True), failParentOnFailure=True, removeOnFail=kept)
    flow.add(node("top", middle))
    worker.fail(worker.claim_one().id, "boom")
    client.worker("noop")
    with behind("flow.fail.parent"):
        client.eventually(lambda: queue.redis.state("top"), lambda state: state == ["failed"], "the top fails")
    equal(queue.redis.exists("middle"), kept is not True, "its own option decides whether it is kept")


@scenario("flow.fail.parent", "dedup.simple.ends", bullmq="<6")
def test_a_parent_that_fails_through_its_child_frees_its_id(client: Participant) -> None:
    """A deduplication without time to live ends with its owner, also if its child ends it."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("bad", failParentOnFailure=True), deduplication={"id": "its"}))
    worker.fail(worker.claim_one().id, "boom")
    client.worker("noop")
    client.eventually(lambda: queue.redis.state("parent"), lambda state: state == ["failed"], "the parent fails")
    equal(queue.redis.exists("de:its"), False, "the id is free again", where="dedup.job")


# Parents that do something else while their child fails.

LATER_MS = 60_000


def _adopt(client: Participant, **opts: Any) -> tuple[QueueHandle, WorkerHandle]:
    """Let job `parent`, which runs, add job `child` below itself; returns the parent's queue and the child's worker."""
    queue = client.queue()
    add_child(client.queue("below"), "parent", queue, jobId="child", **opts)
    return queue, client.worker(queue="below")


def _is_delayed(client: Participant, worker: WorkerHandle) -> None:
    due = client.clock.now_ms() + LATER_MS
    worker.call(worker_ops.MoveToDelayed(job="parent", token="token-1", timestamp=due))


PLACES: dict[str, Callable[[Participant, WorkerHandle], Any]] = {
    "waiting-children": lambda _client, worker: worker.wait_for_children("parent"),
    "delayed": _is_delayed,
    "retried": lambda _client, worker: worker.fail("parent"),
}
"""How a parent that runs gets to where it is when its child fails."""


@pytest.mark.parametrize("priority", [0, 3], ids=["plain", "prioritized"])
@pytest.mark.parametrize("place", PLACES)
# Not compared, because releases differ in what they keep on the way; `flow-crossings` compares it.
@scenario("flow.fail.parent", compare=False)
def test_a_parent_fails_with_its_child_wherever_it_is(client: Participant, place: str, priority: int) -> None:
    """No parent outruns the failure of its child: the worker that takes it next fails it."""
    client.queue().add("parent", {}, jobId="parent", attempts=3, priority=priority)
    worker = client.worker()
    worker.claim_one()
    queue, below = _adopt(client, failParentOnFailure=True)
    PLACES[place](client, worker)
    below.fail(below.claim_one().id, "boom")
    client.worker("noop")
    client.eventually(lambda: queue.redis.state("parent"), lambda state: state == ["failed"], "the parent fails")
    reason = f"child {client.redis('below').key('child')} failed"
    equal(
        queue.redis.field("parent", "failedReason"),
        reason,
        "it has not run: it fails because of its child",
        where="job.failedReason",
    )


@pytest.mark.parametrize("outcome", ["waiting-children", "complete"])
@scenario("flow.fail.parent", "lifecycle.one-state", "job.hash.failed-reason", compare=False)
def test_a_running_parent_fails_with_its_child(client: Participant, outcome: Outcome) -> None:
    """A child that failed before its parent waits for it, or returns, fails it."""
    worker = client.worker("ask")
    client.queue().add("parent", {}, jobId="parent")
    worker.next_job()
    queue, below = _adopt(client, failParentOnFailure=True)
    below.fail(below.claim_one().id, "boom")
    worker.resolve("parent", outcome)
    # The reason is in the words of the client; that there is one is an invariant.
    client.eventually(lambda: "failed" in queue.redis.state("parent"), bool, "the parent fails")


@pytest.mark.parametrize("outcome", ["fail", "complete"])
@scenario("lifecycle.fail.moves", "flow.pending-children-refuse-completion", compare=False)
def test_a_running_parent_ends_before_its_child(client: Participant, outcome: Outcome) -> None:
    """A parent may fail while a child is pending. If it returns instead, it is refused, and fails by that."""
    worker = client.worker("ask")
    client.queue().add("parent", {}, jobId="parent")
    worker.next_job()
    queue, _ = _adopt(client)
    worker.resolve("parent", outcome, message="boom")
    client.eventually(
        lambda: queue.redis.state("parent"), lambda state: state not in ([], ["active"]), "the parent ends"
    )
    where = "row.flow.pending-children-refuse-completion" if outcome == "complete" else ""
    equal(queue.redis.state("parent"), ["failed"], "the parent fails", where=where)
    equal(queue.redis.exists("parent:lock"), False, "no worker holds it")
