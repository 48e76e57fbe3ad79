"""Keys that Redis has evicted: what is lost with each, and that clients report it and go on.

`redis.delete` simulates the eviction of one key; real pressure on memory is in `test_memory_pressure.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops.worker import Outcome
from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import check_stalled_again, claimed_until_empty, let_stall

LATER_MS = 60_000
NO_FIELDS = {
    "required-fields": "the hash was evicted, and only what happened since is in it",
    "oracle-health": "the hash was evicted",
}
NO_HASH = {
    "no-ghosts": "the hash was evicted",
    "locks": "the hash was evicted",
    "owned-keys": "the hash was evicted",
    "oracle-health": "the hash was evicted",
}


# Keys that expire by themselves: any volatile-* policy may evict them.


@scenario("chaos.eviction")
def test_jobs_without_locks_are_recovered(client: Participant) -> None:
    """All locks are gone at once: two checks put all jobs back, in their order, and a worker finishes them."""
    queue, worker = client.queue(), client.worker()
    for number in range(1, 6):
        queue.add(f"job {number}")
    for number in range(1, 6):
        worker.claim_one(f"token-{number}")
    for number in range(1, 6):
        queue.redis.delete(f"{number}:lock")
    # The first check only marks, so nothing comes back before the second.
    for recovered in ([], ["1", "2", "3", "4", "5"]):
        put_back = sorted(check_stalled_again(queue, worker))
        equal(put_back, recovered, "the second check recovers what the first has marked")
    for claimed in claimed_until_empty(worker, "token-again"):
        worker.complete(claimed.id, token="token-again")
    equal(len(queue.redis.members("completed")), 5, "every job is completed")


@scenario("chaos.eviction")
def test_a_lost_suspicion_costs_one_check(client: Participant) -> None:
    """Without the set `stalled` the next check only marks, and the one after it recovers."""
    queue, worker = client.queue(), client.worker()
    queue.add("lost")
    worker.claim_one()
    queue.redis.delete("1:lock")
    # `check_stalled` directly: this one is the check that marks.
    worker.check_stalled()
    queue.redis.delete("stalled")
    for recovered in ([], ["1"]):
        equal(check_stalled_again(queue, worker), recovered, "one more check is needed")
    equal(queue.redis.state("1"), ["wait"], "the job waits again")


@scenario("eviction.throttles")
def test_a_lost_stalled_check_is_made_anew(client: Participant) -> None:
    """Without `stalled-check` the next worker checks at once, and the interval starts again."""
    queue, worker = client.queue(), client.worker(stalledInterval=60_000)
    queue.add("lost")
    worker.claim_one()
    queue.redis.delete("1:lock")
    worker.check_stalled()
    queue.redis.delete("stalled-check")
    equal(worker.check_stalled(), ["1"], "the next check works")
    ttl_ms = queue.redis.ttl_ms("stalled-check")
    holds(ttl_ms > 0, "and the interval runs again", seen=ttl_ms)


@scenario("eviction.throttles")
def test_a_lost_window_begins_anew(client: Participant) -> None:
    """Without `limiter` the rate limit counts from one."""
    queue, worker = client.queue(), client.worker(limiter={"max": 2, "duration": 60_000})
    for number in range(2):
        queue.add(f"job {number}")
    worker.claim_one("token-1")
    queue.redis.delete("limiter")
    worker.claim_one("token-2")
    equal(queue.redis.string("limiter"), "1", "the window counts one start")


@scenario("eviction.throttles")
def test_a_lost_deduplication_lets_a_second_job_in(client: Participant) -> None:
    """Without its key a deduplication id is free, and taken by the next job."""
    queue = client.queue()
    deduplication = {"id": "only-one", "ttl": 60_000}
    queue.add("first", {}, deduplication=deduplication)
    queue.redis.delete("de:only-one")
    equal(queue.add("second", {}, deduplication=deduplication), "2", "the second job is added")
    equal(queue.redis.string("de:only-one"), "2", "it owns the id now")


# Hashes of jobs: only allkeys-* policies take them.


@pytest.mark.parametrize("opts", [{}, {"priority": 3}, {"delay": 20}], ids=["wait", "prioritized", "delayed"])
@scenario("eviction.hash.waiting", without=NO_FIELDS)
def test_a_waiting_job_without_hash_is_handed_out(client: Participant, opts: dict[str, Any]) -> None:
    """It has no name and no data any more; finishing it makes way for the next job."""
    queue, worker = client.queue(), client.worker()
    queue.add("vanished", {"n": 1}, **opts)
    # More than the delay of 20 ms, so that the delayed job is due as well.
    client.pass_time(50)
    queue.redis.delete("1")
    # Not compared: how a job without data is read is another requirement.
    with client.transcript.not_compared():
        claimed = worker.claim_one("token-1")
    equal(claimed.id, "1", "the job is handed out")
    made_up = {"name", "data", "opts"} & queue.redis.hash("1").keys()
    equal(sorted(made_up), [], "missing fields stay missing", where="job.name")
    worker.complete("1", token="token-1")
    equal(queue.redis.state("1"), ["completed"], "it can be finished")
    queue.add("after")
    equal(worker.claim_one("token-2").name, "after", "the next job is handed out whole")


@scenario("eviction.hash.waiting", without=NO_FIELDS)
def test_a_waiting_job_without_hash_can_fail(client: Participant) -> None:
    """It knows of no attempts, so that the first failure is the last."""
    queue, worker = client.queue(), client.worker()
    queue.add("vanished", {}, attempts=5)
    queue.redis.delete("1")
    worker.claim_one()
    worker.fail("1", "cannot work on nothing")
    equal(queue.redis.state("1"), ["failed"], "the job is in `failed`")
    equal(queue.redis.field("1", "failedReason"), "cannot work on nothing", "with the reason", where="job.failedReason")


@scenario("eviction.hash.active", without=NO_FIELDS)
def test_an_active_job_without_hash_cannot_be_finished(client: Participant) -> None:
    """Its worker gets an error that the job is missing; later the job is recovered like a stalled one."""
    queue, worker = client.queue(), client.worker()
    queue.add("vanishing", {"n": 1})
    worker.claim_one()
    queue.redis.delete("1")
    with client.refuses("missing-job", "a job without hash cannot be completed"):
        worker.complete("1")
    with client.refuses("missing-job", "a job without hash cannot fail"):
        worker.fail("1")
    equal((queue.redis.exists("1"), queue.redis.state("1")), (False, ["active"]), "nothing was written")
    let_stall(queue, worker, "1")
    equal(queue.redis.state("1"), ["wait"], "the stalled check puts it back")
    worker.complete(worker.claim_one("token-2").id, token="token-2")
    equal(queue.redis.state("1"), ["completed"], "and another worker can finish it")


@scenario("eviction.worker-goes-on", clock="real", without=NO_HASH)
def test_a_worker_outlives_the_hash_of_its_job(client: Participant) -> None:
    """The worker reports an error and goes on with the next job."""
    queue = client.queue()
    queue.add("vanishing")
    queue.add("next")
    worker = client.worker("ask")
    worker.next_job()
    queue.redis.delete("1")
    worker.resolve("1")
    # The error comes after the processor has ended, when the worker tries to finish the job.
    worker.wait_for_error()
    equal(worker.next_job().job.id, "2", "the next job is handed out")
    worker.resolve("2")
    worker.wait_local("completed", "2")
    equal(queue.redis.value("1"), None, "the lost hash is not created again")
    worker.close()


@pytest.mark.parametrize("outcome", ["complete", "fail", "rate-limit"])
@scenario("eviction.worker-goes-on", clock="real")
def test_a_worker_outlives_the_lock_of_its_job(client: Participant, outcome: Outcome) -> None:
    """The worker reports an error, leaves the job to the stalled check, and goes on with the next."""
    queue = client.queue()
    queue.add("unlocked")
    queue.add("next")
    worker = client.worker("ask")
    worker.next_job()
    queue.redis.delete("1:lock")
    # A limit of 1 ms ends before the job is given back, so that it does not keep the worker from the next job.
    worker.resolve("1", outcome, ms=1)
    worker.wait_for_error()
    equal(worker.next_job().job.id, "2", "the next job is handed out")
    worker.resolve("2")
    worker.wait_local("completed", "2")
    equal(queue.redis.state("1"), ["active"], "the other one is for the stalled check")
    worker.close()


@pytest.mark.parametrize("processor", ["noop", "fail"])
@scenario("eviction.worker-goes-on", clock="real", without=NO_FIELDS)
def test_a_worker_outlives_a_job_without_name_and_data(client: Participant, processor: str) -> None:
    """The processor is called, and the worker goes on after either outcome."""
    queue = client.queue()
    queue.add("vanished", {"n": 1})
    queue.redis.delete("1")
    queue.add("next")
    # Fails more often than the job is tried, so that both jobs end as failed.
    arguments = {"times": 9, "message": "no data"} if processor == "fail" else {}
    worker = client.worker(processor, processor_args=arguments)
    state = "failed" if processor == "fail" else "completed"
    for job in ("1", "2"):
        worker.wait_local(state, job)
        equal(queue.redis.state(job), [state], f"job {job} came to its end")
    worker.close()


@scenario("eviction.reported", without=NO_HASH, bullmq=">=5.81.1")
def test_readers_leave_out_a_job_that_is_missing(client: Participant) -> None:
    """The id is counted and has a state, but it is not listed, and there is no job to be read or retried."""
    queue, worker = client.queue(), client.worker()
    queue.add("vanished")
    queue.add("there")
    worker.fail(worker.claim_one().id)
    worker.fail(worker.claim_one().id)
    queue.redis.delete("1")
    equal(queue.job("1"), None, "getJob answers nothing")
    equal(queue.jobs("failed"), ["2"], "getJobs lists the other one only")
    equal((queue.counts("failed"), queue.state("1")), ({"failed": 2}, "failed"), "it is counted, and it has a state")
    with client.refuses("missing-job", "it cannot be retried"):
        queue.retry("1")


@scenario("eviction.reported", without=NO_HASH, bullmq="<5.81.1")
def test_readers_tell_that_a_job_is_missing(client: Participant) -> None:
    """The id is counted and has a state, but there is no job to be read or retried."""
    queue, worker = client.queue(), client.worker()
    queue.add("vanished")
    queue.add("there")
    worker.fail(worker.claim_one().id)
    worker.fail(worker.claim_one().id)
    queue.redis.delete("1")
    equal(queue.job("1"), None, "getJob answers nothing")
    equal(sorted(queue.jobs("failed"), key=str), ["2", None], "getJobs has a hole in its place")
    equal((queue.counts("failed"), queue.state("1")), ({"failed": 2}, "failed"), "it is counted, and it has a state")
    with client.refuses("missing-job", "it cannot be retried"):
        queue.retry("1")
    queue.retry("2")
    equal(queue.redis.state("2"), ["wait"], "the other one can")


# Keys of the queue.


@scenario("eviction.meta", bullmq=">=6")
def test_without_meta_nothing_is_held_back(client: Participant) -> None:
    """Pause and limit are forgotten at once; the first add brings back the limit of events."""
    queue, worker = client.queue(), client.worker()
    queue.call(queue_ops.SetGlobalConcurrency(concurrency=1))
    queue.add("before")
    worker.claim_one("token-1")
    queue.pause()
    queue.add("held")
    queue.redis.delete("meta")
    equal(queue.is_paused(), False, "the pause is forgotten")
    equal(worker.claim_one("token-2").id, "2", "the job that was held back is handed out")
    queue.add("after")
    equal(queue.redis.field("meta", "opts.maxLenEvents"), "10000", "the stream has a limit again", where="meta")


@scenario(
    "eviction.meta", without={"paused-list": "what was parked stays in `paused` when `meta` is lost"}, bullmq="<6"
)
def test_without_meta_a_queue_is_neither_paused_nor_limited(client: Participant) -> None:
    """Parked jobs stay parked until the next resume, others run; the first add brings back the limit of events."""
    queue, worker = client.queue(), client.worker()
    queue.call(queue_ops.SetGlobalConcurrency(concurrency=1))
    queue.add("before")
    worker.claim_one("token-1")
    queue.pause()
    queue.add("parked")
    equal(queue.redis.elements("paused"), ["2"], "the job is parked", where="row.paused.everything-parks")
    queue.redis.delete("meta")
    equal(queue.is_paused(), False, "the pause is forgotten")
    equal(worker.claim("token-2"), None, "the parked job is not handed out")
    queue.add("after")
    equal(queue.redis.field("meta", "opts.maxLenEvents"), "10000", "the stream has a limit again", where="meta")
    equal(worker.claim_one("token-3").id, "3", "a new job runs, and the limit is forgotten too")
    queue.resume()
    equal(worker.claim_one("token-4").id, "2", "the resume brings the parked job back")


WRITERS: dict[str, Callable[[QueueHandle, WorkerHandle], object]] = {
    "added": lambda queue, _worker: queue.add("new"),
    "added-delayed": lambda queue, _worker: queue.add("new", {}, delay=LATER_MS),
    "added-prioritized": lambda queue, _worker: queue.add("new", {}, priority=2),
    "progress": lambda queue, _worker: queue.progress("plain", 50),
    "delay": lambda queue, _worker: queue.call(job_ops.ChangeDelay(job="late", delay_ms=2 * LATER_MS)),
    "removal": lambda queue, _worker: queue.remove("plain"),
    "retry-with-backoff": lambda _queue, worker: worker.fail("running"),
}
"""Changes that leave an event, by scripts that read the limit of the stream themselves."""


@pytest.mark.parametrize("change", WRITERS)
@scenario("eviction.meta", tier="full")
@also_in_core("delay | progress | removal | retry-with-backoff")
def test_without_meta_whoever_tells_of_a_change_limits_the_stream(client: Participant, change: str) -> None:
    """The limit of events is the default again."""
    queue, worker = client.queue(), client.worker()
    queue.add("running", {}, jobId="running", attempts=2, backoff=LATER_MS)
    worker.claim_one()
    queue.add("plain", {}, jobId="plain")
    queue.add("late", {}, jobId="late", delay=LATER_MS)
    queue.redis.delete("meta")
    WRITERS[change](queue, worker)
    equal(queue.redis.field("meta", "opts.maxLenEvents"), "10000", "the stream has a limit again", where="meta")


@scenario("eviction.marker", clock="real")
def test_without_marker_a_worker_finds_jobs_by_itself(client: Participant) -> None:
    """A worker that comes late needs no marker, and one that sleeps looks again after `drainDelay`."""
    queue = client.queue()
    queue.add("unmarked")
    queue.redis.delete("marker")
    worker = client.worker("noop", drainDelay=1)
    worker.wait_local("completed", "1")
    queue.add("after")
    worker.wait_local("completed", "2")
    worker.close()


@scenario("eviction.events", clock="real")
def test_a_reader_outlives_the_stream(client: Participant) -> None:
    """Events after the loss of the stream are delivered."""
    queue, reader = client.queue(), client.events()
    queue.add("before")
    reader.wait_for("waiting", "1")
    queue.redis.delete("events")
    queue.add("after")
    reader.wait_for("waiting", "2")


@scenario(
    "eviction.counters",
    without={
        "one-state": "a new job has taken over the hash of an old one",
        "finished-fields": "a new job has taken over the hash of an old one",
    },
)
def test_a_lost_id_counter_starts_again(client: Participant) -> None:
    """New jobs get the ids of old ones, and their hashes with what they do not overwrite."""
    queue, worker = client.queue(), client.worker()
    queue.add("old", {"n": 1})
    worker.complete(worker.claim_one().id, "result")
    queue.redis.delete("id")
    equal(queue.add("new", {"n": 2}), "1", "the id is given again")
    fields = queue.redis.hash("1")
    equal((fields["name"], fields["returnvalue"]), ("new", '"result"'), "old and new are mixed in one hash")


@scenario("eviction.counters", without={"priority-counter": "the counter was evicted"})
def test_a_lost_priority_counter_lets_jobs_overtake(client: Participant) -> None:
    """Within a priority, new jobs are next to the oldest ones; no job is lost."""
    queue, worker = client.queue(), client.worker()
    for name in ("first", "second"):
        queue.add(name, {}, priority=1)
    queue.redis.delete("pc")
    queue.add("third", {}, priority=1)
    order = [worker.claim_one(f"token-{number}").name for number in range(3)]
    equal(order, ["first", "third", "second"], "the third overtakes the second")


@scenario("eviction.containers", without={"one-state": "the container was evicted", "locks": "so was `active`"})
def test_jobs_of_a_lost_container_are_not_found(client: Participant) -> None:
    """No worker gets them and none can finish them; what is added later runs."""
    queue, worker = client.queue(), client.worker()
    queue.add("running")
    worker.claim_one("token-1")
    queue.add("waiting")
    queue.redis.delete("active")
    queue.redis.delete("wait")
    with client.refuses("wrong-state", "a job that is not in `active` cannot be completed"):
        worker.complete("1", token="token-1")
    equal(worker.claim("token-2"), None, "no worker gets the job that waited")
    equal([queue.state(job) for job in ("1", "2")], ["unknown", "unknown"], "both have no state")
    queue.add("later")
    equal(worker.claim_one("token-3").id, "3", "a later job is run")
