"""Flows: parents that wait for their children, and what happens when children are done or removed."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import combinations
from typing import Any

import pytest

from conformance.driver.errors import OperationFailed, OperationIndeterminate
from conformance.driver.ops import job as job_ops
from conformance.driver.ops.flow import FlowNode
from conformance.participants.expect import equal, holds
from conformance.participants.marks import handover, scenario
from conformance.participants.participant import Participant
from conformance.protocol.job_fields import CHILD_FAILURE_OPTIONS
from conformance.scenarios.support.steps import children_of, node, open_flow_handles, run_next

LOST_MS = 20_000
"""Time for a call to end after its connection was lost."""


@scenario("flow.parent.waits", "flow.child.linked")
def test_a_parent_waits_for_its_children(client: Participant) -> None:
    """The parent is stored first and waits; each child names it."""
    flow, queue, _ = open_flow_handles(client)
    added = flow.add(node("parent", node("a"), node("b", priority=2), node("c", delay=60_000)))
    equal([added.id, *(child.id for child in added.children)], ["parent", "a", "b", "c"], "the answer is the tree")
    equal(queue.redis.state("parent"), ["waiting-children"], "the parent waits for its children")
    equal(queue.redis.event_names()[:2], ["added", "waiting-children"], "the parent's events come first")
    equal(children_of(queue, "parent", "dependencies"), ["a", "b", "c"], "all children are dependencies")
    states = [queue.redis.state(job) for job in "abc"]
    equal(states, [["wait"], ["prioritized"], ["delayed"]], "children are where their options put them")
    equal(queue.redis.field("a", "parentKey"), queue.redis.key("parent"), "a child holds the key of its parent")


@scenario("flow.ids")
def test_jobs_without_ids_get_uuids(client: Participant) -> None:
    """Ids of a flow do not come from the queue's counter."""
    flow, queue, _ = open_flow_handles(client)
    with client.transcript.not_compared():  # no two clients draw the same ids
        added = flow.add({"name": "parent", "queue": "q", "children": [{"name": "child", "queue": "q"}]})
    for job in (added.id, added.children[0].id):
        holds(len(job) == 36 and job[14] == "4" and job.count("-") == 4, "the id is a uuid of version 4", seen=job)
        opts = json.loads(queue.redis.field(job, "opts") or "{}")
        holds("jobId" not in opts, "the options hold no id", seen=opts)


INVALID: dict[str, dict[str, Any]] = {
    "priority": {"priority": 1.5},
    "jobId": {"jobId": "7"},
    "deduplication": {"deduplication": {}},
    **{"-".join(pair): dict.fromkeys(pair, True) for pair in combinations(CHILD_FAILURE_OPTIONS, 2)},
}
"""Options that a job may not have; the last are two contradictory effects of its failure."""


@pytest.mark.parametrize("invalid", INVALID)
@scenario("flow.all-or-nothing-validation")
def test_one_invalid_job_refuses_the_flow(client: Participant, invalid: str) -> None:
    """Nothing of the flow is stored."""
    flow, queue, _ = open_flow_handles(client)
    with client.refuses("invalid-argument", "a flow with an invalid job is refused"):
        flow.add(node("parent", node("good"), node("middle", node("bad", **INVALID[invalid]))))
    equal([queue.redis.exists(job) for job in ("parent", "good", "middle")], [False] * 3, "no job was stored")


ADDING = ("addParentJob", "addStandardJob")
"""Scripts that add a parent, and a child without delay and priority."""


@pytest.mark.parametrize("bulk", [False, True], ids=["one", "bulk"])
@scenario("flow.atomic", compare=False)
def test_a_flow_is_one_transaction(client: Participant, bulk: bool) -> None:
    """No worker, and no lost connection, can come between its jobs."""
    flow = client.flow()
    trees = [node("parent", node("a"), node("b")), node("p2", node("c"))]
    flow.add_bulk(*trees) if bulk else flow.add(trees[0])
    calls = [call for script in ADDING for call in client.tap.calls(script)]
    holds(len(calls) == (5 if bulk else 3), "each job is added by its script", seen=[str(call) for call in calls])
    transactions = {call.transaction for call in calls}
    holds(len(transactions) == 1 and None not in transactions, "all are in one MULTI", seen=transactions)


@pytest.mark.parametrize(("script", "call"), [("addParentJob", 1), ("addStandardJob", 1), ("addStandardJob", 2)])
@scenario(
    "flow.atomic",
    clock="real",
    compare=False,
    slow=True,
    without={"worker-errors": "clients may report a lost connection in any way"},
)
def test_a_flow_is_added_completely_or_not_at_all(client: Participant, script: str, call: int) -> None:
    """The connection breaks before a script of the flow is sent; whether the client then tries again is its choice."""
    flow, queue = client.flow(), client.queue()
    flow.add(node("earlier", node("its child")))
    with client.tap.cut(script, call=call) as cut:
        adding = client.meanwhile(lambda: flow.add(node("parent", node("a"), node("b"))))
        cut.wait()
    with suppress(OperationFailed, OperationIndeterminate):
        adding.result(within_ms=LOST_MS)
    stored = [job for job in ("parent", "a", "b") if queue.redis.exists(job)]
    holds(stored in ([], ["parent", "a", "b"]), "the flow is stored completely or not at all", seen=stored)


@scenario("script.refused-call", bullmq=">=5.76.4")
def test_a_flow_below_a_missing_parent_is_refused(client: Participant) -> None:
    """The producer is not given a job that was not stored."""
    queue = client.queue()
    above = {"id": "missing", "queue": queue.redis.key("").rstrip(":")}
    with client.refuses("missing-parent", "a flow below a parent that does not exist is refused"):
        client.flow().add(node("child", parent=above))
    equal(queue.redis.exists("child"), False, "no job was stored")


@scenario("flow.bulk")
def test_a_bulk_of_flows(client: Participant) -> None:
    """Every flow has its own parent."""
    flow, queue, worker = open_flow_handles(client)
    nodes = flow.add_bulk(node("p1", node("a")), node("alone"), node("p2", node("b"), node("c")))
    equal([added.id for added in nodes], ["p1", "alone", "p2"], "the answers come in the order of the flows")
    equal(children_of(queue, "p2", "dependencies"), ["b", "c"], "the second parent has its own children")
    run_next(worker, "alone")
    run_next(worker, "a")
    equal(queue.redis.state("p1"), ["wait"], "the first parent is released")
    equal(queue.redis.state("p2"), ["waiting-children"], "the second one is not")


@scenario("flow.deep")
def test_a_deep_tree_ends_from_the_bottom(client: Participant) -> None:
    """Each level is released by the one below it."""
    flow, queue, worker = open_flow_handles(client)
    depth = 12
    tree = node(f"level-{depth}")
    for level in reversed(range(depth)):
        tree = node(f"level-{level}", tree)
    flow.add(tree)
    equal(len(queue.redis.members("waiting-children")), depth, "all but the lowest level wait")
    for level in reversed(range(depth + 1)):
        run_next(worker, f"level-{level}", {"level": level})
    equal(len(queue.redis.members("completed")), depth + 1, "all levels are completed")


@scenario("flow.deep", "flow.release")
def test_a_flow_over_queues(client: Participant) -> None:
    """Parent and child may be in different queues."""
    flow, queue, _ = open_flow_handles(client)
    below, worker = client.queue("below"), client.worker(queue="below")
    flow.add(node("parent", node("child", queue="below")))
    equal(below.redis.state("child"), ["wait"], "the child waits in its queue")
    worker.complete(worker.claim_one().id, {"v": 1})
    equal(queue.redis.state("parent"), ["wait"], "the parent is released in its own queue")


@pytest.mark.parametrize(
    ("opts", "state"),
    [({}, "wait"), ({"priority": 3}, "prioritized"), ({"delay": 60_000}, "delayed")],
    ids=["plain", "prioritized", "delayed"],
)
@scenario("flow.release")
def test_the_last_child_releases_its_parent(client: Participant, opts: dict[str, Any], state: str) -> None:
    """A parent goes where its options put it, but only after its last child."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("a"), node("b"), **opts))
    other = queue.add("other")
    run_next(worker, "a")
    equal(queue.redis.state("parent"), ["waiting-children"], "the parent still waits")
    run_next(worker, "b")
    equal(queue.redis.state("parent"), [state], "the parent is where its options put it")
    if state == "wait":
        equal(queue.redis.elements("wait"), [other, "parent"], "it runs next, before the waiting jobs")


@scenario("flow.release", bullmq="<6")
def test_a_paused_queue_parks_the_parent(client: Participant) -> None:
    """A released parent is parked in `paused`."""
    flow, queue, _ = open_flow_handles(client)
    worker = client.worker(queue="below")
    flow.add(node("parent", node("child", queue="below")))
    queue.pause()
    worker.complete(worker.claim_one().id)
    equal(queue.redis.state("parent"), ["paused"], "the parent is parked")


@scenario("flow.release", bullmq=">=6")
def test_a_paused_queue_keeps_the_parent_waiting(client: Participant) -> None:
    """A released parent is in `wait`, and is not handed out before the resume."""
    flow, queue, parents = open_flow_handles(client)
    worker = client.worker(queue="below")
    flow.add(node("parent", node("child", queue="below")))
    queue.pause()
    worker.complete(worker.claim_one().id)
    equal(queue.redis.state("parent"), ["wait"], "the parent waits")
    equal(parents.claim("token-2"), None, "it is not handed out")
    queue.resume()
    equal(parents.claim_one("token-3").id, "parent", "after the resume it is")


@scenario("flow.children-values")
def test_values_of_children_are_kept(client: Participant) -> None:
    """The parent reads what its children returned, even of those that are gone."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("a"), node("b", removeOnComplete=True)))
    run_next(worker, "a", {"of": "a"})
    run_next(worker, "b", [1, "zwei"])
    equal(queue.redis.value("b"), None, "the second child removed itself")
    values = queue.call(job_ops.GetChildrenValues(job="parent")).values
    by_id = {key.rpartition(":")[2]: json.loads(text) for key, text in values.items()}
    equal(by_id, {"a": {"of": "a"}, "b": [1, "zwei"]}, "the values are there by the children's keys")
    equal(queue.call(job_ops.GetDependenciesCount(job="parent")).processed, 2, "both are counted as processed")


@scenario("flow.pending-children-refuse-completion")
def test_a_running_parent_waits_for_new_children(client: Participant) -> None:
    """A job that adds children while it runs goes back to waiting for them."""
    flow, queue, worker = open_flow_handles(client)
    queue.add("parent", {}, jobId="parent")
    worker.claim_one()
    reference = {"id": "parent", "queue": queue.redis.key("").rstrip(":")}
    flow.add(node("late", parent=reference))
    with client.refuses("pending-dependencies", "a job with pending children does not complete"):
        worker.complete("parent")
    equal(worker.wait_for_children("parent"), True, "it waits for them instead")
    run_next(worker, "late")
    equal(worker.wait_for_children(worker.claim_one().id), False, "with nothing pending it goes on")
    worker.complete("parent")


@pytest.mark.parametrize("children", [True, False], ids=["with-children", "alone"])
@scenario("flow.remove.parent")
def test_removing_a_parent(client: Participant, children: bool) -> None:
    """Removing a parent removes its children, unless the caller excludes them."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("done"), node("pending")))
    run_next(worker, "done")
    equal(queue.remove("parent", children=children), 1, "the parent is removed")
    left = [job for job in ("parent", "done", "pending") if queue.redis.exists(job)]
    equal(left, [] if children else ["done", "pending"], "children go with their parent only if asked to")


@scenario("flow.remove.parent")
def test_a_child_at_work_protects_the_flow(client: Participant) -> None:
    """Nothing is removed while a worker holds a child."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("child")))
    worker.claim_one()
    equal(queue.remove("parent"), 0, "the parent is not removed")
    equal([queue.redis.exists(job) for job in ("parent", "child")], [True, True], "both are still there")


@scenario("flow.remove.child")
def test_removing_the_last_child_releases_the_parent(client: Participant) -> None:
    """A child that is gone is not waited for."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("a"), node("b")))
    queue.remove("a")
    equal(queue.redis.state("parent"), ["waiting-children"], "the parent waits for the other one")
    queue.remove("b")
    equal(queue.redis.state("parent"), ["wait"], "the parent is released")
    run_next(worker, "parent")


@scenario("flow.remove.unprocessed")
def test_unprocessed_children_are_removed(client: Participant) -> None:
    """A child that a worker holds stays, and is still waited for."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("working"), node("pending")))
    worker.claim_one()
    queue.call(job_ops.RemoveUnprocessedChildren(job="parent"))
    equal(children_of(queue, "parent", "dependencies"), ["working"], "only the active child is left")
    equal(queue.redis.value("pending"), None, "the other one is gone")
    worker.complete("working")
    equal(queue.redis.state("parent"), ["wait"], "the parent is released")


@scenario("flow.unlink")
def test_unlinking_the_last_child(client: Participant) -> None:
    """A child without parent goes its own way."""
    flow, queue, worker = open_flow_handles(client)
    flow.add(node("parent", node("child")))
    equal(queue.call(job_ops.RemoveChildDependency(job="child")).value, True, "there was a relation")
    equal(queue.redis.field("child", "parentKey"), None, "the child no longer names a parent", where="job.parentKey")
    equal(queue.redis.state("parent"), ["wait"], "the parent is released")
    run_next(worker, "parent")
    run_next(worker, "child")


@scenario("flow.unlink", bullmq="<5.76.10")
def test_unlinking_twice(client: Participant) -> None:
    """A child without parent has no relation to be removed."""
    flow, queue, _ = open_flow_handles(client)
    flow.add(node("parent", node("child")))
    queue.call(job_ops.RemoveChildDependency(job="child"))
    equal(queue.call(job_ops.RemoveChildDependency(job="child")).value, False, "there is no relation any more")


@scenario("flow.unlink", bullmq=">=5.76.10")
def test_unlinking_twice_is_refused(client: Participant) -> None:
    """A child without parent has no relation to be removed, and the call says so."""
    flow, queue, _ = open_flow_handles(client)
    flow.add(node("parent", node("child")))
    queue.call(job_ops.RemoveChildDependency(job="child"))
    with client.refuses("missing-parent", "there is no relation any more"):
        queue.call(job_ops.RemoveChildDependency(job="child"))


@scenario("flow.defaults")
def test_the_jobs_of_a_flow_have_the_defaults_of_their_queues(client: Participant) -> None:
    """`queuesOptions` has defaults for each queue; what a job asks for itself goes before them."""
    flow = client.flow()
    defaults = {"top": {"attempts": 3, "removeOnComplete": 5}, "below": {"attempts": 2, "priority": 4}}
    tree = node("parent", node("child", queue="below"), node("own", queue="below", attempts=7), queue="top")
    flow.add(tree, queues_options=defaults)
    top, below = client.redis("top"), client.redis("below")
    options = {name: view.json(name, "opts") for view, name in ((top, "parent"), (below, "child"), (below, "own"))}
    equal([options[name].get("attempts") for name in options], [3, 2, 7], "each job has the attempts of its queue")
    equal(options["parent"].get("removeOnComplete"), 5, "and the other options")
    equal(sorted(below.members("prioritized")), ["child", "own"], "a default priority decides the place of a job")


@scenario("flow.get")
def test_reading_a_flow(client: Participant) -> None:
    """The tree below a job, down to a depth."""
    flow, _, worker = open_flow_handles(client)
    flow.add(node("top", node("middle", node("low", node("lowest")))))
    run_next(worker, "lowest")

    def levels(depth: int) -> list[str]:
        return first_branch(flow.get("top", depth=depth))

    everything = ["top", "middle", "low", "lowest"]
    equal(levels(10), everything, "the whole tree is read, finished children too")
    equal(levels(2), everything[:2], "it is read down to the depth asked for")
    equal(flow.get("missing"), None, "a job that does not exist has no tree")


def first_branch(level: FlowNode | None) -> list[str]:
    """Ids from a node down to a leaf, along the first child of each."""
    if level is None:
        return []
    return [level.id, *first_branch(level.children[0] if level.children else None)]


@handover("flow.release", "flow.children-values")
def test_a_flow_is_worked_off_by_the_other(producer: Participant, consumer: Participant) -> None:
    """The worker of one side finishes the children of the other's flow, and then gets the parent."""
    queue, flow = producer.queue(), producer.flow()
    flow.add(node("parent", node("a"), node("b", ignoreDependencyOnFailure=True)))
    worker = consumer.worker("ask")
    for job in ("a", "b", "parent"):
        equal(worker.next_job().job.id, job, f"{job} is handed over")
        worker.resolve(job, "unrecoverable" if job == "b" else "complete", value_raw='{"of":"a"}', message="boom")
        worker.wait_local("failed" if job == "b" else "completed", job)
    values = queue.call(job_ops.GetChildrenValues(job="parent")).values
    equal([json.loads(text) for text in values.values()], [{"of": "a"}], "the parent has its child's value")


@scenario("order.meta")
def test_a_flow_alone_describes_its_queues(client: Participant) -> None:
    """The limit of the event stream is known also if no queue was opened."""
    client.flow().add(node("parent", node("child", queue="below"), queue="top"))
    for name in ("top", "below"):
        limit = client.redis(name).field("meta", "opts.maxLenEvents")
        equal(limit, "10000", f"queue {name} has its limit", where="meta.opts.maxLenEvents")
