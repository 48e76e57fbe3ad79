"""Two languages on one queue: one produces and the other works, both ways, and both at once."""

from __future__ import annotations

import json

from conformance.participants.expect import equal, holds
from conformance.participants.marks import handover, scenario, shared
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import wait_for_finished


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
    worker = consumer.worker("ask")
    queue = producer.queue()
    job = queue.add("later", {}, delay=600)
    handed = worker.next_job()
    view = queue.redis
    added, started = float(view.field(job, "timestamp") or 0), float(view.field(job, "processedOn") or 0)
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
    queue.add("shaky", {}, attempts=3, backoff={"type": "fixed", "delay": 50})
    queue.add("doomed", {}, attempts=2)
    worker = consumer.worker("fail", processor_args={"times": 2, "message": "not yet"})
    wait_for_finished(consumer, 1)
    wait_for_finished(consumer, 1, state="failed")
    worker.close()
    equal((queue.redis.field("1", "atm"), queue.redis.field("2", "atm")), ("3", "2"), "the attempts were counted")
    equal(queue.redis.field("2", "failedReason"), "not yet", "the reason is the error's message")


@handover("interop.bulk")
def test_a_bulk_is_worked_off_by_the_other(producer: Participant, consumer: Participant) -> None:
    """Two hundred jobs, ten at a time, each once."""
    queue = producer.queue()
    queue.add_bulk(*((f"job {number}", {"n": number}, {}) for number in range(200)))
    worker = consumer.worker("echo", concurrency=10)
    wait_for_finished(consumer, 200)
    worker.close()
    attempts = {queue.redis.field(str(number), "ats") for number in range(1, 201)}
    equal(attempts, {"1"}, "every job was started exactly once")
    equal(queue.redis.field("200", "returnvalue"), '{"n":199}', "the result is the data")


@handover("interop.events")
def test_the_other_sees_the_events(producer: Participant, consumer: Participant) -> None:
    """The producer's event reader follows the consumer's work."""
    queue = producer.queue()
    reader = producer.events()
    job = queue.add("watched")
    worker = consumer.worker("progress", processor_args={"values": [{"percent": 50}]})
    equal(reader.wait_for("progress", job).fields.get("data"), {"percent": 50}, "the progress arrives")
    reader.wait_for("completed", job)
    worker.close()


@handover("interop.pause")
def test_a_pause_stops_the_other(producer: Participant, consumer: Participant) -> None:
    """No job is started while paused, and the resume wakes the idle worker."""
    queue = producer.queue()
    queue.pause()
    worker = consumer.worker("ask")
    queue.add("held")
    equal(queue.redis.elements("paused"), ["1"], "the job is parked")
    queue.resume()
    handed = worker.next_job()
    equal(handed.job.id, "1", "the resumed job is run")
    holds("resumed" in queue.redis.event_names(), "it was resumed before")
    names = queue.redis.event_names()
    holds(names.index("resumed") < names.index("active"), "nothing was started before the resume", seen=names)
    worker.resolve("1")
    worker.wait_local("completed", "1")


@handover("interop.pause.mixed")
def test_pausing_in_turns_loses_no_job(producer: Participant, consumer: Participant) -> None:
    """One side adds and pauses, the other adds and resumes: both jobs are run."""
    ours, theirs = producer.queue(), consumer.queue()
    ours.add("before the pause")
    ours.pause()
    theirs.add("during the pause")
    theirs.resume()
    states = [ours.redis.state(job) for job in ("1", "2")]
    equal(states, [["wait"], ["wait"]], "both jobs wait after the resume")
    worker = consumer.worker("noop")
    wait_for_finished(consumer, 2)
    worker.close()


@handover("interop.stalled")
def test_a_lost_job_is_finished_by_the_other(producer: Participant, consumer: Participant) -> None:
    """One side claims a job and goes away; the other recovers it."""
    queue, lost = producer.queue(), producer.worker(lockDuration=300)
    queue.add("orphan")
    lost.claim_one("token-lost")
    worker = consumer.worker("noop", stalledInterval=200, lockDuration=2000)
    wait_for_finished(consumer, 1)
    worker.close()
    equal(queue.redis.field("1", "stc"), "1", "it was counted as stalled")


@shared("interop.shared-work")
def test_both_work_on_one_queue(client: Participant, oracle: Participant) -> None:
    """Two producers and two workers: no job lost, none finished twice."""
    ours, theirs = client.queue(), oracle.queue()
    mine = client.worker("sleep", concurrency=5, processor_args={"ms": 2}, name="client")
    other = oracle.worker("sleep", concurrency=5, processor_args={"ms": 2}, name="oracle")
    for _ in range(5):
        ours.add_bulk(*(("from client", {}, {}) for _ in range(20)))
        theirs.add_bulk(*(("from oracle", {}, {}) for _ in range(20)))
    wait_for_finished(client, 200)
    mine.close()
    other.close()
    view = ours.redis
    finished = [entry["jobId"] for entry in view.events() if entry["event"] == "completed"]
    equal(sorted(finished, key=int), [str(number) for number in range(1, 201)], "every job was finished exactly once")
    equal(view.elements("active"), [], "no job is left active")
