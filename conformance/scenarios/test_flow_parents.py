"""Families at the edges: children that are parents themselves and done already, and what unprocessed children own."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import equal
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import node, open_flow_handles
from conformance.scenarios.support.waiting import QUEUE_STATES, open_busy_queue

LATER_MS = 60_000


@pytest.mark.parametrize("priority", [0, 3], ids=["plain", "prioritized"])
@pytest.mark.parametrize("queue_state", QUEUE_STATES)
@scenario("flow.child.done", "paused.everything-parks", "concurrency.no-marker", tier="full", bullmq="<6")
@also_in_core("full-0 | full-3 | paused-0 | paused-3 | with-room-0 | with-room-3 | without-meta-0 | without-meta-3")
def test_a_child_with_children_is_done_before_its_parent_is_added(
    client: Participant, queue_state: str, priority: int
) -> None:
    """The parent waits where a new job would."""
    prepared = open_busy_queue(client)
    prepared.below.queue.add("child", {}, jobId="child")
    prepared.below.worker.complete(prepared.below.worker.claim_one().id, {"done": True})
    QUEUE_STATES[queue_state](prepared)
    prepared.queue.redis.delete("marker")
    prepared.flow.add(node("top", node("child", node("grandchild", queue="below"), queue="below"), priority=priority))
    place = "prioritized" if priority else "paused" if queue_state == "paused" else "wait"
    equal(prepared.queue.redis.state("top"), [place], "the parent is where a new job would be")


# Removing unprocessed children.

UNPROCESSED: dict[str, dict[str, Any]] = {
    "waiting": {},
    "delayed": {"delay": LATER_MS},
    "prioritized": {"priority": 2},
    "an-owner": {"deduplication": {"id": "its"}},
    "a-former-owner": {"deduplication": {"id": "its"}},
    "parked": {},
    "in-a-queue-without-meta": {},
    "in-a-queue-with-a-limit": {},
    "without-a-hash": {},
}
"""Options of the unprocessed child."""


@pytest.mark.parametrize("child", UNPROCESSED)
@scenario(
    "flow.remove.unprocessed",
    tier="full",
    without={"deduplication": "the new owner of an id is a name only, so that nothing can remove it"},
    bullmq="<6",
    cases={"*-owner": "<5.70.4"},
)
@also_in_core("a-former-owner | an-owner | in-a-queue-without-meta | parked | prioritized")
def test_an_unprocessed_child_goes_with_what_it_owns(client: Participant, child: str) -> None:
    """Its id is free, unless it has become another job's."""
    family, queue, below = client.flow(), client.queue(), client.queue("below")
    if child == "parked":
        below.pause()
    family.add(node("parent", node("child", queue="below", **UNPROCESSED[child])))
    if child == "a-former-owner":
        below.redis.set_string("de:its", "another job")
    if child == "in-a-queue-without-meta":
        below.redis.delete("meta")
    if child == "in-a-queue-with-a-limit":
        below.redis.set_field("meta", "opts.maxLenEvents", "77")
    if child == "without-a-hash":
        below.redis.delete("child")
    else:
        below.log("child", "a row")
    queue.call(job_ops.RemoveUnprocessedChildren(job="parent"))
    left = [name for name in ("child", "child:logs") if below.redis.exists(name)]
    equal(left, [], "nothing of the child is left")
    reported = [event["jobId"] for event in below.redis.events() if event["event"] == "removed"]
    equal(
        reported,
        [] if child == "without-a-hash" else ["child"],
        "an event reports each removed job",
    )
    if child == "in-a-queue-with-a-limit":
        equal(below.redis.field("meta", "opts.maxLenEvents"), "77", "the stream keeps its limit", where="meta.opts")
    owner = "another job" if child == "a-former-owner" else None
    equal(below.redis.string("de:its"), owner, "the id is free, or the other job's")
    equal(queue.redis.state("parent"), ["wait"], "the parent waits for no child any more")


@scenario("flow.remove.unprocessed")
def test_an_unprocessed_child_still_waits_for_one_that_is_at_work(client: Participant) -> None:
    """The child is removed although its own child runs; the running grandchild stays."""
    family, queue, below = client.flow(), client.queue(), client.queue("below")
    family.add(node("parent", node("child", node("grandchild", queue="below"), queue="below")))
    client.worker(queue="below").claim_one()
    equal(below.state("child"), "waiting-children", "the child waits for its own child")
    queue.call(job_ops.RemoveUnprocessedChildren(job="parent"))
    equal(below.redis.exists("child"), False, "the child is gone")
    equal(below.redis.state("grandchild"), ["active"], "the active grandchild is kept")


@pytest.mark.parametrize("how", ["drained", "cleaned", "obliterated"])
@scenario("flow.swept", "dedup.removal", tier="full", bullmq="<5.70.4")
@also_in_core("cleaned | drained | obliterated")
def test_the_last_child_owns_an_id_and_is_swept_away(client: Participant, how: str) -> None:
    """With the parent in the same queue the id is freed, whichever job owns it by then."""
    family, queue, _ = open_flow_handles(client)
    family.add(node("parent", node("child", deduplication={"id": "its"})))
    queue.redis.set_string("de:its", "another job")
    client.pass_time(20)
    if how == "drained":
        queue.call(queue_ops.Drain())
    elif how == "cleaned":
        queue.call(queue_ops.Clean(grace_ms=0, limit=10, type="wait"))
    else:
        queue.call(queue_ops.Obliterate(force=True))
    left = [job for job in ("parent", "child") if queue.redis.exists(job)]
    equal(left, [], "the child is gone, and the parent with it")
    equal(queue.redis.string("de:its"), None, "the id is free")


@pytest.mark.parametrize("where", ["below", "q"], ids=["in-another-queue", "in-the-same-queue"])
@scenario("flow.remove.child", tier="full")
@also_in_core("below | q")
def test_the_last_child_has_failed_and_makes_room_for_others(client: Participant, where: str) -> None:
    """Its parent waited for it to be retried, which it cannot be any more."""
    family, queue, below = client.flow(), client.queue(), client.queue(where)
    worker = client.worker(queue=where)
    family.add(node("parent", node("child", queue=where)))
    worker.claim_one()
    worker.fail("child")
    equal(queue.redis.state("parent"), ["waiting-children"], "the parent waits on")
    client.pass_time(3)
    below.add("newer", {}, removeOnFail={"count": 1})
    worker.fail(worker.claim_one().id)
    equal(below.redis.exists("child"), False, "the child is gone")
    equal(queue.redis.state("parent"), ["wait"], "the parent waits for no child any more")
    equal(queue.redis.elements("wait"), ["parent"], "it is there once")
    reported = [entry.get("prev") for entry in queue.redis.events() if entry.get("jobId") == "parent"]
    equal(reported[-1], "waiting-children", "an event reports its release", where="event.waiting.prev")


@scenario("flow.remove.unprocessed", "event.removed")
def test_an_unprocessed_child_whose_worker_is_gone(client: Participant) -> None:
    """It is active without lock, so no worker owns it."""
    family, queue, below = client.flow(), client.queue(), client.queue("below")
    family.add(node("parent", node("child", queue="below")))
    client.worker(queue="below").claim_one()
    below.redis.delete("child:lock")
    queue.call(job_ops.RemoveUnprocessedChildren(job="parent"))
    equal((below.redis.exists("child"), below.redis.elements("active")), (False, []), "the child is gone")
    reported = [entry.get("prev") for entry in below.redis.events() if entry.get("event") == "removed"]
    equal(reported, ["active"], "an event reports its removal and the container it was in", where="event.removed.prev")
    equal(queue.redis.state("parent"), ["wait"], "the parent waits for no child any more")
