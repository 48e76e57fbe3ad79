"""Scores, order and markers: the numbers by which every client finds the next job."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops import worker as worker_ops
from conformance.participants.expect import equal, holds
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import let_stall

DUE_FACTOR = 4096
CLASS_WIDTH = 2**32


@scenario("order.delayed.score", tier="smoke")
def test_the_score_of_a_delayed_job(client: Participant) -> None:
    """The due time in ms, times 4096."""
    queue = client.queue()
    queue.add("later", {}, delay=5000, timestamp=1_700_000_000_000)
    equal(
        queue.redis.score("delayed", "1"),
        1_700_000_005_000 * DUE_FACTOR,
        "the score is the due time times 4096",
        where="membership.delayed.score",
    )


# As many jobs as the low bits can count, so that the ids of the next ones start again in these bits.
@pytest.mark.parametrize("before", [0, DUE_FACTOR - 2], ids=["first-ids", "ids-beyond-the-low-bits"])
@scenario("order.delayed.same-ms")
def test_jobs_due_in_the_same_ms_keep_their_order(client: Participant, before: int) -> None:
    """The low bits count the jobs of one ms."""
    queue = client.queue()
    if before:
        queue.redis.set_string("id", str(before))
    ids = [queue.add(name, {}, delay=5000, timestamp=1_700_000_000_000) for name in ("a", "b", "c")]
    # Of the client itself: whether the time is right is another requirement.
    first = int(queue.redis.score("delayed", ids[0]) or 0)
    equal(queue.redis.zset("delayed"), list(zip(ids, range(first, first + 3), strict=True)), "the scores are one apart")


@scenario("order.delayed.same-ms")
def test_jobs_put_off_to_the_same_ms_keep_their_order(client: Participant) -> None:
    """Whether they were added for that time or put off by their workers."""
    queue, worker = client.queue(), client.worker()
    due = client.clock.now_ms() + 60_000
    for job in ("1", "2", "3"):
        queue.add(job)
        worker.claim_one(f"token-{job}")
        worker.call(worker_ops.MoveToDelayed(job=job, token=f"token-{job}", timestamp=due))
    first = due * DUE_FACTOR
    equal(queue.redis.zset("delayed"), [("1", first), ("2", first + 1), ("3", first + 2)], "the scores are one apart")


@scenario("order.delayed.same-ms", tier="full")
def test_jobs_whose_delay_is_changed_to_the_same_ms_keep_their_order(client: Participant) -> None:
    """The one that is changed last comes last, whichever was added first."""
    queue = client.queue()
    for _ in range(3):
        queue.add("later", {}, delay=5000)
    for job in ("3", "1", "2"):
        queue.call(job_ops.ChangeDelay(job=job, delay_ms=60_000))
    equal(queue.redis.members("delayed"), ["3", "1", "2"], "they are due in the order of the changes")
    scores = [score for _, score in queue.redis.zset("delayed")]
    if client.clock.frozen:
        equal([score - scores[0] for score in scores], [0, 1, 2], "the scores are one apart")


@scenario("order.prioritized.score", tier="smoke")
def test_the_score_of_a_prioritized_job(client: Participant) -> None:
    """Priority in the high bits, the counter in the low ones."""
    queue = client.queue()
    for priority in (5, 1, 5, 2_097_151):  # the highest that every version takes
        queue.add("job", {}, priority=priority)
    wanted = [("2", CLASS_WIDTH + 2), ("1", 5 * CLASS_WIDTH + 1), ("3", 5 * CLASS_WIDTH + 3)]
    equal(queue.redis.zset("prioritized")[:3], wanted, "each score is priority and counter")


@scenario("order.due.promoted", "event.waiting")
def test_due_jobs_are_promoted_in_order(client: Participant) -> None:
    """A claim promotes what is due, the earliest first, and nothing else."""
    queue, worker = client.queue(), client.worker()
    queue.add("third", {}, delay=30, timestamp=1_700_000_000_000)
    queue.add("first", {}, delay=10, timestamp=1_700_000_000_000)
    queue.add("second", {}, delay=20, timestamp=1_700_000_000_000)
    queue.add("not yet", {}, delay=60_000)
    client.pass_time(60)
    order = [worker.claim_one(f"token-{number}").name for number in range(3)]
    equal(order, ["first", "second", "third"], "due jobs run in the order of their due times")
    equal(worker.claim("token-4"), None, "a job that is not due is not handed out")
    equal(queue.redis.state("4"), ["delayed"], "it is still delayed")


@scenario("order.due.prioritized")
def test_a_due_prioritized_job_is_promoted_by_priority(client: Participant) -> None:
    """After its delay a priority counts again."""
    queue, worker = client.queue(), client.worker()
    queue.add("delayed and urgent", {}, delay=20, priority=1)
    queue.add("delayed and less urgent", {}, delay=20, priority=5)
    queue.add("least urgent", {}, priority=9)
    client.pass_time(50)
    equal(worker.claim_one("token-1").id, "1", "the most urgent job runs first")
    equal(queue.redis.members("prioritized"), ["2", "3"], "the other due job waits by its priority")


@pytest.mark.parametrize("opts", [{}, {"priority": 2}, {"lifo": True}], ids=["plain", "prioritized", "lifo"])
@scenario("order.marker.base")
def test_a_runnable_job_sets_the_base_marker(client: Participant, opts: dict[str, Any]) -> None:
    """Without marker an idle worker would sleep on."""
    queue = client.queue()
    queue.add("work", {}, **opts)
    equal(queue.redis.zset("marker"), [("0", 0.0)], "the base marker is set", where="marker.base")


@pytest.mark.parametrize("how", ["retried", "retried-together", "promoted", "promoted-together", "stalled"])
@scenario("order.marker.base")
def test_a_job_that_waits_again_sets_the_base_marker(client: Participant, how: str) -> None:
    """An idle worker has taken the marker: every way to `wait` sets it again."""
    queue, worker = client.queue(), client.worker()
    opts: dict[str, Any] = {"delay": 60_000} if how.startswith("promoted") else {}
    queue.add("work", {}, **opts)
    if not how.startswith("promoted"):
        worker.claim_one()
    if how.startswith("retried"):
        worker.fail("1")
    queue.redis.delete("marker")
    match how:
        case "retried":
            queue.retry("1")
        case "retried-together":
            queue.call(queue_ops.RetryJobs())
        case "promoted":
            queue.promote("1")
        case "promoted-together":
            queue.call(queue_ops.PromoteJobs())
        case _:
            let_stall(queue, worker, "1")
    equal(queue.redis.state("1"), ["wait"], "the job waits again")
    equal(queue.redis.zset("marker"), [("0", 0.0)], "the base marker is set", where="marker.base")


@pytest.mark.parametrize("counter", [2**31 - 2, 2**32 - 3], ids=["beyond-31-bits", "beyond-32-bits"])
@scenario("order.prioritized.score")
def test_the_counter_of_a_busy_queue(client: Participant, counter: int) -> None:
    """The counter starts again only in an idle queue, so it grows beyond 32 bits; a score takes its low 32 bits."""
    queue = client.queue()
    queue.redis.set_string("pc", str(counter))
    for priority in (2, 1, 2, 1):
        queue.add("urgent", {}, priority=priority)
    scores = [
        CLASS_WIDTH * priority + (counter + place) % CLASS_WIDTH for place, priority in enumerate((2, 1, 2, 1), 1)
    ]
    seen = [queue.redis.score("prioritized", str(number)) for number in range(1, 5)]
    equal(seen, [float(score) for score in scores], "each score has its class and its place in it")


@scenario("order.prioritized.counter-reset")
def test_the_priority_counter_starts_again(client: Participant) -> None:
    """The counter goes when a worker finds nothing prioritized, so that it cannot grow for ever."""
    queue, worker = client.queue(), client.worker()
    queue.add("urgent", {}, priority=2)
    worker.complete(worker.claim_one().id)
    equal(worker.claim(), None, "nothing is left")
    equal(queue.redis.type("pc"), "none", "the counter is gone", where="counter.pc")


@scenario("order.marker.delayed")
def test_a_delayed_job_sets_the_delay_marker(client: Participant) -> None:
    """The marker holds the ms of the earliest due job."""
    queue = client.queue()
    for delay in (9000, 5000, 7000):
        queue.add("later", {}, delay=delay, timestamp=1_700_000_000_000)
    wanted = [("1", 1_700_000_005_000.0)]
    equal(queue.redis.zset("marker"), wanted, "the marker holds the earliest time", where="marker.delay")


@scenario("order.meta", tier="smoke")
def test_the_meta_of_a_queue(client: Participant) -> None:
    """`meta` holds the event limit and the library that wrote it."""
    queue = client.queue()
    queue.add("work")
    meta = queue.redis.hash("meta")
    equal(meta.get("opts.maxLenEvents"), "10000", "the default event limit", where="meta.opts.maxLenEvents")
    holds(":" in meta.get("version", ""), "the version is `library:version`", seen=meta, where="meta.version")


@scenario("order.meta")
def test_the_library_of_a_queue_is_read(client: Participant) -> None:
    """`getVersion` returns the version in `meta`."""
    queue = client.queue()
    queue.add("work")  # a client that has only opened a queue may not have written yet
    stored = queue.redis.field("meta", "version")
    equal(queue.call(queue_ops.GetVersion()).value, stored, "the version is the one in `meta`")
    queue.redis.delete("meta")
    equal(queue.call(queue_ops.GetVersion()).value, None, "without `meta` there is none")


@scenario("order.meta")
def test_the_event_limit_can_be_set(client: Participant) -> None:
    """The queue's own setting goes to meta."""
    queue = client.queue(streams={"events": {"maxLen": 500}})
    queue.add("work")
    stored = queue.redis.field("meta", "opts.maxLenEvents")
    equal(stored, "500", "meta holds the setting", where="meta.opts.maxLenEvents")


@scenario("order.meta")
def test_a_queue_may_leave_the_settings_alone(client: Participant) -> None:
    """With `skipMetasUpdate` a queue that only reads or adds does not change what another one has set."""
    queue = client.queue(streams={"events": {"maxLen": 500}})
    queue.add("work")
    before = queue.redis.hash("meta")
    other = client.queue(skipMetasUpdate=True, streams={"events": {"maxLen": 700}})
    other.add("work")
    equal(queue.redis.hash("meta"), before, "the settings are those of the first queue", where="meta")


@scenario("key.plain", "order.no-other-keys")
def test_no_other_keys(client: Participant) -> None:
    """A queue that has been used leaves only BullMQ's keys."""
    queue, worker = client.queue(), client.worker()
    for number in range(2):
        queue.add("work", {"n": number})
    queue.add("work", {}, delay=60_000)
    queue.add("work", {}, priority=2)
    queue.add("work", {}, jobId="mine")
    queue.log("1", "a row")
    worker.complete(worker.claim_one().id)
