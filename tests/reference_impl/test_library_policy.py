"""The policy: delays, reconnecting, what is thought of a server, and who a worker is; no Redis needed."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.reference_impl.connection import server_facts
from conformance.reference_impl.connection.link import Link
from conformance.reference_impl.errors import BullMQError, InvalidArgument
from conformance.reference_impl.identity import new_worker_id, worker_id_of
from conformance.reference_impl.policy import (
    DEFAULT,
    HOUR_MS,
    SPECIFIED,
    BackoffPolicy,
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


class Listening:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def emit(self, event: str, *args: Any) -> None:
        self.heard.append((event, args[0] if args else None))


def test_one_outage_is_told_once_however_many_notice_it() -> None:
    owner, error = Listening(), OSError("gone")
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
    owner = Listening()
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
    assert list(server_facts.concerns({"redis_version": "7.0.15", "maxmemory_policy": "noeviction"})) == []
    old, evicting = server_facts.concerns({"redis_version": "6.0.1", "maxmemory_policy": "allkeys-lru"})
    assert "6.2.0, current: 6.0.1" in old
    assert "allkeys-lru" in evicting
    with pytest.raises(BullMQError, match=r"Current: 4\.0\.9"):
        list(server_facts.concerns({"redis_version": "4.0.9"}))
    assert [server_facts.minimum_block_s(version) for version in ((7, 0, 8), (7, 0, 7))] == [0.001, 0.002]


# --- who it was ---------------------------------------------------------------------------------------------------


def test_worker_ids_have_their_form_and_are_unique() -> None:
    ids = {new_worker_id() for _ in range(1000)}
    form = re.compile(rf"{re.escape(socket.gethostname())}-\d+-[0-9a-f]{{6}}")
    assert all(form.fullmatch(each) for each in ids)
    assert len(ids) >= 995, "two of 1000 random numbers of 24 bits may meet; six never do"


def test_worker_ids_can_be_chosen() -> None:
    assert worker_id_of({"workerId": "w-7"}) == "w-7"
    for wrong in ("", 7):
        with pytest.raises(InvalidArgument, match="workerId"):
            worker_id_of({"workerId": wrong})
