"""Each of the three comparisons notices what it is there for, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from conformance.observe.canonical_rules import CanonicalContext

from .comparing import compare_answers, compare_snapshots, compare_traffic
from .side import Seen
from .steps import PREFIX, Case, add, case, complete, do, queue, redis, take, worker
from .traffic import Sent

Both = Callable[[Case], tuple[Seen, Seen]]

LIFE = (queue(), worker(), add("a", '{"x":1}', attempts=2), take(), complete("1", '"v"'), do("queue.getJob", job="1"))


@pytest.fixture
def pair(both: Both) -> tuple[Seen, Seen]:
    return both(case("life", *LIFE))


def test_without_a_difference_nothing_is_found(pair: tuple[Seen, Seen]) -> None:
    assert differing(*pair) == (False, False, False)


def test_what_is_in_redis_is_compared(both: Both, pair: tuple[Seen, Seen]) -> None:
    """A field that somebody else wrote: both clients said and sent the same."""
    other, _ = both(case("life", *LIFE, redis("HSET", f"{PREFIX}:q:1", "extra", "1")))
    assert differing(pair[1], other) == (False, False, True)


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [("1", "opts", '{"attempts": 2}'), ("1", "timestamp", "1700000000001"), ("meta", "version", "bullmq:5.62.1")],
)
def test_bytes_versions_and_times_are_compared(
    key: str, field: str, value: str, both: Both, pair: tuple[Seen, Seen]
) -> None:
    other, _ = both(case("life", *LIFE, redis("HSET", f"{PREFIX}:q:{key}", field, value)))
    assert differing(pair[1], other) == (False, False, True)


def test_what_is_answered_is_compared(pair: tuple[Seen, Seen]) -> None:
    """One number in one answer."""
    oracle, reference = pair
    told: list[Any] = [*reference.answers[:-1], ["queue.getJob", {"job": None}]]
    assert differing(oracle, replace(reference, answers=told)) == (True, False, False)


def test_what_is_sent_is_compared(both: Both, pair: tuple[Seen, Seen]) -> None:
    """One question more, whose answer is not looked at."""
    _, curious = both(case("life", *LIFE, do("queue.count")))
    shorter = replace(curious, answers=curious.answers[:-1])
    assert differing(pair[0], shorter) == (False, True, False)


SENT = Sent("q", "addStandardJob", (b"<prefix>:q:wait", b"<prefix>:q:id"), ([1, "a"], b"{}"), (b"\x92\x01\xa1a", b"{}"))


@pytest.mark.parametrize(
    "other",
    [
        replace(SENT, name="addDelayedJob"),
        replace(SENT, keys=SENT.keys[:1]),
        replace(SENT, keys=SENT.keys[::-1]),
        replace(SENT, arguments=([1, "b"], b"{}")),
        replace(SENT, arguments=([1, "a"], b"{} ")),
        replace(SENT, lane="w"),
        replace(SENT, raw=(b"\x92\xcc\x01\xa1a", b"{}")),
    ],
    ids=["script", "number-of-keys", "order-of-keys", "packed-argument", "argument", "connection", "bytes"],
)
def test_every_part_of_a_command_is_compared(other: Sent) -> None:
    assert compare_traffic([SENT], [other])
    assert compare_traffic([SENT], [SENT]) == []


def test_the_order_of_commands_is_compared() -> None:
    second = replace(SENT, name="pause")
    assert compare_traffic([SENT, second], [second, SENT])
    assert compare_traffic([SENT], [SENT, SENT])


def differing(oracle: Seen, reference: Seen) -> tuple[bool, bool, bool]:
    """Whether answers, traffic and snapshots differ."""
    return (
        bool(compare_answers(oracle.answers, reference.answers)),
        bool(compare_traffic(oracle.traffic, reference.traffic)),
        bool(compare_snapshots(oracle.snapshot, reference.snapshot, CanonicalContext())),
    )
