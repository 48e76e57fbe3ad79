"""A socket to one Redis node, for hundreds of thousands of replies a second."""

from __future__ import annotations

import re
import secrets
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Self

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError

from conformance.servers.connection import connect_node
from conformance.servers.setting import RedisUrl
from reports.snapshot.server_use import OWN_COMMANDS, REPLICATED_COMMANDS, GivingWay

_RECEIVE_BYTES = 1 << 20
_WAITING = object()
_CALLS = re.compile(rb"cmdstat_([^:|]+)[^:]*:calls=(\d+)")


class NodeSocket:
    """A connection to one node, for reading hundreds of thousands of replies per second.

    redis-py connects, logs in and chooses the database; after that commands are written many at a time. Their replies
    are handed out as lists of bytes, which hiredis makes (`exchange`), or as they come (`ask`, `replies`). A reply is
    bytes, int, list, None, or `hiredis.ReplyError`.

    `at_once`: how many commands are written at most before their replies are awaited, because Redis works them off
    before it serves another client; 0: all. `giving_way`: asked before each such lot.
    """

    def __init__(self, address: RedisUrl, node: str, giving_way: GivingWay | None = None, at_once: int = 0) -> None:
        self._node = node
        self._giving_way = giving_way
        self._at_once = at_once
        self._lots: deque[bytes] = deque()
        self._client = connect_node(address, node)
        pool: Any = self._client.connection_pool
        self._connection = pool.get_connection()
        self._connection.connect()
        # There is no public way to the socket of a redis-py connection that has logged in.
        self._socket: socket.socket = self._connection._sock  # noqa: SLF001
        self._reader = hiredis.Reader(notEnoughData=_WAITING)
        self._received = bytearray(_RECEIVE_BYTES)
        unlike_any_value = secrets.token_bytes(32)
        self._last_command = to_resp((b"ECHO", unlike_any_value))
        self._last_reply = b"$%d\r\n%s\r\n" % (len(unlike_any_value), unlike_any_value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.disconnect()
        self._client.close()

    def exchange(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send commands and return their replies, errors included. Raises redis errors and OSError."""
        found: list[Any] = []
        for lot in self._in_lots(list(map(to_resp, commands))):
            self._give_way()
            self._socket.sendall(b"".join(lot))
            found += [self._reply() for _ in lot]
        return found

    def send(self, written: bytes) -> None:
        """Send what is in the form of RESP; what comes back is for `receive`. Raises OSError."""
        self._socket.sendall(written)

    def receive(self) -> bytes:
        """Yield the bytes as they arrive. Raises redis errors and OSError."""
        received = self._socket.recv(_RECEIVE_BYTES)
        if not received:
            raise RedisConnectionError("Redis closed the connection")
        return received

    def ask(self, commands: Sequence[bytes]) -> None:
        """Send commands in the form of RESP; what comes back is for `replies`. Raises redis errors and OSError."""
        self._lots.extend(b"".join(lot) for lot in self._in_lots(commands))
        self._send_lot()

    def replies(self) -> memoryview:
        """The replies to what was asked, as they come; valid until the next call. Raises redis errors and OSError."""
        filled = self._received_until_marker(0)
        while self._lots:
            self._send_lot()
            filled = self._received_until_marker(filled)
        return memoryview(self._received)[:filled]

    def _in_lots(self, commands: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        size = self._at_once or max(1, len(commands))
        yield from (commands[start : start + size] for start in range(0, len(commands), size))

    def _send_lot(self) -> None:
        """Send a lot and one more command, whose reply is known: the replies to the lot end before it."""
        self._give_way()
        self._socket.sendall(self._lots.popleft() + self._last_command)

    def _give_way(self) -> None:
        if self._giving_way is not None:
            self._giving_way.before(self._node, self)

    def commands_of_others(self) -> int | None:
        """As `ReadServer.commands_of_others`. Raises redis errors and OSError."""
        self._socket.sendall(to_resp((b"INFO", b"replication")) + to_resp((b"INFO", b"commandstats")))
        replication, statistics = self._reply(), self._reply()
        if isinstance(replication, Exception) or isinstance(statistics, Exception):  # this user may not ask
            return None
        is_replica = b"role:slave" in replication
        left_out = OWN_COMMANDS | (REPLICATED_COMMANDS if is_replica else frozenset())
        return sum(int(number) for name, number in _CALLS.findall(statistics) if name.decode() not in left_out)

    def _received_until_marker(self, filled: int) -> int:
        """The end of the replies to a lot, which are received after the first `filled` bytes."""
        while not self._received.endswith(self._last_reply, 0, filled):
            if filled == len(self._received):
                self._received = self._received + bytes(filled)
            with memoryview(self._received) as place:
                received = self._socket.recv_into(place[filled:])
            if not received:
                raise RedisConnectionError("Redis closed the connection")
            filled += received
        return filled - len(self._last_reply)

    def _reply(self) -> Any:
        reader = self._reader
        reply = reader.gets()
        while reply is _WAITING:
            reader.feed(self.receive())
            reply = reader.gets()
        return reply


def to_resp(command: Sequence[bytes]) -> bytes:
    """A command in the form of RESP."""
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in command)
