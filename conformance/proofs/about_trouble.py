"""What Node makes of a Redis that refuses, of lost replies and of lost connections."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from conformance.driver.connection import OperationFailed
from conformance.participants.expect import Mismatch, between, equal
from conformance.participants.handles import QueueHandle
from conformance.participants.own_redis import OwnRedis, own_redis
from conformance.participants.participant import Participant
from conformance.proofs.registry import proof

ATTEMPTS = 8
"""Of these attempts to reconnect the last three come after pauses that are no longer 1 s."""
WITHIN_MS = 30_000
LATE_MS = 2000
"""How much later than by the formula an attempt may come: connecting takes its time, and the machine may be busy."""


@contextmanager
def _readonly(alone: OwnRedis) -> Iterator[None]:
    """A replica of nobody: whatever writes is refused with READONLY."""
    alone.redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        yield
    finally:
        alone.redis.execute_command("REPLICAOF", "NO", "ONE")


def _refusal(queue: QueueHandle) -> str:
    """With which words a plain add fails."""
    try:
        queue.add("alone")
    except OperationFailed as failure:
        return failure.error.message
    raise Mismatch("a plain add is refused", expected="refused", actual="accepted")


@proof("chaos.flow-refused-unnoticed")
def a_refused_flow_seems_to_be_added(oracle: Participant) -> str:
    """Add a flow, and a job of its own, to a Redis that takes no writes."""
    with own_redis(oracle) as alone:
        queue, flow = alone.client.queue(), alone.client.flow()
        queue.add("before")
        with _readonly(alone):
            answer = flow.add({"name": "parent", "queue": "q", "children": [{"name": "child", "queue": "q"}]})
            refused = _refusal(queue)
        equal("READONLY" in refused, True, "a plain add is refused with READONLY")
        ids = (answer.id, answer.children[0].id)
        there = [queue.redis.exists(job) for job in ids]
        equal(there, [False, False], "neither job of the flow is stored")
        equal(queue.redis.elements("wait"), ["1"], "only the job from before waits")
    return "FlowProducer.add resolves with two ids, and neither job is there; Queue.add is refused with READONLY"


@proof("chaos.node-resends")
def a_lost_reply_adds_twice(oracle: Participant) -> str:
    """Lose the reply to an add, once without and once with an id of the job's own."""
    queue = oracle.queue()
    with oracle.tap.cut("addStandardJob", phase="after-execute") as barrier:
        answer = queue.add("once")
        barrier.wait()
    equal((answer, queue.redis.elements("wait")), ("2", ["2", "1"]), "one call has added two jobs")
    with oracle.tap.cut("addStandardJob", phase="after-execute") as barrier:
        named = queue.add("named", {}, jobId="mine")
        barrier.wait()
    equal((named, queue.redis.elements("wait")), ("mine", ["mine", "2", "1"]), "a job with an id is added once")
    return "one call of add left the jobs 1 and 2 and answered 2; with the id `mine` there is one job"


@proof("chaos.node-reconnect-pause", clock="real")
def pauses_between_attempts(oracle: Participant) -> str:
    """Cut every new connection at its first INFO, and take the times of the attempts to reconnect."""
    oracle.queue().add("before")
    begins = oracle.tap.wait_for(lambda command: command.script is not None).connection
    with oracle.tap.cut("INFO", call=None, where=lambda command: command.connection > begins) as barrier:
        oracle.tap.disconnect()
        barrier.wait(times=ATTEMPTS, within_ms=WITHIN_MS)
    times = [command.arrived_s * 1000 for command in barrier.commands[:ATTEMPTS]]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    for attempt, pause in enumerate(pauses, 2):
        least = max(min(math.exp(attempt), 20_000), 1000)
        between(pause, least - 5, least + LATE_MS, f"the pause before attempt {attempt} is max(min(e^n, 20000), 1000)")
    shown = ", ".join(f"{pause:.0f}" for pause in pauses)
    return f"the pauses before the attempts 2 to {ATTEMPTS} were {shown} ms"
