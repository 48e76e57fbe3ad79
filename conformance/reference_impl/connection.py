"""Connections to Redis: like Node's, each is a single socket on which commands keep their order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.reference_impl import server_facts
from conformance.reference_impl.address import Address
from conformance.reference_impl.js_json import js_number, well_formed

logger = logging.getLogger("bullmq")

CONNECTION_LOST: Final = (RedisConnectionError, RedisTimeoutError, ConnectionError, TimeoutError)
"""After these nobody knows whether the command was carried out."""

_UNPARSED_COMMANDS: Final = (
    *("INFO", "CLIENT LIST", "CLIENT SETNAME", "SET", "SCRIPT EXISTS", "SCRIPT LOAD"),
    *("HGETALL", "HEXISTS", "HMSET", "SMEMBERS", "ZRANGE", "ZSCORE", "BZPOPMIN", "XREAD"),
)
"""redis-py would turn the replies of these into Python values of its own; the client wants them as Redis sent them."""


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


Argument = str | bytes | int | float | bool | None
Command = tuple[Argument, ...]
AnyClient = TypeVar("AnyClient", Redis, RedisCluster)


class Connection:
    """A client's way to Redis. `name` is set with CLIENT SETNAME, `watch` is told when Redis is lost and found.

    Commands are carried out one after the other, in the order in which they were asked for. They are sent at most once:
    a lost connection is an error, and never a silent retry. Nothing waits for a reply with a timeout.
    """

    def __init__(self, address: Address, *, name: str | None = None, watch: ConnectionWatch | None = None) -> None:
        self.address = address
        self.version: tuple[int, ...] = server_facts.MINIMUM_VERSION
        self.closed = False
        self._checked = False
        self._watch = watch
        self._turn = asyncio.Lock()
        self._client = _open(address, name)

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
        name, *rest = arguments
        async with self._turn:
            await self._probe()
            return await self._watched(self._client.execute_command(str(name), *map(encode_argument, rest)))

    async def client_lines(self) -> list[str]:
        """CLIENT LIST, one line per connection; of all nodes in a cluster."""
        if isinstance(self._client, RedisCluster):
            replies: Any = await self._client.execute_command("CLIENT LIST", target_nodes=RedisCluster.ALL_NODES)
            return [line for reply in replies.values() for line in text(reply).splitlines()]
        return text(await self.command("CLIENT LIST")).splitlines()

    async def together(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands as one MULTI; in a cluster one after the other. Raises the first error."""
        if isinstance(self._client, RedisCluster):
            return [await self.command(*command) for command in commands]
        replies = await self.transaction(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    async def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands as one MULTI; an error stands in the place of its command's reply.

        In a cluster all of them must be about one slot.
        """
        return await self._pipeline(commands, transaction=True)

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write; an error stands in the place of its command's reply."""
        return await self._pipeline(commands, transaction=False)

    async def disconnect(self) -> None:
        """Drop the sockets; the next command opens new ones."""
        if isinstance(self._client, RedisCluster):
            await self._client.aclose()
        else:
            await self._client.connection_pool.disconnect(inuse_connections=True)

    async def close(self) -> None:
        """Close for good."""
        self.closed = True
        with contextlib.suppress(*CONNECTION_LOST):
            await self._client.aclose()

    async def _pipeline(self, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        if isinstance(self._client, RedisCluster):
            pipe: Any = self._client.pipeline(transaction=transaction)
        else:
            pipe = self._client.pipeline(transaction=transaction)
        for name, *rest in commands:
            pipe.execute_command(str(name), *map(encode_argument, rest))
        async with self._turn:
            replies: list[Any] = await self._watched(pipe.execute(raise_on_error=False))
        return replies

    async def _probe(self) -> None:
        """After a loss, ask for a sign of life first: the reply to a command that blocks may come much later.

        Not in a cluster, where one node says nothing about another.
        """
        if self._watch is not None and self._watch.is_lost and self.address.mode == "standalone":
            await self._watched(self._client.execute_command("PING"))

    async def _watched(self, sent: Awaitable[Any]) -> Any:
        """Await a reply and tell the watch how it went; a connection that is being closed is no loss."""
        try:
            reply = await sent
        except CONNECTION_LOST as error:
            if self._watch is not None and not self.closed:
                self._watch.lost(error)
            raise
        if self._watch is not None and self._watch.is_lost:
            self._watch.restored()
        return reply

    def _warn(self, concern: str) -> None:
        if self._watch is None:
            logger.warning("%s", concern)
        else:
            self._watch.warn(concern)


def encode_argument(value: Argument) -> bytes:
    """Encode an argument as ioredis does: numbers as JavaScript prints them, nothing as an empty string."""
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    if isinstance(value, str):
        return well_formed(value).encode()
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return js_number(value).encode()


def text(reply: Any) -> str:
    """Answer a reply as text; bytes that are not UTF-8 are replaced, as Node does."""
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)


def maybe_text(reply: Any) -> str | None:
    """Answer a reply as text, or None where Redis had nothing."""
    return None if reply is None else text(reply)


def texts(reply: Sequence[Any]) -> list[str]:
    """Answer a list reply as texts."""
    return [text(element) for element in reply]


def flat_mapping(reply: Any) -> dict[str, str]:
    """Field names and values that stand one after the other, as a dict."""
    if isinstance(reply, Mapping):
        return {text(name): text(value) for name, value in reply.items()}
    words = texts(reply)
    return dict(zip(words[::2], words[1::2], strict=True))


def is_connection_problem(error: BaseException) -> bool:
    """Whether the server could not be reached, as opposed to having answered with an error."""
    return isinstance(error, CONNECTION_LOST)


def _open(address: Address, name: str | None) -> Redis | RedisCluster:
    common: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "client_name": name,
        "socket_timeout": None,
        "socket_connect_timeout": 10,
        "protocol": 2,
    }
    if address.mode == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.nodes]
        cluster = RedisCluster(startup_nodes=nodes, ssl=address.tls, retry=Retry(NoBackoff(), 0), **common)
        return _without_callbacks(cluster)
    host, port = address.nodes[0]
    if address.tls:
        common["connection_class"] = SSLConnection
    pool = BlockingConnectionPool(
        host=host,
        port=port,
        db=address.db,
        max_connections=1,
        timeout=None,
        retry=Retry(NoBackoff(), 0),
        **common,
    )
    return _without_callbacks(Redis.from_pool(pool))


def _without_callbacks(client: AnyClient) -> AnyClient:
    callbacks: Any = client.response_callbacks
    for command in _UNPARSED_COMMANDS:
        callbacks.pop(command, None)
    return client
