"""Unusual JSON: values, spellings, numbers and depths that a client has to read and to hand on."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from conformance.driver.ops import job as job_ops
from conformance.gate.expect import equal, holds
from conformance.gate.participants.participant import Participant
from conformance.gate.scenario import handover, scenario
from conformance.scenarios.edge_steps import all_completed, echoed
from conformance.scenarios.edge_values import (
    BEYOND_DOUBLES,
    LONE_SURROGATES,
    NUMBERS,
    SPELLINGS,
    VALUES,
    nested,
    same_json,
)

NO_LONE_SURROGATES = {"oracle-health": "parsed values with lone surrogates cannot be told in a driver's lines"}


@pytest.mark.parametrize("raw", list(VALUES.values()), ids=list(VALUES))
@scenario("edge.json-round-trip", clock="real")
def test_json_comes_back_as_it_went(client: Participant, raw: str) -> None:
    """A processor gets the value that was sent, and what it returns is that value."""
    queue = client.queue()
    queue.add("values", raw=raw)
    queue.call(job_ops.UpdateProgress(job="1", value_raw=raw))
    equal(same_json(queue.redis.field("1", "data") or ""), same_json(raw), "the data is stored as it was sent")
    equal(same_json(queue.redis.field("1", "progress") or ""), same_json(raw), "so is the progress")
    equal(same_json(echoed(client)), same_json(raw), "the result is the data")


@pytest.mark.parametrize("raw", list(SPELLINGS.values()), ids=list(SPELLINGS))
@scenario("edge.json-round-trip", clock="real")
def test_json_is_read_in_any_spelling(client: Participant, raw: str) -> None:
    """Other languages write other texts for the same values."""
    queue = client.queue()
    queue.add("spelled")
    queue.redis.set_field("1", "data", raw)
    seen = queue.job("1")
    equal(same_json((seen and seen.data_raw) or "null"), same_json(raw), "the data is read as it is meant")
    equal(same_json(echoed(client)), same_json(raw), "the result is the data")


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
    consumer.worker("echo", concurrency=5)
    view = all_completed(consumer, len(VALUES))
    for number, raw in enumerate(VALUES.values(), start=1):
        result = view.field(str(number), "returnvalue") or ""
        equal(same_json(result), same_json(raw), "the data came back as it was sent")


@handover("edge.numbers")
def test_numbers_keep_what_a_reader_can_hold(producer: Participant, consumer: Participant) -> None:
    """A number comes back as itself or as the nearest double, and never as something that is no JSON."""
    queue = producer.queue()
    for raw in NUMBERS:
        queue.add("numbers", raw=f'{{"n":{raw}}}')
    consumer.worker("echo", concurrency=5)
    view = all_completed(consumer, len(NUMBERS))
    for number, raw in enumerate(NUMBERS, start=1):
        result = view.field(str(number), "returnvalue") or ""
        holds(_is_faithful(raw, result), f"{raw} comes back as itself or as the nearest double", seen=result)


def _is_faithful(sent: str, result: str) -> bool:
    """Whether the number in a result is the one sent, or the double next to it."""
    try:
        got = json.loads(result, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse)["n"]
    except ValueError:
        return False
    return isinstance(got, Decimal) and (got == Decimal(sent) or float(got) == float(Decimal(sent)))


@pytest.mark.parametrize("raw", BEYOND_DOUBLES, ids=["huge", "negative", "400-digits"])
@scenario("edge.numbers", clock="real", compare=False)
def test_numbers_beyond_doubles_never_leave_json(client: Participant, raw: str) -> None:
    """Infinity is no JSON: what has become of such a number is told in JSON, or the job fails."""
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
    """Five hundred levels are no problem."""
    client.queue().add("deep", raw=raw)
    equal(same_json(echoed(client)), same_json(raw), "the result is the data")
