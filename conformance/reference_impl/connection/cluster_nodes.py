"""Talking to a Redis cluster, through redis-py's cluster client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AskError, MovedError
from redis.exceptions import ConnectionError as RedisConnectionError

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.resp import Argument, Command, encode_argument
from conformance.reference_impl.connection.single_socket import SingleSocket
from conformance.reference_impl.connection.tls import redis_py_arguments
from conformance.reference_impl.connection.wire import HungUp

_UNPARSED_COMMANDS: Final = (
    *("INFO", "CLIENT LIST", "CLIENT SETNAME", "SET", "SCRIPT EXISTS", "SCRIPT LOAD"),
    *("HGETALL", "HEXISTS", "HMSET", "SMEMBERS", "ZRANGE", "ZSCORE", "BZPOPMIN", "XREAD"),
)
"""redis-py would turn the replies of these into Python values of its own; the client wants them as Redis sent them."""


_BLOCKS: Final = "BZPOPMIN"
"""What is taken by a command that blocks must not be lost when the wait is given up, which redis-py cannot promise."""

_LOST_ON_UVLOOP: Final = "the handler is closed"
"""Of the message of the RuntimeError that a write to a socket which has just been lost raises on uvloop."""


class KeysOfCommands:
    """Where the keys of this client's commands stand; in the place of redis-py's parser.

    That one asks Redis for the table of all commands whenever it connects, which takes longer than everything else.
    """

    async def initialize(self, _node: ClusterNode | None = None) -> None:
        """Nothing has to be asked."""

    async def get_keys(self, name: str, *arguments: bytes) -> tuple[bytes, ...]:
        """The first key, which chooses the node; EVAL and EVALSHA are not asked about."""
        first = arguments.index(b"STREAMS") + 1 if name == "XREAD" else 0
        return arguments[first : first + 1]


class ClusterNodes:
    """Commands are carried out one after the other. Raises redis errors.

    The command that blocks has a socket of its own, to the node of its key.
    """

    def __init__(self, address: Address, name: str | None) -> None:
        self._address = address
        self._name = name
        self._blocking: SingleSocket | None = None
        self._blocking_node: tuple[str, int] | None = None
        # One at a time: redis-py would give concurrent commands a socket each, and they would overtake one another.
        self._turn = asyncio.Lock()
        self._client = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.nodes],
            username=address.username,
            password=address.password,
            **redis_py_arguments(address.tls),
            client_name=name,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=10,
            protocol=2,
        )
        untyped: Any = self._client
        untyped.commands_parser = KeysOfCommands()
        callbacks = untyped.response_callbacks
        for command in _UNPARSED_COMMANDS:
            callbacks.pop(command, None)

    @property
    def is_connected(self) -> bool:
        """Whether the nodes are known; their sockets come and go."""
        return bool(self._client.get_nodes())

    async def command(self, command: Command) -> Any:
        """Send one command; returns its reply."""
        name, *arguments = command
        if name == _BLOCKS:
            return await self._block(command)
        async with self._at_turn():
            return await self._client.execute_command(str(name), *map(encode_argument, arguments))

    def hang_up(self) -> bool:
        """End the command that blocks without losing its reply; False where that is impossible. See `Wire`."""
        return self._blocking is not None and self._blocking.hang_up()

    async def on_all_nodes(self, name: str) -> list[Any]:
        """Send a command without arguments to every node; returns their replies."""
        async with self._at_turn():
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
        if self._blocking is not None:
            await self._blocking.disconnect()
        await self._client.aclose()

    async def close(self) -> None:
        """Drop the sockets."""
        if self._blocking is not None:
            await self._blocking.close()
        await self._client.aclose()

    @asynccontextmanager
    async def _at_turn(self) -> AsyncIterator[None]:
        """Wait for the turn. redis-py does not know what uvloop raises for a socket that was just lost."""
        async with self._turn:
            try:
                yield
            except RuntimeError as error:
                if _LOST_ON_UVLOOP not in str(error):
                    raise
                raise RedisConnectionError(f"Connection lost: {error}") from error

    async def _block(self, command: Command) -> Any:
        """Send a command that blocks; the cluster is asked anew for its nodes when this one is gone."""
        socket = await self._socket_for(command[1])
        try:
            return await socket.command(command)
        except (MovedError, AskError):
            # It did not happen. redis-py follows, and learns where the slot is now.
            name, *arguments = command
            return await self._client.execute_command(str(name), *map(encode_argument, arguments))
        except HungUp:
            raise
        except RedisConnectionError:
            await self._client.aclose()
            raise

    async def _socket_for(self, key: Argument) -> SingleSocket:
        await self._client.initialize()
        encoded: Any = encode_argument(key)  # redis-py takes bytes too, whatever its types say
        node = self._client.get_node_from_key(encoded)
        assert node is not None
        place = (str(node.host), int(node.port))
        if self._blocking is None or place != self._blocking_node:
            if self._blocking is not None:
                await self._blocking.close()
            there = replace(self._address, nodes=(place,), mode="standalone")
            self._blocking, self._blocking_node = SingleSocket(there, self._name), place
        return self._blocking

    async def _pipeline(self, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        pipe: Any = self._client.pipeline(transaction=transaction)
        for name, *arguments in commands:
            pipe.execute_command(str(name), *map(encode_argument, arguments))
        async with self._at_turn():
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        return replies
