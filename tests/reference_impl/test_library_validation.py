"""Options, payloads and progress that a strict policy refuses, field and constraint named; no Redis needed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.validation import check_new_job, check_payload, check_progress
from conformance.reference_impl.policy import (
    MEGABYTE,
    SPECIFIED,
    Policy,
)

STRICT = {"policy": SPECIFIED}

# --- options -----------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("priority", {"priority": -1}),
    ("delay", {"delay": -5}),
    ("delay", {"delay": "soon"}),
    ("attempts", {"attempts": 0}),
    ("attempts", {"attempts": -1}),
    ("timestamp", {"timestamp": 0}),
    ("backoff", {"backoff": 0}),
    ("backoff", {"backoff": "later"}),
    ("backoff.type", {"backoff": {"type": "linear", "delay": 1}}),
    ("backoff.delay", {"backoff": {"type": "fixed", "delay": 0}}),
    ("backoff.delay", {"backoff": {"type": "fixed"}}),
    ("removeOnComplete", {"removeOnComplete": -1}),
    ("removeOnFail", {"removeOnFail": float("nan")}),
    ("removeOnFail.count", {"removeOnFail": {"count": -1}}),
    ("removeOnComplete.age", {"removeOnComplete": {"age": -1}}),
]


@pytest.mark.parametrize(("field", "opts"), REFUSED)
def test_strict_options_name_field_and_constraint(field: str, opts: dict[str, Any]) -> None:
    assert check_new_job({}, "n", opts) == [], "Node takes it, and so does the default"
    with pytest.raises(InvalidArgument, match=rf"^{re.escape(field)} must be ") as caught:
        check_new_job(STRICT, "n", opts)
    assert caught.value.field == field
    assert caught.value.constraint in str(caught.value)


@pytest.mark.parametrize(
    "opts",
    [
        {},
        {"priority": 0, "delay": 0, "attempts": 1, "timestamp": 1},
        {"backoff": 5},
        {"backoff": {"type": "exponential", "delay": 1}},
        {"removeOnComplete": True, "removeOnFail": False},
        {"removeOnComplete": 0, "removeOnFail": {"age": 3600, "count": 10_000}},
    ],
)
def test_strict_options_take_what_makes_sense(opts: dict[str, Any]) -> None:
    assert check_new_job(STRICT, "n", opts) == []


@pytest.mark.parametrize("name", ["", 7])
def test_a_job_needs_a_name(name: Any) -> None:
    with pytest.raises(InvalidArgument, match="name must be a text that is not empty"):
        check_new_job(STRICT, name, {})


def test_keeping_very_many_jobs_is_worth_a_warning() -> None:
    opts = {"removeOnComplete": 10_001, "removeOnFail": {"count": 20_000, "age": 50_000}}
    warnings = check_new_job(STRICT, "n", opts)
    assert [text.split(":")[0] for text in warnings] == ["removeOnComplete is 10001", "removeOnFail.count is 20000"]
    assert check_new_job({}, "n", opts) == []


@pytest.mark.parametrize(
    ("field", "opts"),
    [
        ("jobId", {"jobId": "12"}),
        ("jobId", {"jobId": "a:b"}),
        ("jobId", {"jobId": 7}),
        ("priority", {"priority": 1.5}),
        ("priority", {"priority": 2**21 + 1}),
        ("backoff.jitter", {"backoff": {"type": "fixed", "delay": 1, "jitter": 2}}),
        ("deduplication.id", {"deduplication": {}}),
        ("data", {"sizeLimit": 1}),
        ("failParentOnFailure", {"failParentOnFailure": True, "removeDependencyOnFailure": True}),
    ],
)
def test_refusals_with_nodes_texts_name_the_field_too(field: str, opts: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        options.validate("n", opts, '"12"')
    assert {caught.value.field, *re.findall(r"\w+", caught.value.constraint)} & {field}
    assert caught.value.constraint


# --- payload -----------------------------------------------------------------------------------------------------


def test_payload_counts_data_and_options_together() -> None:
    owner = {"policy": Policy(max_payload_bytes=MEGABYTE)}
    stored = {"attempts": 0}
    room = MEGABYTE - len('{"attempts":0}')
    check_payload(owner, "x" * room, stored)
    with pytest.raises(InvalidArgument, match=rf"\({MEGABYTE + 1} of {MEGABYTE} bytes") as caught:
        check_payload(owner, "x" * (room + 1), stored)
    assert caught.value.field == "data"


def test_payload_text_has_both_sizes() -> None:
    with pytest.raises(InvalidArgument, match=r"^Job payload 12\.3 MB exceeds limit of 10 MB"):
        check_payload(STRICT, "x" * int(12.3 * MEGABYTE), {})


def test_payload_is_measured_in_bytes_of_utf8() -> None:
    owner = {"policy": Policy(max_payload_bytes=10)}
    check_payload(owner, "€€", {})
    with pytest.raises(InvalidArgument, match="11 of 10 bytes"):
        check_payload(owner, "€€€", {})


def test_without_a_policy_no_payload_is_too_large() -> None:
    check_payload({}, "x" * (11 * MEGABYTE), {})


# --- progress ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("progress", [-1, 101, 100.5])
def test_progress_out_of_range(progress: float) -> None:
    check_progress({}, progress)
    with pytest.raises(InvalidArgument, match="progress must be between 0 and 100"):
        check_progress(STRICT, progress)


@pytest.mark.parametrize("progress", [0, 100, {"step": 1000}, "half", True])
def test_progress_in_range(progress: Any) -> None:
    check_progress(STRICT, progress)
