"""Rate limits while jobs run: jobs that follow others, jobs that go back, and workers that wait and go on."""

from __future__ import annotations

from statistics import median

import pytest

from conformance.driver.ops import worker as worker_ops
from conformance.participants.expect import Mismatch, between, equal, holds
from conformance.participants.marks import scenario, shared
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import (
    FULL_WINDOW,
    MINUTE_MS,
    OF_LIMIT,
    apply_limit,
    fill,
    limit_queue,
    required,
    started_in_windows,
    wait_for_all_completed,
    window_gaps_ms,
)


@pytest.mark.parametrize("how", ["complete", "fail"])
@scenario("ratelimit.fetch-next", "ratelimit.queue-wide")
def test_finishing_hands_out_nothing_beyond_the_limit(client: Participant, how: str) -> None:
    """The job is still finished, and there is no event `drained`."""
    queue, worker = client.queue(), client.worker()
    limit_queue(queue, 1)
    fill(queue, 2)
    worker.claim_one()
    equal(queue.redis.string("limiter"), "1", "the start counts against the limit of the queue", where="limiter")
    following = worker.complete("1", fetch_next=True) if how == "complete" else worker.fail("1", fetch_next=True)
    # The job is finished in the same script, so a refused fetch must not undo it.
    equal(following, None, "no other job comes with the answer")
    state = "completed" if how == "complete" else "failed"
    equal([queue.redis.state(job) for job in ("1", "2")], [[state], ["wait"]], "one is finished, the other waits")
    holds("drained" not in queue.redis.event_names(), "the queue was not drained", seen=queue.redis.event_names())


@scenario("ratelimit.fetch-next", "ratelimit.window")
def test_what_finishing_hands_out_begins_a_window(client: Participant) -> None:
    """A job that comes with the answer of another is a start like every other, also as the first of a window."""
    queue, worker = client.queue(), client.worker()
    limit_queue(queue, 2)
    fill(queue, 4)
    worker.claim_one()
    equal(queue.redis.string("limiter"), "1", "the claim opens a window", where=OF_LIMIT["queue"])
    # As if the window had ended between the claim and the finish.
    queue.redis.delete("limiter")
    for starts in (1, 2):
        following = required(worker.complete(str(starts), fetch_next=True))
        equal((following.id, queue.redis.string("limiter")), (str(starts + 1), str(starts)), "the next job is counted")
    between(queue.redis.ttl_ms("limiter"), 1, MINUTE_MS, "the window ends after its duration")
    equal(worker.complete("3", fetch_next=True), None, "the window is full")


@scenario("ratelimit.promotes")
def test_due_jobs_are_promoted_all_the_same(client: Participant) -> None:
    """A claim that is refused has looked after the delayed jobs before."""
    queue, worker = client.queue(), client.worker()
    limit_queue(queue, 1)
    queue.add("due", {}, delay=20)
    # The window is full before the claim: only promotion can move the job.
    queue.redis.set_string("limiter", "1", ttl_ms=MINUTE_MS)
    # More than the delay, so that the job is due.
    client.pass_time(50)
    equal(worker.claim(), None, "nothing is handed out", where=OF_LIMIT["queue"])
    equal(queue.redis.state("1"), ["wait"], "the due job waits")


@pytest.mark.parametrize("priority", [0, 3], ids=["plain", "prioritized"])
@scenario("ratelimit.job-goes-back", clock="real")
def test_a_job_that_meets_a_limit_goes_back(client: Participant, priority: int) -> None:
    """It is the next of its kind to run, it is unlocked, and its attempt is not counted."""
    queue = client.queue()
    queue.add("limited", {}, priority=priority)
    queue.add("behind", {}, priority=priority)
    # A limit that is never reached: only `rate-limit` by the processor fills the window.
    worker = client.worker("ask", limiter={"max": 1000, "duration": 1000})
    worker.next_job()
    # A minute, so that the window is still full when the state is read.
    worker.resolve("1", "rate-limit", ms=MINUTE_MS)
    place = "prioritized" if priority else "wait"
    client.eventually(lambda: queue.redis.state("1"), lambda state: state == [place], "the job waits again")
    order = queue.redis.members("prioritized") if priority else list(reversed(queue.redis.elements("wait")))
    equal(order, ["1", "2"], "it is the first to run")
    fields = queue.redis.hash("1")
    equal((fields.get("ats"), fields.get("atm")), ("1", None), "it was started, and no attempt was made")
    equal(queue.redis.value("1:lock"), None, "it is unlocked")
    equal(queue.redis.string("limiter"), FULL_WINDOW, "the window is full")
    worker.close()


@pytest.mark.parametrize("priority", [0, 3], ids=["plain", "prioritized"])
@scenario("ratelimit.job-goes-back", bullmq="<6")
def test_a_job_goes_back_into_a_paused_queue(client: Participant, priority: int) -> None:
    """There it is parked with the others that have no priority."""
    queue, worker = client.queue(), client.worker()
    queue.add("limited", {}, priority=priority)
    worker.claim_one()
    queue.pause()
    queue.add("behind", {}, priority=priority)
    parked = "prioritized" if priority else "paused"
    equal(queue.redis.state("2"), [parked], "a job that is added now is parked", where="invariant.paused-list")
    worker.call(worker_ops.MoveToWait(job="1", token="token-1"))
    order = queue.redis.members("prioritized") if priority else list(reversed(queue.redis.elements("paused")))
    equal(order, ["1", "2"], "it will be the first to run")
    equal(worker.claim(), None, "a paused queue hands out no job")
    queue.resume()
    equal(worker.claim_one("token-2").id, "1", "after the resume it is handed out")


@pytest.mark.parametrize("priority", [0, 3], ids=["plain", "prioritized"])
@scenario("ratelimit.job-goes-back", bullmq=">=6")
def test_a_job_goes_back_while_the_queue_is_paused(client: Participant, priority: int) -> None:
    """It stands first among those of its priority, in `wait` if it has none, and is not handed out."""
    queue, worker = client.queue(), client.worker()
    queue.add("limited", {}, priority=priority)
    worker.claim_one()
    queue.pause()
    queue.add("behind", {}, priority=priority)
    worker.call(worker_ops.MoveToWait(job="1", token="token-1"))
    order = queue.redis.members("prioritized") if priority else list(reversed(queue.redis.elements("wait")))
    equal(order, ["1", "2"], "it will be the first to run")
    equal(worker.claim(), None, "a paused queue hands out no job")
    queue.resume()
    equal(worker.claim_one("token-2").id, "1", "after the resume it is handed out")


# 200 ms, against the minute of the limiter: waiting for the wrong one misses the deadline. 1 ms: over before the job
# is given back.
@pytest.mark.parametrize("window_ms", [200, 1])
@scenario("ratelimit.goes-on", clock="real")
def test_a_job_that_went_back_is_run_after_the_window(client: Participant, window_ms: int) -> None:
    """The worker waits for the window's end, and for nothing else."""
    queue = client.queue()
    queue.add("limited")
    worker = client.worker("ask", limiter={"max": 1000, "duration": MINUTE_MS})
    worker.next_job()
    worker.resolve("1", "rate-limit", ms=window_ms)
    equal(worker.next_job().job.id, "1", "the same job is handed out again")
    worker.resolve("1")
    worker.wait_local("completed", "1")
    equal(queue.redis.field("1", "ats"), "2", "it was started twice", where="job.ats")
    equal(queue.redis.field("1", "atm"), "1", "only one attempt is counted", where="job.atm")
    worker.close()


@pytest.mark.parametrize("concurrency", [1, 5])
@pytest.mark.parametrize("whose", ["worker", "queue"])
@scenario("ratelimit.goes-on", clock="real", compare=False)  # who ends first of those that run at once is a race
def test_a_limited_worker_works_in_bursts(client: Participant, whose: str, concurrency: int) -> None:
    """Six jobs at two per window are three windows, and the worker wakes by itself."""
    queue = client.queue()
    # Windows of 200 ms, so that three of them fit into a short scenario.
    limiter = apply_limit(whose, queue, 2, 200)
    fill(queue, 6)
    worker = client.worker("noop", concurrency=concurrency, **limiter)
    wait_for_all_completed(client, 6)
    worker.close()
    started_in_windows(queue.redis, most=2, duration_ms=200, where=OF_LIMIT[whose])


@scenario("ratelimit.goes-on", clock="real", compare=False)
def test_a_limited_worker_does_not_wait_for_its_longest_job(client: Participant) -> None:
    """While one job runs on, window after window starts others.

    One try of three is enough: if a timer of Node ends a millisecond early, its worker waits for the long job all the
    same, in 3 of 100 windows.
    """
    for number in (1, 2, 3):
        late = _late_beside_a_long_job(client, number)
        if late is None:
            return
        if number == 3:
            raise late


def _late_beside_a_long_job(client: Participant, number: int) -> Mismatch | None:
    """Work off five jobs, the first of which runs until the others have ended. Returns the first that came too late."""
    queue, late = client.queue(), None
    fill(queue, 5)
    # Windows of 200 ms, so that several of them pass while the first job runs.
    worker = client.worker("ask", concurrency=2, limiter={"max": 2, "duration": 200})
    long = worker.next_job().job.id
    for _ in range(4):
        try:
            other = worker.next_job(within_ms=4000).job.id
        except Mismatch as mismatch:
            if late is not None:
                raise
            late = mismatch
            worker.resolve(long)
            other = worker.next_job().job.id
        worker.resolve(other)
    if late is None:
        equal(queue.redis.state(long), ["active"], "the first job still runs")
        worker.resolve(long)
    wait_for_all_completed(client, 5 * number)
    worker.close()
    queue.redis.delete("limiter")
    return late


@scenario("ratelimit.longest-pause", clock="real", bullmq=">=5.64.1")
def test_a_limited_worker_asks_again_in_time(client: Participant) -> None:
    """After `maximumRateLimitDelay` the worker sees that a long limit was lifted meanwhile."""
    queue = client.queue()
    fill(queue, 1)
    worker = client.worker("ask", maximumRateLimitDelay=300)
    worker.next_job()
    # Ten minutes: the worker learns of this limit from the answer that puts its job back.
    worker.resolve("1", "rate-limit", ms=10 * MINUTE_MS)
    client.eventually(lambda: queue.redis.state("1"), lambda state: state == ["wait"], "the job waits for the limit")
    queue.redis.delete("limiter")
    equal(worker.next_job().job.id, "1", "the job starts soon after the limit was lifted")


@shared("ratelimit.goes-on")
def test_a_limited_worker_loses_no_time(client: Participant, oracle: Participant) -> None:
    """Client and oracle work at once, each on its own queue: the next window starts as soon as the last has ended.

    Of several windows the one in the middle counts, and all that makes Node late may make the client so three times.
    """
    # 400 ms: the overhead between two windows has to be small compared with them.
    jobs, most, duration_ms = 10, 2, 400
    queues = {side: side.queue(f"of-the-{side.role}") for side in (client, oracle)}
    for side, queue in queues.items():
        fill(queue, jobs)
        side.worker("noop", queue=queue.queue_name, limiter={"max": most, "duration": duration_ms})
    client.eventually(
        lambda: [len(queue.redis.members("completed")) for queue in queues.values()],
        lambda completed: completed == [jobs, jobs],
        "both finish all jobs",
        within_ms=15_000,
    )
    # The median, because a single late window is the machine's.
    mine, nodes = (median(window_gaps_ms(queue.redis, most=most)) for queue in queues.values())
    # Node's own delay on this machine is the measure, three times of it is allowed.
    latest_ms = 2 * duration_ms + 3 * max(0, nodes - duration_ms)
    between(mine, duration_ms, latest_ms, "windows follow each other without a pause (ms from start to start)")
    for queue in queues.values():
        # The windows are about to expire, and the snapshots could differ by chance.
        queue.redis.delete("limiter")


@shared("ratelimit.queue-wide", "ratelimit.goes-on")
def test_both_keep_to_one_limit(client: Participant, oracle: Participant) -> None:
    """Workers of client and oracle together start at most two jobs per window."""
    queue = client.queue()
    limit_queue(queue, 2, 200)
    fill(queue, 8)
    mine, other = client.worker("noop", concurrency=3), oracle.worker("noop", concurrency=3)
    wait_for_all_completed(client, 8)
    # Closed before the stamps are read, so that no further start comes.
    mine.close()
    other.close()
    started_in_windows(queue.redis, most=2, duration_ms=200)
