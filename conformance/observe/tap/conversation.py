"""A connection of the client, the corresponding connection to Redis, and the traffic between them.

Runs in the loop of the tap. Bytes pass immediately while no rule is due. A task applies a due rule, and meanwhile
further commands wait in `_waiting` and replies in `_withheld`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

from conformance.observe.tap.cluster import ClusterAddresses
from conformance.observe.tap.frames import CommandParser, ReplyParser
from conformance.observe.tap.interference import ConnectionEnded, before_send, pass_reply, write_in_pieces
from conformance.observe.tap.pairing import ReplyPairing, Transactions, has_run
from conformance.observe.tap.recording import Recording, TappedCommand
from conformance.observe.tap.rules import DueRule, RuleBook, TapRule
from conformance.observe.tap.socket_writer import SilentDirection, SocketWriter

UNIX = "unix:"
FLOOD = 10_000
"""A client may send this many commands at once, more than any scenario needs."""
MOST_PER_S = 3000
"""In a second, from then on: a flood would take the time of the kit, of Redis and of all others."""
CALL = 8
"""A command that waits for its reply counts as this many of a pipeline: each costs the kit and Redis a turn."""


class FloodThrottle:
    """The rest of its allowance until a client's connections are slowed down. `floods`: those that send pipelines."""

    def __init__(self) -> None:
        self._allowed, self._counted_s = float(FLOOD), time.monotonic()
        self.floods: set[int] = set()

    def pause_s(self, weight: int, at_s: float) -> float:
        """Return how long (s) a connection that has sent so much at this time (monotonic) is not read."""
        allowed = min(FLOOD, self._allowed + max(0.0, at_s - self._counted_s) * MOST_PER_S) - weight
        pause_s = max(0.0, min(weight, -allowed)) * max(1, len(self.floods)) / MOST_PER_S
        # A pause is not credited again. A connection waits for its own commands only, not for the flood of another.
        self._allowed, self._counted_s = max(0.0, allowed), max(self._counted_s, at_s + pause_s)
        return pause_s


class Conversation:
    """Both sides of one connection. `number` counts the connections of a tap from 1; `node` is its Redis node.

    `name`: set by CLIENT SETNAME. `violation`: bytes that are not RESP; after them all bytes pass unread. `is_cut`:
    ended by the tap itself.
    """

    def __init__(
        self,
        number: int,
        node: str,
        *,
        rules: RuleBook,
        recording: Recording,
        addresses: ClusterAddresses,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.node = node
        self.name = ""
        self.violation = ""
        self.to_redis = SocketWriter(loop, half_close=True)
        self.to_client = SocketWriter(loop)
        self._rules = rules
        self._recording = recording
        self._addresses = addresses
        self._commands = CommandParser()
        self._replies = ReplyParser()
        self._pairing = ReplyPairing()
        self._transactions = Transactions()
        self._waiting: deque[TappedCommand] = deque()
        self._claimed: list[TapRule] | None = None
        """The rules due at the first waiting command; None before `RuleBook.claim`, which counts it: only once."""
        self._withheld: list[bytes] = []
        self._withholding = False
        self._guarded: tuple[TappedCommand, list[DueRule]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._client_ended = False
        self._redis_ended = False
        self.is_cut = False

    def from_client(self, data: bytes) -> int:
        """Split the client's bytes into commands, and pass them on according to the rules. Returns their weight."""
        weight = 0
        if self.is_cut:
            return weight
        if self._commands.violation is None:
            for raw, args in self._commands.feed(data):
                weight += 1 if self._arrived(raw, args) else CALL
            data = self._after_violation(self._commands) if self._commands.violation is not None else b""
        if data:
            # Invalid bytes go to Redis, so that the client gets the error of Redis itself.
            self._waiting.append(TappedCommand(data, (), self.number, self.node))
        self._advance()
        return weight

    def from_redis(self, data: bytes) -> None:
        """Split the bytes of Redis into replies, and pass them on according to the rules."""
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
        """The client has closed its side (or half of it): pass that on to Redis after all waiting commands."""
        if self._client_ended:
            return
        self._client_ended = True
        unread = self._commands.unread
        if unread and self._commands.violation is None:
            self._waiting.append(TappedCommand(unread, (), self.number, self.node))
        self._advance()

    def redis_ended(self) -> None:
        """Redis has closed the connection: pass that on to the client after all replies."""
        if self._redis_ended:
            return
        self._redis_ended = True
        if self._replies.violation is None:
            self._pass_on(self._replies.unread)
        self._end_when_done()

    def cut(self, *, reset: bool = False) -> None:
        """End both sides now. Bytes that were already passed on still arrive."""
        self.is_cut = True
        self._lose()
        self._withheld.clear()
        self.to_redis.finish()
        if reset:
            self.to_client.reset()
        else:
            self.to_client.finish()

    def drop(self) -> None:
        """Close both sides immediately, because the tap itself ends."""
        self.is_cut = True
        self._lose()
        if self._task is not None:
            self._task.cancel()
        self.to_redis.abort()
        self.to_client.abort()

    def silence(self, direction: SilentDirection = "both") -> None:
        """Hold back all bytes in this direction, until the same number of calls of `unsilence`."""
        for writer in self._ways(direction):
            writer.stop()

    def unsilence(self, direction: SilentDirection = "both") -> None:
        """Send the bytes that `silence` held back."""
        for writer in self._ways(direction):
            writer.go()

    def _ways(self, direction: SilentDirection) -> Iterator[SocketWriter]:
        if direction != "to-client":
            yield self.to_redis
        if direction != "to-redis":
            yield self.to_client

    def _arrived(self, raw: bytes, args: tuple[bytes, ...]) -> int:
        """Keep a command until it may go. Returns the number of commands that it follows in a pipeline."""
        command = TappedCommand(raw, args, self.number, self.node)
        # Waiting commands count too: the client has sent them without waiting, which is what a pipeline is.
        command.in_flight = len(self._pairing.awaited) + len(self._waiting)
        # On arrival, not when sent: the `where` of a rule may ask for the transaction of a command that still waits.
        self._transactions.arrived(command)
        self._recording.open(command)
        if command.name == "CLIENT" and len(args) > 2 and args[1].upper() == b"SETNAME":
            self.name = args[2].decode("utf-8", "replace")
        self._waiting.append(command)
        return command.in_flight

    def _advance(self) -> None:
        """Send waiting commands up to the first one at which a rule is due."""
        if self.is_cut:
            return
        out = self._take_sendable()
        if out:
            self.to_redis.write(out[0] if len(out) == 1 else b"".join(out))
            # Commands without reply: nothing would call this again for the command at which a rule is due.
            if self._waiting and not self._pairing.awaited:
                self._advance()
        if self._client_ended and not self._waiting:
            self.to_redis.finish()

    def _take_sendable(self) -> list[bytes]:
        """Take the commands that may go now. If the first waiting one has a rule before it, start that rule."""
        out: list[bytes] = []
        # Nothing follows a guarded command: if its reply cuts the connection, later commands must not have run.
        while self._waiting and self._task is None and self._guarded is None:
            command = self._waiting[0]
            before = [rule for rule in self._claim_for(command) if rule.trigger.phase == "before-send"]
            if before:
                # Not before Redis has answered everything: the phase promises that all earlier commands are answered.
                if not self._pairing.awaited and not out:
                    self._start(self._before(command, before))
                break
            out.append(command.raw)
            self._sending(command)
            self._forget_first_waiting()
        return out

    def _claim_for(self, command: TappedCommand) -> list[TapRule]:
        """The rules due at the first waiting command."""
        if self._claimed is None:
            self._claimed = self._rules.claim(command) if self._rules.rules and command.args else []
        return self._claimed

    def _sending(self, command: TappedCommand) -> None:
        """Record that the command goes to Redis now. Rules for the reply of a queued command are due at EXEC."""
        # Monotonic: waits compare it with their own clock (`participants.loop_worker`).
        command.sent_s = time.monotonic()
        command.fate = "sent"
        # Sent, so the bytes are no longer needed; 200,000 recorded commands would otherwise keep all job data in
        # memory.
        command.raw = b""
        after = [rule for rule in self._claimed or () if rule.trigger.phase != "before-send"]
        due = self._transactions.rules_due(command, after) if after or command.name == "EXEC" else []
        if self._pairing.sent(command) and due:
            self._guarded = (command, due)

    def _replied(self, raw: bytes) -> bytes:
        """Record a reply. Returns the bytes for the client now, or nothing if the reply is withheld."""
        command, last = self._pairing.pair(raw)
        if command is not None:
            raw = self._addresses.rewritten(command, raw)
            command.answered(raw)
            for known in self._transactions.answered(command, raw):
                # The client sends the call again as EVAL; counting both would move "the second call" of a rule.
                if known.answer is not None and known.answer.head.startswith(b"-NOSCRIPT"):
                    self._rules.uncount(known)
            # `last`: a subscription has several confirmations, and the rule applies once they have all arrived.
            if last and self._guarded is not None and self._guarded[0] is command:
                due, self._guarded = self._guarded[1], None
                # An error NOSCRIPT or an aborted EXEC changed nothing in Redis, so "after-execute" has not been
                # reached.
                due = [due_rule for due_rule in due if has_run(due_rule.command)]
                if due and not self.is_cut:
                    # Set now and not by the task: replies that come before the task starts would overtake this one.
                    self._withholding = True
                    self._start(pass_reply(raw, due, self))
                    return b""
        if self._withholding:
            self._withheld.append(raw)
            return b""
        return raw

    def _pass_on(self, data: bytes) -> None:
        """Send to the client, after the withheld replies."""
        if self._withholding:
            self._withheld.append(data)
        else:
            self.to_client.write(data)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._carry_through(work))
        self._task.add_done_callback(_report_failure)

    async def _carry_through(self, work: Coroutine[Any, Any, None]) -> None:
        """Apply rules, then continue, unless they ended the connection."""
        with contextlib.suppress(ConnectionEnded):
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

    async def _before(self, command: TappedCommand, rules: list[TapRule]) -> None:
        reply, chunks = await before_send(rules, command, self)
        if reply is None:
            raw = command.raw
            self._sending(command)
            await write_in_pieces(self.to_redis, raw, chunks)
        else:
            self._transactions.not_sent(command)
            command.answered(reply, "answered-by-tap")
            self.to_client.write(reply)
        if not self.is_cut:
            self._forget_first_waiting()

    def _forget_first_waiting(self) -> None:
        """Remove the first waiting command and its claimed rules."""
        self._waiting.popleft()
        self._claimed = None

    def _end_when_done(self) -> None:
        if self.is_cut:
            return
        # While a rule holds replies, the client must still get them before the end of the connection.
        if self._redis_ended and not self._withholding:
            self._lose()
            self.to_client.finish()

    def _lose(self) -> None:
        """Mark all commands without reply as lost."""
        # Waiting ones too, but without `sent_s`: a scenario can see that Redis never got them.
        for command in (*self._pairing.awaited, *self._waiting):
            if command.fate in {"waiting", "sent"}:
                command.fate = "lost"
        self._recording.changed()

    def _after_violation(self, parser: CommandParser | ReplyParser) -> bytes:
        self.violation = str(parser.violation)
        return parser.unread


def _report_failure(task: asyncio.Task[None]) -> None:
    """Report an error of the kit's own code, which would otherwise look like a silent connection."""
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "a rule could not be carried out", "exception": error})


class ClientSide(asyncio.Protocol):
    """The socket of the client. Connects to Redis once the client has connected."""

    def __init__(
        self,
        conversation: Conversation,
        tls: ssl.SSLContext | None,
        *,
        refuse: bool,
        on_end: Callable[[Conversation], None],
        throttle: FloodThrottle | None = None,
    ) -> None:
        self._throttle = throttle
        self._conversation = conversation
        self._tls = tls
        self._refuse = refuse
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._redis = RedisSide(conversation, self)
        self._connecting: asyncio.Task[None] | None = None
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._conversation.to_client.connect(self._transport)
        # A cut may come between the accept and this call, which is a turn of the loop later: the client would wait
        # forever on a connection whose bytes nothing passes on.
        self._refuse = self._refuse or self._conversation.is_cut
        if self._refuse:
            # RST is the nearest to a refused connection that a listening port can do.
            self._conversation.cut(reset=True)
        else:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        """The client has sent bytes."""
        weight = self._conversation.from_client(data)
        pause_s = self._throttle.pause_s(weight, time.monotonic()) if self._throttle is not None else 0.0
        # Read no more for a while: TCP then slows the client down.
        if self._throttle is not None and pause_s:
            # A lost connection has no end to wait for.
            if weight > CALL and not self._lost:
                self._throttle.floods.add(self._conversation.number)
            self.set_reading(False)
            asyncio.get_running_loop().call_later(pause_s, self.set_reading, True)

    def eof_received(self) -> bool:
        """The client has closed its sending half. It may still read."""
        self._conversation.client_ended()
        # Keeps the transport open: asyncio would close it, and replies that are still on their way would be lost.
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection to the client has ended."""
        del exc
        self._lost = True
        if self._throttle is not None:
            self._throttle.floods.discard(self._conversation.number)
        self._conversation.to_client.drop()
        self._conversation.client_ended()
        self.end_if_both_lost()

    def pause_writing(self) -> None:
        """The client does not read. Stop reading from Redis, so that it notices the back-pressure."""
        self._redis.set_reading(False)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._redis.set_reading(True)

    def set_reading(self, wanted: bool) -> None:
        """Resume or pause reading from the client."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading() if wanted else self._transport.pause_reading()

    def end_if_both_lost(self) -> None:
        """Report to the tap once both sides have ended."""
        # A refused client never got a connection to Redis that could end.
        if self._lost and (self._redis.lost or self._refuse):
            self._on_end(self._conversation)

    async def _connect(self) -> None:
        """Connect to Redis. If that fails, end the client's connection."""
        loop = asyncio.get_running_loop()
        node = self._conversation.node
        try:
            if node.startswith(UNIX):
                await loop.create_unix_connection(lambda: self._redis, node.removeprefix(UNIX), ssl=self._tls)
            else:
                host, _, port = node.rpartition(":")
                await loop.create_connection(lambda: self._redis, host.strip("[]"), int(port), ssl=self._tls)
        except OSError:
            # As if Redis had closed: the client sees what it would see without the tap.
            self._redis.connection_lost(None)


class RedisSide(asyncio.Protocol):
    """The socket to Redis."""

    def __init__(self, conversation: Conversation, client: ClientSide) -> None:
        self.lost = False
        self._conversation = conversation
        self._client = client
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Redis has accepted the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._conversation.to_redis.connect(self._transport)

    def data_received(self, data: bytes) -> None:
        """Redis has sent bytes."""
        self._conversation.from_redis(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection to Redis has ended, or failed from the start."""
        del exc
        self.lost = True
        self._conversation.to_redis.drop()
        self._conversation.redis_ended()
        self._client.end_if_both_lost()

    def pause_writing(self) -> None:
        """Redis does not read. Stop reading from the client, so that it notices the back-pressure."""
        self._client.set_reading(False)

    def resume_writing(self) -> None:
        """Redis reads again."""
        self._client.set_reading(True)

    def set_reading(self, wanted: bool) -> None:
        """Resume or pause reading from Redis."""
        if self._transport is not None:
            self._transport.resume_reading() if wanted else self._transport.pause_reading()
