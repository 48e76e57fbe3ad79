"""Disputed rows about losses, on the oracle alone: locks, stalled jobs, replies, connections, a read-only Redis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from conformance.participants.expect import between, equal, holds
from conformance.participants.marks import scenario
from conformance.participants.own_redis import OwnRedis, own_redis
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import check_stalled_again, let_stall


@scenario("lock.extend")
def test_a_renewal_clears_the_stalled_mark(client: Participant) -> None:
    """A renewal sets the lock again and takes the job out of `stalled`."""
    queue, worker = client.queue(), client.worker(lockDuration=10_000)
    queue.add("work")
    worker.claim_one()
    check_stalled_again(queue, worker)
    equal(queue.redis.set_members("stalled"), ["1"], "the check marks the active job")
    worker.extend_lock("1", 90_000)
    equal(queue.redis.set_members("stalled"), [], "the renewal takes the mark away")
    between(queue.redis.ttl_ms("1:lock"), 80_000, 90_000, "the lock lives for the new duration")


@scenario("lock.missing-refused")
def test_the_next_owner_stores_its_result(client: Participant) -> None:
    """A worker that lost its lock cannot complete the job, before or after another worker took it over."""
    queue, worker = client.queue(), client.worker()
    queue.add("work")
    worker.claim_one("token-1")
    queue.redis.delete("1:lock")
    with client.refuses("missing-lock", "the first worker is refused before the job is put back"):
        worker.complete("1", "late", "token-1")
    let_stall(queue, worker, "1")
    worker.claim_one("token-2")
    with client.refuses("lock-mismatch", "the first worker is refused after the second took the job"):
        worker.complete("1", "late", "token-1")
    worker.complete("1", "right", "token-2")
    equal(queue.redis.field("1", "returnvalue"), '"right"', "the result of the second worker is stored")


@scenario("lock.token.no-secret")
def test_the_token_zero_needs_no_lock(client: Participant) -> None:
    """Any client of Redis can read the token, and the token `0` completes a job without the lock."""
    queue, worker = client.queue(), client.worker()
    queue.add("work")
    worker.claim_one("token-secret")
    equal(queue.redis.string("1:lock"), "token-secret", "the token can be read")
    worker.complete("1", "stolen", "0")
    equal(queue.redis.state("1"), ["completed"], "the token 0 completes the job")


@scenario("stalled.counter")
def test_a_stall_is_not_an_attempt(client: Participant) -> None:
    """A stall counts in `stc` only."""
    queue, worker = client.queue(), client.worker()
    queue.add("lost")
    worker.claim_one()
    let_stall(queue, worker, "1")
    fields = queue.redis.hash("1")
    equal({name: fields.get(name) for name in ("stc", "atm", "ats")}, {"stc": "1", "atm": None, "ats": "1"}, "counters")


@scenario("stalled.recovery-time")
def test_another_check_suppresses_the_second(client: Participant) -> None:
    """Of two checks within one interval the second does nothing, so a lost job can wait longer."""
    queue = client.queue()
    first, second = client.worker(stalledInterval=60_000), client.worker(stalledInterval=60_000)
    queue.add("lost")
    first.claim_one()
    queue.redis.delete("1:lock")
    equal([first.check_stalled(), second.check_stalled()], [[], []], "neither check recovers the job")
    equal(queue.redis.state("1"), ["active"], "the job is still lost")
    between(queue.redis.ttl_ms("stalled-check"), 50_000, 60_000, "further checks are suppressed for the interval (ms)")


ATTEMPTS = 8
"""Of these attempts to reconnect the last three come after pauses longer than 1 s."""
WITHIN_MS = 30_000
LATE_MS = 2000
"""How much later than by the formula an attempt may come: connecting takes time, and the machine may be busy."""


@contextmanager
def _readonly(alone: OwnRedis) -> Iterator[None]:
    """Make Redis a replica of an address where no server listens: it refuses writes with READONLY."""
    alone.redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        yield
    finally:
        alone.redis.execute_command("REPLICAOF", "NO", "ONE")


@scenario("chaos.flow-refused-unnoticed")
def test_a_refused_flow_seems_to_be_added(client: Participant) -> None:
    """On a read-only Redis `FlowProducer.add` returns ids and stores nothing; `Queue.add` is refused."""
    with own_redis(client) as alone:
        queue, flow = alone.client.queue(), alone.client.flow()
        queue.add("before")
        with _readonly(alone):
            added = flow.add({"name": "parent", "queue": "q", "children": [{"name": "child", "queue": "q"}]})
            with alone.client.refuses("other", "a plain add is refused"):
                queue.add("alone")
        ids = (added.id, added.children[0].id)
        holds(all(ids), "the flow's add returns two ids", seen=ids)
        equal([queue.redis.exists(job) for job in ids], [False, False], "neither job of the flow is stored")
        equal(queue.redis.elements("wait"), ["1"], "only the job from before waits")


@scenario("chaos.node-resends")
def test_a_lost_reply_adds_twice(client: Participant) -> None:
    """Node sends an add again if its reply is lost: the job exists twice unless it has an id chosen by the caller."""
    queue = client.queue()
    with client.tap.cut("addStandardJob", phase="after-execute") as barrier:
        added = queue.add("once")
        barrier.wait()
    equal((added, queue.redis.elements("wait")), ("2", ["2", "1"]), "one call has added two jobs")
    with client.tap.cut("addStandardJob", phase="after-execute") as barrier:
        named = queue.add("named", {}, jobId="mine")
        barrier.wait()
    equal((named, queue.redis.elements("wait")), ("mine", ["mine", "2", "1"]), "a job with an id is added once")


@scenario("chaos.node-reconnect-pause", clock="real")
def test_pauses_between_attempts_to_reconnect(client: Participant) -> None:
    """Node reconnects after max(min(e^n, 20000), 1000) ms."""
    client.queue().add("before")
    connected = client.tap.wait_for(lambda command: command.script is not None).connection
    # INFO is the first command of every new connection: cutting it there makes each attempt fail.
    with client.tap.cut("INFO", call=None, where=lambda command: command.connection > connected) as barrier:
        client.tap.disconnect()
        barrier.wait(times=ATTEMPTS, within_ms=WITHIN_MS)
    times = [command.arrived_s * 1000 for command in barrier.commands[:ATTEMPTS]]
    for attempt, (earlier, later) in enumerate(pairwise(times), 2):
        least = max(min(math.exp(attempt), 20_000), 1000)
        between(later - earlier, least - 5, least + LATE_MS, f"the pause before attempt {attempt} (ms)")
