"""Disputed rows about the event stream, on the oracle alone: what each entry holds, field by field."""

from __future__ import annotations

from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import equal
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant


def _entry(client: Participant, name: str) -> dict[str, str]:
    """The last entry of this name."""
    return [entry for entry in client.redis().events() if entry["event"] == name][-1]


@scenario("event.active", "event.completed")
def test_entries_of_a_start_and_a_completion(client: Participant) -> None:
    """`active` does not name the worker; `completed` holds the job, its result and `prev`, and nothing else."""
    queue, worker = client.queue(), client.worker(name="worker-7")
    queue.add("work", {}, priority=1)
    worker.claim_one()
    worker.complete("1", 7)
    equal(_entry(client, "active"), {"event": "active", "jobId": "1", "prev": "waiting"}, "the start")
    completed = {"event": "completed", "jobId": "1", "returnvalue": "7", "prev": "active"}
    equal(_entry(client, "completed"), completed, "the completion")


@scenario("event.failed", "event.retries-exhausted")
def test_entries_of_a_final_failure(client: Participant) -> None:
    """`failed` has no stack trace; `retries-exhausted` follows it with the number of attempts."""
    client.queue().add("doomed", {}, attempts=1)
    worker = client.worker()
    worker.claim_one()
    worker.fail("1", "boom")
    failed = {"event": "failed", "jobId": "1", "failedReason": "boom", "prev": "active"}
    equal(_entry(client, "failed"), failed, "the failure")
    names = client.redis().event_names()
    equal(names[names.index("failed") + 1], "retries-exhausted", "the next event")
    exhausted = {"event": "retries-exhausted", "jobId": "1", "attemptsMade": "1"}
    equal(_entry(client, "retries-exhausted"), exhausted, "the end of the attempts")


@scenario("event.progress")
def test_the_entry_of_progress(client: Participant) -> None:
    """`progress` holds the value as JSON text in `data`."""
    queue = client.queue()
    queue.add("work")
    queue.progress("1", {"percent": 5})
    equal(_entry(client, "progress"), {"event": "progress", "jobId": "1", "data": '{"percent":5}'}, "the progress")


@scenario("event.no-common-fields")
def test_entries_have_no_common_fields(client: Participant) -> None:
    """No entry holds a time or a nested object; `paused`, `drained` and `cleaned` name no job."""
    queue, worker = client.queue(), client.worker()
    queue.add("work")
    worker.claim_one()
    worker.complete("1", fetch_next=True)
    queue.call(queue_ops.Clean(grace_ms=0, limit=10))
    queue.pause()
    fields = {field for entry in queue.redis.events() for field in entry}
    equal(fields & {"timestamp", "attemptsMade", "data"}, set(), "no common fields")
    about_the_queue = [name for name in ("paused", "drained", "cleaned") if "jobId" not in _entry(client, name)]
    equal(about_the_queue, ["paused", "drained", "cleaned"], "entries about the whole queue name no job")
