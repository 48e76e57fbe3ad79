"""Connections to Redis: like Node's, each is a single socket on which commands keep their order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.reference_impl.address import Address
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.js_json import js_number, well_formed

logger = logging.getLogger("bullmq")

CONNECTION_LOST: Final = (RedisConnectionError, RedisTimeoutError, ConnectionError, TimeoutError)
"""After these nobody knows whether the command was carried out."""

MINIMUM_VERSION: Final = (5, 0, 0)
RECOMMENDED_VERSION: Final = (6, 2, 0)
SHORT_BLOCK_VERSION: Final = (7, 0, 8)
"""Before this, Redis rounds a block timeout of 1 ms down to 0, which means for ever."""

_UNPARSED_COMMANDS: Final = (
    *("INFO", "CLIENT LIST", "CLIENT SETNAME", "SET", "SCRIPT EXISTS", "SCRIPT LOAD"),
    *("HGETALL", "HEXISTS", "HMSET", "SMEMBERS", "ZRANGE", "ZSCORE", "BZPOPMIN", "XREAD"),
)
"""redis-py would turn the replies of these into Python values of its own; the client wants them as Redis sent them."""


Argument = str | bytes | int | float | bool | None
Command = tuple[Argument, ...]
AnyClient = TypeVar("AnyClient", Redis, RedisCluster)


class Connection:
    """A client's way to Redis. `name` is set with CLIENT SETNAME.

    Commands are carried out one after the other, in the order in which they were asked for. They are sent at most once:
    a lost connection is an error, and never a silent retry. Nothing waits for a reply with a timeout.
    """

    def __init__(self, address: Address, *, name: str | None = None) -> None:
        self.address = address
        self.version: tuple[int, ...] = MINIMUM_VERSION
        self.closed = False
        self._checked = False
        self._turn = asyncio.Lock()
        self._client = _open(address, name)

    @property
    def minimum_block_s(self) -> float:
        """The shortest time (s) for which this Redis can block."""
        return 0.001 if self.version >= SHORT_BLOCK_VERSION else 0.002

    async def ready(self) -> None:
        """Connect and look at the server's version once.

        Raises BullMQError where it is too old, a redis error where there is none.
        """
        if self._checked:
            return
        info = await self.command("INFO")
        facts = _parse_info(text(info))
        self.version = tuple(int(part) for part in re.findall(r"\d+", facts.get("redis_version", "5.0.0"))[:3])
        _judge_server(facts, self.version)
        self._checked = True

    async def command(self, *arguments: Argument) -> Any:
        """Send one command; replies are bytes, ints, lists and None."""
        name, *rest = arguments
        async with self._turn:
            return await self._client.execute_command(str(name), *map(encode_argument, rest))

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
        replies = await self._pipeline(commands, transaction=True)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

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
            pipe: Any = self._client.pipeline()
        else:
            pipe = self._client.pipeline(transaction=transaction)
        for name, *rest in commands:
            pipe.execute_command(str(name), *map(encode_argument, rest))
        async with self._turn:
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        return replies


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
        cluster = RedisCluster(startup_nodes=nodes, ssl=address.tls, **common)
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


def _parse_info(document: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in document.splitlines())
    return {name: value for name, separator, value in pairs if separator}


def _judge_server(facts: Mapping[str, str], version: tuple[int, ...]) -> None:
    shown = ".".join(map(str, version))
    if version < MINIMUM_VERSION:
        raise BullMQError(f"Redis version needs to be greater or equal than 5.0.0 Current: {shown}")
    if version < RECOMMENDED_VERSION:
        logger.warning("It is highly recommended to use a minimum Redis version of 6.2.0, current: %s", shown)
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        logger.warning('Eviction policy is %s. It should be "noeviction"', policy)
