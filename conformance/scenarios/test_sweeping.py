"""Draining, cleaning and obliterating queues that hold something of everything: what goes, and what is spared."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import HOUR_MS, YEARLY, current_job

SECOND_MS = 1000
LATER_MS = 60_000

CleanedState = Literal["completed", "wait", "waiting", "active", "paused", "prioritized", "delayed", "failed"]
OPTIONS: dict[str, dict[str, Any]] = {"delayed": {"delay": LATER_MS}, "prioritized": {"priority": 3}}
OLD = ("old-1", "old-2", "old-3")


def _bring(client: Participant, queue: QueueHandle, job: str, state: str) -> None:
    """Add a job, and bring it into a state. No other may wait in the queue that a worker would take first."""
    queue.add(job, {}, jobId=job, **OPTIONS.get(state, {}))
    if state in ("active", "completed", "failed"):
        worker = client.worker(queue=queue.queue_name)
        worker.claim_one(f"token-{job}")
        if state == "completed":
            worker.complete(job, token=f"token-{job}")
        if state == "failed":
            worker.fail(job, token=f"token-{job}")
    if state == "active":
        queue.redis.delete(f"{job}:lock")


@pytest.mark.parametrize("limit", [0, 1, 2, 9])
@pytest.mark.parametrize(
    "state", ["completed", "wait", "waiting", "active", "paused", "prioritized", "delayed", "failed"]
)
@scenario("getters.clean", "scheduler.job-protected", tier="full", cases={"paused-*": "<6", "waiting-*": ">=5.56.8"})
@also_in_core("paused-0")
def test_cleaning_takes_the_oldest_of_a_state(client: Participant, state: CleanedState, limit: int) -> None:
    """Not more than the limit, none that is young, and not the job of a scheduler or one that is locked."""
    queue = client.queue()
    if state == "paused":
        queue.pause()
    for job in OLD:
        _bring(client, queue, job, state)
        client.pass_time(SECOND_MS if client.clock.frozen else 5)
    if state == "active":
        queue.add("locked", {}, jobId="locked", lifo=True)
        client.worker().claim_one("token-locked")
        client.pass_time(SECOND_MS if client.clock.frozen else 5)
    if client.clock.frozen:  # else a busy machine makes it old
        _bring(client, queue, "young", state)
    if state in ("wait", "waiting", "paused", "prioritized", "delayed"):
        queue.schedule("s", YEARLY if state == "delayed" else {"every": HOUR_MS}, **OPTIONS.get(state, {}))
    grace_ms = SECOND_MS // 2 if client.clock.frozen else 0
    cleaned = queue.call(queue_ops.Clean(grace_ms=grace_ms, limit=limit, type=state)).ids
    equal(sorted(job for job in OLD if not queue.redis.exists(job)), sorted(cleaned), "the cleaned jobs are gone")
    holds(not limit or len(cleaned) <= limit, "not more than the limit is cleaned", seen=cleaned)
    holds(limit == 1 or len(cleaned) > 1, "and as many as there may be", seen=cleaned)


@pytest.mark.parametrize("state", ["completed", "wait", "active", "prioritized", "delayed", "failed"])
@scenario("getters.clean", tier="full")
def test_a_job_is_cleaned_at_the_end_of_its_grace(client: Participant, state: CleanedState) -> None:
    """A job that is as old as the grace period goes, to the ms; one that is a ms younger stays."""
    queue = client.queue()
    _bring(client, queue, "old", state)
    client.pass_time(1)
    _bring(client, queue, "younger", state)
    client.pass_time(SECOND_MS - 1)
    # On a running clock the age of a job is not known to the ms: use a grace that no job reaches.
    grace_ms = SECOND_MS if client.clock.frozen else 10 * SECOND_MS
    cleaned = queue.call(queue_ops.Clean(grace_ms=grace_ms, limit=10, type=state)).ids
    equal(cleaned, ["old"] if client.clock.frozen else [], "only jobs that have reached the grace are cleaned")
    left = [job for job in ("old", "younger") if queue.redis.exists(job)]
    equal(left, ["younger"] if client.clock.frozen else ["old", "younger"], "the other is left")


@scenario("getters.clean")
def test_the_grace_of_a_retry_begins_when_it_was_tried(client: Participant) -> None:
    """A job that was added long ago, and has failed just now, is not cleaned while it is put off."""
    queue, worker = client.queue(), client.worker()
    queue.add("shaky", {}, jobId="shaky", attempts=2, backoff=LATER_MS)
    client.pass_time(10 * SECOND_MS)
    worker.claim_one()
    worker.fail("shaky")
    equal(queue.redis.state("shaky"), ["delayed"], "the job is delayed")
    cleaned = queue.call(queue_ops.Clean(grace_ms=5 * SECOND_MS, limit=10, type="delayed")).ids
    equal(cleaned, [], "nothing is cleaned")
    equal(queue.redis.exists("shaky"), True, "the job is there")


@pytest.mark.parametrize("delayed", [False, True], ids=["keep-delayed", "with-delayed"])
@pytest.mark.parametrize("queue_is", ["running", "paused"])
@pytest.mark.parametrize("state", ["wait", "prioritized", "delayed"])
@scenario("getters.drain", "scheduler.job-protected", tier="full")
@also_in_core("delayed-running-True")
def test_draining_spares_the_jobs_of_schedulers(client: Participant, state: str, queue_is: str, delayed: bool) -> None:
    """All waiting jobs are removed, except those of schedulers."""
    queue = client.queue()
    if queue_is == "paused":
        queue.pause()
    repeat: dict[str, Any] = YEARLY if state == "delayed" else {"every": HOUR_MS}
    template: dict[str, Any] = {"priority": 3} if state == "prioritized" else {}
    # The schedulers come first: of a list Node takes as many jobs as it drains from the left end, and not the drained.
    for scheduler in ("s", "t"):
        queue.schedule(scheduler, repeat, **template)
    for job, opts in (("plain", {}), ("urgent", {"priority": 2}), ("late", {"delay": LATER_MS})):
        queue.call(queue_ops.Add(name=job, opts={"jobId": job, **opts}))
    queue.call(queue_ops.Drain(delayed=delayed))
    spared = [queue.redis.exists(current_job(queue, scheduler)) for scheduler in ("s", "t")]
    equal(spared, [True, True], "the jobs of the schedulers are spared")
    left = [job for job in ("plain", "urgent", "late") if queue.redis.exists(job)]
    equal(left, [] if delayed else ["late"], "everything else is gone")


MANY = 8200
"""More than the results of one call that Lua can pass on (8000)."""


@pytest.mark.parametrize("state", ["prioritized", "delayed"])
@scenario("getters.drain", tier="full", compare=False)
def test_draining_thousands(client: Participant, state: str) -> None:
    """However many jobs there are, all are removed."""
    queue = client.queue(streams={"events": {"maxLen": 100}})
    for _ in range(MANY // 200):
        queue.add_bulk(*(("job", {}, OPTIONS[state]) for _ in range(200)))
    equal(len(queue.redis.members(state)), MANY, "the jobs wait")
    queue.call(queue_ops.Drain(delayed=True))
    left = [name for name in (state, "1", str(MANY)) if queue.redis.exists(name)]
    equal(left, [], "no job is left")


@pytest.mark.parametrize("count", [1, 2, 3, 5, 100])
@scenario("getters.obliterate", "metrics.removed", tier="full")
@also_in_core("1 | 2 | 3")
def test_obliterating_in_small_steps(client: Participant, count: int) -> None:
    """However few jobs go at a time, nothing is left."""
    queue = client.queue()
    for state in ("completed", "failed", "active"):
        for number in (1, 2):
            _bring(client, queue, f"{state}-{number}", state)
    queue.schedule("s", YEARLY)
    queue.schedule("t", {"every": HOUR_MS})
    for state in ("wait", "prioritized", "delayed"):
        for number in (1, 2):
            _bring(client, queue, f"{state}-{number}", state)
    queue.call(queue_ops.Obliterate(force=True, count=count))
    equal(list(queue.redis.types()), [], "no key of the queue is left")
