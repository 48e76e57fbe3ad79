"""Talking to one Redis over one socket, which is opened when it is needed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from typing import Any, Final

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.resp import Command, packed
from conformance.reference_impl.connection.wire import Reply, Wire, first_error, raised

_CONNECT_WITHIN_S: Final = 10


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
        """Send one command; answers its reply.

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
            self._held_back += outgoing
            if self._opening is None:
                self._opening = loop.create_task(self._open())
        return [reply for _, reply in outgoing]

    async def _open(self) -> None:
        """Connect, introduce the client, and send what was held back meanwhile; or tell everybody why not."""
        try:
            wire = await self._connect()
        except asyncio.CancelledError:
            self._refuse(RedisConnectionError("Connection closed by this client"))
        except Exception as error:  # noqa: BLE001 - raised where the commands were asked for
            self._refuse(error)
        else:
            self._opening, self._wire = None, wire
            held_back, self._held_back = self._held_back, []
            wire.send(each for each in held_back if not each[1].cancelled())

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
