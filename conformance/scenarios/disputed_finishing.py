"""Disputed rows about finishing, on the oracle alone: refusals, what is kept, logs, retries and back-off."""

from __future__ import annotations

from conformance.participants.expect import equal, holds
from conformance.participants.handles import WorkerHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import HOUR_MS, fill


def _finish_all(client: Participant, worker: WorkerHandle, count: int) -> None:
    for _ in range(count):
        client.pass_time(5)
        worker.complete(worker.claim_one().id)


@scenario("lifecycle.complete.missing", "script.refusals")
def test_refusals_are_numbers(client: Participant) -> None:
    """The script refuses with -6 (foreign lock), -2 (no lock) or -1 (no job); the library turns them into errors."""
    queue, worker = client.queue(), client.worker()
    queue.add("vanishing")
    worker.claim_one()
    queue.redis.set_string("1:lock", "token-other", ttl_ms=60_000)
    with client.refuses("lock-mismatch", "the lock is foreign"):
        worker.complete("1")
    queue.redis.delete("1:lock")
    with client.refuses("missing-lock", "the lock is gone"):
        worker.complete("1")
    queue.redis.delete("1")
    with client.refuses("missing-job", "the job is gone"):
        worker.complete("1")
    replies = [call.reply for call in client.tap.calls("moveToFinished")]
    answers = [reply.head.decode().strip() for reply in replies if reply is not None and reply.error is None]
    equal(answers, [":-6", ":-2", ":-1"], "the script answers numbers")


@scenario("lifecycle.remove-on-complete.count")
def test_counts_of_zero_one_and_below(client: Participant) -> None:
    """A count of 0 keeps no job, 1 keeps the newest one, and a negative count keeps all."""
    kept = {}
    for count in (0, 1, -1):
        queue, worker = client.queue(f"keep{count}"), client.worker(queue=f"keep{count}")
        for _ in range(2):
            queue.add("work", {}, removeOnComplete=count)
        _finish_all(client, worker, 2)
        kept[count] = queue.redis.members("completed")
    equal(kept, {0: [], 1: ["2"], -1: ["1", "2"]}, "the jobs kept of two, by count")


@scenario("lifecycle.remove-on-complete.age")
def test_the_workers_setting_applies_without_option(client: Participant) -> None:
    """`removeOnComplete` can be an age and a count; without it the worker's setting applies, or jobs are kept."""
    queue, worker = client.queue(), client.worker()
    queue.add("old")
    _finish_all(client, worker, 1)
    equal(queue.redis.members("completed"), ["1"], "without any setting the job is kept")
    client.pass_time(1500)
    queue.add("new", {}, removeOnComplete={"age": 1, "count": 100})
    _finish_all(client, worker, 1)
    equal(queue.redis.members("completed"), ["2"], "the job older than 1 s is removed")
    queue.add("plain")
    _finish_all(client, client.worker(removeOnComplete={"count": 0}), 1)
    equal(queue.redis.value("3"), None, "the worker's setting removes the job without option")


@scenario("log.keep")
def test_logs_grow_without_limit(client: Participant) -> None:
    """Only `keepLogs` trims a log: without it 1100 rows stay."""
    queue = client.queue()
    fill(queue, 1)
    for number in range(1100):
        queue.log("1", f"row {number}")
    equal(len(queue.redis.elements("1:logs")), 1100, "the rows without a limit")
    equal(queue.log("1", "the last", keep=3), 3, "the rows after keepLogs 3")


@scenario("retry.immediately")
def test_a_retried_job_was_never_failed(client: Participant) -> None:
    """A retry without back-off moves the job from `active` to `wait`; it is never in `failed`."""
    queue, worker = client.queue(), client.worker()
    queue.add("shaky", {}, attempts=2)
    worker.claim_one()
    worker.fail("1")
    equal(queue.redis.state("1"), ["wait"], "the job waits again")
    holds("failed" not in queue.redis.event_names(), "there is no event `failed`", seen=queue.redis.event_names())


@scenario("retry.backoff.exponential", "retry.backoff.cap-arithmetic")
def test_an_exponential_backoff_has_no_maximum(client: Participant) -> None:
    """Each delay is twice the previous one, also above an hour, which the 13th retry from 1 s exceeds first."""
    queue, worker = client.queue(), client.worker()
    queue.add("doomed", {}, attempts=16, backoff={"type": "exponential", "delay": 1000})
    delays = []
    for _ in range(15):
        worker.claim_one()
        worker.fail("1")
        delays.append(int(queue.redis.field("1", "delay") or 0))
        queue.promote("1")
    equal(delays, [1000 * 2**number for number in range(15)], "the delays (ms)")
    equal(next(number for number, delay in enumerate(delays, 1) if delay > HOUR_MS), 13, "the first above an hour")


@scenario("retry.backoff.jitter")
def test_a_backoff_is_exact_without_jitter(client: Participant) -> None:
    """Ten retries without `jitter` wait exactly the delay."""
    queue, worker = client.queue(), client.worker()
    for number in range(1, 11):
        queue.add("shaky", {}, attempts=2, backoff={"type": "fixed", "delay": 10_000})
        worker.claim_one()
        worker.fail(str(number))
    equal({queue.redis.field(str(number), "delay") for number in range(1, 11)}, {"10000"}, "the delays (ms)")
