"""Unusual texts, options, ids and names: a client has to hand on what others send, however strange it looks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.driver.ops import job as job_ops
from conformance.participants.expect import Mismatch, equal, holds
from conformance.participants.marks import also_in_core, handover, scenario, shared
from conformance.participants.participant import Participant
from conformance.scenarios.support.edge_values import IDS, TEXTS
from conformance.scenarios.support.steps import wait_for_finished

# Texts.


@scenario("edge.texts")
def test_texts_arrive_in_data_and_result(client: Participant) -> None:
    """Data, progress and result hold any text, as a value and as a key."""
    queue, worker = client.queue(), client.worker()
    for text in TEXTS.values():
        data = {"text": text, text: [text]}
        job = queue.add("texts", data)
        equal(json.loads(worker.claim_one().data_raw), data, "the data arrives as it was sent")
        queue.progress(job, text)
        equal(queue.redis.json(job, "progress"), text, "the progress is stored as it was sent")
        worker.complete(job, {text: text})
        seen = queue.job(job)
        equal(json.loads((seen and seen.returnvalue_raw) or ""), {text: text}, "the result is read as it was returned")
        equal(queue.redis.json(job, "returnvalue"), {text: text}, "the result is stored as it was returned")


@scenario("edge.texts.plain")
def test_texts_arrive_in_plain_fields(client: Participant) -> None:
    """Names, log rows, reasons and stack traces hold any text."""
    queue, worker = client.queue(), client.worker()
    for text in TEXTS.values():
        job = queue.add(text)
        for row in ("plain", text):
            queue.log(job, row)
        equal(worker.claim_one().name, text, "the name arrives as it was sent")
        worker.fail(job, text)
        fields = queue.redis.hash(job)
        equal((fields["name"], fields["failedReason"]), (text, text), "name and reason are stored as they were sent")
        holds(
            text in json.loads(fields["stacktrace"])[-1], "the stack trace has the message", seen=fields["stacktrace"]
        )
        rows = queue.redis.elements(f"{job}:logs")
        equal(rows[:1], ["plain"], "a plain row is stored", where="row.log.appended")
        equal(rows[1:], [text], "the log row is stored as it was sent")
        seen = queue.job(job)
        equal((seen and seen.name, seen and seen.failed_reason), (text, text), "name and reason are read as they are")
        equal(queue.logs(job).logs, ["plain", text], "the log row is read as it is")


@pytest.mark.parametrize("text", list(TEXTS.values()), ids=list(TEXTS))
@scenario("edge.texts.names")
def test_texts_name_queues_and_jobs(client: Participant, text: str) -> None:
    """Queues and jobs can be called by any text."""
    queue, worker, job = client.queue(text), client.worker(queue=text), f"id {text}"
    equal(queue.add("named", {}, jobId=job), job, "the job has the id that was chosen")
    equal(worker.claim_one().id, job, "it is claimed under this id")
    worker.complete(job)
    equal((queue.redis.state(job), queue.state(job)), (["completed"], "completed"), "it is completed under this id")
    reader = client.events(text, lastEventId="0-0")
    equal(reader.wait_for("completed").fields.get("jobId"), job, "the event names it by this id")


@handover("edge.texts.names", tier="full")
@also_in_core("client=producer")
def test_texts_name_relatives(producer: Participant, consumer: Participant) -> None:
    """Parents, children, deduplications and job schedulers can be called by any text, and are so for the other side."""
    queue, flow = producer.queue(), producer.flow()
    other, worker = consumer.queue(), consumer.worker()
    for text in TEXTS.values():
        parent, child = f"parent {text}", f"child {text}"
        leaf = {"name": text, "queue": "q", "opts": {"jobId": child}}
        flow.add({"name": text, "queue": "q", "opts": {"jobId": parent}, "children": [leaf]})
        equal(worker.claim_one().parent_key, queue.redis.key(parent), "the child knows its parent")
        worker.complete(child)
        values = other.call(job_ops.GetChildrenValues(job=parent)).values
        equal(list(values), [queue.redis.key(child)], "the parent knows its child")
        equal(worker.claim_one().id, parent, "the parent is released")
        worker.complete(parent)
        owner = queue.add("once", {}, delay=60_000, deduplication={"id": text})
        equal(other.add("once", {}, deduplication={"id": text}), owner, "the second job is the first one")
        queue.schedule(f"scheduler {text}", {"every": 3_600_000}, name=text)
        found = other.scheduler(f"scheduler {text}")
        equal((found and found.key, found and found.name), (f"scheduler {text}", text), "the scheduler is found")
        worker.complete(worker.claim_one().id)


@pytest.mark.parametrize("name", ["two words", "caf\u00e9", "new\nline", "a:w:b"])
@scenario("edge.worker-names", clock="real")
def test_a_worker_can_have_any_name(client: Participant, name: str) -> None:
    """A worker whose name Redis refuses for a connection still works."""
    queue = client.queue()
    queue.add("signed")
    client.worker("noop", name=name)
    equal(
        wait_for_finished(client, 1).field("1", "pb"), name, "the job is signed with the worker's name", where="job.pb"
    )


@handover("edge.texts")
def test_texts_survive_the_other_language(producer: Participant, consumer: Participant) -> None:
    """A text that one side sends comes back unchanged from the other."""
    queue = producer.queue()
    for text in TEXTS.values():
        queue.add(text, {"text": text, text: 1})
    consumer.worker("echo", concurrency=5)
    view = wait_for_finished(consumer, len(TEXTS))
    for number, text in enumerate(TEXTS.values(), start=1):
        seen = queue.job(str(number))
        equal(seen and seen.name, text, "the name is what was sent")
        equal(view.json(str(number), "returnvalue"), {"text": text, text: 1}, "the data came back as it was sent")


@handover("edge.texts.plain")
def test_reasons_survive_the_other_language(producer: Participant, consumer: Participant) -> None:
    """The one side reads why a job failed in the other, and what it logged."""
    queue, worker = producer.queue(), consumer.worker()
    for number, text in enumerate(TEXTS.values(), start=1):
        queue.add("doomed")
        worker.claim_one()
        consumer.queue().log(str(number), text)
        worker.fail(str(number), text)
        seen = queue.job(str(number))
        equal(seen and seen.failed_reason, text, "the reason is read as it was written")
        equal(queue.logs(str(number)).logs, [text], "the log is read as it was written")


# Options.


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (TEXTS, TEXTS),
        ({"a": {"": [1, "\U0001f600"]}}, {"a": {"": [1, "\U0001f600"]}}),
        ({"__proto__": 1, "constructor": 2}, {"__proto__": 1, "constructor": 2}),
        ({"list": []}, {"list": {}}),
        ({"none": None, "zero": 0}, {"zero": 0}),
        (4294967296, 4294967296),
        (123456789012345, 123456789012340),
        (3.141592653589793, 3.1415926535898),
        (1e-7, 1e-7),
    ],
    ids=["texts", "nested", "keys-of-javascript", "empty-list", "null", "above-32-bits", "15-digits", "pi", "tiny"],
)
@scenario("edge.options", "getters.job.options")
def test_options_hold_any_value(client: Participant, given: Any, stored: Any) -> None:
    """Options go through MessagePack and Lua's JSON: texts stay, numbers keep 14 digits, `[]` becomes `{}`."""
    queue = client.queue()
    queue.add("options", {}, note=given)
    equal(queue.redis.json("1", "opts").get("note"), stored, "the option is stored as Lua writes it")
    seen = queue.job("1")
    where = "answer.queue.getJob.job.opts.note"
    equal(seen and seen.opts.get("note"), stored, "the option is read as it is stored", where=where)


# Ids and names.


@shared("edge.ids")
def test_any_id_of_node_can_be_worked_on(client: Participant, oracle: Participant) -> None:
    """The client claims, reads, finishes and removes jobs with every id that a Node user may choose."""
    producer, queue, worker = oracle.queue(), client.queue(), client.worker()
    for job in IDS:
        producer.add("chosen", {}, jobId=job)
        equal(worker.claim_one().id, job, "the job is claimed under its id")
        seen = queue.job(job)
        equal(seen and seen.id, job, "it is read under its id")
        worker.complete(job)
        equal(queue.state(job), "completed", "it is completed under its id")
    equal(sorted(queue.redis.members("completed")), sorted(IDS), "every job is completed under its own id")
    for job in IDS:
        equal(queue.remove(job), 1, "it is removed under its id")
    equal(queue.redis.members("completed"), [], "none is left")


@pytest.mark.parametrize("name", ["tenant:mail", "a:b:c"], ids=["one", "two"])
@scenario("edge.queue-names.colon")
def test_a_queue_needs_a_name_without_an_inner_colon(client: Participant, name: str) -> None:
    """The keys of its jobs could be those of another queue, and a flow over it could not be read."""
    with client.refuses("invalid-argument", f"a queue cannot be called {name!r}"):
        client.queue(name)


@pytest.mark.parametrize("name", ["", ":", "a:b"], ids=["empty", "colon", "inner-colon"])
@pytest.mark.parametrize("role", ["queue", "worker", "events"])
@scenario("edge.queue-names.refused")
def test_a_queue_needs_a_name_without_colon(client: Participant, role: str, name: str) -> None:
    """Keys of such a queue could be those of another one."""
    with client.refuses("invalid-argument", f"a queue cannot be called {name!r}"):
        if role == "queue":
            client.queue(name)
        elif role == "worker":
            client.worker(queue=name)
        else:
            client.events(name)


@scenario("edge.options.array", without={"json-texts": "the scenario stores an array where an object belongs"})
def test_an_empty_array_is_no_options(client: Participant) -> None:
    """Some languages write an empty map as `[]`."""
    queue, worker = client.queue(), client.worker()
    queue.add("foreign")
    queue.redis.set_field("1", "opts", "[]")
    if queue.job("1") is None:
        raise Mismatch("the job is read", expected="a job", actual="none")
    worker.claim_one()
    worker.complete("1")
    equal(queue.redis.state("1"), ["completed"], "the job is run")
