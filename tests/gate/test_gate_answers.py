"""Answers compared call by call; the transcript, the clocks, and the sentences of scenarios."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from conformance.driver.errors import OperationUnanswered
from conformance.driver.ops.base import JobView
from conformance.findings import Finding
from conformance.gate.judge import compare_answers
from conformance.participants.clock import FROZEN_START_MS, FrozenClock, ParticipantClock, RunningClock
from conformance.participants.expect import Mismatch, between, equal, holds, one_of, value_text
from conformance.participants.participant import Participant
from conformance.participants.transcript import RecordedCall, Transcript


def participant(*answers: RecordedCall, prefix: str = "bc1", frozen: bool = True) -> Participant:
    transcript = Transcript()
    for answer in answers:
        transcript.record(answer)
    clock = FrozenClock() if frozen else RunningClock()
    return cast("Participant", SimpleNamespace(transcript=transcript, prefix=prefix, clock=clock))


def compared(theirs: Any, ours: Any, *, frozen: bool = True) -> list[Finding]:
    """Both answers of one call; `frozen` is about the client."""
    oracle = participant(RecordedCall("queue.getJob", "ok", theirs))
    client = participant(RecordedCall("queue.getJob", "ok", ours), frozen=frozen)
    return compare_answers(oracle, client)


# Answers.


def test_equal_answers_have_no_findings() -> None:
    assert compared({"job": {"id": "1", "opts": {"lifo": True}}}, {"job": {"id": "1", "opts": {"lifo": True}}}) == []


def test_a_difference_is_located() -> None:
    [found] = compared({"job": {"id": "1", "name": "a"}}, {"job": {"id": "1", "name": "b"}})
    assert (found.where, found.expected, found.actual) == ("answer.queue.getJob.job.name", "a", "b")
    assert (found.requirement, found.source, found.kind) == ("", "answer", "wrong-answer")
    assert found.message == "call 1, queue.getJob: job.name differs"


def test_every_place_is_a_finding() -> None:
    assert len(compared({"job": {"id": "1", "name": "a"}}, {"job": {"id": "2", "name": "b"}})) == 2


def test_another_job_is_one_finding_and_not_one_for_each_of_its_fields() -> None:
    alone, child = {"id": "alone", "name": "n", "data_raw": "1"}, {"id": "a", "name": "n", "data_raw": "2"}
    [found] = compared({"job": alone}, {"job": {**child, "parent_key": "bull:q:p"}})
    assert (found.where, found.expected, found.actual) == ("answer.queue.getJob.job.id", "alone", "a")


def test_a_field_of_a_job_that_a_driver_leaves_out_is_not_compared() -> None:
    bare = {"id": "1", "name": "n", "data_raw": "{}"}
    assert compared({"job": {**bare, "progress_raw": "0"}}, {"job": bare}) == []
    [found] = compared({"job": {**bare, "progress_raw": "0"}}, {"job": {**bare, "progress_raw": None}})
    assert found.where == "answer.queue.getJob.job.progress_raw"


def test_a_field_that_was_left_out_decides_no_assertion() -> None:
    job = msgspec.convert({"id": "1", "name": "n", "data_raw": "{}", "priority": None}, JobView)
    assert job.priority is None
    with pytest.raises(OperationUnanswered, match="the field attempts_made of a job"):
        equal(job.attempts_made, 0, "no attempt was made")


def test_a_refusal_against_an_answer_is_a_difference() -> None:
    oracle = participant(RecordedCall("worker.moveToCompleted", "lock-mismatch", None))
    client = participant(RecordedCall("worker.moveToCompleted", "ok", {"job": None}))
    [found] = compare_answers(oracle, client)
    assert (found.where, found.expected, found.actual) == (
        "answer.worker.moveToCompleted.outcome",
        "lock-mismatch",
        "ok",
    )


def test_each_ones_own_prefix_is_the_same() -> None:
    oracle = participant(RecordedCall("queue.getJob", "ok", {"parent_key": "bc1:q:1"}), prefix="bc1")
    client = participant(RecordedCall("queue.getJob", "ok", {"parent_key": "bc2:q:1"}), prefix="bc2")
    assert compare_answers(oracle, client) == []


@pytest.mark.parametrize(("named", "differences"), [("bc1", 0), ("bc3", 1)], ids=["the same text", "another prefix"])
def test_a_prefix_in_a_text_is_compared_as_it_is_on_both_sides(named: str, differences: int) -> None:
    oracle = participant(RecordedCall("queue.getJob", "ok", {"data_raw": '"bc1:q:1"'}), prefix="bc1")
    client = participant(RecordedCall("queue.getJob", "ok", {"data_raw": f'"{named}:q:1"'}), prefix="bc2")
    assert len(compare_answers(oracle, client)) == differences


def test_the_delay_of_a_job_that_only_one_side_ascribes_to_a_scheduler_is_not_compared_on_any() -> None:
    theirs = {"job": {"delay": 5, "opts": {"repeat": {"every": 9}}}}
    [found] = compared(theirs, {"job": {"delay": 7, "opts": {}}}, frozen=False)
    assert found.where == "answer.queue.getJob.job.opts.repeat"


@pytest.mark.parametrize("field", ["timestamp", "processed_on", "finished_on"])
def test_times_are_compared_only_when_both_clocks_stand_still(field: str) -> None:
    theirs, ours = {"job": {field: 1000}}, {"job": {field: 1001}}
    assert len(compared(theirs, ours, frozen=True)) == 1
    assert compared(theirs, ours, frozen=False) == []


@pytest.mark.parametrize(("theirs", "ours"), [(None, 0), (0, None), ("", None), (None, {}), ([], None), (0, "")])
def test_nothing_and_zero_say_the_same(theirs: Any, ours: Any) -> None:
    assert compared({"job": {"delay": theirs}}, {"job": {"delay": ours}}) == []


@pytest.mark.parametrize(("theirs", "ours"), [(None, 1), (0, "0"), ("", "x"), ([], ["a"]), (0, 1)])
def test_nothing_and_something_do_not(theirs: Any, ours: Any) -> None:
    assert len(compared({"job": {"delay": theirs}}, {"job": {"delay": ours}})) == 1


def test_a_field_that_only_one_has_is_nothing_there() -> None:
    assert compared({"job": {"id": "1", "delay": 0}}, {"job": {"id": "1"}}) == []
    assert len(compared({"job": {"id": "1"}}, {"job": {"id": "1", "delay": 5}})) == 1


@pytest.mark.parametrize(
    ("theirs", "ours"), [('{"1":2,"a":"é"}', '{"a": "\\u00e9", "1": 2}'), ("[1]", "[1.0]"), ('"x"', ' "x"')]
)
def test_json_texts_of_the_same_value_are_the_same(theirs: str, ours: str) -> None:
    assert compared({"job": {"data_raw": theirs}}, {"job": {"data_raw": ours}}) == []
    assert len(compared({"job": {"name": theirs}}, {"job": {"name": ours}})) == 1


@pytest.mark.parametrize(("theirs", "ours"), [('{"a":1}', '{"a":true}'), ("[1,2]", "[2,1]"), ("1", "one"), ("x", "y")])
def test_json_texts_of_other_values_differ(theirs: str, ours: str) -> None:
    assert len(compared({"job": {"data_raw": theirs}}, {"job": {"data_raw": ours}})) == 1


def test_lists_are_compared_element_by_element() -> None:
    [found] = compared({"jobs": [{"id": "1"}, {"id": "2"}]}, {"jobs": [{"id": "1"}, {"id": "3"}]})
    assert (found.where, found.expected, found.actual) == ("answer.queue.getJob.jobs.id", '"2"', '"3"')


def test_lists_of_different_length_differ_as_a_whole() -> None:
    [found] = compared({"ids": ["1", "2"]}, {"ids": ["1"]})
    assert (found.expected, found.actual) == ('["1", "2"]', '["1"]')


def test_the_order_of_a_list_counts() -> None:
    assert len(compared({"ids": ["1", "2"]}, {"ids": ["2", "1"]})) == 2


def test_a_hole_against_a_job_is_a_difference() -> None:
    assert len(compared({"jobs": [None]}, {"jobs": [{"id": "1"}]})) == 1


def test_a_client_that_stopped_half_way_is_not_blamed_twice() -> None:
    one, two = RecordedCall("queue.count", "ok", {"count": 1}), RecordedCall("queue.count", "ok", {"count": 2})
    assert compare_answers(participant(one, two), participant(one)) == []
    assert len(compare_answers(participant(one, two), participant(two))) == 1


@pytest.mark.parametrize(("frozen", "differences"), [(True, 1), (False, 0)])
def test_the_time_in_an_id_is_compared_where_clocks_stand_still(*, frozen: bool, differences: int) -> None:
    theirs, ours = ({"id": f"repeat:tick:{due}"} for due in (1795364639351, 1795364639400))
    oracle, client = (participant(RecordedCall("queue.add", "ok", value), frozen=frozen) for value in (theirs, ours))
    assert len(compare_answers(oracle, client)) == differences
    iterations = (
        {"delay": delay, "opts": {"repeat": {"every": 9}, "delay": delay, "prevMillis": delay}} for delay in (7, 8)
    )
    one, two = (participant(RecordedCall("queue.getJob", "ok", value), frozen=frozen) for value in iterations)
    assert len(compare_answers(one, two)) == 3 * differences
    other = participant(RecordedCall("queue.add", "ok", {"id": "repeat:tock:1795364639400"}), frozen=frozen)
    assert len(compare_answers(oracle, other)) == 1


def test_the_delay_of_a_job_without_a_scheduler_is_always_compared() -> None:
    jobs = ({"delay": delay, "opts": {"delay": delay}} for delay in (7, 8))
    one, two = (participant(RecordedCall("queue.getJob", "ok", job), frozen=False) for job in jobs)
    assert len(compare_answers(one, two)) == 2


# The transcript.


def test_a_countdown_is_a_step_that_is_not_compared() -> None:
    oracle, client = participant(), participant()
    for side, left_ms in ((oracle, 59_994), (client, 59_998)):
        with side.transcript.not_compared():
            side.transcript.record(RecordedCall("queue.getRateLimitTtl", "ok", {"count": left_ms}))
        side.transcript.record(RecordedCall("queue.count", "ok", {"count": left_ms}))
    assert [call.op for call in client.transcript.calls] == ["queue.getRateLimitTtl", "queue.count"]
    assert [finding.where for finding in compare_answers(oracle, client)] == ["answer.queue.count.count"]


def test_nothing_is_noted_while_a_scenario_polls() -> None:
    transcript = Transcript()
    transcript.record(RecordedCall("queue.add", "ok", {"id": "1"}))
    with transcript.silent():
        transcript.record(RecordedCall("queue.count", "ok", {"count": 0}))
        with transcript.silent():
            transcript.record(RecordedCall("queue.count", "ok", {"count": 1}))
        transcript.record(RecordedCall("queue.count", "ok", {"count": 2}))
    transcript.record(RecordedCall("close", "ok", {}))
    assert [answer.op for answer in transcript.calls] == ["queue.add", "close"]


def test_a_poll_that_fails_ends_the_silence() -> None:
    transcript = Transcript()
    with pytest.raises(ZeroDivisionError), transcript.silent():
        raise ZeroDivisionError
    transcript.record(RecordedCall("close", "ok", {}))
    assert len(transcript.calls) == 1


# Clocks.


def test_a_frozen_clock_moves_only_on_request() -> None:
    clock: ParticipantClock = FrozenClock()
    assert clock.frozen
    assert (clock.now_ms(), clock.call_ms()) == (FROZEN_START_MS, FROZEN_START_MS)
    clock.pass_ms(3_600_000)
    assert (clock.now_ms(), clock.call_ms()) == (FROZEN_START_MS + 3_600_000, FROZEN_START_MS + 3_600_000)


def test_a_frozen_clock_starts_long_ago() -> None:
    """A client that takes the machine's time instead is caught at once."""
    assert time.time() * 1000 - FROZEN_START_MS > 24 * 3600 * 1000


def test_a_running_clock_is_the_machines_and_is_never_sent() -> None:
    clock: ParticipantClock = RunningClock()
    assert not clock.frozen
    assert clock.call_ms() is None
    before = clock.now_ms()
    clock.pass_ms(15)
    assert clock.now_ms() - before >= 15
    assert abs(clock.now_ms() - time.time() * 1000) < 1000


# Sentences.


def test_an_expectation_that_holds_is_silent() -> None:
    equal([1, 2], [1, 2], "the same")
    one_of("a", ("a", "b"), "one of them")
    between(5, 5, 6, "at the border")
    between(6, 5, 6, "at the other border")
    holds("something", "there is something", seen="something")


def test_equal_reports_the_sentence_both_sides_and_the_place() -> None:
    with pytest.raises(Mismatch) as caught:
        equal({"b": 1}, {"b": 2}, "b is two", where="job.b")
    mismatch = caught.value
    assert (mismatch.what, mismatch.expected, mismatch.actual) == ("b is two", '{"b": 2}', '{"b": 1}')
    assert mismatch.where == "job.b"
    assert str(mismatch) == 'b is two: expected {"b": 2}, got {"b": 1}'


def test_one_of_between_and_holds_can_fail() -> None:
    with pytest.raises(Mismatch, match='one of them: expected one of \\["a", "b"\\], got c'):
        one_of("c", ["a", "b"], "one of them")
    for value in (4.999, 6.001):
        with pytest.raises(Mismatch, match=r"expected 5 \.\. 6"):
            between(value, 5, 6, "inside")
    with pytest.raises(Mismatch, match="expected true, got 3 jobs"):
        holds(0, "nothing is left", seen="3 jobs")
    with pytest.raises(Mismatch, match="expected true, got null"):
        holds(None, "nothing is left", seen=None)


def test_values_are_shown_as_json_and_anything_else_somehow() -> None:
    assert value_text("text") == "text"
    values: list[Any] = [None, True, 1, -1.5, [], {}, {"a": [1, None]}]
    for value in values:
        written = json.dumps(value)
        assert value_text(value) == written
        assert value_text(written) == json.dumps(written), "never alike"
    for text in ('{"a":1}', "1.50", "01", "NULL", "[" * 100_000, '"open'):
        assert value_text(text) == text, "no other value is printed like this"
    assert value_text({"ü": None}) == '{"ü": null}'
    assert value_text(b"bytes") == "\"b'bytes'\""
    circle: list[Any] = []
    circle.append(circle)
    assert value_text(circle) == "[[...]]"
