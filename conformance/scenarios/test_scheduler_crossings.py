"""Job schedulers in queues that are paused or full, late ones, and those that are changed at any moment."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import HOUR_MS, START_MS, YEARLY, claim_current_job, current_job, due_of
from conformance.scenarios.support.waiting import QUEUE_STATES, open_busy_queue

TEMPLATES: dict[str, dict[str, Any]] = {
    "plain": {},
    "lifo": {"lifo": True},
    "prioritized": {"priority": 3},
    "deduplicated": {"deduplication": {"id": "its", "ttl": 60_000}},
    "brief": {"removeOnComplete": True, "attempts": 2, "backoff": 1000},
}


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("queue_state", QUEUE_STATES)
@scenario("scheduler.next", "paused.everything-parks", "concurrency.no-marker", tier="full", cases={"paused-*": "<6"})
@also_in_core(
    "full-lifo | full-prioritized | paused-deduplicated | paused-plain | with-room-lifo | with-room-prioritized | "
    "without-meta-deduplicated | without-meta-lifo"
)
def test_the_next_job_is_made_while_the_queue_changes(client: Participant, queue_state: str, template: str) -> None:
    """Between the claim and the making of the next job: that one is due at once, and waits where it then has to."""
    prepared = open_busy_queue(client, at_work=3)  # with the job that is claimed
    queue, opts = prepared.queue, TEMPLATES[template]
    queue.schedule("s", {"every": HOUR_MS}, **opts)
    first = current_job(queue)
    if client.clock.frozen:
        client.pass_time(HOUR_MS)  # to the ms
    with client.tap.hold("updateJobScheduler") as barrier:
        claiming = client.meanwhile(prepared.worker.claim_one)
        barrier.wait()
        QUEUE_STATES[queue_state](prepared)
        barrier.release()
        claiming.result()
    following = current_job(queue)
    holds(following != first, "there is a next job", seen=following)
    home = "prioritized" if "priority" in opts else "paused" if queue_state == "paused" else "wait"
    place = home if client.clock.frozen else "delayed"
    equal(queue.redis.state(following), [place], "it is where it has to be")


@pytest.mark.parametrize("hours", [0, 1, 2, 5])
@pytest.mark.parametrize("start", [False, True], ids=["now", "start-date"])
@scenario("scheduler.next", "scheduler.every.start", tier="full")
@also_in_core("2-False | 2-True")
def test_a_late_claim(client: Participant, hours: int, start: bool) -> None:
    """Intervals that have passed are left out; two schedulers that are due in the same ms do not disturb each other."""
    queue, worker = client.queue(), client.worker()
    repeat: dict[str, Any] = {"every": HOUR_MS}
    if start:
        repeat["startDate"] = client.clock.now_ms() + 1234 if client.clock.frozen else START_MS
    for scheduler in ("s", "t"):
        queue.schedule(scheduler, repeat, data={"of": scheduler})
    if client.clock.frozen:
        client.pass_time(hours * HOUR_MS + 2000)
    for scheduler in ("s", "t"):
        before = due_of(queue, scheduler)
        worker.complete(claim_current_job(queue, worker, scheduler))
        holds(due_of(queue, scheduler) > before, "the next job is due later", seen=due_of(queue, scheduler))
    equal(len(queue.redis.members("delayed")), 2, "each has one next job")


CHANGES: dict[str, dict[str, Any]] = {
    "the-same": {"every": HOUR_MS},
    "shorter": {"every": HOUR_MS // 2},
    "limited": {"every": HOUR_MS, "limit": 2},
    "with-an-end": {"every": HOUR_MS, "endDate": 4_000_000_000_000},
    "with-a-start": {"every": HOUR_MS, "startDate": 3_000_000_000_123},
    "with-an-offset": {"every": HOUR_MS, "offset": 5000},
    "a-pattern": YEARLY,
}
MOMENTS = ("waiting", "parked", "urgent", "delayed", "active", "completed", "failed", "removed")


def _bring(client: Participant, moment: str) -> QueueHandle:
    """Make scheduler `s`, and bring its current job to where it is when the scheduler is changed; returns the queue."""
    queue = client.queue()
    if moment == "parked":
        queue.pause()
    if moment == "delayed":
        queue.schedule("s", {"every": HOUR_MS, "startDate": START_MS}, data={"n": 1})
    else:
        template: dict[str, Any] = {"priority": 4} if moment == "urgent" else {}
        queue.schedule("s", {"every": HOUR_MS}, data={"n": 1}, **template)
    if moment in ("active", "completed", "failed"):
        worker = client.worker()
        job = claim_current_job(queue, worker)
        if moment == "completed":
            worker.complete(job)
        if moment == "failed":
            worker.fail(job)
    if moment == "removed":
        queue.unschedule("s")
    return queue


@pytest.mark.parametrize("template", ["plain", "prioritized", "deduplicated"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("moment", MOMENTS)
@scenario("scheduler.upsert.pending", "scheduler.record", tier="full")
@also_in_core("parked-shorter-deduplicated | removed-the-same-plain | urgent-with-an-offset-deduplicated")
def test_a_scheduler_is_changed(client: Participant, moment: str, change: str, template: str) -> None:
    """At every moment an upsert leaves exactly one job due next, made from the new template."""
    queue = _bring(client, moment)
    job = queue.schedule("s", CHANGES[change], data={"n": 2}, **TEMPLATES[template])
    upcoming = current_job(queue)
    equal(job.id if job else None, upcoming, "the answer is the job that is to come")
    equal(queue.redis.field(upcoming, "data"), '{"n":2}', "it is made of the new template", where="job.data")
    holds(len(queue.redis.state(upcoming)) == 1, "it is in one place", seen=queue.redis.state(upcoming))
    queue.scheduler("s")
