"""How the actions of rules are carried out on a connection."""

from __future__ import annotations

import asyncio
from typing import Protocol

from conformance.observe.tap.outlet import Outlet
from conformance.observe.tap.recording import Flight
from conformance.observe.tap.rules import BlackHole, Chunks, Cut, Delay, Error, Hold, Rule


class Ended(Exception):
    """The connection is at its end; there is nothing more to do on it."""


class Connection(Protocol):
    """What actions need of a conversation."""

    def cut(self, *, reset: bool) -> None:
        """End both sides."""
        ...

    def silence(self) -> None:
        """Let nothing out on either side."""
        ...

    def speak(self) -> None:
        """Let out what `silence` has kept back."""
        ...


async def carry_out(rule: Rule, flight: Flight, connection: Connection) -> bytes | None:
    """Do what a rule wants (`Chunks` aside), and answer the reply that it puts in the place of Redis's, if any.

    Raises Ended when the action ended the connection.
    """
    action = rule.action
    if isinstance(action, Cut):
        connection.cut(reset=action.reset)
        rule.note(flight)
        raise Ended
    if isinstance(action, BlackHole):
        await _swallow(rule, flight, connection)
        return None
    rule.note(flight)
    if isinstance(action, Hold):
        await rule.wait(None)
    elif isinstance(action, Delay):
        await rule.wait(action.ms)
    elif isinstance(action, Error):
        return b"-" + action.text.encode().replace(b"\r", b" ").replace(b"\n", b" ") + b"\r\n"
    return None


async def _swallow(rule: Rule, flight: Flight, connection: Connection) -> None:
    connection.silence()
    rule.note(flight)
    try:
        await rule.wait(None)
    finally:
        connection.speak()


async def write_in_pieces(outlet: Outlet, data: bytes, chunks: Chunks | None) -> None:
    """Write at once, or piece by piece with the loop (and the network) in between."""
    if chunks is None:
        outlet.write(data)
        return
    for start in range(0, len(data), chunks.size):
        outlet.write(data[start : start + chunks.size])
        await asyncio.sleep(chunks.pause_ms / 1000)
