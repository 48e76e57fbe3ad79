"""The event stream: what each step leaves in it, and what the client's own reader makes of it.

The comparison with the oracle covers every field of every entry; the statements here name the order.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.errors import OperationUnsupported
from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import behind, between, equal
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import node


@scenario("event.added", "event.waiting", "event.order", tier="smoke")
def test_adding_leaves_added_and_waiting(client: Participant) -> None:
    """First the job exists, then it waits."""
    queue = client.queue()
    queue.add("named", {"n": 1})
    equal(
        queue.redis.events(),
        [{"event": "added", "jobId": "1", "name": "named"}, {"event": "waiting", "jobId": "1"}],
        "the stream shows that the job was added and waits",
    )


@scenario("event.delayed")
def test_a_delayed_job_leaves_its_due_time(client: Participant) -> None:
    """The event holds the absolute time, not the delay."""
    queue = client.queue()
    queue.add("later", {}, delay=5000, timestamp=1_700_000_000_123)
    equal(
        queue.redis.events()[-1],
        {"event": "delayed", "jobId": "1", "delay": "1700000005123"},
        "the event holds the due time in ms",
    )


@scenario("event.waiting", "event.added")
def test_a_prioritized_job_leaves_waiting(client: Participant) -> None:
    """No event holds the priority."""
    queue = client.queue()
    queue.add("urgent", {}, priority=3)
    equal(queue.redis.event_names()[-1:], ["waiting"], "a prioritized job waits like any other")


@scenario("event.order", "event.active", "event.completed", "event.drained", "event.no-common-fields", tier="smoke")
def test_one_job_through_the_queue(client: Participant) -> None:
    """From added to drained."""
    queue, worker = client.queue(), client.worker()
    queue.add("work")
    worker.claim_one()
    worker.complete("1", {"ok": [1, "é"]})
    _in_order(queue, ["added", "waiting", "active", "completed", "drained"], "the stream holds the job's whole life")


@scenario("event.drained")
def test_drained_comes_after_the_last_job_only(client: Participant) -> None:
    """As long as a job waits, the queue is not drained."""
    queue, worker = client.queue(), client.worker()
    queue.add("first")
    queue.add("second")
    worker.claim_one()
    worker.complete("1", fetch_next=True)
    equal(queue.redis.event_names()[-1], "active", "the next job is active, the queue not drained")
    worker.complete("2", fetch_next=True)
    equal(queue.redis.event_names()[-1], "drained", "now the queue is drained")


@scenario("event.order", "event.failed", "event.retries-exhausted")
def test_a_final_failure_leaves_failed_and_exhausted(client: Participant) -> None:
    """A job without attempts left has exhausted them."""
    queue, worker = client.queue(), client.worker()
    queue.add("doomed", {}, attempts=2)
    worker.claim_one()
    worker.fail("1", "first")
    worker.claim_one()
    worker.fail("1", "second")
    names = ["added", "waiting", "active", "waiting", "active", "failed", "retries-exhausted", "drained"]
    _in_order(queue, names, "only the last failure is in the stream")


def _in_order(queue: QueueHandle, names: list[str], statement: str) -> None:
    """Check the order of the events; the comparison reports a missing one, which has a row of its own."""
    seen = queue.redis.event_names()
    equal(seen, [name for name in names if name in seen], statement, where="event.order")


@scenario("event.failed", "event.retries-exhausted")
def test_an_unrecoverable_failure_exhausts_nothing(client: Participant) -> None:
    """With attempts left over there is no `retries-exhausted`."""
    queue, worker = client.queue(), client.worker()
    queue.add("hopeless", {}, attempts=3)
    worker.claim_one()
    worker.fail("1", "no use", unrecoverable=True)
    equal(queue.redis.event_names()[-2:], ["failed", "drained"], "the retries are not exhausted")


@scenario("event.delayed", "event.waiting")
def test_a_delayed_retry(client: Participant) -> None:
    """A back-off leaves `delayed`, its end `waiting` with prev `delayed`."""
    queue, worker = client.queue(), client.worker()
    queue.add("shaky", {}, attempts=2, backoff=20)
    worker.claim_one()
    worker.fail("1")
    client.pass_time(40)
    worker.claim_one()
    worker.complete("1")
    names = ["added", "waiting", "active", "delayed", "waiting", "active", "completed", "drained"]
    equal(queue.redis.event_names(), names, "the stream holds the delayed retry")


@scenario("event.waiting")
def test_a_retry_at_once_waits_after_active(client: Participant) -> None:
    """It comes from `active`: a failure that is not final is not a state."""
    queue, worker = client.queue(), client.worker()
    queue.add("shaky", {}, attempts=2)
    worker.claim_one()
    worker.fail("1")
    [*_, last] = queue.redis.events()
    equal(last, {"event": "waiting", "jobId": "1", "prev": "active"}, "the event names where the job came from")


@pytest.mark.parametrize(
    ("opts", "container"),
    [({}, "wait"), ({"delay": 60_000}, "delayed"), ({"priority": 2}, "prioritized")],
    ids=["wait", "delayed", "prioritized"],
)
@scenario("event.removed")
def test_removing_leaves_removed(client: Participant, opts: dict[str, Any], container: str) -> None:
    """The event names the container that the job was in."""
    queue = client.queue()
    queue.add("unwanted", {}, **opts)
    queue.remove("1")
    equal(
        queue.redis.events()[-1],
        {"event": "removed", "jobId": "1", "prev": container},
        "the event names where the job was",
    )


@scenario("event.paused")
def test_pausing_leaves_paused_and_resumed(client: Participant) -> None:
    """Every pause and every resume leaves its event."""
    queue = client.queue()
    queue.pause()
    queue.resume()
    equal(queue.redis.events(), [{"event": "paused"}, {"event": "resumed"}], "both are in the stream")


@pytest.mark.parametrize("event", ["paused", "resumed", "removed", "progress"])
@scenario("event.queue", compare=False, cases={"removed": ">=5.61.2", "progress": ">=5.63.0"})
def test_a_queue_reports_what_it_does(client: Participant, event: str) -> None:
    """A listener of the queue learns of each call that its program makes."""
    queue = client.queue()
    job = queue.add("work")
    if event == "paused":
        queue.pause()
    if event == "resumed":
        queue.pause()
        queue.resume()
    if event == "removed":
        queue.remove(job)
    if event == "progress":
        queue.progress(job, 42)
    queue.wait_local(event, job if event in ("removed", "progress") else None)


@scenario("event.waiting")
def test_promoting_leaves_waiting_from_delayed(client: Participant) -> None:
    """A promoted job waits, and comes from `delayed`."""
    queue = client.queue()
    queue.add("later", {}, delay=60_000)
    queue.promote("1")
    equal(
        queue.redis.events()[-1],
        {"event": "waiting", "jobId": "1", "prev": "delayed"},
        "the event names where the job came from",
    )


@scenario("event.trimmed")
def test_the_stream_is_trimmed(client: Participant) -> None:
    """Redis trims whole nodes of about 100 entries, so the stream stays near the limit."""
    queue, worker = client.queue(streams={"events": {"maxLen": 20}}), client.worker()
    queue.add_bulk(*(("job", {}, {"removeOnComplete": True}) for _ in range(150)))
    for number in range(1, 41):
        worker.claim_one()
        worker.complete(str(number))
    between(len(queue.redis.events()), 1, 220, "the stream is near its limit of 20 entries")


MOST_EVENTS = 220
"""Redis trims whole nodes of about 100 entries: more than two of them are not near a limit of 20.

The end of a node depends on the times in the ids of its entries: the streams are not compared.
"""


def _limited(client: Participant, name: str = "q") -> QueueHandle:
    """Open a queue whose stream is limited to 20 entries."""
    queue = client.queue(name)
    # Stored by the kit: a client may have no option for it.
    queue.redis.set_field("meta", "opts.maxLenEvents", "20")
    return queue


@scenario("event.trimmed", compare=False)
def test_reports_of_progress_trim_the_stream(client: Participant) -> None:
    """A long job may report more often than jobs are added or finished."""
    queue = _limited(client)
    queue.add("long")
    for percent in range(300):
        queue.progress("1", percent % 100)
    between(len(queue.redis.events()), 1, MOST_EVENTS, "the stream is near its limit of 20 entries")


@pytest.mark.parametrize("backoff", [0, 60_000], ids=["at-once", "later"])
@scenario("event.trimmed", compare=False)
def test_retries_trim_the_stream(client: Participant, backoff: int) -> None:
    """A job may fail more often than jobs are added or finished."""
    queue, worker = _limited(client), client.worker()
    opts: dict[str, Any] = {"backoff": backoff} if backoff else {}
    queue.add("poison", {}, attempts=1000, **opts)
    for _ in range(150):
        worker.claim_one()
        worker.fail("1")
        if backoff:
            queue.promote("1")
    between(len(queue.redis.events()), 1, MOST_EVENTS, "the stream is near its limit of 20 entries")


@scenario("event.trimmed", compare=False)
def test_parents_that_wait_trim_the_stream(client: Participant) -> None:
    """Each queue of a flow has a limit of its own."""
    queue, flow = _limited(client), client.flow()
    client.queue("below")
    for number in range(150):
        flow.add(node(f"parent {number}", node(f"child {number}", queue="below")))
    between(len(queue.redis.events()), 1, MOST_EVENTS, "the stream is near its limit of 20 entries")


@pytest.mark.parametrize("step", ["add", "finish", "remove"])
@scenario("event.trimmed", compare=False)
def test_the_limit_of_a_parents_queue_is_its_own(client: Participant, step: str) -> None:
    """The stream of the child's queue, which is longer, loses no entry to it."""
    queue, above, worker, flow = client.queue(), _limited(client, "above"), client.worker(), client.flow()
    # Delayed, so that the child is the first that a worker gets.
    queue.add_bulk(*(("later", {}, {"delay": 60_000}) for _ in range(150)))
    parent = flow.add(node("parent", node("child"), queue="above"))
    if step == "finish":
        worker.complete(worker.claim_one().id)
    if step == "remove":
        above.remove(parent.id)
    # Each of the delayed jobs has left two entries.
    between(len(queue.redis.events()), 300, 310, "the stream of the child's queue is whole")


@scenario("event.reader", tier="smoke")
def test_the_reader_delivers_a_jobs_life(client: Participant) -> None:
    """The client's own reader hands its user every entry, from the id that was asked for."""
    queue, worker = client.queue(), client.worker()
    queue.add("work", {"n": 1})
    worker.claim_one()
    queue.progress("1", {"percent": 50})
    worker.complete("1", {"ok": True})
    reader = client.events(lastEventId="0-0")
    progress = reader.wait_for("progress", "1")
    equal(progress.fields.get("data"), {"percent": 50}, "progress is parsed from JSON")
    completed = reader.wait_for("completed", "1")
    equal(completed.fields.get("returnvalue"), {"ok": True}, "the result is parsed from JSON")


@scenario("event.reader.due-time", bullmq=">=5.79.3")
def test_the_reader_delivers_due_times_as_numbers(client: Participant) -> None:
    """A listener can calculate with the due time of a delayed job."""
    queue = client.queue()
    queue.add("later", {}, delay=5000, timestamp=1_700_000_000_123)
    delayed = client.events(lastEventId="0-0").wait_for("delayed", "1")
    equal(delayed.fields.get("delay"), 1_700_000_005_123, "the due time is a number of ms")


@scenario("event.reader", clock="real")
def test_the_reader_delivers_what_is_new(client: Participant) -> None:
    """Without an id the reader starts with what comes next."""
    queue = client.queue()
    queue.add("before")
    reader = client.events()
    queue.add("after")
    with behind("event.added"):
        added = reader.wait_for("added")
    equal(added.fields.get("jobId"), "2", "the first entry delivered is the first one after the reader was ready")


@scenario("event.reader", clock="real", compare=False)
def test_a_reader_that_blocks_shortly_misses_nothing(client: Participant) -> None:
    """With `blockingTimeout` a read ends without an entry, and the next one goes on where it was."""
    queue = client.queue()
    with client.tap.watch("XREAD", call=None) as reads:
        reader = client.events(blockingTimeout=100)
        block = [word.lower() for word in reads.wait().args].index(b"block")
        if reads.commands[0].args[block + 1] == b"0":
            raise OperationUnsupported("open", "this client reads events without a time limit")
        for number in ("1", "2", "3"):
            reads.wait(times=2 * int(number) + 1)
            queue.add("later")
            equal(reader.wait_for("added").fields.get("jobId"), number, "each entry is delivered once, in order")


@pytest.mark.parametrize("keep", [1000, 1], ids=["many", "one"])
@scenario("event.published", without={"outside-script": "a single command adds the event"})
def test_an_event_of_the_user(client: Participant, keep: int) -> None:
    """It is in the stream with its fields, and a reader delivers it as it is."""
    queue = client.queue()
    queue.add("before")
    fields = {"of": "the user", "count": "3", "empty": "", "text": "é🎉"}
    queue.call(queue_ops.PublishEvent(event_name="cooled-down", fields=fields, max_length=keep))
    equal(queue.redis.events()[-1], {"event": "cooled-down", **fields}, "it is the last entry of the stream")
    delivered = client.events(lastEventId="0-0").wait_for("cooled-down")
    equal(delivered.fields, fields, "a reader delivers its fields as texts")


@pytest.mark.parametrize("ending", ["completed", "failed", "not-yet"])
@scenario("event.reader", tier="full")
@also_in_core("completed | failed | not-yet")
def test_a_job_that_has_ended_is_not_waited_for(client: Participant, ending: str) -> None:
    """Waiting for a finished job ends at once with its result or failure; for a running job it times out."""
    queue, worker, reader = client.queue(), client.worker(), client.events()
    queue.add("work", jobId="mine")
    worker.claim_one()
    if ending == "completed":
        worker.complete("mine", {"of": 1})
        answer = queue.call(job_ops.WaitUntilFinished(job="mine", events=reader.handle, ttl_ms=6000))
        equal(answer.value_raw, '{"of":1}', "the answer is the result")
        return
    if ending == "failed":
        worker.fail("mine", "boom")
    ttl_ms = 6000 if ending == "failed" else 100
    with client.refuses("job-failed" if ending == "failed" else "timeout", "the job has no result"):
        queue.call(job_ops.WaitUntilFinished(job="mine", events=reader.handle, ttl_ms=ttl_ms))


@pytest.mark.parametrize("ending", ["completed", "failed"])
@scenario("event.reader", tier="full", clock="real")
def test_the_end_of_a_job_is_waited_for(client: Participant, ending: str) -> None:
    """Waiting for a running job returns when it ends."""
    queue, worker, reader = client.queue(), client.worker(), client.events()
    queue.add("work", jobId="mine")
    worker.claim_one()
    asked = job_ops.WaitUntilFinished(job="mine", events=reader.handle, ttl_ms=6000)
    waits = client.meanwhile(lambda: queue.call(asked, deadline_ms=9000))
    # Once the reader has reported the end of another job, the client certainly waits.
    queue.add("another", jobId="another")
    worker.claim_one("token-2")
    worker.complete("another", token="token-2")
    reader.wait_for("completed", "another")
    if ending == "completed":
        worker.complete("mine", {"of": 1})
        equal(waits.result().value_raw, '{"of":1}', "the answer is the result")
    else:
        worker.fail("mine", "boom")
        with client.refuses("job-failed", "the job has no result"):
            waits.result()


@scenario("event.readable-by-node")
def test_node_reads_what_was_left(client: Participant) -> None:
    """After jobs of every kind, Node's event reader and getters still work.

    Other scenarios let Node read only what is not the very same as it left itself.
    """
    queue, worker = client.queue(), client.worker()
    for number in range(3):
        queue.add(f"job {number}", {"n": number, "text": "é🎉"})
    queue.add("later", {}, delay=60_000)
    queue.add("urgent", {}, priority=1)
    worker.claim_one("token-1")
    queue.progress("1", {"percent": 10})
    worker.complete("1", {"ok": True}, "token-1")
    worker.claim_one("token-2")
    worker.fail("2", "boom é", "token-2")
    queue.remove("5")
    equal(queue.redis.state("3"), ["wait"], "one job is left to run")
