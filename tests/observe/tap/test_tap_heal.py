"""Healing a tap ends all that is in force, also inside blocks that have not ended; forgetting drops the records."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from conformance.observe.tap.outlet import Link
from conformance.observe.tap.rules import Hold, Trigger
from conformance.observe.tap.tap import Tap

from .conftest import Wire


def test_healing_ends_what_is_in_force(tap: Tap, wire: Wire) -> None:
    with ExitStack() as stack:
        stack.enter_context(tap.when(Trigger(command="GET", call=None), Hold()))
        stack.enter_context(tap.link(Link(latency_ms=60_000)))
        stack.enter_context(tap.silence())
        tap.heal()
        assert wire.ask("GET", "nothing") is None
        assert wire.ask("PING") == b"PONG"
    assert wire.ask("GET", "nothing") is None


def test_what_is_held_goes_on(tap: Tap, wire: Wire) -> None:
    with tap.when(Trigger(command="ECHO"), Hold()) as barrier:
        wire.send("ECHO", "late")
        barrier.reached.wait(5000)
        tap.heal()
        assert wire.reply() == b"late"


def test_after_an_outage_new_connections_are_let_in(tap: Tap) -> None:
    with tap.outage():
        with pytest.raises((OSError, EOFError)), Wire(tap.address) as refused:
            refused.ask("PING")
        tap.heal()
        with Wire(tap.address) as again:
            assert again.ask("PING") == b"PONG"
    with Wire(tap.address) as after:
        assert after.ask("PING") == b"PONG"


def test_forgetting_drops_the_records_and_counts_on(tap: Tap, wire: Wire) -> None:
    wire.ask("PING")
    tap.forget()
    assert tap.recording.commands() == ()
    wire.ask("PING")
    assert [command.sequence for command in tap.recording.commands()] == [2]


def test_forgetting_up_to_a_command_keeps_the_later_ones(tap: Tap, wire: Wire) -> None:
    for _ in range(3):
        wire.ask("PING")
    tap.forget(upto=2)
    assert [command.sequence for command in tap.recording.commands()] == [3]
    tap.forget(upto=2)
    assert [command.sequence for command in tap.recording.commands(after=2)] == [3]


def test_a_tap_that_is_closed_can_be_healed(tap: Tap) -> None:
    tap.close()
    tap.heal()
    tap.forget()
    assert tap.failures == ()
