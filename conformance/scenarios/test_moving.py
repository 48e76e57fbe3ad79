"""Jobs that are moved by hand, one or many, between states in which they were not made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import equal
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import add_child, limit_queue

LATER_MS = 60_000

# Changed priorities.

Bring: TypeAlias = Callable[[QueueHandle, WorkerHandle], None]
"""Adds job `moving`, and brings it into a state."""


def _add(**opts: Any) -> Bring:
    return lambda queue, _worker: _discard(queue.add("moving", {}, jobId="moving", **opts))


def _discard(_answer: object) -> None:
    """Ignore the result."""


def _claim(queue: QueueHandle, worker: WorkerHandle) -> None:
    _add()(queue, worker)
    worker.claim_one()


def _complete(queue: QueueHandle, worker: WorkerHandle) -> None:
    _claim(queue, worker)
    worker.complete("moving")


def _fail(queue: QueueHandle, worker: WorkerHandle) -> None:
    _claim(queue, worker)
    worker.fail("moving")


def _wait_for_a_child(queue: QueueHandle, worker: WorkerHandle) -> None:
    _claim(queue, worker)
    add_child(queue, "moving", delay=LATER_MS)
    worker.wait_for_children("moving")


STATES: dict[str, Bring] = {
    "wait": _add(),
    "prioritized": _add(priority=5),
    "delayed": _add(delay=LATER_MS),
    "active": _claim,
    "completed": _complete,
    "failed": _fail,
    "waiting-children": _wait_for_a_child,
}


@pytest.mark.parametrize("lifo", [False, True], ids=["fifo", "lifo"])
@pytest.mark.parametrize("priority", [0, 2, 5])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("queue_is", ["running", "paused", "limited"])
@scenario("getters.change-priority", tier="full", cases={"paused-*-0-*": "<6"})
@also_in_core("paused-wait-2-True")
def test_a_priority_is_changed_in_every_state(
    client: Participant, queue_is: str, state: str, priority: int, lifo: bool
) -> None:
    """A waiting job moves to the place of its new priority, with `lifo` before its equals; other jobs stay."""
    queue, worker = client.queue(), client.worker()
    STATES[state](queue, worker)
    for name, other in (("plain", 0), ("equal", 5), ("before", 2)):
        queue.add(name, {}, jobId=name, priority=other)
    if queue_is == "paused":
        queue.pause()
    if queue_is == "limited":
        limit_queue(queue, 1)
        queue.redis.set_string("limiter", "1", ttl_ms=LATER_MS)
    queue.call(job_ops.ChangePriority(job="moving", priority=priority, lifo=lifo))
    waits = "paused" if queue_is == "paused" else "wait"
    stays = waits if state == "wait" else state
    moves = "prioritized" if priority else waits
    equal(queue.redis.state("moving"), [moves if state in ("wait", "prioritized") else stays], "the job is in place")
    if state in ("wait", "prioritized") and priority:
        equals = [job for job in queue.redis.members("prioritized") if job in ("moving", "equal", "before")]
        equal(equals, _order(priority, lifo=lifo), "it is before its equals only with `lifo`")
    equal(queue.redis.field("moving", "priority"), str(priority), "the hash holds it", where="job.priority")


def _order(priority: int, *, lifo: bool) -> list[str]:
    """The order of the prioritized jobs, with one of priority 2 and one of priority 5."""
    others = {2: ["before"], 5: ["equal"]}[priority]
    together = ["moving", *others] if lifo else [*others, "moving"]
    return [*together, "equal"] if priority == 2 else ["before", *together]


# Many jobs at once.

FINISHED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("urgent", {"priority": 4}),
    ("last in", {"lifo": True}),
    ("put off", {"delay": 10}),
    ("shaky", {"attempts": 2, "backoff": 1000}),
    ("owner", {"deduplication": {"id": "its"}}),
)
"""Jobs that end in this state, one every second."""
SECOND_MS = 1000


def _finish_all(client: Participant, queue: QueueHandle, worker: WorkerHandle, state: str) -> list[int]:
    """Finish all jobs in this state; returns when each of them was (ms on the client's clock)."""
    ends: list[int] = []
    for name, opts in FINISHED:
        queue.add(name, {}, jobId=name, **opts)
        client.pass_time(20)
        worker.claim_one()
        if state == "completed":
            worker.complete(name, {"of": name})
        else:
            worker.fail(name, "boom", unrecoverable=True)
        ends.append(client.clock.now_ms())
        client.pass_time(SECOND_MS if client.clock.frozen else 20)
    return ends


@pytest.mark.parametrize("queue_is", ["running", "paused", "full"])
@pytest.mark.parametrize("among", ["all", "one-by-one", "until"])
@pytest.mark.parametrize("state", ["completed", "failed"])
@scenario("retry.manual", "retry.manual.completed", tier="full", cases={"*-paused": "<6"})
@also_in_core("completed-all-full | completed-one-by-one-running | failed-one-by-one-full")
def test_finished_jobs_are_retried_together(client: Participant, state: Any, among: str, queue_is: str) -> None:
    """Jobs that ended by then wait again, oldest first, without their results, whichever options they have."""
    queue, worker = client.queue(), client.worker()
    ends = _finish_all(client, queue, worker, state)
    queue.add("running", {}, jobId="running")
    worker.claim_one("token-running")
    if queue_is == "paused":
        queue.pause()
    if queue_is == "full":
        queue.call(queue_ops.SetGlobalConcurrency(concurrency=1))
    count, until = (1 if among == "one-by-one" else 1000), (ends[2] if among == "until" else None)
    queue.call(queue_ops.RetryJobs(count=count, state=state, timestamp=until))
    names = [name for name, _ in FINISHED]
    moved = names[:3] if among == "until" else names
    place = "paused" if queue_is == "paused" else "wait"
    equal(queue.redis.elements(place)[::-1], moved, "the jobs wait again, the oldest first")
    equal(queue.redis.members(state), names[len(moved) :], "the others are where they were")
    ended = [name for name in moved if {"finishedOn", "returnvalue", "failedReason"} & queue.redis.hash(name).keys()]
    equal(ended, [], "nothing is left of how they ended")


@pytest.mark.parametrize("queue_is", ["running", "paused", "full"])
@pytest.mark.parametrize("count", [1, 1000], ids=["one-by-one", "all"])
@scenario("getters.promote", tier="full", cases={"*-paused": "<6"})
@also_in_core("1-paused | 1-running")
def test_delayed_jobs_are_promoted_together(client: Participant, count: int, queue_is: str) -> None:
    """Together they wait in the order in which they were due, whichever options they have."""
    queue, worker = client.queue(), client.worker()
    queue.add("running", {}, jobId="running")
    worker.claim_one("token-running")
    for name, opts in (("last", {}), ("urgent", {"priority": 4}), ("first", {}), ("last in", {"lifo": True})):
        delay = {"first": 1, "last in": 2, "urgent": 3, "last": 4}[name] * LATER_MS
        queue.add(name, {}, jobId=name, delay=delay, **opts)
    if queue_is == "paused":
        queue.pause()
    if queue_is == "full":
        queue.call(queue_ops.SetGlobalConcurrency(concurrency=1))
    queue.call(queue_ops.PromoteJobs(count=count))
    waiting = queue.redis.elements("paused" if queue_is == "paused" else "wait")
    equal(waiting[::-1], ["first", "last in", "urgent", "last"], "all of them wait, also the one with a priority")
    equal(queue.redis.members("delayed"), [], "no job is delayed")
