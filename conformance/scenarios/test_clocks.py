"""A clock that is set back: what was due is due by its score, and nothing is done twice or lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import equal
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import HOUR_MS, YEARLY, claim_current_job

MINUTE_MS = 60_000


def _complete(queue: QueueHandle, worker: WorkerHandle) -> None:
    worker.complete("running")
    queue.call(queue_ops.GetMetrics(type="completed"))


def _fail(queue: QueueHandle, worker: WorkerHandle) -> None:
    worker.fail("running", unrecoverable=True)
    queue.call(queue_ops.GetMetrics(type="failed"))


SET_BACK = {
    "due-scores": "the clock was set back after the job was added",
    "times-in-order": "the clock was set back after the job was added",
}

DEEDS: dict[str, Callable[[QueueHandle, WorkerHandle], object]] = {
    "promote": lambda queue, _worker: queue.promote("late"),
    "change-delay": lambda queue, _worker: queue.call(job_ops.ChangeDelay(job="late", delay_ms=MINUTE_MS // 2)),
    "add-delayed": lambda queue, _worker: queue.add("earlier", {}, jobId="earlier", delay=MINUTE_MS // 2),
    "complete": _complete,
    "fail": _fail,
    "put-off": lambda _queue, worker: worker.fail("running"),
    "clean": lambda queue, _worker: queue.call(queue_ops.Clean(grace_ms=0, limit=10, type="completed")),
    "retry-all": lambda queue, _worker: queue.call(queue_ops.RetryJobs(state="completed")),
    "retry": lambda queue, _worker: queue.retry("done", "completed"),
    "scheduler-goes-on": lambda queue, worker: worker.complete(claim_current_job(queue, worker)),
    "schedule-again": lambda queue, _worker: queue.schedule("s", {"every": HOUR_MS}, data={"n": 2}),
    "schedule-pattern": lambda queue, _worker: queue.schedule("t", YEARLY),
}
"""Operations after the clock was changed."""


@pytest.mark.parametrize("minutes", [-300, -2, 200], ids=["hours-back", "minutes-back", "hours-ahead"])
@pytest.mark.parametrize("deed", DEEDS)
@scenario("lifecycle.one-state", "order.delayed.score", "metrics.points", tier="full", without=SET_BACK)
@also_in_core("schedule-again-200")
def test_the_clock_is_changed(client: Participant, deed: str, minutes: int) -> None:
    """Wherever the clock stands, a job is in one place, and its times are those of the clock."""
    queue, worker = client.queue(), client.worker(metrics={"maxDataPoints": 20})
    for job in ("done", "running"):
        queue.add(job, {}, jobId=job, attempts=3, backoff=1000, removeOnComplete={"count": 2, "age": 30})
        client.pass_time(MINUTE_MS if client.clock.frozen else 5)
        worker.claim_one()
        if job == "done":
            worker.complete(job)
    queue.add("late", {}, jobId="late", delay=MINUTE_MS, priority=2)
    queue.schedule("s", {"every": HOUR_MS})
    # Only a frozen clock can be set back; the other cases then check the same steps without it.
    if client.clock.frozen:
        client.pass_time(minutes * MINUTE_MS)
    DEEDS[deed](queue, worker)
    places = {job: queue.redis.state(job) for job in ("running", "late")}
    equal({job: len(found) for job, found in places.items()}, {"running": 1, "late": 1}, "each job is in one place")
