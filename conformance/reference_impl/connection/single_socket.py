"""A connection with one socket, which opens on demand and reopens after a loss; commands keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.opening import ConnectAttempts, Entrance
from conformance.reference_impl.connection.resp import Command, packed
from conformance.reference_impl.connection.wire import Reply, ReplyReceiver, Wire, first_error, raised


class SingleSocket:
    """Runs commands in the order of their calls, including calls made while it connects.

    Raises redis errors: ConnectionError and TimeoutError if it is unknown whether Redis ran a command. `name` is set
    with CLIENT SETNAME. `patience` says how long commands that could not be sent wait for a connection.
    """

    def __init__(self, address: Address, name: str | None, patience: ConnectAttempts | None = None) -> None:
        self._entrance = Entrance(address, name)
        self._patience = patience or ConnectAttempts()
        self._follows_master = address.mode == "sentinel"
        self._wire: Wire | None = None
        self._opening: asyncio.Task[None] | None = None
        self._held_back: list[tuple[bytes, Reply]] = []
        self._closed = False

    @property
    def is_connected(self) -> bool:
        """Whether the socket is open."""
        return self._wire is not None and self._wire.is_open

    async def command(self, command: Command) -> Any:
        """Send one command; returns its reply.

        Cancelling the only command that is due closes the socket: the command may be a blocking one, and the element
        that it would pop later must not be lost.
        """
        (reply,) = self._send([packed(command)])
        try:
            return self.raised(await reply)
        except asyncio.CancelledError:
            # Other replies may be due on this socket: dropping it would make their outcome unknown.
            if self._wire is not None and self._wire.is_only_due(reply):
                self._drop()
            raise

    def post(self, message: bytes, receiver: ReplyReceiver) -> bool:
        """Send an encoded command at once, without waiting; False if there is no open socket."""
        wire = self._wire
        # While a socket opens, other commands wait for it, which this one must not overtake.
        if wire is None or not wire.is_open:
            return False
        wire.send([(message, receiver)])
        return True

    def raised(self, reply: Any) -> Any:
        """Return a reply. Raises it if it is an error."""
        if isinstance(reply, ReadOnlyError):
            raise self._deposed(reply) from reply
        return raised(reply)

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in a pipeline; a command that fails has its error as reply.

        Redis runs the first ones while the others are encoded. Raises the error of a lost connection.
        """
        return await self._replies_to(map(packed, commands))

    async def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one MULTI; a command that fails has its error as reply.

        Raises the error if Redis refuses all of them. All commands are encoded before the first is sent, because
        one that cannot be encoded must not leave a MULTI open.
        """
        *queued, outcome = await self._replies_to([packed(command) for command in (("MULTI",), *commands, ("EXEC",))])
        if isinstance(outcome, Exception):
            raise first_error(queued) or outcome
        values: list[Any] = outcome
        return values

    def hang_up(self) -> bool:
        """End the socket without losing a reply on its way; False if that is impossible. See `Wire`."""
        return self._wire is not None and self._wire.hang_up()

    async def disconnect(self) -> None:
        """Drop the socket; the next command opens a new one."""
        self._drop()

    async def close(self) -> None:
        """Close the socket permanently, so that Redis notices; further commands raise."""
        self._closed = True
        wire = self._wire
        self._drop()
        if wire is not None:
            await wire.gone.wait()

    def _deposed(self, error: ReadOnlyError) -> Exception:
        """Return the error to raise: behind sentinels, a master that became a replica counts as a lost connection."""
        # Without sentinels READONLY is a configuration error, and a reconnect would reach the same server.
        if not self._follows_master:
            return error
        self._drop()
        return RedisConnectionError(f"the master has become a replica: {error}")

    def _drop(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._wire is not None:
            self._wire.drop()
            self._wire = None

    async def _replies_to(self, messages: Iterable[bytes]) -> list[Any]:
        replies = self._send(messages)
        if replies:
            await replies[-1]  # replies keep their order, so the others are there
        values = [reply.result() for reply in replies]
        for value in values:
            if isinstance(value, (RedisConnectionError, RedisTimeoutError)):
                raise value
            if isinstance(value, ReadOnlyError) and self._follows_master:
                raise self._deposed(value)
        return values

    def _send(self, messages: Iterable[bytes]) -> list[Reply]:
        """Send encoded commands, now or once the socket is open; returns futures of their replies."""
        if self._closed:
            raise RedisConnectionError("Connection is closed.")
        loop = asyncio.get_running_loop()
        replies: list[Reply] = []

        def outgoing() -> Iterator[tuple[bytes, Reply]]:
            for message in messages:
                replies.append(loop.create_future())
                yield message, replies[-1]

        if self._wire is not None and self._wire.is_open:
            self._wire.send(outgoing())
        else:
            # Everything waits for the opening socket: on a second one commands would overtake the queued ones.
            self._held_back += outgoing()
            if self._opening is None:
                # A task of its own: cancelling the command that started the connecting must not fail the others in the
                # queue.
                self._opening = loop.create_task(self._open())
        return replies

    async def _open(self) -> None:
        """Connect, introduce the client, and send the queued commands; or fail all of them."""
        try:
            wire = await self._patience.enter(self._entrance)
        except asyncio.CancelledError:
            # The queued commands were never sent, but their callers still wait.
            self._refuse(RedisConnectionError("Connection closed by this client"))
        except Exception as error:  # noqa: BLE001 - raised at the callers of the queued commands
            self._refuse(error)
        else:
            self._opening, self._wire = None, wire
            held_back, self._held_back = self._held_back, []
            # A caller that gave up meanwhile has reported a failure: running its command now would do the work twice.
            wire.send((command, reply) for command, reply in held_back if not reply.cancelled())

    def _refuse(self, error: Exception) -> None:
        self._opening = None
        held_back, self._held_back = self._held_back, []
        for _, reply in held_back:
            if not reply.done():
                reply.set_result(error)
