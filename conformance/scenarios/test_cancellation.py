"""Cancelling jobs that run: the worker aborts a signal of the processor, which decides how the job ends."""

from __future__ import annotations

import pytest

from conformance.driver.ops import worker as worker_ops
from conformance.participants.expect import equal
from conformance.participants.handles import WorkerHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import fill


def _running(client: Participant, jobs: int) -> WorkerHandle:
    """A worker whose processors have these jobs."""
    fill(client.queue(), jobs)
    worker = client.worker("ask", concurrency=jobs)
    for _ in range(jobs):
        worker.next_job()
    return worker


def _cancelled(worker: WorkerHandle) -> list[tuple[str, str | None]]:
    """Job and reason of the unread events `cancelled`."""
    events = [event.args for event in worker.local_events() if event.name == "cancelled"]
    return sorted((event["job"], event["reason"]) for event in events)


@pytest.mark.parametrize("reason", ["out of time", None], ids=["reason", "none"])
@scenario("cancel.signal", bullmq=">=5.64", cases={"reason": ">=5.72.1"})
def test_a_cancelled_job_gets_a_signal(client: Participant, reason: str | None) -> None:
    """The processor of this job, and no other, gets the signal and the reason."""
    worker = _running(client, 2)
    equal(worker.cancel("1", reason), True, "the answer says that the job runs here")
    equal(worker.wait_local("cancelled", "1").args["reason"], reason, "the signal has the reason")
    worker.resolve("2")
    worker.wait_local("completed", "2")
    equal(_cancelled(worker), [], "the other job gets no signal")


@scenario("cancel.signal", bullmq=">=5.64")
def test_cancelling_does_not_end_a_job(client: Participant) -> None:
    """The job is active, and locked, until its processor ends."""
    queue = client.queue()
    worker = _running(client, 1)
    worker.cancel("1")
    worker.wait_local("cancelled", "1")
    equal(queue.redis.state("1"), ["active"], "the job is still active")
    equal(queue.redis.exists("1:lock"), True, "and locked")
    worker.resolve("1", value_raw='"in time"')
    worker.wait_local("completed", "1")
    equal(
        queue.redis.field("1", "returnvalue"),
        '"in time"',
        "a processor that ignores the signal completes its job",
        where="job.returnvalue",
    )


@pytest.mark.parametrize(("attempts", "state"), [(2, "wait"), (1, "failed")], ids=["retried", "failed"])
@scenario("cancel.ends-like-others", bullmq=">=5.64")
def test_a_cancelled_job_ends_as_its_processor_says(client: Participant, attempts: int, state: str) -> None:
    """A processor that throws at the signal fails its attempt, and the job is retried like any other."""
    queue = client.queue()
    queue.add("slow", {}, attempts=attempts, backoff=60_000 if attempts > 1 else 0)
    worker = client.worker("ask")
    worker.next_job()
    worker.cancel("1")
    worker.wait_local("cancelled", "1")
    worker.resolve("1", "fail", message="cancelled")
    worker.wait_local("failed", "1")
    equal(queue.redis.state("1"), ["delayed" if state == "wait" else state], "the job is where a failure takes it")
    equal(
        queue.redis.field("1", "failedReason"),
        "cancelled",
        "for the reason that the processor gives",
        where="job.failedReason",
    )


@pytest.mark.parametrize("job", ["waits", "ended", "missing"])
@scenario("cancel.elsewhere", bullmq=">=5.64")
def test_a_job_that_does_not_run_here_is_not_cancelled(client: Participant, job: str) -> None:
    """The answer says so, and nothing happens to the job."""
    queue = client.queue()
    worker = _running(client, 1)
    name = "2" if job == "waits" else "1" if job == "ended" else "no-such-job"
    if job == "waits":
        queue.add("waits")
    if job == "ended":
        worker.resolve("1")
        worker.wait_local("completed", "1")
        # The worker forgets the job after it has reported its end.
        client.eventually(lambda: worker.cancel("1"), lambda answer: not answer, "the worker has forgotten the job")
    equal(worker.cancel(name), False, "the answer says that the job does not run here")
    where = {"waits": ["wait"], "ended": ["completed"], "missing": []}[job]
    equal(queue.redis.state(name), where, "the job is where it was")


@scenario("cancel.all", bullmq=">=5.64")
def test_all_jobs_of_a_worker_are_cancelled(client: Participant) -> None:
    """Those of another worker go on."""
    queue = client.queue()
    worker = _running(client, 2)
    queue.add("elsewhere")
    other = client.worker("ask")
    other.next_job()
    worker.call(worker_ops.CancelAllJobs(reason="shutdown"))
    worker.wait_local("cancelled", "1")
    worker.wait_local("cancelled", "2")
    other.resolve("3")
    other.wait_local("completed", "3")
    equal(_cancelled(other), [], "a job of another worker gets no signal")
    for job in ("1", "2"):
        worker.resolve(job)
        worker.wait_local("completed", job)
