"""One open socket to Redis: commands go out in the order of `send`, and replies come back in it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, cast

from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

from conformance.reference_impl.connection.resp import Command, packed, reply_reader

Reply = asyncio.Future[Any]
"""The reply to one command. An error is a result and not an exception, because the caller may have been cancelled."""


class ReplyReceiver(Protocol):
    """A future for the reply to one command, or an object that goes on at once, without a turn of the event loop."""

    def done(self) -> bool:
        """Whether the reply is not wanted any more."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Take the reply. An error is a result. Must not raise."""
        ...


_error_of_text: Final[Callable[[str], Exception]] = cast("Any", DefaultParser).parse_error
"""Converts an error reply into the exception that redis-py would raise."""

_MOST_UNSENT: Final = 16
"""The most commands in one write. Rates are the same from 4 to 32, and lower with all commands of a loop turn."""


class HungUp(RedisConnectionError):
    """This client ended the connection before Redis replied: the command did not run."""


class Wire(asyncio.Protocol):
    """One open socket: commands go out in the order of `send`, and replies come back in the same order.

    redis-py reserves a socket for each command until its reply arrives. On one socket a worker with ten jobs would wait
    for nine round trips before its own; Node does not, because ioredis writes at once and matches replies by order.

    When the socket is lost, every pending reply becomes a redis ConnectionError. `gone` is set once the socket is
    closed completely.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.gone = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._parser = reply_reader(_error_of_text)
        self._due: deque[ReplyReceiver] = deque()
        self._unsent: list[bytes] = []
        self._has_sent = False
        self._is_flush_due = False
        self._hung_up = False

    def send(self, commands: Iterable[tuple[bytes, ReplyReceiver]]) -> None:
        """Send encoded commands; their replies become the results of the receivers.

        The first command after a receive is written at once, so that Redis runs it while the next one is encoded. Later
        ones wait for a few more, or for the end of the loop turn, and share one write: one write per command was the
        most expensive single step of a worker's job, and one write per turn kept Redis idle until all commands were
        encoded. Commands may be encoded while they are sent.
        """
        for command, reply in commands:
            is_first = not (self._has_sent or self._unsent)
            self._has_sent = True
            self._unsent.append(command)
            # In the order of the bytes: the n-th reply belongs to the n-th pending future.
            self._due.append(reply)
            if is_first or len(self._unsent) == _MOST_UNSENT:
                self._flush()
            elif not self._is_flush_due:
                self._is_flush_due = True
                # Once per turn; more callbacks would only find nothing to write.
                asyncio.get_running_loop().call_soon(self._flush_of_turn)

    async def ask(self, *commands: Command) -> list[Any]:
        """Send commands and return their replies. Raises the first error among them."""
        loop = asyncio.get_running_loop()
        asked = [(packed(command), loop.create_future()) for command in commands]
        self.send(asked)
        return [raised(await reply) for _, reply in asked]

    def is_only_due(self, reply: ReplyReceiver) -> bool:
        """Whether this is the only pending reply."""
        # Identity, not position: a reply that has arrived already is not pending any more.
        return len(self._due) == 1 and self._due[0] is reply

    def hang_up(self) -> bool:
        """Close the sending side if a reply is pending; False if this socket cannot do that.

        Redis then cancels the blocking command and closes the socket. Replies that it sent before still arrive; those
        still pending become HungUp.
        """
        transport = self._writable()
        # TLS has no half-close: ending it also ends the replies on their way.
        if transport is None or not self.is_open or not transport.can_write_eof():
            return False
        if self._due:
            self._flush()
            self.is_open, self._hung_up = False, True
            # After the flush: bytes written after the FIN would never be sent.
            transport.write_eof()
        return True

    def drop(self) -> None:
        """Close the socket at once."""
        # Before the abort, whose callback comes a turn later: callers must not wait for it.
        self._fail(RedisConnectionError("Connection closed by this client"))
        if self._transport is not None:
            # Abort, not close: close would first try to send what is buffered, to a server that may not read.
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._has_sent = False
        self._parser.feed(data)
        try:
            while self._due and (value := self._parser.gets()) is not False:
                self._settle(self._due.popleft(), value)
        except InvalidResponse as error:
            self._fail(error)
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.gone.set()
        # With an error it is unknown whether Redis ran the command, so it cannot count as hung up.
        error = HungUp if self._hung_up and exc is None else RedisConnectionError
        self._fail(error(f"Connection lost: {exc or 'closed by Redis'}"))

    def _flush_of_turn(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and (transport := self._writable()) is not None:
            transport.write(b"".join(unsent))

    def _writable(self) -> asyncio.Transport | None:
        """Return the socket, or None if it is lost; `connection_lost` is called only a moment later.

        In that moment asyncio drops what is written; uvloop raises a RuntimeError, which callers would not treat as a
        lost connection.
        """
        return None if self._transport is None or self._transport.is_closing() else self._transport

    def _fail(self, error: Exception) -> None:
        """Fail all pending replies. Each gets a separate error, because raising an error extends its traceback."""
        self.is_open = False
        # Unsent bytes must not go out on a socket whose replies are no longer awaited.
        self._unsent.clear()
        while self._due:
            self._settle(self._due.popleft(), type(error)(*error.args))

    def _settle(self, reply: ReplyReceiver, value: Any) -> None:
        # The caller may have been cancelled; the reply is still consumed, to keep the order.
        if not reply.done():
            reply.set_result(value)


def raised(value: Any) -> Any:
    """Return a reply. Raises it if it is an error."""
    if isinstance(value, Exception):
        raise value
    return value


def first_error(values: Sequence[Any]) -> Exception | None:
    """Return the first error among replies."""
    return next((value for value in values if isinstance(value, Exception)), None)
