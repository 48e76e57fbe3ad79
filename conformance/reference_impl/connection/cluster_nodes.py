"""Talking to a Redis cluster, through redis-py's cluster client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.resp import Command, encode_argument

_UNPARSED_COMMANDS: Final = (
    *("INFO", "CLIENT LIST", "CLIENT SETNAME", "SET", "SCRIPT EXISTS", "SCRIPT LOAD"),
    *("HGETALL", "HEXISTS", "HMSET", "SMEMBERS", "ZRANGE", "ZSCORE", "BZPOPMIN", "XREAD"),
)
"""redis-py would turn the replies of these into Python values of its own; the client wants them as Redis sent them."""


class ClusterNodes:
    """Commands are carried out one after the other. Raises redis errors."""

    def __init__(self, address: Address, name: str | None) -> None:
        self._turn = asyncio.Lock()
        self._client = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.nodes],
            username=address.username,
            password=address.password,
            ssl=address.tls,
            client_name=name,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=10,
            protocol=2,
        )
        callbacks: Any = self._client.response_callbacks
        for command in _UNPARSED_COMMANDS:
            callbacks.pop(command, None)

    async def command(self, command: Command) -> Any:
        """Send one command; answers its reply."""
        name, *arguments = command
        async with self._turn:
            return await self._client.execute_command(str(name), *map(encode_argument, arguments))

    async def on_all_nodes(self, name: str) -> list[Any]:
        """Send a command without arguments to every node; answers their replies."""
        async with self._turn:
            replies: Any = await self._client.execute_command(name, target_nodes=RedisCluster.ALL_NODES)
        return list(replies.values())

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands, one pipeline per node; an error stands in the place of its command's reply."""
        return await self._pipeline(commands, transaction=False)

    async def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands of one slot in one MULTI; an error stands in the place of its command's reply."""
        return await self._pipeline(commands, transaction=True)

    async def disconnect(self) -> None:
        """Drop the sockets; the next command opens new ones."""
        await self._client.aclose()

    async def close(self) -> None:
        """Drop the sockets."""
        await self._client.aclose()

    async def _pipeline(self, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        pipe: Any = self._client.pipeline(transaction=transaction)
        for name, *arguments in commands:
            pipe.execute_command(str(name), *map(encode_argument, arguments))
        async with self._turn:
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        return replies
