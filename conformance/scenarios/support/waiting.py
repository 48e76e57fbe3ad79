"""Ways in which a job starts to wait, and the states of a queue in which it can do so.

Nearly every script that puts a job somewhere has a copy of the same few lines: is the queue paused, is it full, which
end of which list, is a marker set. `WAYS` has each script, and each place in it, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops import worker as worker_ops
from conformance.participants.handles import FlowHandle, QueueHandle, WorkerHandle
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import HOUR_MS, current_job, let_stall, node

MOVING = "moving"
"""Id of the job that starts to wait."""
AT_WORK = ("running", "running on")
"""Ids of the jobs that are active all the while, or until one of them makes room."""
SOON_MS = 20
LATER_MS = 60_000


class Stage:
    """A queue with two jobs at work, and a second queue for the children of its jobs.

    `at_work`: how many jobs are active when the job starts to wait, and so how many a queue allows that is full then.
    """

    def __init__(self, client: Participant, *, at_work: int = len(AT_WORK)) -> None:
        self.client = client
        self.at_work = at_work
        self.queue: QueueHandle = client.queue()
        self.worker: WorkerHandle = client.worker()
        for name in AT_WORK:
            self.queue.add(name, {}, jobId=name, attempts=2)
            self.worker.claim_one(f"token-{name}")

    @cached_property
    def flow(self) -> FlowHandle:
        """A FlowProducer."""
        return self.client.flow()

    @cached_property
    def below(self) -> QueueHandle:
        """The queue of the children."""
        return self.client.queue("below")

    @cached_property
    def worker_below(self) -> WorkerHandle:
        """A worker of the children."""
        return self.client.worker(queue="below")

    def add(self, **opts: Any) -> None:
        """Add the job that is to move."""
        self.queue.add(MOVING, {}, jobId=MOVING, **opts)

    def claim(self, **opts: Any) -> None:
        """Add the job that is to move, and claim it."""
        self.add(**opts)
        self.worker.claim_one()

    def finish(self, *, failed: bool = False, **opts: Any) -> None:
        """Add the job that is to move, and finish it."""
        self.claim(**opts)
        if failed:
            self.worker.fail(MOVING)
        else:
            self.worker.complete(MOVING, {"done": True})

    def add_family(self, *, child: dict[str, Any] | None = None, **opts: Any) -> None:
        """Add the job that is to move as the parent of job `child` in the queue below; `child` are its options."""
        self.flow.add(node(MOVING, node("child", queue="below", **(child or {})), **opts))

    def release_by(self, outcome: str) -> None:
        """Claim the child, and end it as `complete` or `fail`."""
        self.worker_below.claim_one()
        if outcome == "complete":
            self.worker_below.complete("child")
        else:
            self.worker_below.fail("child")

    def pass_delay(self) -> None:
        """Let time pass until the delay of `SOON_MS` is over."""
        self.client.pass_time(2 * SOON_MS)


Act: TypeAlias = Callable[[Stage], object]


@dataclass(frozen=True)
class WayToWait:
    """One way: `prepare` leads to where `act` makes the job start to wait, in `place`: `wait` or `prioritized`."""

    prepare: Act
    act: Act
    place: str = "wait"
    job: Callable[[Stage], str] = lambda _stage: MOVING
    """Id of the job that starts to wait."""
    at_work: int = len(AT_WORK)
    """How many jobs are active when it starts to wait."""


def _nothing(_stage: Stage) -> None:
    """Nothing has to be prepared."""


def _add(**opts: Any) -> Act:
    return lambda stage: stage.add(**opts)


def _claim(**opts: Any) -> Act:
    return lambda stage: stage.claim(attempts=3, **opts)


def _finish(*, failed: bool = False, **opts: Any) -> Act:
    return lambda stage: stage.finish(failed=failed, **opts)


def _family(*, child: dict[str, Any] | None = None, **opts: Any) -> Act:
    return lambda stage: stage.add_family(child=child, **opts)


def _add_bulk(stage: Stage) -> None:
    stage.queue.add_bulk(("other", {}, {}), (MOVING, {}, {"jobId": MOVING}))


def _change_priority(priority: int, *, lifo: bool = False) -> Act:
    return lambda stage: stage.queue.call(job_ops.ChangePriority(job=MOVING, priority=priority, lifo=lifo))


def _promote(stage: Stage) -> None:
    stage.queue.promote(MOVING)


def _promote_all(stage: Stage) -> None:
    stage.queue.call(queue_ops.PromoteJobs())


def _claim_when_due(stage: Stage) -> None:
    stage.pass_delay()
    stage.worker.claim("token-next")


def _fetch_next_when_due(stage: Stage) -> None:
    stage.pass_delay()
    stage.worker.complete("running", token="token-running", fetch_next=True)


def _retry_another_when_due(stage: Stage) -> None:
    stage.pass_delay()
    stage.worker.fail("running", token="token-running")


def _fail(stage: Stage) -> None:
    stage.worker.fail(MOVING)


def _give_back(stage: Stage) -> None:
    stage.worker.call(worker_ops.MoveToWait(job=MOVING, token="token-1"))


def _stall(stage: Stage) -> None:
    let_stall(stage.queue, stage.worker, MOVING)


def _retry_by_hand(state: str) -> Act:
    return lambda stage: stage.queue.retry(MOVING, state)


def _retry_all_failed(stage: Stage) -> None:
    stage.queue.call(queue_ops.RetryJobs(state="failed"))


def _retry_all_completed(stage: Stage) -> None:
    stage.queue.call(queue_ops.RetryJobs(state="completed"))


def _release_by(outcome: str) -> Act:
    return lambda stage: stage.release_by(outcome)


def _remove_child(stage: Stage) -> None:
    stage.below.remove("child")


def _unlink_child(stage: Stage) -> None:
    stage.below.call(job_ops.RemoveChildDependency(job="child"))


def _remove_unprocessed(stage: Stage) -> None:
    stage.queue.call(job_ops.RemoveUnprocessedChildren(job=MOVING))


def _drain_children(stage: Stage) -> None:
    stage.below.call(queue_ops.Drain())


def _clean_children(stage: Stage) -> None:
    stage.client.pass_time(SOON_MS)
    stage.below.call(queue_ops.Clean(grace_ms=0, limit=10, type="wait"))


def _obliterate_children(stage: Stage) -> None:
    stage.below.call(queue_ops.Obliterate())


def _finish_child_before(stage: Stage) -> None:
    """The child is there, and completed, before its parent is."""
    stage.below.add("child", {}, jobId="child")
    stage.worker_below.complete(stage.worker_below.claim_one().id, {"done": True})


def _schedule(**opts: Any) -> Act:
    return lambda stage: stage.queue.schedule("s", {"every": HOUR_MS}, **opts)


_SCHEDULED = partial(WayToWait, _nothing, job=lambda stage: current_job(stage.queue))

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
    "promoted-together": WayToWait(_add(delay=LATER_MS), _promote_all),
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
    "child-is-unlinked": WayToWait(_family(), _unlink_child),
    "children-are-removed": WayToWait(_family(), _remove_unprocessed),
    "child-is-drained": WayToWait(_family(), _drain_children),
    "child-is-cleaned": WayToWait(_family(), _clean_children),
    "child-is-obliterated": WayToWait(_family(), _obliterate_children),
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


def _pause(stage: Stage) -> None:
    stage.queue.pause()


def _fill_up(stage: Stage) -> None:
    """Exactly as many jobs as the queue allows are active when the job starts to wait: one place more would be room."""
    stage.queue.call(queue_ops.SetGlobalConcurrency(concurrency=stage.at_work))


def _leave_room(stage: Stage) -> None:
    """The queue has a limit, and room for more."""
    stage.queue.call(queue_ops.SetGlobalConcurrency(concurrency=9))


def _lose_meta(stage: Stage) -> None:
    stage.queue.redis.delete("meta")


QUEUE_STATES: dict[str, Act] = {
    "with-room": _leave_room,
    "paused": _pause,
    "full": _fill_up,
    "without-meta": _lose_meta,
}
"""What a queue may be like when a job starts to wait in it."""


def start_to_wait(client: Participant, how: str, queue_state: str | Act) -> tuple[Stage, str]:
    """Bring a job to where it can start to wait, the queue into a state, other jobs beside it, and make it wait.

    `queue_state`: one of QUEUE_STATES, or what makes another. The markers of what was before are gone. Returns the
    stage, and the id of the job.
    """
    way = WAYS[how]
    stage = Stage(client, at_work=way.at_work)
    way.prepare(stage)
    stage.queue.add("neighbour", {}, jobId="neighbour")
    stage.queue.add("neighbour", {}, jobId="urgent neighbour", priority=3)
    change = QUEUE_STATES[queue_state] if isinstance(queue_state, str) else queue_state
    change(stage)
    stage.queue.redis.delete("marker")
    way.act(stage)
    return stage, way.job(stage)
