"""A wait ends with its scenario: the other side cannot continue, or the caller cancels it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from conformance.participants.cancellation import LOOK_EVERY_MS, Cancellation, Cancelled
from conformance.participants.clock import RunningClock
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.participants.pending import Pending
from conformance.participants.transcript import Transcript

from .miniature_drivers import BenchOf, answers
from .small_scenarios import COUNTED, MiniatureDrivers, tried

FAR_MS = 60_000
SOON_S = 5.0


def never(client: Participant) -> Any:
    return client.eventually(lambda: 1, lambda value: value == 2, "one is two", within_ms=FAR_MS)


def no_event(client: Participant) -> Any:
    return client.events().next_delivery(within_ms=FAR_MS)


def no_command(client: Participant) -> Any:
    with client.tap.watch("LPUSH") as barrier:
        return barrier.wait(within_ms=FAR_MS)


def nothing_seen(client: Participant) -> Any:
    return client.tap.wait_for(lambda _: False, within_ms=FAR_MS)


def no_end(client: Participant) -> Any:
    held = threading.Event()
    try:
        return client.meanwhile(lambda: held.wait(FAR_MS / 1000)).result(within_ms=FAR_MS)
    finally:
        held.set()


def much_time(client: Participant) -> Any:
    return client.pass_time(FAR_MS)


WAITS: list[Callable[[Participant], Any]] = [never, no_event, no_command, nothing_seen, no_end, much_time]


@pytest.mark.parametrize("wait", WAITS, ids=lambda wait: str(wait.__name__))
def test_one_side_does_not_wait_once_the_other_is_unsupported(
    wait: Callable[[Participant], Any], mini: MiniatureDrivers, bench_of: BenchOf
) -> None:
    @scenario(COUNTED, clock="real")
    def waits(client: Participant) -> None:
        """The client cannot count; Node counts, and waits for what never comes."""
        client.queue().counts()
        wait(client)

    oracle, client = (mini(ops={"queue.getJobCounts": ops}) for ops in (answers(counts={}), None))
    evidence = tried(vars(waits)["scenario"], bench_of(oracle, client))
    assert "queue.getJobCounts is unsupported" in evidence.unsupported
    assert (evidence.error, evidence.findings, evidence.reached_end) == ("", [], False)
    assert evidence.timings_ms["total"] < SOON_S * 1000


def test_without_it_a_wait_goes_on_to_its_deadline() -> None:
    started = time.monotonic()
    waited_ms = sum(Cancellation().slices(3))
    assert waited_ms == 3
    for slice_ms in Cancellation().slices(3 * LOOK_EVERY_MS):
        time.sleep(slice_ms / 1000)
    assert time.monotonic() - started >= 3 * LOOK_EVERY_MS / 1000


def test_the_first_reason_is_kept_and_no_call_is_started() -> None:
    cancellation = Cancellation()
    cancellation.check()
    cancellation.cancel("the first")
    cancellation.cancel("the second")
    assert cancellation.reason == "the first"
    for wait in (
        cancellation.check,
        lambda: cancellation.sleep(FAR_MS / 1000),
        lambda: list(cancellation.slices(FAR_MS)),
        lambda: RunningClock(cancellation.sleep).pass_ms(FAR_MS),
        lambda: Pending(lambda: None, Transcript(), cancellation).result(),
    ):
        with pytest.raises(Cancelled, match="the first"):
            wait()
