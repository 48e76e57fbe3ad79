"""What is lost and how that ends: locks and stalled jobs, replies, connections, and a Redis that refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from conformance.driver.errors import OperationFailed
from conformance.participants.expect import Mismatch, between, equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.own_redis import OwnRedis, own_redis
from conformance.participants.participant import Participant
from conformance.proofs.proof import proof


def _check_again(queue: QueueHandle, worker: WorkerHandle) -> list[str]:
    """One more stalled check, as after `stalledInterval`."""
    queue.redis.delete("stalled-check")
    return worker.check_stalled()


def _stall(queue: QueueHandle, worker: WorkerHandle) -> None:
    """Lose the lock of job 1 and let two checks pass."""
    queue.redis.delete("1:lock")
    _check_again(queue, worker)
    _check_again(queue, worker)


def _refused(worker: WorkerHandle, token: str = "token-1") -> str:
    """The code with which completing job 1 is refused."""
    try:
        worker.complete("1", "late", token)
    except OperationFailed as failure:
        return failure.error.code
    raise Mismatch("the completion is refused", expected="refused", actual="accepted")


@proof("lock.extend")
def a_renewal_clears_suspicion(oracle: Participant) -> str:
    """Let a check mark an active job, and renew its lock."""
    queue, worker = oracle.queue(), oracle.worker(lockDuration=10_000)
    queue.add("work")
    worker.claim_one()
    _check_again(queue, worker)
    marked = queue.redis.exists("stalled")
    worker.extend_lock("1", 90_000)
    equal((marked, queue.redis.exists("stalled")), (True, False), "the renewal takes the mark away")
    between(queue.redis.ttl_ms("1:lock"), 80_000, 90_000, "and sets the lock anew")
    return "the job was marked in `stalled`, and the renewal took it out and set the lock for 90 s"


@proof("lock.extend.stale-token-refused")
def a_foreign_renewal_is_no_error(oracle: Participant) -> str:
    """Renew with another token."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work")
    worker.claim_one("token-mine")
    equal(worker.extend_lock("1", 90_000, "token-other"), False, "the answer is no, without an error")
    return "the call answers no, without an error"


@proof("lock.missing-refused")
def too_late_is_refused(oracle: Participant) -> str:
    """Complete after the lock was lost, and again after another worker took over."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work")
    worker.claim_one("token-1")
    queue.redis.delete("1:lock")
    before = _refused(worker)
    _stall(queue, worker)
    worker.claim_one("token-2")
    after = _refused(worker)
    worker.complete("1", "right", "token-2")
    equal((before, after), ("missing-lock", "lock-mismatch"), "both attempts are refused")
    equal(queue.redis.field("1", "returnvalue"), '"right"', "the new owner's result is stored")
    return f"the old worker is refused before ({before}) and after ({after}) another one took the job"


@proof("lock.token.no-secret")
def the_token_zero(oracle: Participant) -> str:
    """Complete a job with the token `0`, which never took the lock."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work")
    worker.claim_one("token-secret")
    readable = queue.redis.string("1:lock")
    worker.complete("1", "stolen", "0")
    equal(readable, "token-secret", "whoever can reach Redis can read the token")
    equal(queue.redis.state("1"), ["completed"], "the token 0 needs no lock")
    return "the lock could be read; the job is completed with the token `0` although its lock held another one"


@proof("lock.renewal.in-time", clock="real")
def renewed_every_quarter(oracle: Participant) -> str:
    """Watch the lock of a running job, whose `lockDuration` is 2 s, until it was renewed four times."""
    life_ms = 2000
    queue = oracle.queue()
    queue.add("long")
    worker = oracle.worker("ask", lockDuration=life_ms)
    worker.next_job()
    left: list[int] = [queue.redis.ttl_ms("1:lock")]
    ages: list[int] = []

    def renewals() -> int:
        left.append(queue.redis.ttl_ms("1:lock"))
        if left[-1] > left[-2]:
            ages.append(life_ms - left[-2])
        return len(ages)

    oracle.eventually(renewals, lambda count: count >= 4, "the lock is renewed four times", within_ms=3 * life_ms)
    worker.resolve("1")
    worker.wait_local("completed", "1")
    # Of several the quickest counts: a busy machine makes some late.
    holds(min(ages[1:]) < life_ms * 0.375, "it is renewed again after a quarter, and not after half", seen=ages)
    holds(min(left) > 0, "the lock never expired", seen=min(left))
    return f"a lock of {life_ms} ms was renewed when {', '.join(map(str, ages))} ms of it had passed"


@proof("stalled.two-checks")
def the_first_check_only_marks(oracle: Participant) -> str:
    """Delete a lock and let two checks pass."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("lost")
    worker.claim_one()
    queue.redis.delete("1:lock")
    answers = [_check_again(queue, worker), _check_again(queue, worker)]
    equal(answers, [[], ["1"]], "the first marks, the second recovers")
    return "the first check answers no job, the second one job 1"


@proof("stalled.counter")
def a_stall_is_no_attempt(oracle: Participant) -> str:
    """Let a job stall once."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("lost")
    worker.claim_one()
    _stall(queue, worker)
    fields = queue.redis.hash("1")
    equal((fields["stc"], fields.get("atm"), fields["ats"]), ("1", None, "1"), "only `stc` counts a stall")
    return "`stc` is 1, and `atm` does not even exist"


@proof("stalled.limit")
def two_stalls_fail(oracle: Participant) -> str:
    """Let a job stall twice with the default limit, and one once with a limit of 0."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("poison")
    seen = []
    for _ in range(2):
        worker.claim_one()
        _stall(queue, worker)
        seen.append(queue.redis.field("1", "defa"))
    first, deferred = seen
    holds(first is None and deferred, "the second stall defers a failure, and not the first", seen=seen)
    strict, impatient = oracle.queue("strict"), oracle.worker(queue="strict", maxStalledCount=0)
    strict.add("poison")
    impatient.claim_one()
    _stall(strict, impatient)
    poison = strict.redis.hash("1")
    holds(poison.get("defa"), "with 0 the first one does", seen=poison)
    return f"after the second stall the job carries the failure that it will get: {deferred}"


@proof("stalled.race.one-outcome")
def neither_takes_effect(oracle: Participant) -> str:
    """Lose the lock of a job that no check has marked, then complete it and check."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("contended")
    worker.claim_one()
    queue.redis.delete("1:lock")
    code, recovered = _refused(worker), _check_again(queue, worker)
    equal((code, recovered), ("missing-lock", []), "neither takes effect")
    equal(_check_again(queue, worker), ["1"], "a later check recovers the job")
    return "the completion is refused and the check recovers nothing; only the next check does"


@proof("stalled.recovery-time")
def another_check_suppresses(oracle: Participant) -> str:
    """Let two workers check one after the other within one interval."""
    queue = oracle.queue()
    first, second = oracle.worker(stalledInterval=60_000), oracle.worker(stalledInterval=60_000)
    queue.add("lost")
    first.claim_one()
    queue.redis.delete("1:lock")
    answers = [first.check_stalled(), second.check_stalled()]
    equal(answers, [[], []], "the second check is suppressed")
    equal(queue.redis.state("1"), ["active"], "the job is still lost")
    between(queue.redis.ttl_ms("stalled-check"), 50_000, 60_000, "nobody checks before the interval has passed")
    return "of two checks in a row the second does nothing for the rest of the interval, and the job stays lost"


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


def _add_refusal(queue: QueueHandle) -> str:
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
            refused = _add_refusal(queue)
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
