"""Retries: at once, after a back-off, by hand, and the last one."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.participants.expect import between, equal, holds
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant


@scenario("retry.immediately", "job.hash.attempts-made", "job.hash.attempts-started", tier="smoke")
def test_a_failed_attempt_waits_again(client: Participant) -> None:
    """Without back-off the job goes behind those that wait."""
    queue, worker = client.queue(), client.worker()
    queue.add("shaky", {}, attempts=3)
    queue.add("other")
    worker.claim_one()
    worker.fail("1", "first try")
    equal(queue.redis.elements("wait"), ["1", "2"], "the job is at the left end of `wait`")
    equal(queue.redis.field("1", "ats"), "1", "one attempt was started", where="job.ats")
    equal(queue.redis.field("1", "atm"), "1", "one attempt was made", where="job.atm")


@scenario("retry.lifo")
def test_a_failed_lifo_job_runs_next(client: Participant) -> None:
    """`lifo` also counts for a retry."""
    queue, worker = client.queue(), client.worker()
    queue.add("other")
    queue.add("last in", {}, attempts=2, lifo=True)
    equal(worker.claim_one().id, "2", "the lifo job is first")
    worker.fail("2")
    equal(queue.redis.elements("wait"), ["1", "2"], "the job is at the right end of `wait`")


@scenario("retry.prioritized")
def test_a_failed_prioritized_job_goes_behind_its_equals(client: Participant) -> None:
    """A retry gets a new place in its priority."""
    queue, worker = client.queue(), client.worker()
    queue.add("a", {}, attempts=2, priority=5)
    queue.add("b", {}, priority=5)
    worker.claim_one()
    worker.fail("1")
    equal(queue.redis.members("prioritized"), ["2", "1"], "the job is behind the other of its priority")


@pytest.mark.parametrize("attempts", [0, 1, 2])
@scenario("retry.exhausted", tier="smoke")
def test_the_last_attempt_is_final(client: Participant, attempts: int) -> None:
    """`attempts` counts all tries; 0 and 1 both mean one."""
    queue, worker = client.queue(), client.worker()
    queue.add("doomed", {}, attempts=attempts)
    for number in range(max(attempts, 1)):
        equal(queue.redis.state("1"), ["wait"], "the job waits for its next try")
        worker.claim_one()
        worker.fail("1", f"try {number + 1}")
    equal(queue.redis.state("1"), ["failed"], "after the last try the job is failed")


@scenario("retry.unrecoverable")
def test_an_unrecoverable_error_is_final(client: Participant) -> None:
    """UnrecoverableError ends the job at its first attempt."""
    queue, worker = client.queue(), client.worker()
    queue.add("hopeless", {}, attempts=5)
    worker.claim_one()
    worker.fail("1", "no use", unrecoverable=True)
    equal(queue.redis.state("1"), ["failed"], "the job is failed")


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [(1000, [1000, 1000, 1000]), ({"type": "fixed", "delay": 700}, [700, 700, 700])],
    ids=["number", "fixed"],
)
@scenario("retry.backoff.fixed")
def test_a_fixed_backoff(client: Participant, backoff: Any, delays: list[int]) -> None:
    """Every retry waits equally long."""
    _fail_through(client, backoff, delays)


@scenario("retry.backoff.exponential")
def test_an_exponential_backoff(client: Participant) -> None:
    """Every retry waits twice as long as the one before."""
    _fail_through(client, {"type": "exponential", "delay": 300}, [300, 600, 1200])


def _fail_through(client: Participant, backoff: Any, delays: list[int]) -> None:
    """Fail a job again and again, and read the delay of each retry from its hash."""
    queue, worker = client.queue(), client.worker()
    queue.add("shaky", {}, attempts=len(delays) + 1, backoff=backoff)
    for delay in delays:
        worker.claim_one()
        worker.fail("1")
        equal(queue.redis.state("1"), ["delayed"], "the retry is delayed")
        equal(queue.redis.field("1", "delay"), str(delay), "the delay is what the back-off says", where="job.delay")
        # Promoted instead of waited for: the delay was checked in the hash.
        queue.promote("1")
    worker.claim_one()
    worker.fail("1")
    equal(queue.redis.state("1"), ["failed"], "the last failure is final")


@pytest.mark.parametrize("limit", [None, 0, 2])
@scenario("retry.stacktrace-limit", "job.hash.stacktrace")
def test_stack_traces_are_kept(client: Participant, limit: int | None) -> None:
    """One stack trace per failed attempt, up to the limit."""
    queue, worker = client.queue(), client.worker()
    opts: dict[str, Any] = {} if limit is None else {"stackTraceLimit": limit}
    queue.add("doomed", {}, attempts=4, **opts)
    for number in range(4):
        worker.claim_one()
        worker.fail("1", f"try {number + 1}")
    kept = queue.redis.json("1", "stacktrace")
    tries = list(range(1, 5))[4 - (4 if limit is None else limit) :]
    equal(len(kept), len(tries), "one stack trace per failed attempt is kept, up to the limit")
    named = [f"try {number}" in text for number, text in zip(tries, kept, strict=True)]
    equal(named, [True] * len(tries), "each names its error, the newest last")


@scenario("retry.manual", tier="smoke")
def test_a_failed_job_is_retried_by_hand(client: Participant) -> None:
    """`retry` makes a failed job wait as if it had never run."""
    queue, worker = client.queue(), client.worker()
    queue.add("again")
    worker.claim_one()
    worker.fail("1")
    queue.retry("1")
    equal(queue.redis.state("1"), ["wait"], "the job waits")
    gone = [queue.redis.field("1", field) for field in ("finishedOn", "processedOn", "failedReason")]
    equal(gone, [None, None, None], "the traces of the failure are cleared")


@scenario("retry.manual")
def test_a_job_retried_by_hand_goes_behind_the_others(client: Participant) -> None:
    """It enters `wait` at the left and wakes a worker."""
    queue, worker = client.queue(), client.worker()
    queue.add("again")
    queue.add("other")
    worker.claim_one()
    worker.fail("1")
    # The marker of the additions would hide whether the retry sets one.
    queue.redis.delete("marker")
    queue.retry("1")
    equal(queue.redis.elements("wait"), ["1", "2"], "the job is at the left end of `wait`")
    equal(queue.redis.members("marker"), ["0"], "the base marker is set", where="marker.base")


@scenario("retry.manual")
def test_a_lifo_job_retried_by_hand_runs_next(client: Participant) -> None:
    """`lifo` also counts for a retry by hand."""
    queue, worker = client.queue(), client.worker()
    queue.add("again", {}, lifo=True)
    worker.claim_one()
    worker.fail("1")
    queue.add("other")
    queue.retry("1")
    equal(queue.redis.elements("wait"), ["2", "1"], "the job is at the right end of `wait`")


@scenario("retry.backoff.jitter", compare=False)
def test_a_jitter_shortens_the_backoff_only(client: Participant) -> None:
    """With jitter j the delay is between d * (1 - j) and d."""
    queue, worker = client.queue(), client.worker()
    # Eight times: equal delays by chance are out of the question.
    for number in range(8):
        queue.add("shaky", {}, attempts=2, backoff={"type": "fixed", "delay": 10_000, "jitter": 0.5})
        worker.claim_one()
        worker.fail(str(number + 1))
    delays = [float(queue.redis.field(str(number), "delay") or 0) for number in range(1, 9)]
    for delay in delays:
        between(delay, 5000, 10_000, "the delay lies within the jitter")
    holds(len(set(delays)) > 1, "the delays differ", seen=delays)


@scenario("retry.manual.completed")
def test_a_completed_job_is_retried_by_hand(client: Participant) -> None:
    """`retry` also takes a completed job."""
    queue, worker = client.queue(), client.worker()
    queue.add("again")
    worker.claim_one()
    worker.complete("1", "once")
    queue.retry("1", "completed")
    equal(queue.redis.state("1"), ["wait"], "the job waits")
    equal(queue.redis.field("1", "returnvalue"), None, "the result is cleared", where="job.returnvalue")


@pytest.mark.parametrize("made", [True, False], ids=["made", "made-stays"])
@pytest.mark.parametrize("started", [True, False], ids=["started", "started-stays"])
@pytest.mark.parametrize("state", ["failed", "completed"])
@scenario(
    "retry.manual.counters", bullmq=">=5.66", without={"attempts": "only one of the counters is reset in some cases"}
)
def test_a_retry_by_hand_resets_the_counters_that_it_names(
    client: Participant, made: bool, started: bool, state: str
) -> None:
    """Without a counter the job has all its attempts again."""
    queue, worker = client.queue(), client.worker()
    queue.add("again", {}, attempts=2)
    worker.claim_one()
    worker.fail("1")
    worker.claim_one()
    if state == "failed":
        worker.fail("1")
    else:
        worker.complete("1")
    queue.retry("1", state, reset_attempts_made=made, reset_attempts_started=started)
    equal(queue.redis.field("1", "atm"), None if made else "2", "attempts that were made")
    equal(queue.redis.field("1", "ats"), None if started else "2", "attempts that were started")
    worker.claim_one()
    worker.fail("1")
    equal(queue.redis.state("1"), ["wait" if made else "failed"], "only reset attempts are left for another one")


@scenario("retry.manual.prioritized", bullmq=">=6.3.15")
def test_a_prioritized_job_retried_by_hand_keeps_its_priority(client: Participant) -> None:
    """It goes behind the others of its priority, and wakes a worker."""
    queue, worker = client.queue(), client.worker()
    queue.add("again", {}, priority=2)
    worker.claim_one()
    worker.fail("1")
    queue.add("same", {}, priority=2)
    queue.add("later", {}, priority=3)
    queue.redis.delete("marker")  # which would hide whether the retry sets one
    queue.retry("1")
    equal(queue.redis.members("prioritized"), ["2", "1", "3"], "it is behind the others of its priority")
    equal(queue.redis.members("marker"), ["0"], "the base marker is set", where="marker.base")


@scenario("retry.manual.wrong-state")
def test_a_waiting_job_is_not_retried(client: Participant) -> None:
    """Only a job of the named state is retried."""
    queue = client.queue()
    queue.add("waiting")
    with client.refuses("wrong-state", "a waiting job cannot be retried"):
        queue.retry("1")
    equal(queue.redis.elements("wait"), ["1"], "the job waits once")


@scenario("retry.succeeds-later", "job.hash.failed-reason")
def test_a_later_success_completes_the_job(client: Participant) -> None:
    """The reason of the failed attempt stays readable."""
    queue, worker = client.queue(), client.worker()
    queue.add("shaky", {}, attempts=2)
    worker.claim_one()
    worker.fail("1", "first try")
    worker.claim_one()
    worker.complete("1", "second try")
    equal(queue.redis.state("1"), ["completed"], "the job is completed")
    equal(queue.redis.field("1", "failedReason"), "first try", "the reason is kept", where="job.failedReason")
