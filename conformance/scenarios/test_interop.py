"""Two languages on one queue: one produces and the other works, both ways, and both at once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from conformance.driver.ops.queue import GetWorkers, GetWorkersCount
from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import handover, scenario, shared
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import HOUR_MS, lives_for, ran_once, wait_for_finished


@handover("interop.plain", tier="smoke")
def test_plain_jobs_are_completed_by_the_other(producer: Participant, consumer: Participant) -> None:
    """Data goes over and the result comes back."""
    queue = producer.queue()
    data = {"text": 'é🎉/"', "list": [1, 2.5, None, True], "deep": {"a": {"b": "c"}}}
    job = queue.add("greeting", data)
    worker = consumer.worker("ask")
    handed = worker.next_job()
    equal((handed.job.id, handed.job.name), (job, "greeting"), "the job arrives under its id and name")
    equal(json.loads(handed.job.data_raw), data, "the data arrives as it was sent")
    worker.resolve(job, "complete", value_raw='{"answer":42}')
    worker.wait_local("completed", job)
    seen = queue.job(job)
    equal(seen.returnvalue_raw if seen else None, '{"answer":42}', "the producer reads the result")
    equal(queue.state(job), "completed", "the producer sees that the job is completed")


@scenario("interop.same-state")
def test_a_queue_is_made_of_these_keys(client: Participant) -> None:
    """A job in each state, and every key with its type; what is in them is compared with Node's."""
    queue, worker = client.queue(), client.worker()
    for name in ("completed", "failed", "active", "waiting"):
        queue.add(name)
    queue.add("urgent", {}, priority=5)
    queue.add("later", {}, delay=60_000)
    worker.complete(worker.claim_one("token-1").id, {"answer": 42}, "token-1")
    worker.fail(worker.claim_one("token-2").id, "boom", "token-2")
    queue.log(worker.claim_one("token-3").id, "a row")
    jobs = {str(number): "hash" for number in range(1, 7)}
    lists = dict.fromkeys(("wait", "active", "3:logs"), "list")
    sorted_sets = dict.fromkeys(("prioritized", "delayed", "completed", "failed", "marker"), "zset")
    texts = dict.fromkeys(("id", "pc", "3:lock"), "string")
    expected = {**jobs, **lists, **sorted_sets, **texts, "meta": "hash", "events": "stream"}
    equal(queue.redis.types(), expected, "these keys are there, and no others")


@handover("interop.delayed")
def test_delayed_jobs_are_run_by_the_other(producer: Participant, consumer: Participant) -> None:
    """A worker that sleeps wakes up for the other's delayed job, and not before its time."""
    # The worker sleeps before the job comes, so that it must be woken by the other client's marker.
    worker = consumer.worker("ask")
    queue = producer.queue()
    # Long enough that running too early is certain to be seen.
    job = queue.add("later", {}, delay=600)
    handed = worker.next_job()
    view = queue.redis
    # By the fields in Redis: the two clients' own clocks are not compared.
    added, started = (float(view.hash(job)[field]) for field in ("timestamp", "processedOn"))
    holds(started - added >= 600, "the job is not run before its time", seen=started - added)
    worker.resolve(handed.job.id)
    worker.wait_local("completed", job)


@handover("interop.prioritized")
def test_prioritized_jobs_keep_their_order(producer: Participant, consumer: Participant) -> None:
    """The other side runs them by priority."""
    queue = producer.queue()
    for name, priority in (("c", 9), ("a", 1), ("plain", 0), ("b", 2)):
        queue.add(name, {}, priority=priority)
    worker = consumer.worker("ask")
    order = []
    for _ in range(4):
        job = worker.next_job().job
        order.append(job.name)
        worker.resolve(job.id)
    equal(order, ["plain", "a", "b", "c"], "the jobs run by priority")
    wait_for_finished(consumer, 4)


@handover("interop.retried")
def test_a_failing_job_is_retried_by_its_options(producer: Participant, consumer: Participant) -> None:
    """The worker of the other side honours attempts and back-off."""
    queue = producer.queue()
    # Short, so that three attempts fit into the deadline.
    queue.add("shaky", {}, attempts=3, backoff={"type": "fixed", "delay": 50})
    queue.add("doomed", {}, attempts=2)
    # Twice: the job with three attempts then succeeds, and the one with two fails.
    worker = consumer.worker("fail", processor_args={"times": 2, "message": "not yet"})
    # The failure first: a worker whose jobs do not fail retries none either.
    wait_for_finished(consumer, 1, state="failed")
    wait_for_finished(consumer, 1)
    # Closed before the counters are read, so that no further attempt can change them.
    worker.close()
    for job, attempts in (("1", "3"), ("2", "2")):
        equal(queue.redis.field(job, "atm"), attempts, "the attempts were counted", where="job.atm")
    equal(
        queue.redis.field("2", "failedReason"), "not yet", "the reason is the error's message", where="job.failedReason"
    )


@handover("interop.bulk")
def test_a_bulk_is_worked_off_by_the_other(producer: Participant, consumer: Participant) -> None:
    """Two hundred jobs, ten at a time, each once."""
    queue = producer.queue()
    queue.add_bulk(*((f"job {number}", {"n": number}, {}) for number in range(200)))
    worker = consumer.worker("echo", concurrency=10)
    wait_for_finished(consumer, 200)
    worker.close()
    ran_once(queue, *map(str, range(1, 201)))
    equal(queue.redis.field("200", "returnvalue"), '{"n":199}', "the result is the data", where="job.returnvalue")


@handover("interop.events", "event.added", "event.progress", "event.completed")
def test_everybody_sees_the_events(adder: Participant, listener: Participant, worker: Participant) -> None:
    """An event reader follows the jobs and the work of others."""
    # In this order of the roles, a client that only reads events has a part in `core`.
    queue = adder.queue()
    # Opened before the job is added: a reader starts with the newest entry.
    reader = listener.events()
    job = queue.add("watched")
    running = worker.worker("progress", processor_args={"values": [{"percent": 50}]})
    equal(reader.wait_for("progress", job).fields.get("data"), {"percent": 50}, "the progress arrives")
    reader.wait_for("completed", job)
    running.close()


@pytest.mark.parametrize("name", ["", "signed"], ids=["unnamed", "named"])
@handover("interop.workers-seen")
def test_who_looks_sees_the_other_worker(worker: Participant, reader: Participant, name: str) -> None:
    """A worker is there for the other client from its start to its end, in its own queue only.

    BullMQ 5 names no connection to a cluster: a client that lists workers there finds none, and must not fail.
    """
    queue, another = reader.queue(), reader.queue("another")
    queue.add("work")
    works = worker.worker("noop", **({"name": name} if name else {}))
    wait_for_finished(worker, 1)
    seen = [] if worker.on_cluster else [name]
    # Eventually: Redis lists a connection's name some time after it was opened.
    reader.eventually(lambda: queue.call(GetWorkers()).names, lambda names: names == seen, "the worker is seen")
    equal(queue.call(GetWorkersCount()).count, len(seen), "the worker is counted")
    equal(another.call(GetWorkers()).names, [], "another queue has no workers")
    works.close()
    reader.eventually(lambda: queue.call(GetWorkers()).names, lambda names: not names, "the worker is gone")


@handover("interop.pause", bullmq="<6")
def test_a_pause_stops_the_other(producer: Participant, consumer: Participant) -> None:
    """No job is started while paused, and the resume wakes the idle worker."""
    _a_pause_stops_the_other(producer, consumer, parked_in="paused")


@handover("interop.pause", bullmq=">=6")
def test_a_pause_stops_the_other_worker(producer: Participant, consumer: Participant) -> None:
    """No job is started while paused, and the resume wakes the idle worker; all that time the job is in `wait`."""
    _a_pause_stops_the_other(producer, consumer, parked_in="wait")


def _a_pause_stops_the_other(producer: Participant, consumer: Participant, *, parked_in: str) -> None:
    queue = producer.queue()
    queue.pause()
    # The worker is there before the job: it must not be woken by an addition to a paused queue.
    worker = consumer.worker("ask")
    queue.add("held")
    equal(queue.redis.state("1"), [parked_in], "the job is parked")
    queue.resume()
    handed = worker.next_job()
    equal(handed.job.id, "1", "the resumed job is run")
    names = queue.redis.event_names()
    holds("resumed" in names, "it was resumed before", seen=names)
    holds(names.index("resumed") < names.index("active"), "nothing was started before the resume", seen=names)
    worker.resolve("1")
    worker.wait_local("completed", "1")


@handover("interop.pause.mixed", "interop.no-job-lost")
def test_pausing_in_turns_loses_no_job(
    adder: Participant, latecomer: Participant, pauser: Participant, resumer: Participant, worker: Participant
) -> None:
    """Each role by either client: one adds, one pauses, one adds meanwhile, one resumes, and both jobs are run."""
    adder.queue().add("before the pause")
    pauser.queue().pause()
    latecomer.queue().add("during the pause")
    resumer.queue().resume()
    running = worker.worker("noop")
    wait_for_finished(worker, 2)
    running.close()


@handover("interop.stalled", "interop.run-once")
def test_a_lost_job_is_finished_by_the_other(adder: Participant, holder: Participant, recoverer: Participant) -> None:
    """A job whose worker went away is recovered once and run once more."""
    # Short, because the scenario waits until it has expired; a manual worker renews nothing.
    queue, lost = adder.queue(), holder.worker(lockDuration=300)
    queue.add("orphan")
    lost.claim_one("token-lost")
    lives_for(queue.redis, "1", 300)
    # A life of 2 s, so that its own jobs do not stall.
    running = recoverer.worker("noop", stalledInterval=200, lockDuration=2000)
    wait_for_finished(recoverer, 1)
    queue.add("the next")
    wait_for_finished(recoverer, 2)
    running.close()
    equal(queue.redis.field("1", "stc"), "1", "it was counted as stalled", where="job.stc")


@handover("interop.retried.by-hand", "interop.no-job-lost", "interop.run-once")
def test_a_failed_job_is_retried_by_hand(adder: Participant, worker: Participant, retrier: Participant) -> None:
    """A failed job that either client retries is put back and run again."""
    queue, retrying = adder.queue(), retrier.queue()
    job = queue.add("doomed")
    running = worker.worker("ask")
    equal(running.next_job().job.id, job, "the job is handed over")
    # Unrecoverable, so that the job fails at once and no attempt follows.
    running.resolve(job, "unrecoverable", message="boom")
    wait_for_finished(worker, 1, state="failed")
    retrying.retry(job)
    equal(running.next_job().job.id, job, "the job that was retried is handed over again")
    running.resolve(job)
    wait_for_finished(worker, 1)
    running.close()


@handover("interop.scheduler", "interop.run-once")
def test_a_schedule_is_changed_by_the_other(
    scheduler: Participant, rescheduler: Participant, worker: Participant
) -> None:
    """Either client may have made the schedule: the job ahead is replaced, so that one job is run and one is ahead."""
    queue, changing = scheduler.queue(), rescheduler.queue()
    queue.schedule("s", {"every": HOUR_MS}, name="before the change")
    changing.schedule("s", {"every": HOUR_MS}, name="after the change")
    equal([*_names_ahead(queue)], ["after the change"], "one job is ahead, by the changed schedule")
    running = worker.worker("noop")
    wait_for_finished(worker, 1)
    # Closed, so that the next iteration is not run meanwhile.
    running.close()
    equal([*_names_ahead(queue)], ["after the change"], "one job is ahead again")


def _names_ahead(queue: QueueHandle) -> Iterator[str | None]:
    """Names of the jobs that wait or are delayed."""
    view = queue.redis
    for job in (*view.elements("wait"), *view.members("delayed")):
        yield view.field(job, "name")


@shared("interop.shared-work")
def test_both_work_on_one_queue(client: Participant, oracle: Participant) -> None:
    """Two producers and two workers: no job lost, none finished twice."""
    ours, theirs = client.queue(), oracle.queue()
    # 2 ms for each job, so that neither worker can do all of them before the other starts.
    mine = client.worker("sleep", concurrency=5, processor_args={"ms": 2}, name="client")
    other = oracle.worker("sleep", concurrency=5, processor_args={"ms": 2}, name="oracle")
    for _ in range(5):
        # Both add in turns, so that jobs of both are waiting at any time.
        ours.add_bulk(*(("from client", {}, {}) for _ in range(20)))
        theirs.add_bulk(*(("from oracle", {}, {}) for _ in range(20)))
    wait_for_finished(client, 200)
    mine.close()
    other.close()
    view = ours.redis
    finished = [entry["jobId"] for entry in view.events() if entry["event"] == "completed"]
    equal(sorted(finished, key=int), [str(number) for number in range(1, 201)], "every job was finished exactly once")
    equal(view.elements("active"), [], "no job is left active")
