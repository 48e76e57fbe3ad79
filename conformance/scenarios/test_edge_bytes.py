"""Bytes that no conforming client writes, and more bytes than usual."""

from __future__ import annotations

import json

import pytest

from conformance.participants.expect import equal, holds
from conformance.participants.marks import also_in_core, handover, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.edge_values import BYTES
from conformance.scenarios.support.steps import wait_for_finished

TEN_MEGABYTES = 10 * 1024 * 1024
SHOWN = "text.ill-formed"
"""Locator of the way in which a reader shows such bytes."""


def _seen(bad: bytes) -> str:
    """The bytes as a reader shows them: one replacement character for each ill-formed part."""
    return bad.decode("utf-8", "replace")


# No UTF-8.


# Clients may show the bytes in other ways and store what they have read, so the states are not compared.
@scenario("edge.invalid-utf8", "edge.invalid-utf8.shown", compare=False)
def test_ill_formed_fields_are_read(client: Participant) -> None:
    """Every text field of such a job is shown, and the job can fail and be run again."""
    queue, worker = client.queue(), client.worker()
    shown, wanted = [], []
    for bad in BYTES.values():
        job = queue.add("fields", {}, attempts=2)
        for field, value in _fields(bad).items():
            queue.redis.set_field(job, field, value)
        with client.transcript.not_compared():
            seen = queue.job(job)
        shown.append((seen.name, seen.failed_reason, seen.progress_raw, seen.opts.get("note")) if seen else None)
        text = _seen(bad)
        wanted.append((f"<{text}>", f"<{text}>", f'"{text}"', text))
        for message in ("first", "second"):
            with client.transcript.not_compared():
                worker.claim_one()
            worker.fail(job, message)
        equal(queue.redis.state(job), ["failed"], "the job has been run twice")
    # Last, because the way in which a client shows such bytes must not hide whether it goes on.
    equal(shown, wanted, "the fields have replacement characters", where=SHOWN)


def _fields(bad: bytes) -> dict[str, bytes]:
    """The text fields of a job, with such bytes in each."""
    return {
        "name": b"<%s>" % bad,
        "failedReason": b"<%s>" % bad,
        "progress": b'"%s"' % bad,
        "returnvalue": b'"%s"' % bad,
        "stacktrace": b'["%s"]' % bad,
        "opts": b'{"attempts":2,"note":"%s"}' % bad,
    }


@scenario("edge.invalid-utf8", clock="real", compare=False)
def test_ill_formed_data_is_run(client: Participant) -> None:
    """A worker runs such jobs, and the next one."""
    queue = client.queue()
    for bad in BYTES.values():
        queue.redis.set_field(queue.add("ill-formed"), "data", b'{"text":"x' + bad + b'y"}')
    queue.add("next", {"text": "next"})
    client.worker("echo")
    wait_for_finished(client, len(BYTES) + 1)


@scenario("edge.invalid-utf8.events")
def test_ill_formed_events_are_read(client: Participant) -> None:
    """The reader goes on after entries with such bytes."""
    queue = client.queue()
    queue.add("before")
    for bad in BYTES.values():
        queue.redis.append_event(event=b"progress", jobId=b"1", data=b'"' + bad + b'"')
        queue.redis.append_event(event=b"failed", jobId=b"1", failedReason=bad, prev=b"active")
        queue.redis.append_event(event=b"custom-" + bad, jobId=b"1")
    queue.add("after")
    reader = client.events(lastEventId="0-0")
    for _ in BYTES:
        reader.wait_for("progress")
        reader.wait_for("failed")
    equal(reader.wait_for("added", "2").fields.get("name"), "after", "later events are read")


# Large.


@pytest.mark.parametrize(
    ("letter", "beyond"),
    [("x", -1), ("x", 0), ("x", 1), ("\u00e9", 0), ("\U0001f389", 1)],
    ids=["below", "exact", "above", "exact-of-2-bytes", "above-of-4-bytes"],
)
@scenario("add.size-limit", "edge.large", tier="full")
@also_in_core("x-1")
def test_ten_megabytes_to_the_byte(client: Participant, letter: str, beyond: int) -> None:
    """Data up to the limit is taken whole, one byte more is refused before anything is written."""
    queue = client.queue()
    raw = _json_text(TEN_MEGABYTES + beyond, letter)
    if beyond > 0:
        with client.refuses("invalid-argument", "data above the limit is refused"):
            queue.add("large", raw=raw, sizeLimit=TEN_MEGABYTES)
        equal(queue.redis.value("id"), None, "nothing was written")
        return
    queue.add("large", raw=raw, sizeLimit=TEN_MEGABYTES)
    holds(
        queue.redis.json("1", "data") == json.loads(raw),
        "the data is whole",
        seen=_size(queue.redis.field("1", "data")),
    )


@handover("edge.large")
def test_large_data_goes_there_and_back(producer: Participant, consumer: Participant) -> None:
    """A worker of the other language gets more than 10 MB, and returns them."""
    queue = producer.queue()
    raw = _json_text(TEN_MEGABYTES + 1, "x")
    queue.add("large", raw=raw, removeOnComplete=True)
    consumer.worker("echo")
    [completed] = consumer.eventually(
        lambda: [entry for entry in queue.redis.events() if entry["event"] in ("completed", "failed")],
        bool,
        "the large job is completed",
        within_ms=60_000,
    )
    came = completed.get("returnvalue")
    holds(came == raw, "the result is the data", seen=_size(came))


def _json_text(size: int, letter: str) -> str:
    """A JSON text of this many bytes of UTF-8, as good as all of one letter."""
    room = size - 2
    width = len(letter.encode())
    return f'"{"." * (room % width)}{letter * (room // width)}"'


def _size(text: str | None) -> str:
    return "nothing" if text is None else f"{len(text.encode())} bytes"
