"""Fields of the job hash that belong to the worker. The comparison with the oracle covers all of them everywhere."""

from __future__ import annotations

from conformance.participants.expect import between, equal
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant


@scenario("job.hash.processed-on", "job.hash.finished-on", tier="smoke")
def test_times_are_in_ms(client: Participant) -> None:
    """Start and finish are stored in Unix ms, by the worker's clock."""
    queue, worker = client.queue(), client.worker()
    queue.add("work")
    client.pass_time(20)
    before = client.clock.now_ms()
    worker.claim_one()
    client.pass_time(20)
    worker.complete("1")
    after = client.clock.now_ms()
    fields = queue.redis.hash("1")
    between(float(fields["processedOn"]), before, after, "the start is in ms", where="job.processedOn")
    between(float(fields["finishedOn"]), before + 20, after, "the finish is in ms", where="job.finishedOn")
    equal(queue.redis.score("completed", "1"), float(fields["finishedOn"]), "the score is the time of the finish")


@scenario("job.hash.processed-by")
def test_a_named_worker_signs_its_jobs(client: Participant) -> None:
    """`pb` holds the worker's name, and nothing without one."""
    queue = client.queue()
    queue.add("signed")
    queue.add("unsigned")
    client.worker(name="worker-7").claim_one("token-1")
    client.worker().claim_one("token-2")
    equal(queue.redis.field("1", "pb"), "worker-7", "the named worker signs", where="job.pb")
    equal(queue.redis.field("2", "pb"), None, "the nameless one does not", where="job.pb")


@scenario("job.hash.no-others", tier="smoke")
def test_a_job_has_no_other_fields(client: Participant) -> None:
    """From adding to finishing only BullMQ's fields appear."""
    queue, worker = client.queue(), client.worker()
    queue.add("work", {"n": 1})
    created = {"name", "data", "opts", "timestamp", "delay", "priority"}
    equal(set(queue.redis.hash("1")), created, "a new job has six fields")
    worker.claim_one()
    worker.complete("1")
    finished = created | {"processedOn", "ats", "atm", "returnvalue", "finishedOn"}
    equal(set(queue.redis.hash("1")), finished, "a completed job has five more")
