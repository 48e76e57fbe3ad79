"""Connections to Redis: each is a single socket on which commands keep their order, as in Node.js."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.cluster_nodes import ClusterNodes
from conformance.reference_impl.connection.link import Link
from conformance.reference_impl.connection.opening import ConnectAttempts
from conformance.reference_impl.connection.replies import flat_mapping, maybe_text, text, texts
from conformance.reference_impl.connection.resp import Argument, Command
from conformance.reference_impl.connection.server_facts import (
    MINIMUM_VERSION,
    concerns,
    minimum_block_s,
    parse_info,
    version_of,
)
from conformance.reference_impl.connection.single_socket import SingleSocket
from conformance.reference_impl.connection.slots import CrossSlot, cross_slot, with_slots_explained
from conformance.reference_impl.connection.wire import HungUp, ReplyReceiver, first_error
from conformance.reference_impl.errors import Closed
from conformance.reference_impl.policy import ReconnectPolicy

__all__ = [
    "CONNECTION_LOST",
    "Connection",
    "ConnectionWatch",
    "CrossSlot",
    "Link",
    "concerns",
    "cross_slot",
    "flat_mapping",
    "is_connection_problem",
    "maybe_text",
    "minimum_block_s",
    "parse_info",
    "text",
    "texts",
    "version_of",
    "with_slots_explained",
]

logger = logging.getLogger("bullmq")
CONNECTION_LOST: Final = (RedisConnectionError, RedisTimeoutError, ConnectionError, TimeoutError)
"""After these errors it is unknown whether Redis ran the command."""

_NAME: Final = re.compile("[!-~]+")
"""Connection names that Redis accepts. A worker with another name has an unnamed connection, as in Node.js."""


class ConnectionWatch(Protocol):
    """Observer of whether Redis can be reached (see `Link`)."""

    @property
    def is_lost(self) -> bool:
        """Whether the last command did not get through."""
        ...

    def lost(self, error: BaseException) -> None:
        """A command did not get through."""
        ...

    def restored(self) -> None:
        """Redis answers again."""
        ...

    def warn(self, text: str) -> None:
        """The server has an unsuitable version or setting."""
        ...


class Connection:
    """A connection to Redis. `name` is set with CLIENT SETNAME; `watch` is notified of losses and recoveries.

    `opening` runs once, before the first command and after the check of the server; it sends with `at_once`.
    `check_version`: whether to send INFO, which some services forbid.
    `wait_unsent_s`: how long (s) commands that could not be sent wait for a connection; not in a cluster.

    Commands run in the order of their calls. They are sent at most once: a lost connection is an error, never a silent
    retry. No reply has a timeout. Raises redis errors, Closed after `close`, and CrossSlot if the keys of a queue are
    spread over a cluster.
    """

    def __init__(
        self,
        address: Address,
        *,
        name: str | None = None,
        watch: ConnectionWatch | None = None,
        opening: Callable[[], Awaitable[None]] | None = None,
        wait_unsent_s: float = 0,
        reconnect: ReconnectPolicy | None = None,
        check_version: bool = True,
    ) -> None:
        self.address = address
        self.version: tuple[int, ...] = MINIMUM_VERSION
        self.closed = False
        self._checked = not check_version
        self._opening = opening
        self._preparing = asyncio.Lock()
        self._unprepared = 0
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._watch = watch
        is_cluster = address.mode == "cluster"
        accepted = name if name is not None and _NAME.fullmatch(name) else None
        patience = ConnectAttempts(wait_unsent_s, reconnect or ReconnectPolicy(), self._note_loss)
        self._carrier = ClusterNodes(address, accepted) if is_cluster else SingleSocket(address, accepted, patience)

    @property
    def minimum_block_s(self) -> float:
        """The shortest time (s) for which this Redis can block."""
        return minimum_block_s(self.version)

    @property
    def is_single(self) -> bool:
        """Whether all commands go over one socket, for any key."""
        return self.address.mode != "cluster"

    @property
    def is_connected(self) -> bool:
        """Whether there is an open socket right now; in a cluster whether the connection is in use at all."""
        return not self.closed and self._carrier.is_connected

    async def ready(self) -> None:
        """Connect, check the server's version once, and run the `opening`.

        Raises BullMQError if the server is too old, a redis error if it cannot be reached.
        """
        # Earlier callers may still wait for the lock, which wakes one per loop turn; returning now would overtake them.
        if self._checked and self._opening is None and not self._unprepared:
            return
        self._unprepared += 1
        try:
            # Without the lock several first commands would each run the opening.
            async with self._preparing:
                if not self._checked:
                    await self._check_server()
                if self._opening is not None:
                    await self._opening()
                    # Only after it succeeded: a failed opening runs again with the next command.
                    self._opening = None
        finally:
            self._unprepared -= 1

    async def _check_server(self) -> None:
        info = await self.at_once("INFO")
        facts = parse_info(text(info))
        self.version = version_of(facts)
        for concern in concerns(facts):
            self._warn(concern)
        # Last, so that a failed INFO is repeated by the next caller.
        self._checked = True

    async def command(self, *arguments: Argument) -> Any:
        """Send one command; replies are bytes, ints, lists and None."""
        if self._opening is not None:
            await self.ready()
        return await self.at_once(*arguments)

    async def at_once(self, *arguments: Argument) -> Any:
        """Send one command, even before the `opening`."""
        self._refuse_if_closed()
        if self._watch is not None and self._watch.is_lost:
            await self._probe()
        return await self._watched(self._carrier.command(arguments))

    def post(self, message: bytes, receiver: ReplyReceiver) -> bool:
        """Send an encoded command at once; its receiver passes the reply to `checked`.

        False if it must be sent with `command`: while Redis is lost, before the `opening`, and in a cluster.
        """
        if self.closed or self._opening is not None or (self._watch is not None and self._watch.is_lost):
            return False
        return isinstance(self._carrier, SingleSocket) and self._carrier.post(message, receiver)

    async def checked(self, reply: Any) -> Any:
        """Return a reply to `post`, as `command` would: an error is raised, and losses and recoveries are noted."""

        async def received() -> Any:
            return self._carrier.raised(reply) if isinstance(self._carrier, SingleSocket) else reply

        return await self._watched(received())

    async def client_lines(self) -> list[str]:
        """CLIENT LIST, one line per connection; of all nodes in a cluster."""
        if self._opening is not None:
            await self.ready()
        if isinstance(self._carrier, ClusterNodes):
            replies = await self._carrier.on_all_nodes("CLIENT LIST")
        else:
            replies = [await self.command("CLIENT LIST")]
        return [line for reply in replies for line in text(reply).splitlines()]

    async def together(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands as one MULTI; in a cluster one after the other. Raises the first error."""
        if isinstance(self._carrier, ClusterNodes):
            return [await self.command(*command) for command in commands]
        replies = await self.transaction(commands)
        error = first_error(replies)
        if error is not None:
            raise error
        return replies

    async def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands as one MULTI; a command that fails has its error as reply.

        In a cluster all keys must be in one slot.
        """
        if self._opening is not None:
            await self.ready()
        self._refuse_if_closed()
        return with_slots_explained(await self._watched(self._carrier.transaction(commands)))

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in a pipeline; a command that fails has its error as reply."""
        if self._opening is not None:
            await self.ready()
        self._refuse_if_closed()
        return with_slots_explained(await self._watched(self._carrier.pipeline(commands)))

    def hang_up(self) -> bool:
        """End a blocking command: it returns its reply if Redis has sent one, else it raises HungUp.

        False if that is impossible: over TLS, and before there is a connection. The next command opens a new one.
        """
        return self._carrier.hang_up()

    async def disconnect(self) -> None:
        """Drop the sockets; the next command opens new ones."""
        await self._carrier.disconnect()

    async def until_idle(self) -> None:
        """Wait for the replies to calls under way. Returns at once if the connection is lost, or not yet ready.

        The first calls wait for the version check and the `opening`, which may get no reply at all: a close must not.
        """
        if self.is_connected and self._checked and self._opening is None and not self._unprepared:
            await self._idle.wait()

    async def close(self) -> None:
        """Close permanently."""
        # First: the loss that closing causes must not start an outage.
        self.closed = True
        with contextlib.suppress(*CONNECTION_LOST):
            await self._carrier.close()

    def _refuse_if_closed(self) -> None:
        # Not a lost connection: nothing brings it back, so no caller should try again.
        if self.closed:
            raise Closed("Connection is closed.")

    async def _probe(self) -> None:
        """After a loss, send PING first: a blocking command may reply much later, and would delay `reconnected`.

        Not in a cluster, where the reply of one node says nothing about the others.
        """
        if self.address.mode != "cluster":
            await self._watched(self._carrier.command(("PING",)))

    async def _watched(self, sent: Awaitable[Any]) -> Any:
        """Await a reply and notify the watch; a connection that is being closed does not count as lost."""
        self._under_way += 1
        self._idle.clear()
        try:
            reply = await sent
        # A wait that this client ended itself is not an outage.
        except HungUp:
            raise
        except CONNECTION_LOST as error:
            self._note_loss(error)
            raise
        except (RedisError, RedisClusterException) as error:
            explained = cross_slot(error)
            if explained is None:
                raise
            raise explained from error
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
        if self._watch is not None and self._watch.is_lost:
            self._watch.restored()
        return reply

    def _note_loss(self, error: BaseException) -> None:
        # Calls that wait for another connection are not to be waited for.
        self._idle.set()
        if self._watch is not None and not self.closed:
            self._watch.lost(error)

    def _warn(self, concern: str) -> None:
        if self._watch is None:
            logger.warning("%s", concern)
        else:
            self._watch.warn(concern)


def is_connection_problem(error: BaseException) -> bool:
    """Whether the connection failed, as opposed to an error reply of the server."""
    return isinstance(error, CONNECTION_LOST)
