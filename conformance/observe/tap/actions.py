"""How the actions of rules are carried out on a connection."""

from __future__ import annotations

import asyncio
from typing import Protocol

from conformance.observe.tap.flight import Flight
from conformance.observe.tap.outlet import Outlet
from conformance.observe.tap.rules import BlackHole, Chunks, Cut, Delay, Error, Hold, Rule
from conformance.observe.tap.transactions import Due


class Ended(Exception):
    """The connection is at its end; there is nothing more to do on it."""


class Connection(Protocol):
    """What actions need of a conversation."""

    to_client: Outlet

    @property
    def is_cut(self) -> bool:
        """Whether it was ended meanwhile, by this rule or by anybody."""
        ...

    def cut(self, *, reset: bool) -> None:
        """End both sides."""
        ...

    def silence(self) -> None:
        """Let nothing out on either side."""
        ...

    def speak(self) -> None:
        """Let out what `silence` has kept back."""
        ...


async def before_send(rules: list[Rule], flight: Flight, connection: Connection) -> tuple[bytes | None, Chunks | None]:
    """What is due before a command is sent: the answer that takes the place of all that follows, or how to send it.

    Raises Ended when the connection has ended meanwhile.
    """
    chunks: Chunks | None = None
    for rule in rules:
        chunks = rule.action if isinstance(rule.action, Chunks) else chunks
        answer = await _carry_out(rule, flight, connection)
        if answer is not None:
            return answer, None
    return None, chunks


async def pass_reply(raw: bytes, due: list[Due], connection: Connection) -> None:
    """Do what is due when a command has run, and pass the reply on to the client in between. Raises Ended."""
    chunks: Chunks | None = None
    for each in sorted(due, key=lambda each: each.rule.trigger.phase):  # after-execute comes first, also by its name
        if each.rule.trigger.phase == "mid-reply":
            middle = _middle(raw, each.rule.trigger.reply_bytes)
            await write_in_pieces(connection.to_client, raw[:middle], chunks)
            raw = raw[middle:]
        chunks = each.rule.action if isinstance(each.rule.action, Chunks) else chunks
        raw = await _carry_out(each.rule, each.flight, connection) or raw
    await write_in_pieces(connection.to_client, raw, chunks)


def _middle(raw: bytes, wanted: int | None) -> int:
    """Where to split a reply: at least one byte goes, and at least one stays."""
    return max(1, min(len(raw) - 1, len(raw) // 2 if wanted is None else wanted))


async def _carry_out(rule: Rule, flight: Flight, connection: Connection) -> bytes | None:
    """Do what a rule wants (`Chunks` aside), and answer the reply that it puts in the place of Redis's, if any."""
    answer = await _act(rule, flight, connection)
    if connection.is_cut:
        raise Ended
    return answer


async def _act(rule: Rule, flight: Flight, connection: Connection) -> bytes | None:
    action = rule.action
    if isinstance(action, Cut):
        connection.cut(reset=action.reset)
        rule.note(flight)
        return None
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
