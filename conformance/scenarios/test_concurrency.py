"""How many jobs run at once: the limit of a queue in `meta`, that of each worker, and many workers together."""

from __future__ import annotations

import time

import pytest

from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops import worker as worker_ops
from conformance.participants.expect import between, equal
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import scenario, shared
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import fill, let_stall, most_at_once, wait_for_all_completed

NEVER_WAITS_S = 1.0
"""Seconds after which a worker certainly waits to be woken."""
QUEUE_WIDE = "row.concurrency.queue-wide"
"""If a full queue hands out a job, nothing else about it is shown."""


def _limit(queue: QueueHandle, most: int) -> None:
    """Limit the number of active jobs of the queue."""
    queue.call(queue_ops.SetGlobalConcurrency(concurrency=most))


@scenario("concurrency.queue-wide", tier="smoke")
def test_a_full_queue_hands_out_nothing(client: Participant) -> None:
    """With as many active jobs as the queue allows, no worker gets another."""
    queue = client.queue()
    _limit(queue, 2)
    fill(queue, 4)
    first, second = client.worker(), client.worker()
    equal([first.claim_one("token-1").id, second.claim_one("token-2").id], ["1", "2"], "two jobs are active")
    equal((first.claim("token-3"), second.claim("token-4")), (None, None), "no worker gets a third")
    equal(queue.redis.elements("wait"), ["4", "3"], "the others wait")
    first.complete("1", token="token-1")
    equal(second.claim_one("token-5").id, "3", "a finished job makes room for the next")


@scenario("concurrency.queue-wide")
def test_a_full_queue_keeps_its_prioritized_jobs(client: Participant) -> None:
    """Prioritized jobs do not get around the limit."""
    queue, worker = client.queue(), client.worker()
    _limit(queue, 1)
    queue.add("plain")
    queue.add("urgent", {}, priority=1)
    worker.claim_one("token-1")
    equal(worker.claim("token-2"), None, "nothing is handed out")
    worker.complete("1", token="token-1")
    equal(worker.claim_one("token-3").id, "2", "then the prioritized job follows")


@pytest.mark.parametrize("how", ["fail", "retry", "delay", "stall"])
@scenario("concurrency.queue-wide")
def test_whatever_leaves_active_makes_room(client: Participant, how: str) -> None:
    """Only what is active counts, however it ends."""
    queue, worker = client.queue(), client.worker()
    _limit(queue, 1)
    queue.add("first", {}, attempts=2 if how == "retry" else 1)
    queue.add("second")
    worker.claim_one("token-1")
    equal(worker.claim("token-2"), None, "the queue is full")
    _leave_active(client, queue, worker, how)
    equal(worker.claim_one("token-3").id, "1" if how == "stall" else "2", "there is room again")


def _leave_active(client: Participant, queue: QueueHandle, worker: WorkerHandle, how: str) -> None:
    """Take job 1 out of `active`: after a stall it is the next to run, else job 2 is."""
    if how == "delay":
        due = client.clock.now_ms() + 60_000
        worker.call(worker_ops.MoveToDelayed(job="1", token="token-1", timestamp=due))
    elif how == "stall":
        let_stall(queue, worker, "1")
    else:
        worker.fail("1", token="token-1")


@pytest.mark.parametrize("how", ["complete", "fail"])
@scenario("concurrency.fetch-next")
def test_the_freed_place_goes_to_who_freed_it(client: Participant, how: str) -> None:
    """Finishing a job of a full queue hands out the next in the same step."""
    queue, worker = client.queue(), client.worker()
    _limit(queue, 1)
    fill(queue, 3)
    worker.claim_one()
    following = worker.complete("1", fetch_next=True) if how == "complete" else worker.fail("1", fetch_next=True)
    equal(following.id if following else None, "2", "the next job comes with the answer")
    equal(queue.redis.elements("active"), ["2"], "one job is active, as before")


@scenario("concurrency.fetch-next")
def test_finishing_hands_out_nothing_above_the_limit(client: Participant) -> None:
    """When the limit was lowered meanwhile, running jobs go on and no other is started."""
    queue, worker = client.queue(), client.worker()
    fill(queue, 4)
    for number in (1, 2, 3):
        worker.claim_one(f"token-{number}")
    _limit(queue, 1)
    equal(queue.redis.elements("active"), ["3", "2", "1"], "the active jobs stay with their workers")
    equal(worker.claim("token-4"), None, "nothing is handed out", where=QUEUE_WIDE)
    equal(worker.complete("1", token="token-1", fetch_next=True), None, "two are still active: nothing is handed out")
    equal(queue.redis.state("4"), ["wait"], "the fourth waits")


@scenario("concurrency.no-marker")
def test_a_job_for_a_full_queue_wakes_nobody(client: Participant) -> None:
    """It is added without a marker, because no worker could take it."""
    queue, worker = client.queue(), client.worker()
    _limit(queue, 1)
    queue.add("running")
    worker.claim_one()
    queue.redis.delete("marker")
    queue.add("waiting")
    queue.add("urgent", {}, priority=1)
    equal(queue.redis.members("marker"), [], "there is no marker", where="marker.base")
    equal((queue.redis.state("2"), queue.redis.state("3")), (["wait"], ["prioritized"]), "both jobs wait")


@scenario("concurrency.promotes")
def test_due_jobs_of_a_full_queue_are_promoted(client: Participant) -> None:
    """A claim that gets nothing has looked after the delayed jobs before."""
    queue, worker = client.queue(), client.worker()
    _limit(queue, 1)
    queue.add("running")
    worker.claim_one("token-1")
    queue.add("due", {}, delay=20)
    client.pass_time(50)
    equal(worker.claim("token-2"), None, "nothing is handed out", where=QUEUE_WIDE)
    equal(queue.redis.state("2"), ["wait"], "the due job waits")


@scenario("concurrency.settings")
def test_the_limit_of_a_queue_is_in_meta(client: Participant) -> None:
    """Set, read and taken away; without it everybody gets a job."""
    queue, worker = client.queue(), client.worker()
    equal(queue.call(queue_ops.GetGlobalConcurrency()).value, None, "at first there is no limit")
    _limit(queue, 1)
    equal(queue.redis.field("meta", "concurrency"), "1", "`meta` has the number", where="meta.concurrency")
    equal(queue.call(queue_ops.GetGlobalConcurrency()).value, 1, "it is read back")
    fill(queue, 2)
    worker.claim_one("token-1")
    queue.call(queue_ops.RemoveGlobalConcurrency())
    equal(queue.redis.field("meta", "concurrency"), None, "`meta` no longer has it", where="meta.concurrency")
    equal(worker.claim_one("token-2").id, "2", "the next job is handed out")


@scenario("concurrency.is-maxed")
def test_a_full_queue_says_so(client: Participant) -> None:
    """`isMaxed` is true while as many jobs are active as the queue allows."""
    queue, worker = client.queue(), client.worker()
    equal(queue.call(queue_ops.IsMaxed()).value, False, "without limit no queue is full")
    _limit(queue, 1)
    fill(queue, 2)
    equal(queue.call(queue_ops.IsMaxed()).value, False, "nothing is active")
    worker.claim_one()
    equal(queue.call(queue_ops.IsMaxed()).value, True, "one job is active, and one is allowed")


@scenario("concurrency.paused")
def test_a_pause_and_a_limit_hold_both(client: Participant) -> None:
    """A paused queue hands out nothing although there is room, and a resumed one nothing above its limit."""
    queue, worker = client.queue(), client.worker()
    _limit(queue, 2)
    fill(queue, 3)
    worker.claim_one("token-1")
    queue.pause()
    equal(worker.claim("token-2"), None, "a paused queue hands out no job")
    queue.resume()
    equal(worker.claim_one("token-3").id, "2", "after the resume there is room for one")
    equal(worker.claim("token-4"), None, "and for no more", where=QUEUE_WIDE)


@scenario("concurrency.rate-limited")
def test_a_full_queue_counts_no_starts(client: Participant) -> None:
    """With both limits set, a claim that finds the queue full is not counted as a start."""
    queue, worker = client.queue(), client.worker()
    _limit(queue, 1)
    queue.call(queue_ops.SetGlobalRateLimit(max=2, duration_ms=60_000))
    fill(queue, 3)
    worker.claim_one("token-1")
    equal(worker.claim("token-2"), None, "the queue is full", where=QUEUE_WIDE)
    equal(queue.redis.string("limiter"), "1", "one start was counted")
    following = worker.complete("1", token="token-1", fetch_next=True)
    equal(following.id if following else None, "2", "there is room, and the window has one start left")
    equal(worker.complete("2", token="token-1", fetch_next=True), None, "then the window is full")


@shared("concurrency.queue-wide", "concurrency.goes-on")
def test_both_keep_to_one_limit(client: Participant, oracle: Participant) -> None:
    """Workers of client and oracle with room for ten jobs never have more than three of the queue's."""
    queue = client.queue()
    _limit(queue, 3)
    fill(queue, 40)
    mine = client.worker("sleep", concurrency=5, drainDelay=1, processor_args={"ms": 5})
    other = oracle.worker("sleep", concurrency=5, drainDelay=1, processor_args={"ms": 5})
    wait_for_all_completed(client, 40)
    mine.close()
    other.close()
    between(most_at_once(queue.redis), 2, 3, "at most three jobs were active at any moment, and several were")


@scenario("concurrency.goes-on", clock="real")
def test_a_worker_of_a_full_queue_goes_on(client: Participant) -> None:
    """A worker that was refused takes the next job as soon as its own is done."""
    queue = client.queue()
    _limit(queue, 1)
    fill(queue, 4)
    worker = client.worker("ask", concurrency=3, drainDelay=1)
    for number in range(1, 5):
        equal(worker.next_job().job.id, str(number), "one job after the other is handed out")
        _let_it_be_refused(client, queue)
        equal(queue.redis.elements("active"), [str(number)], "it is the only one", where=QUEUE_WIDE)
        worker.resolve(str(number))
    wait_for_all_completed(client, 4)
    worker.close()


def _let_it_be_refused(client: Participant, queue: QueueHandle) -> None:
    """Wait until the worker has asked for more and waits to be woken; a client that never does so gets a second."""
    started = time.monotonic()
    client.eventually(
        lambda: (_waits_to_be_woken(client, queue), time.monotonic() - started > NEVER_WAITS_S),
        any,
        "the worker is refused a second job",
    )


def _waits_to_be_woken(client: Participant, queue: QueueHandle) -> bool:
    """Nothing is there that could wake it, and nothing has."""
    if queue.redis.exists("marker"):
        return False
    asked = client.tap.commands(where=lambda sent: sent.waits_for_work)
    return bool(asked) and asked[-1].reply is None


@shared("concurrency.each-worker")
def test_every_worker_has_its_own_limit(client: Participant, oracle: Participant) -> None:
    """Two workers for two jobs each run four at once, and the fifth waits."""
    queue = client.queue()
    fill(queue, 5)
    mine, other = client.worker("ask", concurrency=2), oracle.worker("ask", concurrency=2)
    running = {worker: [worker.next_job().job.id for _ in range(2)] for worker in (mine, other)}
    equal(sorted(running[mine] + running[other]), ["1", "2", "3", "4"], "four jobs run at once")
    equal(queue.redis.state("5"), ["wait"], "the fifth waits")
    mine.resolve(running[mine][0])
    equal(mine.next_job().job.id, "5", "the worker with room gets it")
    for worker, jobs in ((mine, [running[mine][1], "5"]), (other, running[other])):
        for job in jobs:
            worker.resolve(job)
    wait_for_all_completed(client, 5)
    mine.close()
    other.close()


@shared("performance.many-workers", slow=True)
def test_many_workers_finish_every_job_once(client: Participant, oracle: Participant) -> None:
    """Twelve workers, half of them Node's, and three hundred jobs."""
    queue = client.queue()
    queue.add_bulk(*((f"job {number}", {"n": number}, {}) for number in range(300)))
    workers = [
        side.worker("sleep", concurrency=2, name=f"{side.role}-{number}", processor_args={"ms": 1})
        for number in range(6)
        for side in (client, oracle)
    ]
    wait_for_all_completed(client, 300)
    for worker in workers:
        worker.close()
    events = queue.redis.events()
    for name in ("active", "completed"):
        jobs = sorted(int(entry["jobId"]) for entry in events if entry["event"] == name)
        equal(jobs, list(range(1, 301)), f"every job was {name} exactly once")
    equal(queue.redis.value("active"), None, "no worker holds a job")
