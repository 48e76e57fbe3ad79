"""Which finished jobs, log rows and events are kept, and which are removed to make room."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import between, equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import wait_for_finished

ABOUT = 250
"""How much longer than its limit a stream may be: Redis trims whole nodes of about 100 entries."""

FINISHED = ["completed", "failed"]

FORGOTTEN = {"one-state": "these releases leave hashes of removed jobs behind, which is what the scenario is about"}


def _complete(queue: QueueHandle, worker: WorkerHandle, **opts: Any) -> str:
    job = queue.add("work", {}, **opts)
    worker.complete(worker.claim_one().id)
    return job


# Jobs.


@pytest.mark.parametrize(
    ("keep", "kept"),
    [({"age": 1, "count": 2}, ["3"]), ({"age": 100, "count": 1}, ["3"]), ({"age": 100, "count": 2}, ["2", "3"])],
    ids=["age-is-stricter", "count-is-stricter", "count-of-two"],
)
@scenario("retention.age-and-count")
def test_age_and_count_hold_together(client: Participant, keep: dict[str, int], kept: list[str]) -> None:
    """Jobs older than `age` are removed, and of the rest those above `count`."""
    queue, worker = client.queue(), client.worker()
    _complete(queue, worker)
    client.pass_time(5)
    _complete(queue, worker)
    client.pass_time(1500)
    _complete(queue, worker, removeOnComplete=keep)
    equal(queue.redis.members("completed"), kept, "both rules hold")


@pytest.mark.parametrize("state", FINISHED)
@scenario("retention.limit-ignored", "lifecycle.one-state", bullmq="<5.66.6")
def test_a_limit_on_removals_is_ignored(client: Participant, state: str) -> None:
    """However many jobs are too old, all of them go at once."""
    queue = client.queue()
    _let_three_get_too_old_and_remove_one(client, queue, state)
    equal(queue.redis.members(state), ["4"], "all three old jobs are gone")
    equal([job for job in ("1", "2", "3") if queue.redis.exists(job)], [], "and so are their hashes")


@pytest.mark.parametrize("state", FINISHED)
@scenario("retention.limit-forgets", bullmq=">=5.66.6,<5.70.2", without=FORGOTTEN)
def test_a_limit_on_removals_forgets_the_others(client: Participant, state: str) -> None:
    """All jobs that are too old leave the set, but only `limit` hashes are removed; the others are never removed."""
    queue = client.queue()
    _let_three_get_too_old_and_remove_one(client, queue, state)
    equal(queue.redis.members(state), ["4"], "all three old jobs have left the set")
    equal([job for job in ("1", "2", "3") if queue.redis.exists(job)], ["1", "2"], "the hash of the youngest is gone")


@pytest.mark.parametrize("state", FINISHED)
@scenario("retention.limit", bullmq=">=5.70.2")
def test_a_limit_on_removals_is_kept(client: Participant, state: str) -> None:
    """Each finish removes up to `limit` of the jobs that are too old, the youngest first."""
    queue = client.queue()
    _let_three_get_too_old_and_remove_one(client, queue, state)
    equal(queue.redis.members(state), ["1", "2", "4"], "the youngest of the three old jobs is gone")


def _let_three_get_too_old_and_remove_one(client: Participant, queue: QueueHandle, state: str) -> None:
    worker = client.worker()
    keep: dict[str, Any] = {"removeOnComplete" if state == "completed" else "removeOnFail": {"age": 1, "limit": 1}}
    for opts in ({}, {}, {}, keep):
        client.pass_time(1500 if opts else 5)
        queue.add("work", {}, **opts)
        if state == "completed":
            worker.complete(worker.claim_one().id)
        else:
            worker.fail(worker.claim_one().id)


@scenario("retention.age-zero")
def test_an_age_of_zero_keeps_nothing(client: Participant) -> None:
    """The job that has this rule is removed by it too."""
    queue, worker = client.queue(), client.worker()
    _complete(queue, worker)
    _complete(queue, worker, removeOnComplete={"age": 0})
    left = [name for name in ("1", "2", "completed") if queue.redis.exists(name)]
    equal(left, [], "no completed job is left")


@pytest.mark.parametrize("keep", [False, -1, {"count": -1}], ids=["false", "negative", "negative-count"])
@scenario("retention.keep-all")
def test_everything_is_kept(client: Participant, keep: Any) -> None:
    """False and negative counts keep every job."""
    queue, worker = client.queue(), client.worker()
    for _ in range(3):
        _complete(queue, worker, removeOnComplete=keep)
    equal(sorted(queue.redis.members("completed")), ["1", "2", "3"], "all jobs are kept")


@scenario("retention.last-one-decides")
def test_the_finishing_job_decides_for_all(client: Participant) -> None:
    """A job that wants to be kept is not safe from the rule of another one."""
    queue, worker = client.queue(), client.worker()
    _complete(queue, worker, removeOnComplete=False)
    queue.add("doomed", {}, removeOnFail=False)
    worker.fail(worker.claim_one().id)
    client.pass_time(5)
    _complete(queue, worker, removeOnComplete=1)
    equal(queue.redis.members("completed"), ["3"], "the first job made room")
    equal(queue.redis.members("failed"), ["2"], "the failed job stays")


@pytest.mark.parametrize("rule", ["count", "age"])
@scenario("retention.silent")
def test_jobs_go_silently(client: Participant, rule: str) -> None:
    """Jobs removed to make room leave neither keys nor events."""
    queue, worker = client.queue(), client.worker()
    queue.add("old")
    queue.log("1", "a row")
    worker.complete(worker.claim_one().id)
    client.pass_time(1500)
    _complete(queue, worker, removeOnComplete={rule: 1})
    equal(queue.redis.members("completed"), ["2"], "one job goes", where=f"row.lifecycle.remove-on-complete.{rule}")
    equal([queue.redis.exists(name) for name in ("1", "1:logs", "2")], [False, False, True], "hash and log are gone")
    names = {"added", "waiting", "active", "completed", "drained"}
    equal({*queue.redis.event_names()} - names, set(), "there is no event about it")


# Logs.


@scenario("retention.logs", clock="real")
def test_a_job_limits_its_own_log(client: Participant) -> None:
    """`keepLogs` is for rows that the processor writes."""
    queue = client.queue()
    queue.add("talkative", {"steps": [{"do": "log", "row": f"row {number}"} for number in range(5)]}, keepLogs=2)
    client.worker("steps")
    wait_for_finished(client, 1)
    equal(queue.redis.elements("1:logs"), ["row 3", "row 4"], "the newest two rows are kept")
    equal(queue.log("1", "from outside"), 3, "a row added from outside has no limit")
    equal(queue.redis.elements("1:logs"), ["row 3", "row 4", "from outside"], "it is appended")


# Events.


@scenario("retention.events.newest")
def test_trimming_drops_the_oldest(client: Participant) -> None:
    """The newest entries are all there."""
    queue, worker = client.queue(streams={"events": {"maxLen": 100}}), client.worker()
    queue.add_bulk(*(("job", {}, {}) for _ in range(400)))
    worker.complete(worker.claim_one().id)
    queue.add("newest")
    entries = queue.redis.events()
    between(len(entries), 100, 100 + ABOUT, "the stream is near its limit of 100 entries")
    names = [entry["event"] for entry in entries[-4:]]
    equal(names, ["active", "completed", "added", "waiting"], "the newest entries are kept")
    holds("1" not in {entry.get("jobId") for entry in entries[:-4]}, "the oldest are gone", seen=entries[0])


@scenario("retention.events.by-hand")
def test_events_are_trimmed_by_hand(client: Participant) -> None:
    """The answer is what Redis says: how many entries went."""
    queue = client.queue()
    queue.add_bulk(*(("job", {}, {}) for _ in range(300)))
    equal(queue.call(queue_ops.TrimEvents(max_length=1000)).count, 0, "nothing is trimmed below the limit")
    went = queue.call(queue_ops.TrimEvents(max_length=200)).count
    left = queue.redis.events()
    between(len(left), 200, 200 + ABOUT, "the stream is near its new length")
    equal(went, 600 - len(left), "the answer is the number of entries that went")
    equal(left[-1], {"event": "waiting", "jobId": "300"}, "the newest entry is still there")
    queue.call(queue_ops.TrimEvents(max_length=0))
    equal(queue.redis.events(), [], "a length of 0 leaves nothing")


@scenario("retention.events.last-queue-wins")
def test_the_last_queue_sets_the_limit(client: Participant) -> None:
    """A Queue that is created without a limit restores the default."""
    queue = client.queue(streams={"events": {"maxLen": 77}})
    queue.add("first")
    equal(queue.redis.field("meta", "opts.maxLenEvents"), "77", "the queue's own limit is stored")
    # Node sends a queue's settings without waiting for the reply: only a command after them says that they are there.
    client.queue().add("second")
    client.eventually(
        lambda: queue.redis.field("meta", "opts.maxLenEvents"),
        lambda limit: limit == "10000",
        "the default replaces it",
    )
