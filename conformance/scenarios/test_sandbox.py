"""Processors in processes of their own: what they return, throw and change, and how they start and end."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.participants.expect import equal
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant

START_MS = 20_000
"""A process has to start before its first job ends."""


def _wait_for(client: Participant, queue: QueueHandle, job: str, state: str) -> None:
    # Until it leaves `active` in any way: a wrong end is certain on a busy machine, too.
    client.eventually(
        lambda: queue.redis.state(job),
        lambda found: found not in ([], ["wait"], ["active"]),
        "the processor ends",
        within_ms=START_MS,
    )
    equal(queue.redis.state(job), [state], f"the job is {state}")


@scenario("sandbox.runs", clock="real")
def test_a_sandboxed_processor_works_like_any_other(client: Participant) -> None:
    """Its result, progress and log rows are stored, and the next job runs as well."""
    queue = client.queue()
    steps = [{"do": "progress", "value": 40}, {"do": "log", "row": "half"}, {"do": "return", "value": {"n": [1]}}]
    jobs = [queue.add("work", {"steps": steps}) for _ in range(2)]
    worker = client.worker("sandboxed")
    for job in jobs:
        _wait_for(client, queue, job, "completed")
        seen = (queue.redis.json(job, "returnvalue"), queue.redis.json(job, "progress"), queue.logs(job).logs)
        equal(seen, ({"n": [1]}, 40, ["half"]), "the processor's writes are stored")
    worker.close()


@scenario("sandbox.data", clock="real")
def test_a_sandboxed_processor_reads_its_own_updates(client: Participant) -> None:
    """A second update keeps what the first one wrote."""
    queue = client.queue()
    steps = [{"do": "merge", "value": {"first": 1}}, {"do": "merge", "value": {"second": 2}}]
    job = queue.add("work", {"steps": steps})
    worker = client.worker("sandboxed")
    _wait_for(client, queue, job, "completed")
    equal(queue.redis.json(job, "data"), {"steps": steps, "first": 1, "second": 2}, "the data has both updates")
    worker.close()


@pytest.mark.parametrize("message", ["no use", ""], ids=["message", "no-message"])
@scenario("sandbox.errors", "retry.unrecoverable", clock="real")
def test_an_unrecoverable_error_of_a_sandboxed_processor_is_final(client: Participant, message: str) -> None:
    """With and without a message of its own."""
    queue = client.queue()
    job = queue.add("doomed", {"steps": [{"do": "unrecoverable", "message": message}]}, attempts=3)
    worker = client.worker("sandboxed")
    _wait_for(client, queue, job, "failed")
    equal(queue.redis.field(job, "atm"), "1", "there was one attempt", where="job.atm")
    worker.close()


@pytest.mark.parametrize("cyclic", [False, True], ids=["plain", "cyclic"])
@scenario("sandbox.errors", "job.hash.failed-reason", clock="real")
def test_an_error_of_a_sandboxed_processor_is_the_reason(client: Participant, cyclic: bool) -> None:
    """Also if the error refers to itself, as errors of HTTP libraries do."""
    queue = client.queue()
    job = queue.add("doomed", {"steps": [{"do": "fail", "message": "thrown", "cyclic": cyclic}]})
    worker = client.worker("sandboxed")
    _wait_for(client, queue, job, "failed")
    equal(queue.redis.field(job, "failedReason"), "thrown", "the reason is its message", where="job.failedReason")
    worker.close()


@pytest.mark.parametrize("message", ["later", ""], ids=["message", "no-message"])
@scenario("sandbox.errors", "liveness.moved-by-processor", clock="real")
def test_a_sandboxed_processor_puts_its_job_off(client: Participant, message: str) -> None:
    """The job is neither failed nor completed."""
    queue = client.queue()
    job = queue.add("moved", {"steps": [{"do": "delay", "ms": 60_000, "message": message}]})
    worker = client.worker("sandboxed")
    _wait_for(client, queue, job, "delayed")
    after = queue.add("after", {"steps": []})
    _wait_for(client, queue, after, "completed")
    equal(queue.redis.state(job), ["delayed"], "the job is still where its processor moved it")
    equal(queue.redis.field(job, "failedReason"), None, "it has not failed")
    worker.close()


@pytest.mark.parametrize("code", [0, 3])
@scenario("sandbox.exit", clock="real")
def test_a_process_that_ends_fails_its_job(client: Participant, code: int) -> None:
    """The reason is how it ended, and another process runs the next job."""
    queue = client.queue()
    job = queue.add("doomed", {"steps": [{"do": "exit", "code": code}]})
    worker = client.worker("sandboxed")
    _wait_for(client, queue, job, "failed")
    reason = f"Unexpected exit code: {code} signal: null"
    equal(queue.redis.field(job, "failedReason"), reason, "the reason is its end", where="job.failedReason")
    after = queue.add("after", {"steps": []})
    _wait_for(client, queue, after, "completed")
    worker.close()


@scenario("sandbox.exit", clock="real")
def test_a_process_that_ends_while_idle_is_replaced(client: Participant) -> None:
    """The next job gets another process."""
    queue = client.queue()
    job = queue.add("first", {"steps": [{"do": "exit", "code": 3, "after_ms": 200}]})
    worker = client.worker("sandboxed")
    _wait_for(client, queue, job, "completed")
    ended = queue.redis.now_ms()
    client.eventually(lambda: queue.redis.now_ms() - ended, lambda ms: ms > 700, "the idle process has ended")
    after = queue.add("after", {"steps": []})
    _wait_for(client, queue, after, "completed")
    worker.close()


@scenario("sandbox.start", clock="real")
def test_a_process_that_cannot_start_fails_its_job(client: Participant) -> None:
    """The reason is what kept it from starting."""
    queue = client.queue()
    job = queue.add("doomed", {"steps": []})
    worker = client.worker("sandboxed", processor_args={"start": "throw-once"})
    _wait_for(client, queue, job, "failed")
    equal(
        queue.redis.field(job, "failedReason"),
        "cannot start yet",
        "the reason is the error of the start",
        where="job.failedReason",
    )
    worker.close()


# From 5.34.10 to 6.7.0 at least, Node itself does not notice such an end.
@scenario("sandbox.start", clock="real", bullmq=">=5.17.0,<5.34.1")
def test_a_process_that_ends_while_it_starts_fails_its_job(client: Participant) -> None:
    """The worker hears of the end, although the process has never been ready; the job does not stay in `active`."""
    queue = client.queue()
    job = queue.add("doomed", {"steps": []})
    worker = client.worker("sandboxed", processor_args={"start": "exit-once"})
    _wait_for(client, queue, job, "failed")
    reason = "Unexpected exit code: 3 signal: null"
    equal(queue.redis.field(job, "failedReason"), reason, "the reason is its end", where="job.failedReason")
    worker.close()


@scenario("sandbox.start", clock="real", bullmq=">=5.80.5")
def test_a_process_that_could_not_start_is_replaced(client: Participant) -> None:
    """It fails the job that it was started for, and the next one runs."""
    queue = client.queue()
    job = queue.add("doomed", {"steps": []})
    worker = client.worker("sandboxed", processor_args={"start": "throw-once"})
    _wait_for(client, queue, job, "failed")
    after = queue.add("after", {"steps": []})
    _wait_for(client, queue, after, "completed")
    worker.close()


@scenario("sandbox.start", clock="real", bullmq=">=5.69.4")
def test_a_process_that_sends_a_message_starts(client: Participant) -> None:
    """A message of the processor's own, before the worker has heard that the process is ready."""
    queue = client.queue()
    job = queue.add("work", {"steps": []})
    worker = client.worker("sandboxed", processor_args={"start": "chat"})
    _wait_for(client, queue, job, "completed")
    worker.close()


SILENT: dict[str, Any] = {"workerForkOptions": {"stdio": ["ignore", "ignore", "ignore", "ipc"]}}
"""An option of Node.js, which others ignore."""


@scenario("sandbox.start", clock="real", bullmq=">=5.80.6")
def test_a_process_without_output_works(client: Participant) -> None:
    """If its output is ignored, there is none to read."""
    queue = client.queue()
    job = queue.add("work", {"steps": []})
    worker = client.worker("sandboxed", **SILENT)
    _wait_for(client, queue, job, "completed")
    worker.close()
