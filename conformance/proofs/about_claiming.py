"""Which job comes next, and what claiming does to it."""

from __future__ import annotations

from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import between, equal, holds
from conformance.participants.participant import Participant
from conformance.proofs.registry import proof


@proof("lifecycle.claim.oldest-first")
def from_right_to_left(oracle: Participant) -> str:
    """Add three jobs and claim two."""
    queue, worker = oracle.queue(), oracle.worker()
    for name in ("a", "b", "c"):
        queue.add(name)
    waiting = queue.redis.elements("wait")
    equal(waiting, ["3", "2", "1"], "new jobs are added at the left")
    worker.claim_one("token-1")
    worker.claim_one("token-2")
    equal(queue.redis.elements("active"), ["2", "1"], "claimed jobs are added at the left of `active`")
    return "`wait` was 3, 2, 1; after two claims 1 and 2 are taken and `active` is 2, 1, from left to right"


@proof("lifecycle.claim.waiting-before-prioritized")
def smallest_number_first(oracle: Participant) -> str:
    """Add the priorities 10, 1, none and 3, and claim all."""
    queue, worker = oracle.queue(), oracle.worker()
    for priority in (10, 1, 0, 3):
        queue.add("job", {}, priority=priority)
    order = [int(worker.claim_one(f"token-{number}").priority or 0) for number in range(4)]
    equal(order, [0, 1, 3, 10], "no priority first, then the smallest number")
    return f"they ran in the order {', '.join(map(str, order))}"


@proof("job.hash.processed-on")
def no_start_before_the_start(oracle: Participant) -> str:
    """Look at `processedOn` before and after the claim."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work")
    before = queue.redis.field("1", "processedOn")
    worker.claim_one()
    after = queue.redis.field("1", "processedOn")
    equal((before, after), (None, str(oracle.clock.now_ms())), "the field appears with the start")
    return f"before the start there is no such field, afterwards it holds {after}"


@proof("job.hash.processed-by")
def a_name_and_no_id(oracle: Participant) -> str:
    """Claim a job by a worker with a name and one by a worker without."""
    queue = oracle.queue()
    queue.add("signed")
    queue.add("unsigned")
    oracle.worker(name="worker-7").claim_one("token-1")
    oracle.worker().claim_one("token-2")
    equal([queue.redis.field(job, "workerId") for job in ("1", "2")], [None, None], "there is no worker id")
    equal([queue.redis.field(job, "pb") for job in ("1", "2")], ["worker-7", None], "only the name is kept")
    return "`pb` is worker-7 for one job and missing for the other; `workerId` does not exist"


@proof("lock.token")
def the_client_brings_the_token(oracle: Participant) -> str:
    """Claim with a token that is no UUID."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work")
    worker.claim_one("any text")
    equal(queue.redis.string("1:lock"), "any text", "the lock holds what the client brought")
    holds("any text" not in queue.redis.hash("1").values(), "it is not in the hash", seen=queue.redis.hash("1"))
    return "the key 1:lock holds `any text`, and the hash knows no token"


@proof("FR-2.3")
def nodes_own_token(oracle: Participant) -> str:
    """Let Node's own loop run a job, and look at the token it chose."""
    oracle.queue().add("work")
    worker = oracle.worker("ask")
    token = worker.next_job().token
    worker.resolve("1")
    worker.wait_local("completed", "1")
    holds(len(token) > 36 and token[36] == ":" and token[37:].isdigit(), "a UUID, a colon and a number", seen=token)
    return f"its own token is {token}"


@proof("lock.duration")
def the_lock_is_overwritten(oracle: Participant) -> str:
    """Claim a job whose lock is already there."""
    queue, worker = oracle.queue(), oracle.worker(lockDuration=1500)
    queue.add("work")
    queue.redis.set_string("1:lock", "somebody else", ttl_ms=60_000)
    worker.claim_one("token-new")
    equal(queue.redis.string("1:lock"), "token-new", "the lock is overwritten")
    between(queue.redis.ttl_ms("1:lock"), 0, 1500, "it lives for 1500 ms, which is no number of seconds")
    return "the lock of somebody else is replaced, and the new one lives for 1500 ms"


@proof("ratelimit.inside-the-claim")
def the_claim_counts(oracle: Participant) -> str:
    """Limit the queue to one start per minute and claim twice."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.call(queue_ops.SetGlobalRateLimit(max=1, duration_ms=60_000))
    queue.add("first")
    queue.add("second")
    worker.claim_one("token-1")
    equal(worker.claim("token-2"), None, "the second claim gets nothing")
    equal((queue.redis.string("limiter"), queue.redis.elements("wait")), ("1", ["2"]), "the claim counted the start")
    return "the first claim set `limiter` to 1, the second got nothing although a job waits"
