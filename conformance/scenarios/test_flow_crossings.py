"""Families in unusual states: children that are there before their parent, come back, or fail at an odd moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import pytest

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops import worker as worker_ops
from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import children_of, node, run_next, with_option

LATER_MS = 60_000

# Children that are there before their parent.

CHILDREN: dict[str, dict[str, Any]] = {
    "plain": node("child", queue="below"),
    "delayed": node("child", queue="below", delay=LATER_MS),
    "prioritized": node("child", queue="below", priority=2),
    "parent-itself": node("child", node("grandchild", queue="lowest"), queue="below"),
}
"""How the child that exists is added a second time, with its parent."""

ADOPTED = {
    "waits-for-something": "a child that has failed before is not waited for by anything that could end",
    "pending-children": "a child that is done gets a child of its own",
}


def _bring_about(client: Participant, state: str) -> QueueHandle:
    """Bring about the child in its state; returns its queue."""
    below = client.queue("below")
    options: dict[str, dict[str, Any]] = {"late": {"delay": LATER_MS}, "urgent": {"priority": 4}}
    below.add("child", {}, jobId="child", **options.get(state, {}))
    if state in ("done", "broken", "running"):
        worker = client.worker(queue="below")
        worker.claim_one()
        if state == "done":
            worker.complete("child", {"result": 1})
        if state == "broken":
            worker.fail("child")
    return below


def _add_parent(client: Participant, child: str, state: str, parent: dict[str, Any]) -> None:
    """A child that is done releases its parent at once; any other is waited for."""
    below, queue = _bring_about(client, state), client.queue()
    if "delay" in parent:
        # The marker is to name the parent, and not the job that is due after it.
        queue.add("later still", {}, delay=2 * LATER_MS)
    client.flow().add(node("parent", CHILDREN[child], **parent))
    equal(below.redis.field("child", "parentKey"), queue.redis.key("parent"), "the child names its parent now")
    released = "delayed" if "delay" in parent else "prioritized" if parent else "wait"
    place = released if state == "done" else "waiting-children"
    equal(queue.redis.state("parent"), [place], "the parent waits only for a child that is not done")
    processed = children_of(queue, "parent", "processed")
    equal(processed, ["child"] if state == "done" else [], "a child that is done counts as processed")


@pytest.mark.parametrize("child", CHILDREN)
@scenario("flow.child.done", "flow.child.linked", without=ADOPTED)
def test_a_child_is_done_before_its_parent_is_added(client: Participant, child: str) -> None:
    """The parent runs at once."""
    _add_parent(client, child, "done", {})


@pytest.mark.parametrize("parent", [{}, {"priority": 3}, {"delay": LATER_MS}], ids=["plain", "prioritized", "delayed"])
@pytest.mark.parametrize("state", ["waiting", "urgent", "late", "running", "done", "broken"])
@pytest.mark.parametrize("child", CHILDREN)
@scenario("flow.child.done", "flow.child.linked", tier="full", without=ADOPTED)
@also_in_core(
    "delayed-done-{'delay': 60000} | delayed-done-{'priority': 3} | delayed-done-{} | delayed-urgent-{} | "
    "parent-itself-done-{'delay': 60000} | parent-itself-done-{'priority': 3} | parent-itself-late-{'priority': 3} | "
    "parent-itself-urgent-{'priority': 3} | plain-done-{'delay': 60000} | plain-done-{'priority': 3} | "
    "plain-urgent-{'delay': 60000} | prioritized-broken-{} | prioritized-done-{'delay': 60000} | prioritized-done-{}"
)
def test_a_child_is_there_before_its_parent(
    client: Participant, child: str, state: str, parent: dict[str, Any]
) -> None:
    """In every state of child and parent, the child counts as pending or processed once."""
    _add_parent(client, child, state, parent)


@pytest.mark.parametrize("child", CHILDREN)
@scenario("flow.child.done", tier="full", without=ADOPTED)
@also_in_core("delayed | plain | prioritized")
def test_a_child_is_added_again_with_its_parent(client: Participant, child: str) -> None:
    """Both are there already: nothing changes but their events."""
    queue, below = client.queue(), client.queue("below")
    for kind in ("plain", child):
        client.flow().add(node("parent", CHILDREN[kind]))
    equal(below.redis.field("child", "parentKey"), queue.redis.key("parent"), "the child names its parent")
    equal(children_of(queue, "parent", "dependencies"), ["child"], "it is waited for, once")
    equal(queue.redis.state("parent"), ["waiting-children"], "the parent waits")


@pytest.mark.parametrize("child", ["plain", "prioritized"])
@scenario("flow.child.done")
def test_a_flow_is_added_again_after_its_parent_is_gone(client: Participant, child: str) -> None:
    """The child is done and still names its parent; the parent that is added under this id runs at once."""
    flow, queue, worker, below = client.flow(), client.queue(), client.worker(), client.worker(queue="below")
    flow.add(node("parent", CHILDREN[child], removeOnComplete=True))
    run_next(below, "child", {"result": 1})
    run_next(worker, "parent")
    equal(queue.redis.exists("parent"), False, "the parent is gone")
    flow.add(node("parent", CHILDREN[child]))
    equal(queue.redis.state("parent"), ["wait"], "the parent has nothing to wait for")
    equal(children_of(queue, "parent", "processed"), ["child"], "the child counts as processed")


@pytest.mark.parametrize("child", CHILDREN)
@scenario("flow.child.done", tier="full", without=ADOPTED, bullmq="<6")
@also_in_core("parent-itself")
def test_an_orphan_is_not_adopted(client: Participant, child: str) -> None:
    """A child keeps the name of a parent that is gone, and no other parent waits for it."""
    queue, below = client.queue(), client.queue("below")
    client.flow().add(node("first parent", CHILDREN["plain"]))
    for lost in ("first parent", "first parent:dependencies", "waiting-children"):
        queue.redis.delete(lost)
    client.flow().add(node("parent", CHILDREN[child]))
    equal(below.redis.field("child", "parentKey"), queue.redis.key("first parent"), "the child names its first parent")
    equal(children_of(queue, "parent", "dependencies"), [], "the other one does not wait for it")


@pytest.mark.parametrize("child", CHILDREN)
@scenario(
    "flow.child.linked",
    tier="full",
    without={"waits-for-something": "the second parent gets no child, and waits for ever, also in Node"},
)
@also_in_core("delayed | parent-itself | plain | prioritized")
def test_a_child_has_one_living_parent(client: Participant, child: str) -> None:
    """Another parent that names it is stored, but does not get it; the attempt leaves no event."""
    queue, below = client.queue(), client.queue("below")
    client.flow().add(node("first parent", CHILDREN["plain"]))
    client.flow().add(node("parent", CHILDREN[child]))
    equal(below.redis.field("child", "parentKey"), queue.redis.key("first parent"), "the child keeps its parent")
    equal(children_of(queue, "first parent", "dependencies"), ["child"], "the first parent waits for it")
    equal(children_of(queue, "parent", "dependencies"), [], "the other one does not")
    of_child = [event["event"] for event in below.redis.events() if event.get("jobId") == "child"]
    equal(of_child, ["added", "waiting"], "the attempt leaves no event", where="event.duplicated")


# Children that come back.

ENDINGS: dict[str, str] = {
    "completed": "processed",
    "failParentOnFailure": "unsuccessful",
    "continueParentOnFailure": "failed",
    "ignoreDependencyOnFailure": "failed",
    "removeDependencyOnFailure": "",
    "failed": "dependencies",
}
"""How a child ends, and the key of its parent that has it then."""


REMEMBERED = [ending for ending, holder in ENDINGS.items() if holder == "failed"]
"""Endings that the parent remembers. Before 5.79.2 Node's own script breaks off with WRONGTYPE there."""


def _finish_child(client: Participant, ending: str) -> tuple[QueueHandle, QueueHandle, WorkerHandle]:
    """End job `child` of job `parent`; returns the queues of both, and the child's worker."""
    queue, below, worker = client.queue(), client.queue("below"), client.worker(queue="below")
    options = with_option(ending) if ending.endswith("Failure") else {}
    client.flow().add(node("parent", node("child", queue="below", **options), node("other", queue="elsewhere")))
    worker.claim_one()
    if ending == "completed":
        worker.complete("child", {"result": 1})
    else:
        worker.fail("child")
    if ENDINGS[ending]:
        known = children_of(queue, "parent", ENDINGS[ending])
        holds("child" in known, f"the child is in `{ENDINGS[ending]}` of its parent", seen=known)
    return queue, below, worker


def _state_of(ending: str) -> Literal["completed", "failed"]:
    return "completed" if ending == "completed" else "failed"


@pytest.mark.parametrize("ending", ENDINGS)
@scenario("retry.manual.child", "retry.manual", "retry.manual.completed", cases=dict.fromkeys(REMEMBERED, ">=5.79.2"))
def test_a_finished_child_is_retried(client: Participant, ending: str) -> None:
    """It is waited for again if its parent knew how it ended."""
    queue, below, worker = _finish_child(client, ending)
    below.retry("child", _state_of(ending))
    equal(below.redis.state("child"), ["wait"], "the child waits again")
    pending = "child" in children_of(queue, "parent", "dependencies")
    equal(pending, ending != "removeDependencyOnFailure", "its parent waits for it, unless it has forgotten the child")
    worker.complete(worker.claim_one().id, {"result": 2})


def _retry_child_with_others(client: Participant, ending: str) -> bool:
    """Retry the child with all jobs of its state, and end it again; returns whether its parent waited for it."""
    queue, below, worker = _finish_child(client, ending)
    below.call(queue_ops.RetryJobs(state=_state_of(ending)))
    equal(below.redis.state("child"), ["wait"], "the child waits again")
    pending = "child" in children_of(queue, "parent", "dependencies")
    worker.complete(worker.claim_one().id, {"result": 2})
    return pending


@pytest.mark.parametrize("ending", ENDINGS)
@scenario("retry.manual", "retry.manual.completed", tier="full", bullmq="<6.3.15")
def test_a_finished_child_is_retried_with_others(client: Participant, ending: str) -> None:
    """Who retries all jobs of a state leaves their parents alone."""
    pending = _retry_child_with_others(client, ending)
    equal(pending, ending == "failed", "its parent waits for it only if it has waited all the time")


@pytest.mark.parametrize("ending", ENDINGS)
@scenario("retry.manual", "retry.manual.completed", tier="full", bullmq=">=6.3.15")
def test_a_finished_child_is_retried_with_others_for_its_parent(client: Participant, ending: str) -> None:
    """Who retries all jobs of a state has their parents wait for them again."""
    pending = _retry_child_with_others(client, ending)
    equal(pending, ending != "removeDependencyOnFailure", "its parent waits for it, unless it has forgotten the child")


# Children that fail while their parent does something else.

Elsewhere: TypeAlias = Callable[[Participant, QueueHandle, WorkerHandle], None]
"""Takes the parent, which runs and has a child, to where it is when its child fails."""


def _runs_on(_client: Participant, _queue: QueueHandle, _worker: WorkerHandle) -> None:
    """The parent stays where it is."""


def _waits_for_it(_client: Participant, _queue: QueueHandle, worker: WorkerHandle) -> None:
    worker.wait_for_children("parent")


def _is_delayed(client: Participant, _queue: QueueHandle, worker: WorkerHandle) -> None:
    due = client.clock.now_ms() + LATER_MS
    worker.call(worker_ops.MoveToDelayed(job="parent", token="token-1", timestamp=due))


def _is_retried(_client: Participant, _queue: QueueHandle, worker: WorkerHandle) -> None:
    worker.fail("parent")


def _has_failed(_client: Participant, _queue: QueueHandle, worker: WorkerHandle) -> None:
    worker.fail("parent", unrecoverable=True)


def _is_gone(_client: Participant, queue: QueueHandle, worker: WorkerHandle) -> None:
    worker.fail("parent", unrecoverable=True)
    queue.remove("parent", children=False)


PARENTS: dict[str, Elsewhere] = {
    "active": _runs_on,
    "waiting-children": _waits_for_it,
    "delayed": _is_delayed,
    "retried": _is_retried,
    "failed": _has_failed,
    "gone": _is_gone,
}
FAILURE_OPTIONS = (
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
)


@pytest.mark.parametrize("priority", [0, 3], ids=["plain", "prioritized"])
@pytest.mark.parametrize("option", FAILURE_OPTIONS)
@pytest.mark.parametrize("where", PARENTS)
@scenario(
    "flow.fail.parent", "flow.fail.continue", "flow.fail.ignore", "flow.fail.remove", tier="full", without=ADOPTED
)
@also_in_core("delayed-failParentOnFailure-0 | delayed-failParentOnFailure-3 | retried-continueParentOnFailure-3")
def test_a_child_fails_wherever_its_parent_is(client: Participant, where: str, option: str, priority: int) -> None:
    """The effect of a child's failure depends on its parent's state; later queries agree with Redis."""
    queue, worker = client.queue(), client.worker()
    client.queue("below")
    below = client.worker(queue="below")
    queue.add("parent", {}, jobId="parent", attempts=3, priority=priority)
    worker.claim_one()
    above = {"id": "parent", "queue": queue.redis.key("").rstrip(":")}
    client.flow().add(node("child", queue="below", parent=above, **with_option(option)))
    PARENTS[where](client, queue, worker)
    equal(below.claim_one().id, "child", "the child runs")
    below.fail("child", "boom")
    released = where == "waiting-children" or (where == "delayed" and option == "failParentOnFailure")
    home = "prioritized" if priority else "wait"
    places = {"active": ["active"], "delayed": ["delayed"], "retried": [home], "failed": ["failed"], "gone": []}
    place = [home] if released else places[where]
    equal(queue.redis.state("parent"), place, "the parent is released if it waited, and left alone if it did not")
    if where != "gone":
        queue.call(job_ops.GetDependenciesCount(job="parent"))
        queue.call(job_ops.GetIgnoredChildrenFailures(job="parent"))
