"""Rate limits: a window of starts that all workers of a queue share, opened, filled and forgotten."""

from __future__ import annotations

import pytest

from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops import worker as worker_ops
from conformance.participants.expect import between, equal
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import FULL_WINDOW, MINUTE_MS, after_window, apply_limit, fill, limit_queue


@pytest.mark.parametrize("whose", ["worker", "queue"])
@scenario("ratelimit.inside-the-claim", "ratelimit.window")
def test_claims_fill_the_window(client: Participant, whose: str) -> None:
    """`max` claims get a job, the next one gets none, until the window has ended."""
    queue = client.queue()
    limiter = apply_limit(whose, queue, 2)
    fill(queue, 4)
    worker = client.worker(**limiter)
    claimed = [worker.claim_one(f"token-{number}").id for number in (1, 2)]
    # A client that ignores the limit of the queue shows nothing about how claims count.
    where = "row.ratelimit.queue-wide" if whose == "queue" else ""
    equal((claimed, worker.claim("token-3")), (["1", "2"], None), "two claims get a job, not a third", where=where)
    equal(queue.redis.string("limiter"), "2", "the starts were counted, the refusal was not")
    between(queue.redis.ttl_ms("limiter"), 1, MINUTE_MS, "the window lasts for `duration`", where="limiter.ttl")
    equal(queue.redis.elements("wait"), ["4", "3"], "the other jobs still wait")
    # On a running clock a new worker, because the old one remembers the end of the window.
    worker = after_window(client, queue, worker, **limiter)
    equal(worker.claim_one("token-4").id, "3", "after the window the next job is handed out")
    equal(queue.redis.string("limiter"), "1", "a new window is open")


@scenario("ratelimit.inside-the-claim")
def test_a_reached_limit_takes_nothing(client: Participant) -> None:
    """The claim reads the counter before it changes a job."""
    limit = {"max": 3, "duration": MINUTE_MS}
    queue, worker = client.queue(), client.worker(limiter=limit)
    queue.add("urgent", {}, priority=1)
    # Set by hand, so that no claim of this scenario has changed a job yet.
    queue.redis.set_string("limiter", "3", ttl_ms=MINUTE_MS)
    equal(worker.claim(), None, "the limit is reached before the first claim")
    equal(queue.redis.state("1"), ["prioritized"], "the job was not touched")
    equal((queue.redis.field("1", "ats"), queue.redis.string("limiter")), (None, "3"), "no start was counted")
    worker = after_window(client, queue, worker, limiter=limit)
    equal(worker.claim_one().id, "1", "the job is handed out after the window")


@scenario("ratelimit.window")
def test_a_window_is_not_prolonged(client: Participant) -> None:
    """Later starts count, but the time of the window runs from its first."""
    queue, worker = client.queue(), client.worker(limiter={"max": 3, "duration": MINUTE_MS})
    fill(queue, 2)
    worker.claim_one("token-1")
    # A quarter of the window is left, so that a restart of the TTL would show.
    queue.redis.set_string("limiter", "1", ttl_ms=MINUTE_MS // 4)
    worker.claim_one("token-2")
    equal(queue.redis.string("limiter"), "2", "the second start is counted")
    between(queue.redis.ttl_ms("limiter"), 1, MINUTE_MS // 4, "the window ends when it would have", where="limiter.ttl")


@scenario("ratelimit.window")
def test_every_start_counts(client: Participant) -> None:
    """The second attempt of a job is a start like the first."""
    queue, worker = client.queue(), client.worker(limiter={"max": 2, "duration": MINUTE_MS})
    queue.add("shaky", {}, attempts=3)
    for token in ("token-1", "token-2"):
        worker.claim_one(token)
        worker.fail("1", token=token)
    equal(queue.redis.string("limiter"), "2", "both attempts were counted")
    equal(worker.claim("token-3"), None, "the third attempt is not handed out")
    equal(queue.redis.state("1"), ["wait"], "it waits for the next window")


@scenario("ratelimit.queue-wide")
def test_workers_share_the_window(client: Participant) -> None:
    """Starts of one worker count for the other, and `max` in `meta` counts and not the worker's."""
    queue = client.queue()
    limit_queue(queue, 2)
    fill(queue, 3)
    first, second = client.worker(name="first"), client.worker(limiter={"max": 5, "duration": MINUTE_MS})
    equal([first.claim_one("token-1").id, second.claim_one("token-2").id], ["1", "2"], "each starts one job")
    equal((first.claim("token-3"), second.claim("token-4")), (None, None), "the window is full for both")


@scenario("ratelimit.own-duration")
def test_the_workers_duration_wins(client: Participant) -> None:
    """The window lasts as long as the worker says, though the limit is the queue's."""
    queue, worker = client.queue(), client.worker(limiter={"max": 5, "duration": MINUTE_MS // 4})
    limit_queue(queue, 1)
    fill(queue, 1)
    worker.claim_one()
    between(queue.redis.ttl_ms("limiter"), 1, MINUTE_MS // 4, "the window is as long as the worker says")


@scenario("ratelimit.settings")
def test_the_limit_of_a_queue_is_in_meta(client: Participant) -> None:
    """Set, read and taken away; without it nothing is counted."""
    queue, worker = client.queue(), client.worker()
    equal(queue.call(queue_ops.GetGlobalRateLimit()).max, None, "at first there is no limit")
    limit_queue(queue, 7, 1234)
    meta = queue.redis.hash("meta")
    equal((meta.get("max"), meta.get("duration")), ("7", "1234"), "`meta` has both numbers")
    seen = queue.call(queue_ops.GetGlobalRateLimit())
    equal((seen.max, seen.duration_ms), (7, 1234), "they are read back")
    queue.call(queue_ops.RemoveGlobalRateLimit())
    equal(sorted({"max", "duration"} & queue.redis.hash("meta").keys()), [], "`meta` no longer has them")
    queue.add("unlimited")
    worker.claim_one()
    equal(queue.redis.value("limiter"), None, "without limit nothing is counted")


@pytest.mark.parametrize("whose", ["worker", "queue"])
@scenario("ratelimit.by-hand")
def test_a_limit_set_by_hand_stops_everything(client: Participant, whose: str) -> None:
    """`rateLimit(ms)` fills the window at once, for who knows a limit."""
    queue = client.queue()
    limiter = apply_limit(whose, queue, 1000)
    worker = client.worker(**limiter)
    fill(queue, 1)
    queue.call(queue_ops.SetRateLimit(expire_ms=MINUTE_MS))
    equal(queue.redis.string("limiter"), FULL_WINDOW, "the counter is above every limit")
    between(queue.redis.ttl_ms("limiter"), 1, MINUTE_MS, "it expires after that time", where="limiter.ttl")
    equal(worker.claim(), None, "nothing is handed out", where="row.ratelimit.queue-wide" if whose == "queue" else "")
    worker = after_window(client, queue, worker, **limiter)
    equal(worker.claim_one().id, "1", "afterwards the job is handed out")


@scenario("ratelimit.by-hand")
def test_a_worker_may_set_the_limit_too(client: Participant) -> None:
    """`Worker.rateLimit(ms)` does as `Queue.rateLimit(ms)`."""
    queue, worker = client.queue(), client.worker(limiter={"max": 1000, "duration": MINUTE_MS})
    worker.call(worker_ops.WorkerRateLimit(expire_ms=MINUTE_MS))
    equal(queue.redis.string("limiter"), FULL_WINDOW, "the counter is above every limit")
    between(queue.redis.ttl_ms("limiter"), 1, MINUTE_MS, "it expires after that time", where="limiter.ttl")


@scenario("ratelimit.unlimited")
def test_a_worker_without_limit_goes_on(client: Participant) -> None:
    """If neither worker nor queue has a limit, the counter is ignored."""
    queue, worker = client.queue(), client.worker()
    fill(queue, 1)
    queue.call(queue_ops.SetRateLimit(expire_ms=MINUTE_MS))
    equal(worker.claim_one().id, "1", "the job is handed out")
    equal(queue.redis.string("limiter"), FULL_WINDOW, "and not counted")


@scenario("ratelimit.remove-key")
def test_forgetting_the_window(client: Participant) -> None:
    """`removeRateLimitKey` lets the next worker start at once."""
    queue, worker = client.queue(), client.worker()
    limit_queue(queue, 1)
    fill(queue, 2)
    worker.claim_one("token-1")
    queue.call(queue_ops.RemoveRateLimitKey())
    equal(queue.redis.value("limiter"), None, "the counter is gone")
    equal(worker.claim_one("token-2").id, "2", "the next job is handed out")


@scenario("ratelimit.ttl")
def test_how_long_the_window_lasts(client: Participant) -> None:
    """`getRateLimitTtl` answers the ms until the next start; under the limit that is 0."""
    queue = client.queue()
    equal(_asked_ttl(queue), -2, "without limit and without window the answer is Redis's own")
    queue.redis.set_string("limiter", "2", ttl_ms=MINUTE_MS)
    between(_asked_ttl(queue), 1, MINUTE_MS, "without limit it is the time to live of the counter")
    limit_queue(queue, 3)
    equal(_asked_ttl(queue), 0, "under the limit a job may start now")
    limit_queue(queue, 2)
    between(_asked_ttl(queue), 1, MINUTE_MS, "at the limit it is the rest of the window")


@scenario("ratelimit.ttl")
def test_how_long_a_limit_of_ones_own_lasts(client: Participant) -> None:
    """A number of jobs in the question counts instead of the queue's limit."""
    queue = client.queue()
    limit_queue(queue, 1)
    queue.redis.set_string("limiter", "2", ttl_ms=MINUTE_MS)
    equal(_asked_ttl(queue, 3), 0, "three may start, and two have")
    between(_asked_ttl(queue, 2), 1, MINUTE_MS, "two may start, and two have")


def _asked_ttl(queue: QueueHandle, most: int | None = None) -> int:
    """The result of the client; not compared with the oracle's, because the value counts down."""
    with queue.caller.transcript.not_compared():
        return queue.call(queue_ops.GetRateLimitTtl(max_jobs=most)).count


@scenario("ratelimit.job-goes-back")
def test_a_job_goes_back_after_a_limit_that_is_over(client: Participant) -> None:
    """A limit may end before its worker returns the job."""
    queue, worker = client.queue(), client.worker()
    queue.add("work")
    worker.claim_one()
    queue.call(queue_ops.SetRateLimit(expire_ms=1))
    client.eventually(lambda: queue.redis.exists("limiter"), lambda limited: not limited, "the limit is over")
    worker.call(worker_ops.MoveToWait(job="1", token="token-1"))
    equal(queue.redis.state("1"), ["wait"], "the job waits again")
