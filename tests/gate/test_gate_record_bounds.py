"""Records of any client are valid UTF-8 and small, and their verdicts do not depend on what was left out."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.findings import Finding, RedisReading
from conformance.gate.record_bounds import (
    LARGEST_RECORD,
    LONGEST_TEXT,
    MOST_EXAMPLES,
    MOST_KINDS,
    RecordedEvidence,
    compact,
    folded,
    readable,
)
from conformance.gate.records import ScenarioRecord, StepRecord, decode, encode

from .gate_builders import finding, record

SURROGATE = "\udcff\ud800"
ANY_TEXT = st.text(st.characters(), max_size=30)


def with_steps(*findings: Finding, number: int = 3, size: int = 10) -> ScenarioRecord:
    steps = [StepRecord(by="both", do="queue.add", on="q", args={"data_raw": "x" * size}) for _ in range(number)]
    reading = RedisReading(command=["HGETALL", "<prefix>:q:1"], actual="y" * size)
    shown = [msgspec.structs.replace(item, redis=[reading]) for item in findings]
    return msgspec.structs.replace(record({"a.must": "fail"}, *shown, verdict="fail"), steps=steps, log=["z" * size])


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_text_is_written_and_read_again(where: str, message: str, argument: str) -> None:
    odd = with_steps(finding(where=where + SURROGATE, message=message + SURROGATE))
    step = msgspec.structs.replace(odd.steps[0], args={argument + SURROGATE: [argument + SURROGATE]})
    kept = readable(msgspec.structs.replace(odd, steps=[step], reason=SURROGATE, log=[SURROGATE]))
    assert decode(encode(kept)) == kept
    kept.findings[0].message.encode()


def test_text_that_is_fine_stays_as_it_is() -> None:
    fine = with_steps(finding(message="häßlich 🎉\n\x1b"))
    assert compact(readable(fine)) == fine


def test_of_two_long_texts_the_parts_that_differ_are_kept() -> None:
    expected, actual = "a" * 5000 + "one" + "b" * 5000, "a" * 5000 + "two" + "b" * 5000
    long = msgspec.structs.replace(finding(), expected=expected, actual=actual)
    [kept] = readable(with_steps(long)).findings
    assert kept.expected != kept.actual
    assert "one" in kept.expected
    assert "two" in kept.actual
    assert max(len(kept.expected), len(kept.actual)) <= LONGEST_TEXT


def test_repetitions_are_counted_and_other_kinds_are_kept() -> None:
    many = [finding(message=f"value {number}") for number in range(1000)]
    kept = folded([*many, finding(where="job.data")])
    assert [item.where for item in kept] == ["job.name"] * MOST_EXAMPLES + ["job.data"]
    assert sum(item.times for item in kept) == 1001


def test_every_requirement_keeps_a_finding_however_many_kinds_there_are() -> None:
    kinds = [finding("a.must", where=f"job.field{number}") for number in range(500)]
    kept = folded([*kinds, finding("b.must", where="job.last")])
    assert len(kept) == MOST_KINDS
    assert {item.requirement for item in kept} == {"a.must", "b.must"}


@pytest.mark.parametrize("size", [100, 1000, 100_000])
def test_no_record_is_larger_than_its_bound(size: int) -> None:
    findings = [finding(where=f"job.{number}", message="m" * size) for number in range(60)]
    kept = compact(readable(with_steps(*findings, number=80, size=size)))
    assert len(encode(kept)) < LARGEST_RECORD * 3
    assert kept.requirements == {"a.must": "fail"}
    assert kept.findings


def test_a_run_keeps_the_steps_of_a_kind_for_its_first_records() -> None:
    evidence = RecordedEvidence()
    kept = [evidence.thinned(with_steps(finding(), number=5)) for _ in range(5)]
    assert [len(item.steps) for item in kept] == [5, 5, 0, 0, 0]
    assert [len(item.findings[0].redis) for item in kept] == [1, 1, 0, 0, 0]
    assert all(item.verdict == "fail" for item in kept)
    assert evidence.thinned(with_steps(finding(), finding(where="job.data"), number=5)).steps, "it shows something new"


def test_each_statement_and_each_way_to_perform_the_steps_is_a_kind_of_its_own() -> None:
    evidence = RecordedEvidence()

    def kept(message: str, *, stand_in: bool = False) -> list[int]:
        stated = msgspec.structs.replace(finding(where="scenario", message=message), source="assertion")
        plain = with_steps(stated, number=5)
        steps = [msgspec.structs.replace(step, stand_in=stand_in) for step in plain.steps]
        return [len(evidence.thinned(msgspec.structs.replace(plain, steps=steps)).steps) for _ in range(3)]

    assert kept("the job waits", stand_in=True) == [5, 5, 0]
    assert kept("the job waits") == [5, 5, 0], "a script needs steps that the client has taken itself"
    assert kept("the job is active") == [5, 5, 0]
