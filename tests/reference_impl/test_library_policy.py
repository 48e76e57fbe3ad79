"""The policy: delays, reconnecting, server versions, worker ids, and the options, payloads and progress it refuses."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.reference_impl.connection import connection
from conformance.reference_impl.connection.connection import Link
from conformance.reference_impl.errors import BullMQError, InvalidArgument
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.options import check_new_job, check_payload, check_progress
from conformance.reference_impl.journal import new_worker_id, worker_id_of
from conformance.reference_impl.policy import (
    DEFAULT,
    HOUR_MS,
    MEGABYTE,
    SPECIFIED,
    BackoffPolicy,
    Policy,
    ReconnectPolicy,
    policy_of,
)

# --- the policy itself --------------------------------------------------------------------------------------------


def test_the_default_changes_nothing_that_redis_sees() -> None:
    assert policy_of({}) is DEFAULT
    assert (DEFAULT.strict_options, DEFAULT.max_payload_bytes, DEFAULT.keep_logs, DEFAULT.backoff) == (
        *(False, None),
        *(None, None),
    )
    assert not DEFAULT.errors.fail_permanent
    assert DEFAULT.close_timeout_s == 30


def test_the_specified_policy_has_the_numbers_of_the_specification() -> None:
    assert SPECIFIED.max_payload_bytes == 10 * 1024 * 1024
    assert SPECIFIED.backoff == BackoffPolicy(cap_ms=3_600_000, jitter=0.2)
    assert SPECIFIED.reconnect == ReconnectPolicy(first_s=0.1, longest_s=30, factor=2, jitter=0.2, max_attempts=0)


def test_the_option_policy_is_a_policy() -> None:
    with pytest.raises(InvalidArgument, match="policy must be a Policy, not dict"):
        policy_of({"policy": {"strict_options": True}})


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: BackoffPolicy(cap_ms=0), "cap_ms"),
        (lambda: BackoffPolicy(jitter=1.5), "jitter"),
        (lambda: ReconnectPolicy(first_s=0), "first_s"),
        (lambda: ReconnectPolicy(first_s=2, longest_s=1), "longest_s"),
        (lambda: ReconnectPolicy(factor=0.5), "factor"),
        (lambda: ReconnectPolicy(jitter=-1), "jitter"),
        (lambda: ReconnectPolicy(max_attempts=-1), "max_attempts"),
    ],
)
def test_policies_check_their_own_numbers(make: Any, field: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{field} must be") as caught:
        make()
    assert caught.value.field == field


# --- delays ------------------------------------------------------------------------------------------------------

EXPONENTIAL = {"type": "exponential", "delay": 1000}


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 12_800), (0.5, 16_000), (0.999999, 19_200)])
def test_exponential_delays_are_spread(chance: float, expected: int) -> None:
    assert BackoffPolicy().limited(16_000, EXPONENTIAL, lambda: chance) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("backoff", [{"type": "fixed", "delay": 16_000}, {"type": "own"}, None])
def test_other_delays_are_not_spread(backoff: dict[str, Any] | None) -> None:
    assert BackoffPolicy().limited(16_000, backoff, lambda: 0.0) == 16_000


def test_every_delay_is_capped() -> None:
    policy = BackoffPolicy()
    assert policy.limited(2**14 * 1000, EXPONENTIAL, lambda: 0.5) == HOUR_MS
    assert policy.limited(HOUR_MS + 1, None) == HOUR_MS
    assert policy.limited(5000, {**EXPONENTIAL, "maxDelay": 3000}, lambda: 0.5) == 3000
    assert policy.limited(2 * HOUR_MS, {"maxDelay": -1}) == HOUR_MS


@pytest.mark.parametrize("delay", [0, -1, -5])
def test_no_delay_stays_none(delay: int) -> None:
    assert BackoffPolicy().limited(delay, EXPONENTIAL) == delay


@given(st.integers(1, 10**12), st.floats(0, 1, exclude_max=True))
def test_limited_delays_are_whole_and_within_bounds(delay: int, chance: float) -> None:
    limited = BackoffPolicy().limited(delay, EXPONENTIAL, lambda: chance)
    assert limited == int(limited)
    assert min(0.8 * delay - 1, HOUR_MS) <= limited <= min(1.2 * delay + 1, HOUR_MS)


@pytest.mark.parametrize(("failures", "expected"), [(1, 0.1), (2, 0.2), (5, 1.6), (9, 25.6), (10, 30), (5000, 30)])
def test_reconnecting_doubles_its_pauses(failures: int, expected: float) -> None:
    assert ReconnectPolicy().delay_s(failures, lambda: 0.5) == pytest.approx(expected)


@given(st.integers(1, 200), st.floats(0, 1, exclude_max=True))
def test_reconnecting_never_pauses_longer_than_allowed(failures: int, chance: float) -> None:
    delay = ReconnectPolicy().delay_s(failures, lambda: chance)
    grown = 0.1 * 2 ** (failures - 1)
    assert min(0.8 * grown, 30) * 0.999 <= delay <= min(1.2 * grown, 30) * 1.001


# --- the link ----------------------------------------------------------------------------------------------------


class RecordingOwner:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def emit(self, event: str, *args: Any) -> None:
        self.heard.append((event, args[0] if args else None))


def test_one_outage_is_reported_once_however_many_notice_it() -> None:
    owner, error = RecordingOwner(), OSError("gone")
    link = Link(owner, ReconnectPolicy(first_s=60, longest_s=60))
    assert (link.is_lost, link.pause_s) == (False, 0)
    for _ in range(5):
        link.lost(error)
    assert owner.heard == [("disconnected", error)]
    assert link.is_lost
    assert 47 < link.pause_s <= 60
    link.restored()
    assert owner.heard[1:] == [("reconnecting", 1), ("reconnected", 1)]
    assert (link.is_lost, link.pause_s) == (False, 0)


def test_attempts_are_counted_until_they_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    owner = RecordingOwner()
    link = Link(owner, ReconnectPolicy(first_s=1, longest_s=1, jitter=0, max_attempts=2))
    for _ in range(4):
        link.lost(OSError())
        now[0] += 1.1
    assert [event for event, _ in owner.heard] == [
        *("disconnected", "reconnecting", "reconnecting"),
        *("unreachable", "reconnecting"),
    ]


# --- the server --------------------------------------------------------------------------------------------------


def test_concerns_about_a_server() -> None:
    assert list(connection.concerns({"redis_version": "7.0.15", "maxmemory_policy": "noeviction"})) == []
    old, evicting = connection.concerns({"redis_version": "6.0.1", "maxmemory_policy": "allkeys-lru"})
    assert "6.2.0, current: 6.0.1" in old
    assert "allkeys-lru" in evicting
    with pytest.raises(BullMQError, match=r"Current: 4\.0\.9"):
        list(connection.concerns({"redis_version": "4.0.9"}))
    assert [connection.minimum_block_s(version) for version in ((7, 0, 8), (7, 0, 7))] == [0.001, 0.002]


# --- who it was ---------------------------------------------------------------------------------------------------


def test_worker_ids_have_their_form_and_are_unique() -> None:
    ids = {new_worker_id() for _ in range(1000)}
    form = re.compile(rf"{re.escape(socket.gethostname())}-\d+-[0-9a-f]{{6}}")
    assert all(form.fullmatch(worker_id) for worker_id in ids)
    assert len(ids) >= 995, "two of 1000 random numbers of 24 bits may meet; six never do"


def test_worker_ids_can_be_chosen() -> None:
    assert worker_id_of({"workerId": "w-7"}) == "w-7"
    for wrong in ("", 7):
        with pytest.raises(InvalidArgument, match="workerId"):
            worker_id_of({"workerId": wrong})


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
    tested = MEGABYTE - len('{"attempts":0}')
    check_payload(owner, "x" * tested, stored)
    with pytest.raises(InvalidArgument, match=rf"\({MEGABYTE + 1} of {MEGABYTE} bytes") as caught:
        check_payload(owner, "x" * (tested + 1), stored)
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
