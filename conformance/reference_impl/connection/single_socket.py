"""One socket to Redis: commands go out in the order in which they were asked for, and replies come back in it."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

import hiredis
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.resp import Command, packed

Reply = asyncio.Future[Any]
"""What Redis answers to one command; an error is a result too, because nobody may be left to look at it."""

_CONNECT_WITHIN_S: Final = 10
_error_of_text: Final[Callable[[str], Exception]] = cast("Any", DefaultParser).parse_error
"""Makes of an error reply what redis-py would."""


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
        self._parser = hiredis.Reader(protocolError=InvalidResponse, replyError=_error_of_text)
        self._due: deque[Reply] = deque()
        self._hung_up = False

    def send(self, commands: Iterable[tuple[bytes, Reply]]) -> None:
        """Send packed commands in one write; their replies become the results of the futures.

        At once, so that Redis works on the first command of a turn of the event loop while the next one is made.
        """
        unsent = []
        for command, reply in commands:
            unsent.append(command)
            self._due.append(reply)
        if self._transport is not None:
            self._transport.write(b"".join(unsent))

    def is_only_due(self, reply: Reply) -> bool:
        """Whether this is the one reply that is still to come."""
        return len(self._due) == 1 and self._due[0] is reply

    def hang_up(self) -> bool:
        """Send nothing more, unless nothing is due anyway; False where this socket cannot do that.

        Redis gives up a command that blocks and ends the socket. What it has answered before still comes; what is due
        then becomes HungUp.
        """
        if self._transport is None or not self.is_open or not self._transport.can_write_eof():
            return False
        if self._due:
            self.is_open, self._hung_up = False, True
            self._transport.write_eof()
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

    def _fail(self, error: Exception) -> None:
        """Nothing comes back any more. Each waiter gets an error of its own: raising one adds to its traceback."""
        self.is_open = False
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


class SingleSocket:
    """Commands are carried out in the order in which they were asked for, also those asked for while it connects.

    Raises redis errors: ConnectionError and TimeoutError when nobody knows whether a command was carried out. `name`
    is set with CLIENT SETNAME.
    """

    def __init__(self, address: Address, name: str | None) -> None:
        self._address = address
        self._name = name
        self._wire: Wire | None = None
        self._opening: asyncio.Task[None] | None = None
        self._held_back: list[tuple[bytes, Reply]] = []
        self._closed = False

    async def command(self, command: Command) -> Any:
        """Send one command; returns its reply.

        A command that is cancelled while no other is due takes the socket with it: it may be one that blocks, and
        what it would take later must not be lost.
        """
        (reply,) = self._send([command])
        try:
            return raised(await reply)
        except asyncio.CancelledError:
            if self._wire is not None and self._wire.is_only_due(reply):
                self._drop()
            raise

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write; an error stands in the place of its command's reply.

        Raises the error of a lost connection.
        """
        replies = self._send(commands)
        if replies:
            await replies[-1]  # the others have come before it
        values = [reply.result() for reply in replies]
        for value in values:
            if isinstance(value, (RedisConnectionError, RedisTimeoutError)):
                raise value
        return values

    async def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one MULTI; an error stands in the place of its command's reply.

        Raises why Redis refused all of them.
        """
        *queued, outcome = await self.pipeline([("MULTI",), *commands, ("EXEC",)])
        if isinstance(outcome, Exception):
            raise first_error(queued) or outcome
        values: list[Any] = outcome
        return values

    def hang_up(self) -> bool:
        """End the socket without losing a reply that is on its way; False where that is impossible. See `Wire`."""
        return self._wire is not None and self._wire.hang_up()

    async def disconnect(self) -> None:
        """Drop the socket; the next command opens a new one."""
        self._drop()

    async def close(self) -> None:
        """Drop the socket for good, so that Redis knows; further commands are errors."""
        self._closed = True
        wire = self._wire
        self._drop()
        if wire is not None:
            await wire.gone.wait()

    def _drop(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._wire is not None:
            self._wire.drop()
            self._wire = None

    def _send(self, commands: Sequence[Command]) -> list[Reply]:
        if self._closed:
            raise RedisConnectionError("Connection is closed.")
        loop = asyncio.get_running_loop()
        outgoing = [(packed(command), loop.create_future()) for command in commands]
        if self._wire is not None and self._wire.is_open:
            self._wire.send(outgoing)
        else:
            # While one socket opens everything waits for it: on a second one commands would overtake those held back.
            self._held_back += outgoing
            if self._opening is None:
                self._opening = loop.create_task(self._open())
        return [reply for _, reply in outgoing]

    async def _open(self) -> None:
        """Connect, introduce the client, and send what was held back meanwhile; or refuse all of it."""
        try:
            wire = await self._connect()
        except asyncio.CancelledError:
            self._refuse(RedisConnectionError("Connection closed by this client"))
        except Exception as error:  # noqa: BLE001 - raised where the commands were asked for
            self._refuse(error)
        else:
            self._opening, self._wire = None, wire
            held_back, self._held_back = self._held_back, []
            wire.send((command, reply) for command, reply in held_back if not reply.cancelled())

    async def _connect(self) -> Wire:
        host, port = self._address.nodes[0]
        context = ssl.create_default_context() if self._address.tls else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                _, wire = await loop.create_connection(Wire, host, port, ssl=context)
                await self._introduce(wire)
        except TimeoutError as error:
            raise RedisTimeoutError(f"no connection to {host}:{port} within {_CONNECT_WITHIN_S} s") from error
        except OSError as error:
            raise RedisConnectionError(f"no connection to {host}:{port}: {error}") from error
        return wire

    async def _introduce(self, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        replies = []
        for command in self._introduction():
            reply = loop.create_future()
            wire.send([(packed(command), reply)])
            replies.append(reply)
        try:
            for reply in replies:
                raised(await reply)
        except BaseException:
            wire.drop()
            raise

    def _introduction(self) -> Iterator[Command]:
        address = self._address
        if address.password is not None:
            yield ("AUTH", *([address.username] if address.username else []), address.password)
        if address.db:
            yield ("SELECT", address.db)
        if self._name is not None:
            yield ("CLIENT SETNAME", self._name)

    def _refuse(self, error: Exception) -> None:
        self._opening = None
        held_back, self._held_back = self._held_back, []
        for _, reply in held_back:
            if not reply.done():
                reply.set_result(error)
