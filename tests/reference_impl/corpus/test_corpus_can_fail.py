"""Each of the three comparisons finds its kind of difference, and the others do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from conformance.observe.canonical_rules import CanonicalContext
from tests.reference_impl.corpus.client_runs import CaseResult
from tests.reference_impl.corpus.comparison import compare_answers, compare_snapshots, compare_traffic
from tests.reference_impl.corpus.steps import PREFIX, CorpusCase, add, case, complete, do, queue, redis, take, worker
from tests.reference_impl.corpus.traffic import SentCommand

Both = Callable[[CorpusCase], tuple[CaseResult, CaseResult]]

LIFE = (queue(), worker(), add("a", '{"x":1}', attempts=2), take(), complete("1", '"v"'), do("queue.getJob", job="1"))


@pytest.fixture
def pair(both: Both) -> tuple[CaseResult, CaseResult]:
    return both(case("life", *LIFE))


def test_without_a_difference_nothing_is_found(pair: tuple[CaseResult, CaseResult]) -> None:
    assert differing(*pair) == (False, False, False)


def test_the_state_in_redis_is_compared(both: Both, pair: tuple[CaseResult, CaseResult]) -> None:
    """A field of another writer: both clients gave the same answers and sent the same commands."""
    other, _ = both(case("life", *LIFE, redis("HSET", f"{PREFIX}:q:1", "extra", "1")))
    assert differing(pair[1], other) == (False, False, True)


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [("1", "opts", '{"attempts": 2}'), ("1", "timestamp", "1700000000001"), ("meta", "version", "bullmq:5.62.1")],
)
def test_bytes_versions_and_times_are_compared(
    key: str, field: str, value: str, both: Both, pair: tuple[CaseResult, CaseResult]
) -> None:
    other, _ = both(case("life", *LIFE, redis("HSET", f"{PREFIX}:q:{key}", field, value)))
    assert differing(pair[1], other) == (False, False, True)


def test_answers_are_compared(pair: tuple[CaseResult, CaseResult]) -> None:
    """One number in one answer."""
    oracle, reference = pair
    answers: list[Any] = [*reference.answers[:-1], ["queue.getJob", {"job": None}]]
    assert differing(oracle, replace(reference, answers=answers)) == (True, False, False)


def test_sent_commands_are_compared(both: Both, pair: tuple[CaseResult, CaseResult]) -> None:
    """One more command, whose answer is not compared."""
    _, curious = both(case("life", *LIFE, do("queue.count")))
    shorter = replace(curious, answers=curious.answers[:-1])
    assert differing(pair[0], shorter) == (False, True, False)


SENT = SentCommand(
    "q", "addStandardJob", (b"<prefix>:q:wait", b"<prefix>:q:id"), ([1, "a"], b"{}"), (b"\x92\x01\xa1a", b"{}")
)


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
def test_every_part_of_a_command_is_compared(other: SentCommand) -> None:
    assert compare_traffic([SENT], [other])
    assert compare_traffic([SENT], [SENT]) == []


def test_the_order_of_commands_is_compared() -> None:
    second = replace(SENT, name="pause")
    assert compare_traffic([SENT, second], [second, SENT])
    assert compare_traffic([SENT], [SENT, SENT])


def differing(oracle: CaseResult, reference: CaseResult) -> tuple[bool, bool, bool]:
    """Whether answers, traffic and snapshots differ."""
    return (
        bool(compare_answers(oracle.answers, reference.answers)),
        bool(compare_traffic(oracle.traffic, reference.traffic)),
        bool(compare_snapshots(oracle.snapshot, reference.snapshot, CanonicalContext())),
    )


def test_the_names_of_clients_are_compared_but_not_the_order_of_their_connections() -> None:
    as_listed = [("ok", {"names": ["", "first"]})]
    assert compare_answers(as_listed, [("ok", {"names": ["first", ""]})]) == []
    assert compare_answers(as_listed, [("ok", {"names": ["first", "second"]})]) != []
