"""Scenarios of a few steps, and running one of them on a bench of miniature drivers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from conformance.driver.ops import queue as ops
from conformance.gate.bench import Bench
from conformance.gate.trial import run_trial
from conformance.gate.trial_result import TrialResult
from conformance.ledger.loader import load_ledger
from conformance.participants.clock import MINUTE_MS, RunningClock, one_minute
from conformance.participants.expect import equal
from conformance.participants.marks import Scenario, handover, scenario, shared
from conformance.participants.participant import Participant
from conformance.servers import RedisInstance

from .miniature_drivers import InProcessDriver

MiniatureDrivers = Callable[..., InProcessDriver]

COUNTED = "getters.count-pending"
"""The requirement that these scenarios speak about: one that owns none of the locators in question."""

HARMLESS = "script.harmless"
"""A requirement that is about no operation in particular."""


@scenario(COUNTED)
def test_counts(client: Participant) -> None:
    """There is one job."""
    queue = client.queue()
    equal(queue.call(ops.CountPending(), deadline_ms=2000).count, 1, "there is one job")


@scenario(COUNTED)
def test_asks(client: Participant) -> None:
    """The answer is the oracle's."""
    client.queue().call(ops.CountPending())


@scenario(COUNTED)
def test_pauses(client: Participant) -> None:
    """A pause is written down."""
    client.queue().call(ops.Pause())


@handover(COUNTED)
def test_hands_over(pauser: Participant, listener: Participant) -> None:
    """Both count."""
    for participant in (pauser, listener):
        participant.queue().call(ops.CountPending(), deadline_ms=2000)


@shared(COUNTED)
def test_shares(client: Participant, oracle: Participant) -> None:
    """Both count the same."""
    theirs = oracle.queue().call(ops.CountPending()).count
    equal(client.queue().call(ops.CountPending()).count, theirs, "both count the same")


class JumpingClock(RunningClock):
    """A clock on which a minute passes between any two looks."""

    def __init__(self) -> None:
        super().__init__()
        self._minutes = count()

    def now_ms(self) -> int:
        return next(self._minutes) * MINUTE_MS


@scenario(COUNTED)
def test_counts_within_a_minute(client: Participant, jumping: str) -> None:
    """A minute that ends makes a statement wrong."""
    jumps = client.role == jumping
    with one_minute(JumpingClock() if jumps else RunningClock(), needs_ms=1):
        client.queue().call(ops.CountPending())
        equal(jumps, False, "no minute ends")


@scenario(COUNTED)
def test_counts_delayed(client: Participant) -> None:
    """The scenario uses a delay."""
    queue = client.queue()
    queue.add("later", {}, delay=200)
    equal(queue.call(ops.CountPending()).count, 1, "there is one job")


@scenario(COUNTED, clock="real")
def test_counts_in_time(client: Participant) -> None:
    """The scenario is about time."""
    equal(client.queue().call(ops.CountPending()).count, 1, "there is one job")


@scenario(COUNTED)
def test_waits(client: Participant) -> None:
    """It comes at some time."""
    queue = client.queue()
    client.eventually(lambda: queue.call(ops.CountPending()).count, lambda count: count == 1, "it comes", within_ms=500)


@scenario(COUNTED)
def test_refuses(client: Participant) -> None:
    """An invalid count is refused, although the scenario is on the machine's clock and uses a delay."""
    queue = client.queue()
    queue.add("later", {}, delay=200)
    with client.refuses("invalid-argument", "it is refused"):
        queue.call(ops.CountPending())


COUNTS, ASKS, PAUSES, HANDS_OVER, SHARES, COUNTS_WITHIN_A_MINUTE = (
    vars(test)["scenario"]
    for test in (test_counts, test_asks, test_pauses, test_hands_over, test_shares, test_counts_within_a_minute)
)


COUNTS_DELAYED, COUNTS_IN_TIME, WAITS, REFUSES = (
    vars(test)["scenario"] for test in (test_counts_delayed, test_counts_in_time, test_waits, test_refuses)
)


def tried(scenario: Scenario, bench: Bench, **arguments: Any) -> TrialResult:
    return run_trial(scenario, arguments, bench, load_ledger())


def keys(server: RedisInstance) -> set[bytes]:
    with server.connect() as client:
        found: set[bytes] = set(client.keys("*"))
    return found


def summary(evidence: TrialResult) -> tuple[list[str], str, str, str]:
    """Sources of the findings, and what else was said."""
    return (
        [finding.source for finding in evidence.findings],
        evidence.error,
        evidence.unsupported,
        evidence.inconclusive,
    )


NOTHING_TO_SAY: tuple[list[str], str, str, str] = ([], "", "", "")
