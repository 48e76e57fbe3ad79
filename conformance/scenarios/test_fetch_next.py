"""Fetching the next job while finishing: the normal path of every worker."""

from __future__ import annotations

import pytest

from conformance.participants.expect import between, equal
from conformance.participants.handles import WorkerHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import lives_for


def _finish(worker: WorkerHandle, how: str, job: str = "1") -> str | None:
    """Complete or fail a job with fetch-next; the id of the next job."""
    following = worker.complete(job, fetch_next=True) if how == "complete" else worker.fail(job, fetch_next=True)
    return following.id if following else None


@pytest.mark.parametrize("how", ["complete", "fail"])
@scenario("fetch-next.prioritized")
def test_the_next_job_may_be_prioritized(client: Participant, how: str) -> None:
    """After the last waiting job come those with a priority."""
    queue, worker = client.queue(), client.worker()
    queue.add("plain")
    queue.add("still running")
    queue.add("urgent", {}, priority=2)
    worker.claim_one()
    worker.claim_one()
    equal(_finish(worker, how), "3", "the prioritized job comes with the answer")
    equal(queue.redis.elements("active"), ["3", "2"], "it is before the jobs that have been active for longer")


@pytest.mark.parametrize("how", ["complete", "fail"])
@scenario("fetch-next.prioritized", tier="full", bullmq="<6")
@also_in_core("complete | fail")
def test_a_marker_of_a_former_version_is_for_prioritized_jobs(client: Participant, how: str) -> None:
    """Before version 5 an element of `wait` said that a prioritized job is there: it is dropped, and the job taken."""
    queue, worker = client.queue(), client.worker()
    queue.add("plain")
    worker.claim_one()
    queue.add("urgent", {}, priority=2)
    # A client of that time has set it itself.
    queue.redis.delete("wait")
    queue.redis.push_left("wait", "0:0")
    equal(_finish(worker, how), "2", "the prioritized job comes with the answer")
    equal(queue.redis.elements("active"), ["2"], "no list holds the marker")
    equal(queue.redis.elements("wait"), [], "and it does not wait")


@pytest.mark.parametrize("how", ["complete", "fail"])
@scenario("fetch-next.promotes")
def test_the_next_job_may_have_been_delayed(client: Participant, how: str) -> None:
    """A busy worker does not leave due jobs behind."""
    queue, worker = client.queue(), client.worker()
    queue.add("plain")
    worker.claim_one()
    queue.add("due", {}, delay=20)
    client.pass_time(50)
    equal(_finish(worker, how), "2", "the due job comes with the answer")


@scenario("fetch-next.signs")
def test_the_next_job_is_signed(client: Participant) -> None:
    """`pb` names the worker that fetched it."""
    queue, worker = client.queue(), client.worker(name="worker-7")
    queue.add("first")
    queue.add("second")
    worker.claim_one()
    _finish(worker, "complete")
    equal(queue.redis.hash("2").get("pb"), "worker-7", "the fetched job is signed")


@scenario("fetch-next.lock-duration")
def test_the_next_job_is_locked_as_long(client: Participant) -> None:
    """The lock of a fetched job lives as long as that of a claimed one."""
    queue, worker = client.queue(), client.worker(lockDuration=20_000)
    queue.add("first")
    queue.add("second")
    worker.claim_one()
    lives_for(queue.redis, "1", 20_000)
    _finish(worker, "complete")
    between(queue.redis.ttl_ms("2:lock"), 10_000, 20_000, "the lock lives for lockDuration")


@scenario("fetch-next.retry-promotes")
def test_a_retry_promotes_what_is_due(client: Participant) -> None:
    """A failed attempt does not leave due jobs behind either."""
    queue, worker = client.queue(), client.worker()
    queue.add("shaky", {}, attempts=2)
    worker.claim_one()
    queue.add("due", {}, delay=20)
    client.pass_time(50)
    worker.fail("1")
    equal(queue.redis.elements("wait"), ["1", "2"], "the due job waits, and the failed one behind it")
