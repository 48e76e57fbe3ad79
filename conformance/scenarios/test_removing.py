"""Jobs that belong to something when they are removed: to a parent, to a deduplication id; and what becomes of that."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import between, equal
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.prepared_queue import PreparedQueue
from conformance.scenarios.support.removing import GONE, WAYS_TO_REMOVE, bring
from conformance.scenarios.support.steps import HOUR_MS, children_of, node, open_flow_handles

PENDING = [name for name, way in WAYS_TO_REMOVE.items() if way.state not in ("completed", "failed")]
EVERYTHING_GOES = [name for name in WAYS_TO_REMOVE if name.startswith("obliterated")]
CLEANED_OR_ELSE = [name for name in WAYS_TO_REMOVE if name not in EVERYTHING_GOES]
OF_CHILDREN = ("processed", "failed", "unsuccessful")
OWNED_BY_A_NAME = {"deduplication": "the new owner is a name only, so that nothing can remove it"}


@pytest.mark.parametrize("how", WAYS_TO_REMOVE)
@scenario("dedup.removal", "lifecycle.leaves-nothing", tier="full", cases={"cleaned-paused": "<6"})
@also_in_core(
    "cleaned-active | cleaned-prioritized | drained-delayed | drained-paused | obliterated-active | "
    "obliterated-delayed | removed-paused"
)
def test_an_owner_is_removed(client: Participant, how: str) -> None:
    """Its log goes with it, and its id; only who makes room for others leaves an id until its time is over."""
    prepared, way = PreparedQueue(client, job=GONE), WAYS_TO_REMOVE[how]
    owned = {"id": "its", "ttl": 600_000}
    bring(prepared, way, lambda opts: prepared.queue.add(GONE, {}, jobId=GONE, deduplication=owned, **opts))
    prepared.queue.log(GONE, "a row")
    equal(prepared.queue.dedup_owner("its"), GONE, "the job owns its id")
    way.act(prepared)
    left = [name for name in (GONE, f"{GONE}:logs", f"{GONE}:lock") if prepared.queue.redis.exists(name)]
    equal(left, [], "nothing of the job is left")
    equal(prepared.queue.redis.string("de:its"), None if way.frees else GONE, "its id is free, or waits for its time")


@scenario("event.removed")
def test_a_removal_of_nothing_leaves_no_event(client: Participant) -> None:
    """Neither of a job that never was nor of one that is gone."""
    queue = client.queue()
    queue.add()
    for _ in range(2):
        queue.remove("1")
    queue.remove("missing")
    equal(queue.redis.event_names().count("removed"), 1, "only the job that was there has left an event")


@pytest.mark.parametrize("how", WAYS_TO_REMOVE)
@scenario("lifecycle.leaves-nothing", tier="full", cases={"cleaned-paused": "<6"})
@also_in_core("removed-delayed | removed-wait")
def test_what_is_left_of_children_goes_too(client: Participant, how: str) -> None:
    """A job whose children are done has what they returned, and how they failed, in keys of its own."""
    prepared, way = PreparedQueue(client, job=GONE), WAYS_TO_REMOVE[how]
    bring(prepared, way, lambda opts: prepared.queue.add(GONE, {}, jobId=GONE, **opts))
    redis = prepared.queue.redis
    redis.set_field(f"{GONE}:processed", f"{redis.base}done", "1")
    redis.set_field(f"{GONE}:failed", f"{redis.base}ignored", "no")
    if how != "gone-with-its-completion":  # which a failed child forbids
        redis.set_score(f"{GONE}:unsuccessful", f"{redis.base}failed child", 1)
    way.act(prepared)
    left = [name for name in (GONE, *(f"{GONE}:{kind}" for kind in OF_CHILDREN)) if redis.exists(name)]
    equal(left, [], "nothing of the job is left")


@pytest.mark.parametrize("how", WAYS_TO_REMOVE)
@scenario(
    "dedup.removal", "lifecycle.leaves-nothing", tier="full", without=OWNED_BY_A_NAME, cases={"cleaned-paused": "<6"}
)
def test_a_former_owner_is_removed(client: Participant, how: str) -> None:
    """The id is another job's by now, and stays so."""
    prepared, way = PreparedQueue(client, job=GONE), WAYS_TO_REMOVE[how]
    bring(prepared, way, lambda opts: prepared.queue.add(GONE, {}, jobId=GONE, deduplication={"id": "its"}, **opts))
    prepared.queue.redis.set_string("de:its", "another job")
    way.act(prepared)
    equal(prepared.queue.redis.exists(GONE), False, "the job is gone")
    equal(prepared.queue.redis.string("de:its"), "another job", "the new owner keeps the id")


@pytest.mark.parametrize("how", PENDING)
@scenario("flow.swept", "flow.remove.child", "lifecycle.leaves-nothing", tier="full", cases={"cleaned-paused": "<6"})
@also_in_core("cleaned-active | drained-wait | gone-with-its-failure | obliterated-delayed | removed-paused")
def test_the_last_child_of_a_parent_in_the_same_queue(client: Participant, how: str) -> None:
    """Who sweeps the child away takes the waiting parent with it, and its parent's parent; who removes it does not."""
    prepared, way = PreparedQueue(client, job=GONE), WAYS_TO_REMOVE[how]
    family = client.flow()
    bring(
        prepared, way, lambda opts: family.add(node("top", node("parent", node(GONE, **opts), removeOnComplete=True)))
    )
    way.act(prepared)
    equal(prepared.queue.redis.exists(GONE), False, "the child is gone")
    left = [job for job in ("top", "parent") if prepared.queue.redis.exists(job)]
    equal(left, [] if way.hard else ["top", "parent"], "the parents go with it only if it is swept away")


def _remove_last_child(client: Participant, how: str) -> None:
    """Remove the last child of a parent in another queue, which is released."""
    prepared, way = PreparedQueue(client, job=GONE), WAYS_TO_REMOVE[how]
    above, family = client.queue("above"), client.flow()
    bring(prepared, way, lambda opts: family.add(node("parent", node(GONE, **opts), queue="above")))
    way.act(prepared)
    equal(prepared.queue.redis.exists(GONE), False, "the child is gone")
    equal(above.redis.state("parent"), ["wait"], "the parent is released")


@pytest.mark.parametrize("how", ["drained-wait", "cleaned-wait", "obliterated-wait"])
@scenario("flow.swept")
def test_the_last_child_of_a_parent_is_swept_away(client: Participant, how: str) -> None:
    """A parent in another queue is released."""
    _remove_last_child(client, how)


@pytest.mark.parametrize("how", PENDING)
@scenario("flow.swept", "flow.remove.child", "lifecycle.leaves-nothing", tier="full", cases={"cleaned-paused": "<6"})
@also_in_core("cleaned-prioritized | drained-delayed | gone-with-its-failure | obliterated-delayed")
def test_the_last_child_of_a_parent_in_another_queue(client: Participant, how: str) -> None:
    """The parent is released, however the child goes."""
    _remove_last_child(client, how)


@pytest.mark.parametrize("how", CLEANED_OR_ELSE)
@scenario("flow.swept", "flow.remove.child", "lifecycle.leaves-nothing", tier="full", cases={"cleaned-paused": "<6"})
def test_one_of_two_children(client: Participant, how: str) -> None:
    """The parent waits for the other one, and counts what it knows of both."""
    prepared, way = PreparedQueue(client, job=GONE), WAYS_TO_REMOVE[how]
    above, family = client.queue("above"), client.flow()
    other = node("other", queue="elsewhere")
    bring(prepared, way, lambda opts: family.add(node("parent", node(GONE, **opts), other, queue="above")))
    way.act(prepared)
    equal(prepared.queue.redis.exists(GONE), False, "the child is gone")
    equal(above.redis.state("parent"), ["waiting-children"], "the parent waits for the other one")
    above.call(job_ops.GetDependenciesCount(job="parent"))


PENDING_CHILDREN: dict[str, dict[str, Any]] = {
    "plain": node("pending", queue="below"),
    "late": node("pending", queue="below", delay=60_000),
    "urgent": node("pending", queue="below", priority=2),
    "a-parent-itself": node("pending", node("grandchild", queue="below", delay=60_000), queue="below"),
    "broken": node("pending"),
}
"""A child that its parent still waits for. One at a time, because the order of a set is random."""


def _add_family(client: Participant, pending: str) -> QueueHandle:
    """Job `parent` with a child that is done, one that is gone, one whose failure is ignored, and a pending one."""
    family, queue, worker = open_flow_handles(client)
    finished = [node("done"), node("forgotten", removeOnComplete=True), node("ignored", ignoreDependencyOnFailure=True)]
    family.add(node("parent", *finished, PENDING_CHILDREN[pending]))
    worker.complete(worker.claim_one().id, {"of": "done"})
    worker.complete(worker.claim_one().id)
    worker.fail(worker.claim_one().id, "ignored")
    if pending == "broken":
        worker.fail(worker.claim_one().id, "boom")
    return queue


@pytest.mark.parametrize("how", ["with-children", "alone", "unprocessed"])
@pytest.mark.parametrize("pending", PENDING_CHILDREN)
@scenario("flow.remove.parent", "flow.remove.unprocessed", tier="full")
@also_in_core("late-alone | late-unprocessed | urgent-unprocessed | urgent-with-children")
def test_a_parent_with_children_in_all_states(client: Participant, pending: str, how: str) -> None:
    """All of its children go with it, or none; or only those that have not been worked on."""
    queue = _add_family(client, pending)
    below = queue if pending == "broken" else client.queue("below")
    queue.call(job_ops.GetDependencies(job="parent"))
    if how == "unprocessed":
        queue.call(job_ops.RemoveUnprocessedChildren(job="parent"))
    else:
        queue.remove("parent", children=how == "with-children")
    left = [job for job in ("parent", "done", "ignored") if queue.redis.exists(job)]
    stay = {"with-children": [], "alone": ["done", "ignored"], "unprocessed": ["parent", "done", "ignored"]}[how]
    equal(left, stay, "those that are finished go only with their parent, and only if asked to")
    waited_for = below.redis.exists("pending")
    spared = how == "alone" or (how, pending) == ("unprocessed", "broken")
    equal(waited_for, spared, "the job waited for is removed with its parent, or alone if no worker tried it")


@pytest.mark.parametrize("children", [True, False], ids=["with-children", "alone"])
@scenario("flow.remove.parent", tier="full", bullmq="<5.80.7 || >=6")
def test_a_parent_whose_child_has_failed_it(client: Participant, children: bool) -> None:
    """The unsuccessful child goes with it as well."""
    family, queue, worker = open_flow_handles(client)
    family.add(node("parent", node("bad", failParentOnFailure=True), node("other", delay=60_000)))
    worker.fail(worker.claim_one().id)
    equal(children_of(queue, "parent", "unsuccessful"), ["bad"], "the child is among the unsuccessful ones")
    worker.fail(worker.claim_one().id)
    equal(queue.redis.state("parent"), ["failed"], "the parent has failed")
    queue.remove("parent", children=children)
    left = [job for job in ("parent", "bad", "other") if queue.redis.exists(job)]
    equal(left, [] if children else ["bad", "other"], "children go with their parent only if asked to")


@pytest.mark.parametrize("locked", ["parent", "child", "grandchild"])
@scenario("flow.remove.parent", "lifecycle.remove.locked", tier="full")
@also_in_core("grandchild")
def test_whoever_is_at_work_protects_a_family(client: Participant, locked: str) -> None:
    """Nothing of it is removed by hand, whichever of them a worker holds; unless the others are not asked for."""
    family, queue, worker = open_flow_handles(client)
    family.add(node("parent", node("child", node("grandchild"))))
    for job in ("grandchild", "child", "parent"):
        equal(worker.claim_one().id, job, f"{job} is the next to run")
        if job == locked:
            break
        worker.complete(job)
    equal(queue.remove("parent"), 0, "the parent is not removed")
    left = [job for job in ("parent", "child", "grandchild") if queue.redis.exists(job)]
    equal(left, ["parent", "child", "grandchild"], "no job is gone")
    alone = queue.remove("parent", children=False)
    equal(alone, 0 if locked == "parent" else 1, "alone it can be removed, if it is not held itself")


@scenario("event.removed")
def test_an_active_job_without_lock_is_removed(client: Participant) -> None:
    """Its worker is gone, and no other worker has it."""
    queue, worker = client.queue(), client.worker()
    queue.add("left behind")
    worker.claim_one()
    queue.redis.delete("1:lock")
    equal(queue.remove("1"), 1, "it is removed")
    equal((queue.redis.exists("1"), queue.redis.elements("active")), (False, []), "nothing of it is left")
    reported = [entry.get("prev") for entry in queue.redis.events() if entry.get("event") == "removed"]
    equal(reported, ["active"], "an event reports its removal and the container it was in", where="event.removed.prev")


ORPHANED = dict.fromkeys(("one-state", "owned-keys", "oracle-health"), "jobs were orphaned on purpose")


def _orphans_among_others(client: Participant, number: int) -> QueueHandle:
    """Jobs in every state, a scheduler and ids that are owned; and that number of jobs that are in no state."""
    queue, worker = client.queue(), client.worker()
    for orphan in (f"orphan-{place}" for place in range(1, number + 1)):
        queue.add("orphan", {}, jobId=orphan)
        queue.log(orphan, "seen")
    queue.redis.delete("wait")
    queue.add("done", {}, jobId="is-done")
    worker.complete(worker.claim_one().id)
    queue.add("broken", {}, jobId="is-broken")
    worker.fail(worker.claim_one().id)
    queue.add("active", {}, jobId="is-active")
    worker.claim_one()
    queue.add("delayed", {}, jobId="is-delayed", delay=60_000)
    queue.add("prioritized", {}, jobId="is-prioritized", priority=2, deduplication={"id": "once"})
    client.flow().add(node("parent", node("child")))
    queue.schedule("hourly", {"every": HOUR_MS})
    return queue


@scenario("lifecycle.remove.orphans", bullmq=">=5.70.2", without=ORPHANED)
def test_orphaned_jobs_are_removed(client: Participant) -> None:
    """A hash that no list and no set names is of no use, and its logs go too."""
    queue = _orphans_among_others(client, 3)
    kept = {name for name in queue.redis.types() if not name.startswith("orphan")}
    equal(queue.call(queue_ops.RemoveOrphanedJobs()).count, 3, "three jobs are removed")
    equal(set(queue.redis.types()), kept, "they are gone with their logs, and nothing else is")
    equal(queue.call(queue_ops.RemoveOrphanedJobs()).count, 0, "then there is none")


@scenario("lifecycle.remove.orphans", bullmq=">=5.70.2", without=ORPHANED, compare=False)
def test_orphaned_jobs_are_removed_up_to_a_limit(client: Participant) -> None:
    """The limit bounds the work of one call."""
    queue = _orphans_among_others(client, 12)
    removed = queue.call(queue_ops.RemoveOrphanedJobs(count=1, limit=2)).count
    # Every key of a page of SCAN is handled, and a page holds all keys of a hash bucket even if COUNT is 1.
    between(removed, 2, 7, "the call ends with the page that reaches the limit")
    equal(queue.call(queue_ops.RemoveOrphanedJobs()).count, 12 - removed, "the next call removes the others")
