"""One connection of the client, its connection to Redis, and everything that goes on between the two.

Lives in the loop of the tap. Where no rule is due, bytes pass at once. Where one is, a task carries it out, and the
rest waits in `_waiting` (commands) and `_withheld` (replies).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from conformance.observe.tap.actions import Ended, carry_out
from conformance.observe.tap.cluster import Addresses
from conformance.observe.tap.frames import CommandParser, ReplyParser
from conformance.observe.tap.outlet import Outlet
from conformance.observe.tap.pairing import Pairing
from conformance.observe.tap.recording import Fate, Flight, Recording
from conformance.observe.tap.resp import encode
from conformance.observe.tap.rules import Rule, RuleBook
from conformance.observe.tap.transactions import Transactions


class Conversation:
    """Both sides of one connection. `number` counts the connections of a tap from 1, `node` is where it leads to."""

    def __init__(
        self,
        number: int,
        node: str,
        *,
        rules: RuleBook,
        recording: Recording,
        addresses: Addresses,
        on_end: Callable[[Conversation], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.node = node
        self.to_redis = Outlet(loop)
        self.to_client = Outlet(loop)
        self.name = ""
        self.violation = ""
        self._rules = rules
        self._recording = recording
        self._addresses = addresses
        self._on_end = on_end
        self._commands = CommandParser()
        self._replies = ReplyParser()
        self._pairing = Pairing()
        self._transactions = Transactions()
        self._waiting: deque[Flight] = deque()
        self._withheld: list[bytes] = []
        self._guarded: tuple[Flight, list[Rule]] | None = None
        self._withholding = False
        self._task: asyncio.Task[None] | None = None
        self._ended = {"client": False, "redis": False}
        self._cut = False

    # What comes in

    def from_client(self, data: bytes) -> None:
        """Bytes of the client: cut them into commands, and let them pass as the rules say."""
        if not self._violated(self._commands):
            for raw, args in self._commands.feed(data):
                self._arrived(Flight(raw, args, self.number, self.node))
            self._advance()
            if not self._violated(self._commands):
                return
            data = self._commands.unread
        self.to_redis.write(data)  # Redis itself shall say what is wrong with it

    def from_redis(self, data: bytes) -> None:
        """Bytes of Redis: cut them into replies, and let them pass as the rules say."""
        if not self._violated(self._replies):
            out: list[bytes] = []
            for raw in self._replies.feed(data):
                passing = self._replied(raw)
                if passing:
                    out.append(passing)
            if out:
                self.to_client.write(out[0] if len(out) == 1 else b"".join(out))
            self._recording.changed()
            if self._waiting:
                self._advance()
            if not self._violated(self._replies):
                return
            data = self._replies.unread
        self.to_client.write(data)

    def client_ended(self) -> None:
        """The client has closed, or half closed, its side: so will the tap when everything has been passed on."""
        self._ended["client"] = True
        if not self._cut and not self._violated(self._commands):
            self._commands_left(self._commands.unread)
        self._close_when_done()

    def redis_ended(self) -> None:
        """Redis has closed the connection: the client learns that when it has got what came before."""
        self._ended["redis"] = True
        if not self._violated(self._replies):
            self._pass_on(self._replies.unread)
        self._close_when_done()

    # What goes out

    def _arrived(self, flight: Flight) -> None:
        flight.in_flight = len(self._pairing.awaited) + len(self._waiting)
        self._transactions.arrived(flight)
        self._recording.open(flight)
        if flight.name == "CLIENT" and len(flight.args) > 2 and flight.args[1].upper() == b"SETNAME":
            self.name = flight.args[2].decode("utf-8", "replace")
        self._waiting.append(flight)

    def _advance(self) -> None:
        """Send what may go; stop at a command at which a rule is due."""
        out: list[bytes] = []
        while self._waiting and self._task is None and self._guarded is None:
            flight = self._waiting[0]
            due = flight.due if flight.due is not None else self._claim(flight)
            before = [rule for rule in due if rule.trigger.phase == "before-send"]
            if before:
                if not self._pairing.awaited:
                    self._flush(out)
                    self._start(self._before(flight, before))
                break
            self._waiting.popleft()
            out.append(flight.raw)
            self._sending(flight, due)
        self._flush(out)

    def _flush(self, out: list[bytes]) -> None:
        if out:
            self.to_redis.write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()

    def _claim(self, flight: Flight) -> list[Rule]:
        flight.due = self._rules.claim(flight) if self._rules.rules else []
        return flight.due

    def _sending(self, flight: Flight, after: list[Rule]) -> None:
        """The command goes to Redis now. Rules for its reply are due at EXEC if it is in a transaction."""
        flight.sent_s = time.monotonic()
        flight.fate = "sent"
        flight.raw = b""
        after = self._transactions.rules_due(flight, after)
        if self._pairing.sent(flight) and after:
            self._guarded = (flight, after)

    def _replied(self, raw: bytes) -> bytes:
        """Take note of a reply; what of it may go to the client now (nothing if it is withheld)."""
        flight, last = self._pairing.pair(raw)
        if flight is not None:
            raw = self._addresses.rewritten(flight, raw)
            flight.answered(raw)
            if raw.startswith(b"-NOSCRIPT"):
                self._rules.uncount(flight)
            self._transactions.answered(flight, raw)
            if last and self._guarded is not None and self._guarded[0] is flight:
                guarded, self._guarded = self._guarded, None
                rules = [rule for rule in guarded[1] if self._transactions.has_run(flight, raw)]
                if rules:
                    self._withholding = True
                    self._start(self._after(flight, raw, rules))
                    return b""
        if self._withholding:
            self._withheld.append(raw)
            return b""
        return raw

    def _pass_on(self, data: bytes) -> None:
        """Send to the client, behind what is withheld from it."""
        if self._withholding:
            self._withheld.append(data)
        else:
            self.to_client.write(data)

    # Rules

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._carry_through(work))

    async def _carry_through(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what rules want, then go on; unless the connection is at its end."""
        with contextlib.suppress(Ended):
            await work
        self._task = None
        if self._withholding:
            self._withholding = False
            self.to_client.write(b"".join(self._withheld))
            self._withheld.clear()
        self._advance()
        self._close_when_done()

    async def _before(self, flight: Flight, rules: list[Rule]) -> None:
        flight.due = [rule for rule in flight.due or () if rule not in rules]
        for rule in rules:
            answer = await carry_out(rule, flight, self)
            if answer is not None:
                self._waiting.popleft()
                flight.answered(answer, "answered-by-tap")
                self.to_client.write(answer)
                return
        if flight.pieces is not None:
            await flight.pieces.send(flight.raw, self.to_redis)
            self._waiting.popleft()
            self._sending(flight, flight.due)

    async def _after(self, flight: Flight, raw: bytes, rules: list[Rule]) -> None:
        ...
