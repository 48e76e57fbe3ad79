"""Applies the actions of rules to a connection, and conditions (slow links, silences, outages) to all connections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from conformance.observe.tap.recording import TappedCommand
from conformance.observe.tap.rules import BlackHole, Chunks, Cut, Delay, DueRule, Error, Hold, TapRule
from conformance.observe.tap.socket_writer import RedisLink, SilentDirection, SocketWriter


class ConnectionEnded(Exception):
    """The connection has ended, so nothing more can be done on it."""


class TappedConnection(Protocol):
    """The parts of a connection that interference uses; `number` counts the connections of a tap."""

    number: int
    to_redis: SocketWriter
    to_client: SocketWriter

    @property
    def is_cut(self) -> bool:
        """Whether the tap has ended it, by this rule or otherwise."""
        ...

    def cut(self, *, reset: bool) -> None:
        """End both sides."""
        ...

    def silence(self, direction: SilentDirection = "both") -> None:
        """Hold back all bytes in this direction."""
        ...

    def unsilence(self, direction: SilentDirection = "both") -> None:
        """Send the bytes that `silence` held back."""
        ...


async def before_send(
    rules: list[TapRule], command: TappedCommand, connection: TappedConnection
) -> tuple[bytes | None, Chunks | None]:
    """Apply rules before a command is sent. Returns the tap's own reply, if any, or else the pieces to send it in.

    Raises ConnectionEnded if the connection has ended meanwhile.
    """
    chunks: Chunks | None = None
    for rule in rules:
        chunks = rule.action if isinstance(rule.action, Chunks) else chunks
        reply = await _carry_out(rule, command, connection)
        # The tap has answered, so there is nothing left to send: later rules cannot act on this command.
        if reply is not None:
            return reply, None
    return None, chunks


async def pass_reply(raw: bytes, due: list[DueRule], connection: TappedConnection) -> None:
    """Apply rules after a command has run, and pass the reply to the client in between. Raises ConnectionEnded."""
    chunks: Chunks | None = None
    # By name, which puts after-execute before mid-reply.
    in_order = sorted(due, key=lambda due_rule: due_rule.rule.trigger.phase)
    for due_rule in in_order:
        trigger, action = due_rule.rule.trigger, due_rule.rule.action
        if trigger.phase == "mid-reply":
            middle = _middle(raw, trigger.reply_bytes)
            await write_in_pieces(connection.to_client, raw[:middle], chunks)
            raw = raw[middle:]
        chunks = action if isinstance(action, Chunks) else chunks
        raw = await _carry_out(due_rule.rule, due_rule.command, connection) or raw
    await write_in_pieces(connection.to_client, raw, chunks)


def _middle(raw: bytes, wanted: int | None) -> int:
    """The position at which to split a reply: each part has at least one byte."""
    # At least one byte on each side: otherwise "mid-reply" would be before or after the reply.
    return max(1, min(len(raw) - 1, len(raw) // 2 if wanted is None else wanted))


async def _carry_out(rule: TapRule, command: TappedCommand, connection: TappedConnection) -> bytes | None:
    """Apply an action (except `Chunks`). Returns the reply that replaces the one of Redis, if any."""
    reply = await _act(rule, command, connection)
    if connection.is_cut:  # perhaps by another rule while the action waited: nothing may be written any more
        raise ConnectionEnded
    return reply


async def _act(rule: TapRule, command: TappedCommand, connection: TappedConnection) -> bytes | None:
    action = rule.action
    if isinstance(action, Cut):
        # Cut before `note`: a scenario that the barrier wakes must find the connection already gone.
        connection.cut(reset=action.reset)
        rule.note(command)
        return None
    if isinstance(action, BlackHole):
        await _black_hole(rule, command, connection)
        return None
    rule.note(command)
    if isinstance(action, Hold):
        await rule.wait(None)
    elif isinstance(action, Delay):
        await rule.wait(action.ms)
    elif isinstance(action, Error):
        return b"-" + action.text.encode().replace(b"\r", b" ").replace(b"\n", b" ") + b"\r\n"
    return None


async def _black_hole(rule: TapRule, command: TappedCommand, connection: TappedConnection) -> None:
    # Before `note`: once the barrier reports the rule, no byte may pass any more.
    connection.silence()
    rule.note(command)
    try:
        await rule.wait(None)
    finally:
        # In `finally`: a cancelled rule must not leave the connection silent for the following scenario.
        connection.unsilence()


async def write_in_pieces(writer: SocketWriter, data: bytes, chunks: Chunks | None) -> None:
    """Write at once, or in pieces with a pause after each."""
    if chunks is None:
        writer.write(data)
        return
    for start in range(0, len(data), chunks.size):
        writer.write(data[start : start + chunks.size])
        await asyncio.sleep(chunks.pause_ms / 1000)


@dataclass(frozen=True, eq=False)
class TapSilence:
    """A silence in one direction, or in both."""

    direction: SilentDirection = "both"


class TapConditions:
    """Conditions of the connections in `live` and of those given to `apply_to_new`. Each can be removed twice."""

    def __init__(self, live: Mapping[int, TappedConnection]) -> None:
        self._live = live
        self._links: list[tuple[RedisLink, int | None]] = []
        self._silences: list[TapSilence] = []
        self._refusals: list[object] = []

    @property
    def refuses(self) -> bool:
        """Whether new connections are reset immediately."""
        return bool(self._refusals)

    def apply_to_new(self, connection: TappedConnection) -> None:
        """Apply the active conditions to a new connection, before its first byte can pass."""
        self._apply_links()
        for silence in self._silences:
            connection.silence(silence.direction)

    def slow_down(self, entry: tuple[RedisLink, int | None]) -> None:
        """Make all connections slow, or the one with this number."""
        self._links.append(entry)
        self._apply_links()

    def speed_up(self, entry: tuple[RedisLink, int | None]) -> None:
        """Remove a slow link."""
        _discard(self._links, entry)
        self._apply_links()

    def silence(self, silence: TapSilence) -> None:
        """Start a silence on all connections."""
        self._silences.append(silence)
        for connection in list(self._live.values()):
            connection.silence(silence.direction)

    def unsilence(self, silence: TapSilence) -> None:
        """End a silence."""
        if silence in self._silences:
            self._silences.remove(silence)
            for connection in list(self._live.values()):
                connection.unsilence(silence.direction)

    def refuse(self, refusal: object) -> None:
        """Reset new connections."""
        self._refusals.append(refusal)

    def admit(self, refusal: object) -> None:
        """Accept new connections again."""
        _discard(self._refusals, refusal)

    def heal(self) -> None:
        """Remove all conditions."""
        self._refusals.clear()
        self._links.clear()
        self._apply_links()
        for silence in list(self._silences):
            self.unsilence(silence)

    def _apply_links(self) -> None:
        for connection in self._live.values():
            chosen = [link for link, number in self._links if number in {None, connection.number}]
            # The newest condition wins, so that a scenario can worsen a link without removing the old one.
            connection.to_redis.link = connection.to_client.link = chosen[-1] if chosen else None


def _discard(entries: list[Any], entry: object) -> None:
    if entry in entries:
        entries.remove(entry)
