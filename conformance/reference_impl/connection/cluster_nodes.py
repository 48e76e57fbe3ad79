"""Connection to a Redis cluster, through redis-py's cluster client."""

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
"""redis-py converts the replies of these commands; the client needs them as Redis sent them."""


_BLOCKS: Final = "BZPOPMIN"
"""A blocking command may pop an element. Cancelling the wait must not lose it, which redis-py cannot guarantee."""

_LOST_ON_UVLOOP: Final = "the handler is closed"
"""Part of the message of the RuntimeError that uvloop raises for a write to a socket that was just lost."""


class KeysOfCommands:
    """Positions of the keys in this client's commands; replaces redis-py's parser.

    That parser requests the table of all commands at every connect, which takes longer than all other steps together.
    """

    async def initialize(self, _node: ClusterNode | None = None) -> None:
        """Do nothing: the table of commands is not needed."""

    async def get_keys(self, name: str, *arguments: bytes) -> tuple[bytes, ...]:
        """The first key, which selects the node; redis-py does not call this for EVAL and EVALSHA."""
        first = arguments.index(b"STREAMS") + 1 if name == "XREAD" else 0
        return arguments[first : first + 1]


class ClusterNodes:
    """Runs commands one after the other. Raises redis errors.

    The blocking command has a separate socket, to the node of its key.
    """

    def __init__(self, address: Address, name: str | None) -> None:
        self._address = address
        self._name = name
        self._blocking: SingleSocket | None = None
        self._blocking_node: tuple[str, int] | None = None
        self._closed = False
        # One at a time: redis-py would give each concurrent command its own socket, and they would overtake each other.
        self._turn = asyncio.Lock()
        self._client = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.nodes],
            username=address.username,
            password=address.password,
            **redis_py_arguments(address.tls),
            client_name=name,
            # A retry would send a script twice; whether it ran the first time is unknown, so the caller decides.
            retry=Retry(NoBackoff(), 0),
            # A script may run long on a busy server, and after a timeout its result would be unknown.
            socket_timeout=None,
            socket_connect_timeout=10,
            # RESP3 changes the shape of replies (maps, doubles), which the client parses as RESP2.
            protocol=2,
        )
        untyped: Any = self._client
        untyped.commands_parser = KeysOfCommands()
        callbacks = untyped.response_callbacks
        for command in _UNPARSED_COMMANDS:
            callbacks.pop(command, None)

    @property
    def is_connected(self) -> bool:
        """Whether the nodes are known. Their sockets are opened and closed as needed."""
        return bool(self._client.get_nodes())

    async def command(self, command: Command) -> Any:
        """Send one command; returns its reply."""
        name, *arguments = command
        if name == _BLOCKS:
            return await self._block(command)
        async with self._at_turn():
            return await self._client.execute_command(str(name), *map(encode_argument, arguments))

    def hang_up(self) -> bool:
        """End the blocking command without losing its reply; False if that is impossible. See `Wire`."""
        return self._blocking is not None and self._blocking.hang_up()

    async def on_all_nodes(self, name: str) -> list[Any]:
        """Send a command without arguments to every node; returns their replies."""
        async with self._at_turn():
            replies: Any = await self._client.execute_command(name, target_nodes=RedisCluster.ALL_NODES)
        return list(replies.values())

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands, one pipeline per node; a command that fails has its error as reply."""
        return await self._pipeline(commands, transaction=False)

    async def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands of one slot in one MULTI; a command that fails has its error as reply."""
        return await self._pipeline(commands, transaction=True)

    async def disconnect(self) -> None:
        """Drop the sockets; the next command opens new ones."""
        if self._blocking is not None:
            await self._blocking.disconnect()
        await self._client.aclose()

    async def close(self) -> None:
        """Drop the sockets."""
        self._closed = True
        if self._blocking is not None:
            await self._blocking.close()
        await self._client.aclose()

    @asynccontextmanager
    async def _at_turn(self) -> AsyncIterator[None]:
        """Wait for the lock. Converts uvloop's error for a socket that was just lost, which redis-py does not."""
        async with self._turn:
            try:
                yield
            except RuntimeError as error:
                if _LOST_ON_UVLOOP not in str(error):
                    raise
                raise RedisConnectionError(f"Connection lost: {error}") from error
            finally:
                if self._closed:
                    # Closed while it was looking for the nodes: redis-py connects to them nevertheless.
                    await self._client.aclose()

    async def _block(self, command: Command) -> Any:
        """Send a blocking command; refresh the list of nodes if its node is gone."""
        socket = await self._socket_for(command[1])
        try:
            return await socket.command(command)
        except (MovedError, AskError):
            # MOVED or ASK: the command did not run. A command through redis-py refreshes its table of slots.
            name, *arguments = command
            return await self._client.execute_command(str(name), *map(encode_argument, arguments))
        except HungUp:
            raise
        except RedisConnectionError:
            await self._client.aclose()
            raise

    async def _socket_for(self, key: Argument) -> SingleSocket:
        await self._client.initialize()
        encoded: Any = encode_argument(key)  # redis-py accepts bytes too, against its type hints
        node = self._client.get_node_from_key(encoded)
        assert node is not None
        place = (str(node.host), int(node.port))
        # The slot of the marker moved to another node: the old socket would only get MOVED replies.
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
            # Each command keeps its own reply: addBulk must know which of its jobs were stored.
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        return replies
