"""Ways in which a job starts to wait, and the states of a queue in which it can do so.

Nearly every script that puts a job somewhere has a copy of the same few lines: is the queue paused, is it full, which
end of which list, is a marker set. `WAYS` has each script, and each place in it, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops import worker as worker_ops
from conformance.participants.expect import holds
from conformance.participants.participant import Participant
from conformance.scenarios.support.prepared_queue import PreparedQueue, Step
from conformance.scenarios.support.steps import HOUR_MS, current_job, let_stall, node

MOVING = "moving"
"""Id of the job that starts to wait."""
AT_WORK = ("running", "running on")
"""Ids of the jobs that are active all the while, or until one of them makes room."""
# Short, because a scenario on a running clock waits until it has passed.
SOON_MS = 20
# Far longer than any scenario takes, so the job stays delayed unless the scenario moves it.
LATER_MS = 60_000


def open_busy_queue(client: Participant, *, at_work: int = len(AT_WORK)) -> PreparedQueue:
    """A queue in which `AT_WORK` are active.

    `at_work`: how many of them are still active when the job starts to wait; a full queue allows that many.
    """
    prepared = PreparedQueue(client, job=MOVING, at_work=at_work)
    worker = prepared.worker
    for name in AT_WORK:
        prepared.queue.add(name, {}, jobId=name, attempts=2)
        worker.claim_one(f"token-{name}")
    return prepared


def add_family(prepared: PreparedQueue, *, child: dict[str, Any] | None = None, **opts: Any) -> None:
    """Add the job that is to move as the parent of job `child` in the queue below; `child` are its options."""
    prepared.flow.add(node(MOVING, node("child", queue="below", **(child or {})), **opts))


def release_by(prepared: PreparedQueue, outcome: str) -> None:
    """Claim the child, and end it as `complete` or `fail`."""
    worker = prepared.below.worker
    worker.claim_one()
    if outcome == "complete":
        worker.complete("child")
    else:
        worker.fail("child")


@dataclass(frozen=True)
class WayToWait:
    """One way: `prepare` leads to where `act` makes the job start to wait, in `place`: `wait` or `prioritized`."""

    prepare: Step
    act: Step
    place: str = "wait"
    job: Callable[[PreparedQueue], str] = lambda _prepared: MOVING
    """Id of the job that starts to wait."""
    at_work: int = len(AT_WORK)
    """How many jobs are active when it starts to wait."""


def _nothing(_prepared: PreparedQueue) -> None:
    """Nothing has to be prepared."""


def _add(**opts: Any) -> Step:
    return lambda prepared: prepared.queue.add(MOVING, {}, jobId=MOVING, **opts)


def _claim(**opts: Any) -> Step:
    def claim(prepared: PreparedQueue) -> None:
        _add(attempts=3, **opts)(prepared)
        prepared.worker.claim_one()

    return claim


def _finish(*, failed: bool = False, **opts: Any) -> Step:
    def finish(prepared: PreparedQueue) -> None:
        _add(**opts)(prepared)
        prepared.worker.claim_one()
        if failed:
            prepared.worker.fail(MOVING)
        else:
            prepared.worker.complete(MOVING, {"done": True})

    return finish


def _family(*, child: dict[str, Any] | None = None, **opts: Any) -> Step:
    return lambda prepared: add_family(prepared, child=child, **opts)


def _pass_delay(prepared: PreparedQueue) -> None:
    """Let the delay of `SOON_MS` pass."""
    # Twice the delay, so that a running clock is certainly past it.
    prepared.client.pass_time(2 * SOON_MS)


def _add_bulk(prepared: PreparedQueue) -> None:
    prepared.queue.add_bulk(("other", {}, {}), (MOVING, {}, {"jobId": MOVING}))


def _change_priority(priority: int, *, lifo: bool = False) -> Step:
    return lambda prepared: prepared.queue.call(job_ops.ChangePriority(job=MOVING, priority=priority, lifo=lifo))


def _promote(prepared: PreparedQueue) -> None:
    prepared.queue.promote(MOVING)


def _claim_when_due(prepared: PreparedQueue) -> None:
    _pass_delay(prepared)
    prepared.worker.claim("token-next")


def _fetch_next_when_due(prepared: PreparedQueue) -> None:
    _pass_delay(prepared)
    prepared.worker.complete("running", token="token-running", fetch_next=True)


def _retry_another_when_due(prepared: PreparedQueue) -> None:
    _pass_delay(prepared)
    prepared.worker.fail("running", token="token-running")


def _fail(prepared: PreparedQueue) -> None:
    prepared.worker.fail(MOVING)


def _give_back(prepared: PreparedQueue) -> None:
    prepared.worker.call(worker_ops.MoveToWait(job=MOVING, token="token-1"))


def _stall(prepared: PreparedQueue) -> None:
    let_stall(prepared.queue, prepared.worker, MOVING)


def _retry_by_hand(state: str) -> Step:
    return lambda prepared: prepared.queue.retry(MOVING, state)


def _retry_all_failed(prepared: PreparedQueue) -> None:
    prepared.queue.call(queue_ops.RetryJobs(state="failed"))


def _retry_all_completed(prepared: PreparedQueue) -> None:
    prepared.queue.call(queue_ops.RetryJobs(state="completed"))


def _release_by(outcome: str) -> Step:
    return lambda prepared: release_by(prepared, outcome)


def _remove_child(prepared: PreparedQueue) -> None:
    prepared.below.queue.remove("child")
    state = prepared.queue.redis.state(MOVING)
    holds(state != ["waiting-children"], "the parent is released", seen=state, where="row.flow.remove.child")


def _clean_children(prepared: PreparedQueue) -> None:
    # `clean` only takes jobs that are older than now, so some time has to pass.
    prepared.client.pass_time(SOON_MS)
    prepared.below.queue.call(queue_ops.Clean(grace_ms=0, limit=10, type="wait"))


def _finish_child_before(prepared: PreparedQueue) -> None:
    """The child is there, and completed, before its parent is."""
    # The child is completed first, so that its parent is added with nothing to wait for.
    prepared.below.queue.add("child", {}, jobId="child")
    prepared.below.worker.complete(prepared.below.worker.claim_one().id, {"done": True})


def _schedule(**opts: Any) -> Step:
    return lambda prepared: prepared.queue.schedule("s", {"every": HOUR_MS}, **opts)


_SCHEDULED = partial(WayToWait, _nothing, job=lambda prepared: current_job(prepared.queue))

WAYS: dict[str, WayToWait] = {
    # Adding.
    "added": WayToWait(_nothing, _add()),
    "added-lifo": WayToWait(_nothing, _add(lifo=True)),
    "added-prioritized": WayToWait(_nothing, _add(priority=3), "prioritized"),
    "added-in-bulk": WayToWait(_nothing, _add_bulk),
    "scheduled": _SCHEDULED(_schedule()),
    "scheduled-prioritized": _SCHEDULED(_schedule(priority=3), "prioritized"),
    "scheduled-lifo": _SCHEDULED(_schedule(lifo=True)),
    # Delayed jobs.
    "promoted": WayToWait(_add(delay=LATER_MS), _promote),
    "promoted-lifo": WayToWait(_add(delay=LATER_MS, lifo=True), _promote),
    "promoted-prioritized": WayToWait(_add(delay=LATER_MS, priority=3), _promote, "prioritized"),
    "promoted-together": WayToWait(_add(delay=LATER_MS), lambda prepared: prepared.queue.call(queue_ops.PromoteJobs())),
    "due-at-a-claim": WayToWait(_add(delay=SOON_MS), _claim_when_due),
    "due-at-a-claim-prioritized": WayToWait(_add(delay=SOON_MS, priority=3), _claim_when_due, "prioritized"),
    "due-at-a-finish": WayToWait(_add(delay=SOON_MS), _fetch_next_when_due, at_work=1),
    "due-at-a-finish-prioritized": WayToWait(
        _add(delay=SOON_MS, priority=3), _fetch_next_when_due, "prioritized", at_work=1
    ),
    "due-at-a-retry": WayToWait(_add(delay=SOON_MS), _retry_another_when_due, at_work=1),
    "due-at-a-retry-prioritized": WayToWait(
        _add(delay=SOON_MS, priority=3), _retry_another_when_due, "prioritized", at_work=1
    ),
    # Active jobs.
    "retried": WayToWait(_claim(), _fail),
    "retried-lifo": WayToWait(_claim(lifo=True), _fail),
    "retried-prioritized": WayToWait(_claim(priority=3), _fail, "prioritized"),
    "given-back": WayToWait(_claim(), _give_back),
    "given-back-prioritized": WayToWait(_claim(priority=3), _give_back, "prioritized"),
    "stalled": WayToWait(_claim(), _stall),
    "stalled-prioritized": WayToWait(_claim(priority=3), _stall),
    # Finished jobs.
    "retried-by-hand": WayToWait(_finish(failed=True), _retry_by_hand("failed")),
    "retried-by-hand-lifo": WayToWait(_finish(failed=True, lifo=True), _retry_by_hand("failed")),
    "retried-by-hand-prioritized": WayToWait(_finish(failed=True, priority=3), _retry_by_hand("failed")),
    "completed-and-retried": WayToWait(_finish(), _retry_by_hand("completed")),
    "retried-together": WayToWait(_finish(failed=True, priority=3), _retry_all_failed),
    "completed-and-retried-together": WayToWait(_finish(lifo=True), _retry_all_completed),
    # Changed priorities.
    "no-priority-any-more": WayToWait(_add(priority=3), _change_priority(0)),
    "no-priority-any-more-lifo": WayToWait(_add(priority=3), _change_priority(0, lifo=True)),
    "another-priority": WayToWait(_add(priority=3), _change_priority(5), "prioritized"),
    "another-priority-lifo": WayToWait(_add(priority=3), _change_priority(5, lifo=True), "prioritized"),
    "now-prioritized": WayToWait(_add(), _change_priority(5), "prioritized"),
    "now-prioritized-lifo": WayToWait(_add(), _change_priority(5, lifo=True), "prioritized"),
    "still-without-priority-lifo": WayToWait(_add(), _change_priority(0, lifo=True)),
    # Parents.
    "child-completes": WayToWait(_family(), _release_by("complete")),
    "child-completes-prioritized": WayToWait(_family(priority=3), _release_by("complete"), "prioritized"),
    "child-completes-and-goes": WayToWait(_family(child={"removeOnComplete": True}), _release_by("complete")),
    "child-fails-parent": WayToWait(_family(child={"failParentOnFailure": True}), _release_by("fail")),
    "child-fails-prioritized-parent": WayToWait(
        _family(child={"failParentOnFailure": True}, priority=3), _release_by("fail"), "prioritized"
    ),
    "child-fails-and-parent-continues": WayToWait(
        _family(child={"continueParentOnFailure": True}), _release_by("fail")
    ),
    "child-fails-and-is-ignored": WayToWait(_family(child={"ignoreDependencyOnFailure": True}), _release_by("fail")),
    "child-fails-and-is-forgotten": WayToWait(
        _family(child={"removeDependencyOnFailure": True}, priority=3), _release_by("fail"), "prioritized"
    ),
    "child-is-removed": WayToWait(_family(), _remove_child),
    "child-is-unlinked": WayToWait(
        _family(), lambda prepared: prepared.below.queue.call(job_ops.RemoveChildDependency(job="child"))
    ),
    "children-are-removed": WayToWait(
        _family(), lambda prepared: prepared.queue.call(job_ops.RemoveUnprocessedChildren(job=MOVING))
    ),
    "child-is-drained": WayToWait(_family(), lambda prepared: prepared.below.queue.call(queue_ops.Drain())),
    "child-is-cleaned": WayToWait(_family(), _clean_children),
    "child-is-obliterated": WayToWait(_family(), lambda prepared: prepared.below.queue.call(queue_ops.Obliterate())),
    "child-is-done": WayToWait(_finish_child_before, _family()),
    "child-is-done-prioritized": WayToWait(_finish_child_before, _family(priority=3), "prioritized"),
    "delayed-child-is-done": WayToWait(_finish_child_before, _family(child={"delay": LATER_MS})),
    "delayed-child-is-done-prioritized": WayToWait(
        _finish_child_before, _family(child={"delay": LATER_MS}, priority=3), "prioritized"
    ),
    "prioritized-child-is-done": WayToWait(_finish_child_before, _family(child={"priority": 2})),
    "prioritized-child-is-done-prioritized": WayToWait(
        _finish_child_before, _family(child={"priority": 2}, priority=3), "prioritized"
    ),
}
"""Every way in which a job starts to wait, by name."""


def _fill_up(prepared: PreparedQueue) -> None:
    """Exactly as many jobs as the queue allows are active when the job starts to wait: one place more would be room."""
    # `at_work` and not the number of all jobs: some ways free a place themselves.
    prepared.queue.call(queue_ops.SetGlobalConcurrency(concurrency=prepared.at_work))


QUEUE_STATES: dict[str, Step] = {
    "with-room": lambda prepared: prepared.queue.call(queue_ops.SetGlobalConcurrency(concurrency=9)),
    "paused": lambda prepared: prepared.queue.pause(),
    "full": _fill_up,
    "without-meta": lambda prepared: prepared.queue.redis.delete("meta"),
}
"""States of a queue in which a job starts to wait."""


def start_to_wait(client: Participant, how: str, queue_state: str | Step) -> tuple[PreparedQueue, str]:
    """Prepare a job and the queue, add other jobs, and make the job wait.

    `queue_state`: one of QUEUE_STATES, or a step that makes another. Markers of earlier steps are deleted. Returns the
    queue, and the id of the job.
    """
    way = WAYS[how]
    prepared = open_busy_queue(client, at_work=way.at_work)
    way.prepare(prepared)
    prepared.queue.add("neighbour", {}, jobId="neighbour")
    # With neighbours in both containers, a job at a wrong end or in a wrong place is seen.
    prepared.queue.add("neighbour", {}, jobId="urgent neighbour", priority=3)
    change = QUEUE_STATES[queue_state] if isinstance(queue_state, str) else queue_state
    change(prepared)
    # Markers of earlier steps would hide whether this way sets one.
    prepared.queue.redis.delete("marker")
    way.act(prepared)
    return prepared, way.job(prepared)
