"""One connection of the client, its connection to Redis, and everything that goes on between the two.

Lives in the loop of the tap. Where no rule is due, bytes pass at once. Where one is, a task carries it out, and the
rest waits in `_waiting` (commands) and `_withheld` (replies).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any

from conformance.observe.tap.actions import Ended, before_send, pass_reply, write_in_pieces
from conformance.observe.tap.cluster import Addresses
from conformance.observe.tap.flight import Flight
from conformance.observe.tap.frames import CommandParser
from conformance.observe.tap.outlet import Outlet
from conformance.observe.tap.pairing import Pairing
from conformance.observe.tap.recording import Recording
from conformance.observe.tap.reply_frames import ReplyParser
from conformance.observe.tap.rules import Rule, RuleBook
from conformance.observe.tap.transactions import Due, Transactions, has_run


class Conversation:
    """Both sides of one connection. `number` counts the connections of a tap from 1, `node` is where it leads to.

    `name` is what CLIENT SETNAME gave it, `violation` what was not RESP: from there on bytes pass without being read.
    `is_cut`: ended by the tap itself.
    """

    def __init__(
        self,
        number: int,
        node: str,
        *,
        rules: RuleBook,
        recording: Recording,
        addresses: Addresses,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.node = node
        self.name = ""
        self.violation = ""
        self.to_redis = Outlet(loop, half_close=True)
        self.to_client = Outlet(loop)
        self._rules = rules
        self._recording = recording
        self._addresses = addresses
        self._commands = CommandParser()
        self._replies = ReplyParser()
        self._pairing = Pairing()
        self._transactions = Transactions()
        self._waiting: deque[Flight] = deque()
        self._withheld: list[bytes] = []
        self._withholding = False
        self._guarded: tuple[Flight, list[Due]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._client_ended = False
        self._redis_ended = False
        self.is_cut = False

    # What comes in

    def from_client(self, data: bytes) -> None:
        """Bytes of the client: cut them into commands, and let them pass as the rules say."""
        if self.is_cut:
            return
        if self._commands.violation is None:
            for raw, args in self._commands.feed(data):
                self._arrived(raw, args)
            data = self._after_violation(self._commands) if self._commands.violation is not None else b""
        if data:
            self._waiting.append(Flight(data, (), self.number, self.node))  # Redis itself shall say what is wrong
        self._advance()

    def from_redis(self, data: bytes) -> None:
        """Bytes of Redis: cut them into replies, and let them pass as the rules say."""
        if self._replies.violation is None:
            out: list[bytes] = []
            for raw in self._replies.feed(data):
                passing = self._replied(raw)
                if passing:
                    out.append(passing)
            if out:
                self.to_client.write(out[0] if len(out) == 1 else b"".join(out))
            data = self._after_violation(self._replies) if self._replies.violation is not None else b""
        if data:
            self._pass_on(data)
        self._recording.changed()
        if self._waiting:
            self._advance()

    def client_ended(self) -> None:
        """The client has closed its side (or half of it): Redis learns that behind everything that was sent."""
        if self._client_ended:
            return
        self._client_ended = True
        unread = self._commands.unread
        if unread and self._commands.violation is None:
            self._waiting.append(Flight(unread, (), self.number, self.node))
        self._advance()

    def redis_ended(self) -> None:
        """Redis has closed the connection: the client learns that behind everything that was answered."""
        if self._redis_ended:
            return
        self._redis_ended = True
        if self._replies.violation is None:
            self._pass_on(self._replies.unread)
        self._end_when_done()

    def cut(self, *, reset: bool = False) -> None:
        """End both sides now. What Redis was sent before it still gets; the client gets what was passed on."""
        self.is_cut = True
        self._lose()
        self._withheld.clear()
        self.to_redis.finish()
        if reset:
            self.to_client.reset()
        else:
            self.to_client.finish()

    def drop(self) -> None:
        """End everything at once, because the tap itself ends."""
        self.is_cut = True
        self._lose()
        if self._task is not None:
            self._task.cancel()
        self.to_redis.abort()
        self.to_client.abort()

    def silence(self) -> None:
        """Let nothing out on either side. As many `speak` are needed."""
        self.to_redis.stop()
        self.to_client.stop()

    def speak(self) -> None:
        """Let out what `silence` has kept back."""
        self.to_redis.go()
        self.to_client.go()

    # What goes out

    def _arrived(self, raw: bytes, args: tuple[bytes, ...]) -> None:
        flight = Flight(raw, args, self.number, self.node)
        flight.in_flight = len(self._pairing.awaited) + len(self._waiting)
        self._transactions.arrived(flight)
        self._recording.open(flight)
        if flight.name == "CLIENT" and len(args) > 2 and args[1].upper() == b"SETNAME":
            self.name = args[2].decode("utf-8", "replace")
        self._waiting.append(flight)

    def _advance(self) -> None:
        """Send what may go; stop at a command at which a rule is due."""
        if self.is_cut:
            return
        out: list[bytes] = []
        while self._waiting and self._task is None and self._guarded is None:
            flight = self._waiting[0]
            if flight.due is None:
                flight.due = self._rules.claim(flight) if self._rules.rules and flight.args else []
            before = [rule for rule in flight.due if rule.trigger.phase == "before-send"] if flight.due else []
            if before:
                if not self._pairing.awaited and not out:
                    self._start(self._before(flight, before))
                break
            out.append(flight.raw)
            self._sending(flight)
            self._waiting.popleft()
        if out:
            self.to_redis.write(out[0] if len(out) == 1 else b"".join(out))
            if self._waiting and not self._pairing.awaited:
                self._advance()
        if self._client_ended and not self._waiting:
            self.to_redis.finish()

    def _sending(self, flight: Flight) -> None:
        """The command goes to Redis now. Rules for the reply of a queued command are due at EXEC."""
        flight.sent_s = time.monotonic()
        flight.fate = "sent"
        flight.raw = b""
        after = [rule for rule in flight.due or () if rule.trigger.phase != "before-send"]
        due = self._transactions.rules_due(flight, after) if after or flight.name == "EXEC" else []
        if self._pairing.sent(flight) and due:
            self._guarded = (flight, due)

    def _replied(self, raw: bytes) -> bytes:
        """Take note of a reply; what of it may go to the client now (nothing if it is withheld)."""
        flight, last = self._pairing.pair(raw)
        if flight is not None:
            raw = self._addresses.rewritten(flight, raw)
            flight.answered(raw)
            for known in self._transactions.answered(flight, raw):
                if known.answer is not None and known.answer.head.startswith(b"-NOSCRIPT"):
                    self._rules.uncount(known)
            if last and self._guarded is not None and self._guarded[0] is flight:
                due, self._guarded = self._guarded[1], None
                due = [each for each in due if has_run(each.flight)]
                if due and not self.is_cut:
                    self._withholding = True
                    self._start(pass_reply(raw, due, self))
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
        self._task.add_done_callback(_tell_failure)

    async def _carry_through(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what rules want, then go on; unless that was the end of the connection."""
        with contextlib.suppress(Ended):
            await work
        self._task = None
        if self.is_cut:
            return
        self._withholding = False
        self.to_client.write(b"".join(self._withheld))
        self._withheld.clear()
        self._recording.changed()
        self._advance()
        self._end_when_done()

    async def _before(self, flight: Flight, rules: list[Rule]) -> None:
        answer, chunks = await before_send(rules, flight, self)
        if answer is None:
            raw = flight.raw
            self._sending(flight)
            await write_in_pieces(self.to_redis, raw, chunks)
        else:
            self._transactions.not_sent(flight)
            flight.answered(answer, "answered-by-tap")
            self.to_client.write(answer)
        if not self.is_cut:
            self._waiting.popleft()

    # The end

    def _end_when_done(self) -> None:
        if self.is_cut:
            return
        if self._redis_ended and not self._withholding:
            self._lose()
            self.to_client.finish()

    def _lose(self) -> None:
        """Whatever has no reply yet will have none."""
        for flight in (*self._pairing.awaited, *self._waiting):
            if flight.fate in {"waiting", "sent"}:
                flight.fate = "lost"
        self._recording.changed()

    def _after_violation(self, parser: CommandParser | ReplyParser) -> bytes:
        self.violation = str(parser.violation)
        return parser.unread


def _tell_failure(task: asyncio.Task[None]) -> None:
    """An error in the kit's own code must not look like a silent connection."""
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "a rule could not be carried out", "exception": error})
