"""A Redis of one's own: what it evicts when its memory is full, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

from conformance.driver.errors import OperationFailed, OperationIndeterminate
from conformance.participants.expect import Mismatch, behind, equal, holds
from conformance.participants.marks import scenario
from conformance.participants.own_redis import own_redis
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import check_stalled_again

ACTIVE = 10
MEGABYTE = 1024 * 1024
LONGEST = "proto-max-bulk-len"
"""The setting of Redis for the size of its largest value."""


@scenario("chaos.eviction", clock="real", slow=True)
def test_evicted_locks_cost_no_job(client: Participant) -> None:
    """Under `volatile-lru` Redis takes the locks and no job; two checks later every job can be finished."""
    with own_redis(client, maxmemory_policy="volatile-lru") as alone:
        queue, worker = alone.client.queue(), alone.client.worker()
        for number in range(1, ACTIVE + 1):
            queue.add(f"job {number}", {"n": number})
        queue.add("urgent", {}, priority=3)
        queue.add("later", {}, delay=3_600_000)
        for number in range(1, ACTIVE + 1):
            worker.claim_one(f"token-{number}")
        lasting = {key for key in alone.redis.scan_iter() if alone.redis.ttl(key) == -1}
        locks = [f"{number}:lock" for number in range(1, ACTIVE + 1)]
        alone.evict(until=lambda: not any(map(queue.redis.exists, locks)), what="all locks are evicted")
        equal(sorted(lasting - set(alone.redis.scan_iter())), [], "nothing without a time to live is gone")
        for recovered in (0, ACTIVE):
            put_back = check_stalled_again(queue, worker)
            equal(len(put_back), recovered, "the second check recovers what the first has marked")
        finisher = alone.client.worker("noop", concurrency=5)
        alone.client.eventually(
            lambda: len(queue.redis.members("completed")), lambda done: done > ACTIVE, "every job is completed"
        )
        finisher.close()
        with behind("order.delayed.score"):
            equal(queue.redis.state(str(ACTIVE + 2)), ["delayed"], "the delayed job still waits for its time")


@scenario("eviction.refused", clock="real", slow=True)
def test_a_full_redis_refuses_and_loses_nothing(client: Participant) -> None:
    """Under `noeviction` an add fails, what was added is still there, and everything goes on when there is room."""
    with own_redis(client, maxmemory_policy="noeviction") as alone:
        queue = alone.client.queue()
        queue.add("before", {"n": 1})
        with alone.full_memory():
            _is_refused(lambda: queue.add("too much", {"text": "x" * 100_000}), "an add to a full Redis fails")
        equal(queue.redis.field("1", "data"), '{"n":1}', "what was added is still there")
        added = queue.add("after")
        holds(added, "there is room again", seen=added)
        worker = alone.client.worker("noop")
        worker.wait_local("completed", "1")
        worker.close()


@scenario("edge.largest-value", clock="real", slow=True)
def test_a_value_above_the_limit_of_redis_is_refused(client: Participant) -> None:
    """Redis takes values of up to 512 MB; it refuses a job above its limit, writes nothing, and everything goes on."""
    with own_redis(client) as alone:
        equal(int(alone.redis.config_get(LONGEST)[LONGEST]), 512 * MEGABYTE, "the largest value of Redis (bytes)")
        # With a lower limit, the same happens to a value that can be sent in no time.
        alone.redis.config_set(LONGEST, MEGABYTE)
        queue = alone.client.queue()
        queue.add("before")
        _is_refused(lambda: queue.add("too much", {"text": "x" * 2 * MEGABYTE}), "an add above the limit fails")
        equal(queue.redis.value("id"), "1", "the id of the last job: nothing was written")
        # Redis has cut the connection: some clients only learn that from their next call.
        alone.client.eventually(
            lambda: _attempted(lambda: queue.add("after")), bool, "a later add works, on another connection"
        )


def _is_refused(call: Callable[[], object], what: str) -> None:
    """The call fails, with any error."""
    if _attempted(call):
        raise Mismatch(what, expected="an error", actual="none", where="answer")


def _attempted(call: Callable[[], object]) -> bool:
    """Whether the call worked. A client that is cut off may not know more of a failure than that."""
    try:
        call()
    except (OperationFailed, OperationIndeterminate):
        return False
    return True
