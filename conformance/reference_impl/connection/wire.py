"""One open socket to Redis: commands go out in the order of `send`, and replies come back in it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

from conformance.reference_impl.connection.resp import Command, packed, reply_reader

Reply = asyncio.Future[Any]
"""What Redis answers to one command; an error is a result too, because nobody may be left to look at it."""

_error_of_text: Final[Callable[[str], Exception]] = cast("Any", DefaultParser).parse_error
"""Makes of an error reply what redis-py would."""

_MOST_UNSENT: Final = 16
"""Commands: so many go out in one write at most. With 4 to 32 the rates are the same, with all of a turn lower."""


class HungUp(RedisConnectionError):
    """This client has ended the connection, and Redis had not answered the command: it did not happen."""


class Wire(asyncio.Protocol):
    """One open socket: commands go out in the order of `send`, and replies come back in the same order.

    redis-py gives each command a socket of its own until its reply is there. A worker that runs ten jobs at a time
    would wait for nine round trips before its own; Node does not, because ioredis writes at once and matches replies by
    order.

    When the socket is lost, every reply that is still due becomes a redis ConnectionError. `gone` is set once nothing
    is left of the socket.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.gone = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._parser = reply_reader(_error_of_text)
        self._due: deque[Reply] = deque()
        self._unsent: list[bytes] = []
        self._has_sent = False
        self._is_flush_due = False
        self._hung_up = False

    def send(self, commands: Iterable[tuple[bytes, Reply]]) -> None:
        """Send packed commands; their replies become the results of the futures.

        What is first sent after something was received goes out at once, so that Redis works on it while the next
        command is made; what follows waits for a few more, or for the end of the event loop's turn, and goes out in one
        write: a write of its own for each command was the dearest single step of a worker's job, and one write for all
        of a turn kept Redis waiting until all of them were made. Commands may be packed while they are sent.
        """
        for command, reply in commands:
            is_first = not (self._has_sent or self._unsent)
            self._has_sent = True
            self._unsent.append(command)
            self._due.append(reply)
            if is_first or len(self._unsent) == _MOST_UNSENT:
                self._flush()
            elif not self._is_flush_due:
                self._is_flush_due = True
                asyncio.get_running_loop().call_soon(self._flush_of_turn)

    async def ask(self, *commands: Command) -> list[Any]:
        """Send commands and return their replies. Raises the first error among them."""
        loop = asyncio.get_running_loop()
        asked = [(packed(command), loop.create_future()) for command in commands]
        self.send(asked)
        return [raised(await reply) for _, reply in asked]

    def is_only_due(self, reply: Reply) -> bool:
        """Whether this is the one reply that is still to come."""
        return len(self._due) == 1 and self._due[0] is reply

    def hang_up(self) -> bool:
        """Send nothing more, unless nothing is due anyway; False where this socket cannot do that.

        Redis gives up a command that blocks and ends the socket. What it has answered before still comes; what is due
        then becomes HungUp.
        """
        transport = self._writable()
        if transport is None or not self.is_open or not transport.can_write_eof():
            return False
        if self._due:
            self._flush()
            self.is_open, self._hung_up = False, True
            transport.write_eof()
        return True

    def drop(self) -> None:
        """Close the socket at once."""
        self._fail(RedisConnectionError("Connection closed by this client"))
        if self._transport is not None:
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
        """Return the socket, or None when it is lost, which `connection_lost` tells a moment later.

        asyncio drops what is written in that moment; uvloop raises RuntimeError, which nobody takes for a lost socket.
        """
        return None if self._transport is None or self._transport.is_closing() else self._transport

    def _fail(self, error: Exception) -> None:
        """Nothing comes back any more. Each waiter gets an error of its own: raising one adds to its traceback."""
        self.is_open = False
        self._unsent.clear()
        while self._due:
            self._settle(self._due.popleft(), type(error)(*error.args))

    def _settle(self, reply: Reply, value: Any) -> None:
        if not reply.done():
            reply.set_result(value)


def raised(value: Any) -> Any:
    """Return a reply. Raises it where it is an error."""
    if isinstance(value, Exception):
        raise value
    return value


def first_error(values: Sequence[Any]) -> Exception | None:
    """Return the first error among replies."""
    return next((value for value in values if isinstance(value, Exception)), None)
