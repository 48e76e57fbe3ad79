"""Connections to Redis: like Node's, each is a single socket on which commands keep their order."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.reference_impl.connection import server_facts
from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.cluster_nodes import ClusterNodes
from conformance.reference_impl.connection.resp import Argument, Command
from conformance.reference_impl.connection.single_socket import SingleSocket
from conformance.reference_impl.connection.slots import cross_slot, with_slots_explained
from conformance.reference_impl.connection.wire import HungUp, first_error

logger = logging.getLogger("bullmq")

CONNECTION_LOST: Final = (RedisConnectionError, RedisTimeoutError, ConnectionError, TimeoutError)
"""After these nobody knows whether the command was carried out."""

_NAME: Final = re.compile("[!-~]+")
"""What Redis takes as the name of a connection. With another name, of a worker, Node's connection has none either."""


class ConnectionWatch(Protocol):
    """Whoever wants to know whether Redis answers (see `link`)."""

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
        """Something about the server is not as it should be."""
        ...


class Connection:
    """A client's way to Redis. `name` is set with CLIENT SETNAME, `watch` is told when Redis is lost and found.

    Commands are carried out in the order in which they were asked for. They are sent at most once: a lost connection is
    an error, and never a silent retry. Nothing waits for a reply with a timeout. Raises redis errors, and
    CrossSlot where the keys of a queue are spread over a cluster.
    """

    def __init__(self, address: Address, *, name: str | None = None, watch: ConnectionWatch | None = None) -> None:
        self.address = address
        self.version: tuple[int, ...] = server_facts.MINIMUM_VERSION
        self.closed = False
        self._checked = False
        self._watch = watch
        is_cluster = address.mode == "cluster"
        accepted = name if name is not None and _NAME.fullmatch(name) else None
        self._carrier = ClusterNodes(address, accepted) if is_cluster else SingleSocket(address, accepted)

    @property
    def minimum_block_s(self) -> float:
        """The shortest time (s) for which this Redis can block."""
        return server_facts.minimum_block_s(self.version)

    async def ready(self) -> None:
        """Connect and look at the server's version once.

        Raises BullMQError where it is too old, a redis error where there is none.
        """
        if self._checked:
            return
        info = await self.command("INFO")
        facts = server_facts.parse_info(text(info))
        self.version = server_facts.version_of(facts)
        for concern in server_facts.concerns(facts):
            self._warn(concern)
        self._checked = True

    async def command(self, *arguments: Argument) -> Any:
        """Send one command; replies are bytes, ints, lists and None."""
        if self._watch is not None and self._watch.is_lost:
            await self._probe()
        return await self._watched(self._carrier.command(arguments))

    async def client_lines(self) -> list[str]:
        """CLIENT LIST, one line per connection; of all nodes in a cluster."""
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
        """Send commands as one MULTI; an error stands in the place of its command's reply.

        In a cluster all of them must be about one slot.
        """
        return with_slots_explained(await self._watched(self._carrier.transaction(commands)))

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write; an error stands in the place of its command's reply."""
        return with_slots_explained(await self._watched(self._carrier.pipeline(commands)))

    def hang_up(self) -> bool:
        """End a command that blocks: it gets its reply, if Redis has sent one, and raises HungUp otherwise.

        False where that is impossible: over TLS, and before there is a connection. The next command opens a new one.
        """
        return self._carrier.hang_up()

    async def disconnect(self) -> None:
        """Drop the sockets; the next command opens new ones."""
        await self._carrier.disconnect()

    async def close(self) -> None:
        """Close for good."""
        self.closed = True
        with contextlib.suppress(*CONNECTION_LOST):
            await self._carrier.close()

    async def _probe(self) -> None:
        """After a loss, ask for a sign of life first: the reply to a command that blocks may come much later.

        Not in a cluster, where one node says nothing about another.
        """
        if self.address.mode == "standalone":
            await self._watched(self._carrier.command(("PING",)))

    async def _watched(self, sent: Awaitable[Any]) -> Any:
        """Await a reply and tell the watch how it went; a connection that is being closed is no loss."""
        try:
            reply = await sent
        except HungUp:
            raise
        except CONNECTION_LOST as error:
            if self._watch is not None and not self.closed:
                self._watch.lost(error)
            raise
        except (RedisError, RedisClusterException) as error:
            explained = cross_slot(error)
            if explained is None:
                raise
            raise explained from error
        if self._watch is not None and self._watch.is_lost:
            self._watch.restored()
        return reply

    def _warn(self, concern: str) -> None:
        if self._watch is None:
            logger.warning("%s", concern)
        else:
            self._watch.warn(concern)


def text(reply: Any) -> str:
    """Answer a reply as text; bytes that are not UTF-8 are replaced, as Node does."""
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)


def maybe_text(reply: Any) -> str | None:
    """Answer a reply as text, or None where Redis had nothing."""
    return None if reply is None else text(reply)


def texts(reply: Sequence[Any]) -> list[str]:
    """Answer a list reply as texts."""
    return [each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each) for each in reply]


def flat_mapping(reply: Any) -> dict[str, str]:
    """Field names and values that stand one after the other, as a dict."""
    if isinstance(reply, Mapping):
        return {text(name): text(value) for name, value in reply.items()}
    words = texts(reply)
    return dict(zip(words[::2], words[1::2], strict=True))


def is_connection_problem(error: BaseException) -> bool:
    """Whether the server could not be reached, as opposed to having answered with an error."""
    return isinstance(error, CONNECTION_LOST)
