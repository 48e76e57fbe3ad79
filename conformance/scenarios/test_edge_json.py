"""Unusual JSON: values, spellings, numbers and depths that a client has to read and to hand on."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal

import pytest

from conformance.driver.errors import OperationFailed
from conformance.driver.ops import job as job_ops
from conformance.participants.expect import equal, holds
from conformance.participants.marks import handover, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.edge_values import (
    BEYOND_DOUBLES,
    LONE_SURROGATES,
    NUMBERS,
    SPELLINGS,
    VALUES,
    nested,
    same_json,
)
from conformance.scenarios.support.steps import echoed, wait_for_finished

NO_LONE_SURROGATES = {"oracle-health": "a driver's lines cannot hold parsed values with lone surrogates"}


@scenario("edge.json-round-trip", clock="real")
def test_json_comes_back_as_it_went(client: Participant) -> None:
    """A processor gets the value that was sent, and what it returns is that value."""
    queue = client.queue()
    for raw in VALUES.values():
        job = queue.add("values", raw=raw)
        queue.call(job_ops.UpdateProgress(job=job, value_raw=raw))
        equal(same_json(queue.redis.field(job, "data") or ""), same_json(raw), "the data is stored as it was sent")
        equal(same_json(queue.redis.field(job, "progress") or ""), same_json(raw), "so is the progress")
    equal(_echoes(client, len(VALUES)), list(map(same_json, VALUES.values())), "the results are the data")


@scenario("edge.json-round-trip", clock="real")
def test_json_is_read_in_any_spelling(client: Participant) -> None:
    """Other languages write other texts for the same values."""
    queue = client.queue()
    for raw in SPELLINGS.values():
        job = queue.add("spelled")
        queue.redis.set_field(job, "data", raw)
        seen = queue.job(job)
        equal(same_json((seen and seen.data_raw) or "null"), same_json(raw), "the data is read as it is meant")
    equal(_echoes(client, len(SPELLINGS)), list(map(same_json, SPELLINGS.values())), "the results are the data")


def _echoes(consumer: Participant, count: int) -> list[str]:
    """The results of jobs 1 to `count` of a processor that returns its data, in a comparable form."""
    consumer.worker("echo")
    view = wait_for_finished(consumer, count)
    return [same_json(view.field(str(number), "returnvalue") or "") for number in range(1, count + 1)]


@pytest.mark.parametrize("raw", list(LONE_SURROGATES.values()), ids=list(LONE_SURROGATES))
@handover("edge.json-round-trip", without=NO_LONE_SURROGATES)
def test_lone_surrogates_survive_the_other_language(producer: Participant, consumer: Participant, raw: str) -> None:
    """Half a surrogate pair is escaped in JSON, and comes back as it went."""
    queue = producer.queue()
    queue.add("halves", raw=raw)
    queue.call(job_ops.UpdateProgress(job="1", value_raw=raw))
    equal(same_json(echoed(consumer)), same_json(raw), "the result is the data")
    equal(same_json(queue.redis.field("1", "progress") or ""), same_json(raw), "the progress is stored as it was sent")


@handover("edge.json-round-trip")
def test_json_survives_the_other_language(producer: Participant, consumer: Participant) -> None:
    """Values that the one side sends come back from the other."""
    queue = producer.queue()
    for raw in VALUES.values():
        queue.add("values", raw=raw)
    equal(_echoes(consumer, len(VALUES)), list(map(same_json, VALUES.values())), "the results are the data")


@handover("edge.numbers")
def test_numbers_keep_what_a_reader_can_hold(producer: Participant, consumer: Participant) -> None:
    """A number comes back as itself or as the nearest double, and never as something that is not JSON."""
    queue = producer.queue()
    for raw in NUMBERS:
        queue.add("numbers", raw=f'{{"n":{raw}}}')
    consumer.worker("echo", concurrency=5)
    view = wait_for_finished(consumer, len(NUMBERS))
    for number, raw in enumerate(NUMBERS, start=1):
        result = view.field(str(number), "returnvalue") or ""
        holds(_is_faithful(raw, result), f"{raw} comes back as itself or as the nearest double", seen=result)


def _is_faithful(sent: str, result: str) -> bool:
    """Whether the number in a result is the one sent, or the double next to it."""
    try:
        read = json.loads(result, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse)
    except ValueError:
        return False
    got = read.get("n") if isinstance(read, dict) else None
    return isinstance(got, Decimal) and (got == Decimal(sent) or float(got) == float(Decimal(sent)))


@pytest.mark.parametrize("raw", BEYOND_DOUBLES, ids=["huge", "negative", "400-digits"])
@scenario("edge.numbers", clock="real", compare=False)
def test_numbers_beyond_doubles_never_leave_json(client: Participant, raw: str) -> None:
    """Infinity is not JSON: the result holds another value that is JSON, or the job fails."""
    queue = client.queue()
    queue.add("infinite")
    queue.redis.set_field("1", "data", f'{{"n":{raw}}}')
    client.worker("echo")
    finished = (["completed"], ["failed"])
    client.eventually(
        lambda: queue.redis.state("1"), lambda state: state in finished, "the job is finished", within_ms=15_000
    )
    result = queue.redis.field("1", "returnvalue") or "null"
    holds(_is_json(result), "the result is JSON", seen=result)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except ValueError:
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@pytest.mark.parametrize(
    "raw", [nested(500, "[", "", "]"), nested(500, '{"a":', "1", "}")], ids=["500-arrays", "500-objects"]
)
@scenario("edge.nesting", clock="real")
def test_deep_data_arrives(client: Participant, raw: str) -> None:
    """Data nested 500 levels deep arrives."""
    client.queue().add("deep", raw=raw)
    equal(same_json(echoed(client)), same_json(raw), "the result is the data")


@pytest.mark.parametrize("raw", ["NaN", "-Infinity", "{'n': 1}", "[1,]", "nul"])
@scenario(
    "edge.data.not-json",
    without={
        "json-texts": "the scenario stores a text that is not JSON",
        "oracle-health": "Node's getters complain of the text that the scenario stores",
    },
)
def test_what_is_no_json_is_not_read_as_such(client: Participant, raw: str) -> None:
    """Some libraries accept JSON that others refuse: no processor gets a value that no producer sent."""
    queue = client.queue()
    queue.add("broken")
    queue.redis.set_field("1", "data", raw)
    read: list[str] = []
    with suppress(OperationFailed):
        job = queue.job("1")
        read.append(job.data_raw if job else "nothing")
    equal(read, [], "reading the job reports that its data cannot be read")
