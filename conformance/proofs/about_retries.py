"""Retries and back-off."""

from __future__ import annotations

from conformance.participants.expect import between, equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.participant import Participant
from conformance.proofs.registry import proof

HOUR_MS = 3_600_000


def _fail_once(queue: QueueHandle, worker: WorkerHandle) -> int:
    """Let job 1 fail, promote it, and answer the delay of the retry in ms."""
    worker.claim_one()
    worker.fail("1")
    delay = int(queue.redis.field("1", "delay") or 0)
    queue.promote("1")
    return delay


@proof("retry.immediately")
def never_failed_in_between(oracle: Participant) -> str:
    """Let a job without back-off fail with an attempt left."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("shaky", {}, attempts=2)
    worker.claim_one()
    worker.fail("1")
    equal(queue.redis.state("1"), ["wait"], "it waits again at once")
    names = queue.redis.event_names()
    holds("failed" not in names, "it was never in `failed`", seen=names)
    return f"the job waits again at once; the stream holds {', '.join(names)}"


@proof("retry.exhausted")
def zero_and_one_are_one(oracle: Participant) -> str:
    """Let jobs of 0, 1 and 2 attempts fail once."""
    queue, worker = oracle.queue(), oracle.worker()
    for attempts in (0, 1, 2):
        queue.add("doomed", {}, attempts=attempts)
    for _ in range(3):
        worker.fail(worker.claim_one().id)
    states = [queue.redis.state(job) for job in ("1", "2", "3")]
    equal(states, [["failed"], ["failed"], ["wait"]], "0 and 1 both mean one attempt")
    return "after one failure the jobs with 0 and 1 attempts are failed, the one with 2 waits"


@proof("retry.backoff.exponential")
def no_cap(oracle: Participant) -> str:
    """Let a job with an exponential back-off of 1 s fail fifteen times."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("doomed", {}, attempts=16, backoff={"type": "exponential", "delay": 1000})
    delays = [_fail_once(queue, worker) for _ in range(15)]
    equal(delays, [1000 * 2**number for number in range(15)], "each delay is twice the one before")
    return f"the 15th retry waits {delays[-1]} ms, which is {delays[-1] / HOUR_MS:.2f} hours"


@proof("retry.backoff.cap-arithmetic")
def the_first_delay_above_an_hour(oracle: Participant) -> str:
    """Count the retries from 1 s until one waits more than an hour."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("doomed", {}, attempts=16, backoff={"type": "exponential", "delay": 1000})
    delays = [_fail_once(queue, worker) for _ in range(14)]
    first = next(number for number, delay in enumerate(delays, 1) if delay > HOUR_MS)
    equal((first, delays[9:12]), (13, [512_000, 1_024_000, 2_048_000]), "the 13th is the first above an hour")
    return "retries 10, 11 and 12 wait 512, 1024 and 2048 s; the 13th is the first above an hour"


@proof("retry.backoff.jitter")
def jitter_is_asked_for_and_shortens(oracle: Participant) -> str:
    """Read the delays of ten retries without jitter and of ten with 0.2."""
    exact, spread = _delays(oracle, "exact", {}), _delays(oracle, "spread", {"jitter": 0.2})
    equal(set(exact), {10_000}, "without jitter the delay is exact")
    for delay in spread:
        between(delay, 8000, 10_000, "a jitter only shortens")
    return f"without jitter all wait 10000 ms, with 0.2 between {min(spread)} and {max(spread)} ms"


def _delays(oracle: Participant, name: str, jitter: dict[str, float]) -> list[int]:
    queue, worker = oracle.queue(name), oracle.worker(queue=name)
    for number in range(1, 11):
        queue.add("shaky", {}, attempts=2, backoff={"type": "fixed", "delay": 10_000, **jitter})
        worker.claim_one()
        worker.fail(str(number))
    return [int(queue.redis.field(str(number), "delay") or 0) for number in range(1, 11)]


@proof("script.retry-job")
def a_retry_is_immediate(oracle: Participant) -> str:
    """Let a job without back-off and one with fail."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("immediate", {}, attempts=2)
    worker.claim_one()
    worker.fail("1")
    queue.add("delayed", {}, attempts=2, backoff={"type": "exponential", "delay": 1000})
    worker.complete(worker.claim_one("token-a").id, None, "token-a")
    worker.fail(worker.claim_one().id)
    names = queue.redis.event_names()
    equal(queue.redis.state("2"), ["delayed"], "a back-off delays")
    equal((names.count("delayed"), names.count("waiting")), (1, 3), "a retry waits at once unless it is delayed")
    return "the retry without back-off left `waiting` at once; only the one with back-off left `delayed`"
