"""Replies of one Redis node, hundreds of thousands a second: a socket, and many replies of HGETALL as Arrow columns."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import hiredis
import numpy as np
import pyarrow as pa
from redis.exceptions import ConnectionError as RedisConnectionError

from conformance.servers.connection import connect_node
from conformance.servers.setting import RedisUrl
from reports.snapshot.rows import texts

_RECEIVE_BYTES = 1 << 20
_WAITING = object()


class NodeSocket:
    """A connection to one node, for reading hundreds of thousands of replies per second.

    redis-py connects, logs in and chooses the database; after that commands are written many at a time. Their replies
    are handed out as lists of bytes, which hiredis makes (`exchange`), or as they come (`ask`, `replies`). A reply is
    bytes, int, list, None, or `hiredis.ReplyError`.
    """

    def __init__(self, address: RedisUrl, node: str) -> None:
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
        """Send commands in one write and return their replies, errors included. Raises redis errors and OSError."""
        return self.exchange_packed(b"".join(map(to_resp, commands)), len(commands))

    def exchange_packed(self, written: bytes, count: int) -> list[Any]:
        """The same for commands that are already in the form of RESP."""
        self._socket.sendall(written)
        return [self._reply() for _ in range(count)]

    def ask(self, written: bytes) -> None:
        """Send commands in the form of RESP, and one more, whose reply is known: where that ends, `replies` end."""
        self._socket.sendall(written + self._last_command)

    def replies(self) -> memoryview:
        """The replies to what was asked, as they come; valid until the next call. Raises redis errors and OSError."""
        filled = 0
        while not self._received.endswith(self._last_reply, 0, filled):
            if filled == len(self._received):
                self._received = self._received + bytes(filled)
            with memoryview(self._received) as place:
                received = self._socket.recv_into(place[filled:])
            if not received:
                raise RedisConnectionError("Redis closed the connection")
            filled += received
        return memoryview(self._received)[: filled - len(self._last_reply)]

    def _reply(self) -> Any:
        reader = self._reader
        reply = reader.gets()
        while reply is _WAITING:
            received = self._socket.recv(_RECEIVE_BYTES)
            if not received:
                raise RedisConnectionError("Redis closed the connection")
            reader.feed(received)
            reply = reader.gets()
        return reply


def to_resp(command: Sequence[bytes]) -> bytes:
    """A command in the form of RESP."""
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in command)


Hashes: TypeAlias = "tuple[Any, pa.Array, pa.Array]"
"""How many fields each hash has (an array; -1: the key is no hash), and the names and values of all of them."""

_ARRAY, _BULK, _CR, _LF, _ZERO = b"*$\r\n0"
_END_BYTES = 2
_DIGITS = 10


def hashes_of(replies: memoryview, count: int) -> Hashes:
    """Return what so many replies of HGETALL hold; an error in the place of one stands for a key that is no hash.

    The bytes of the socket become Arrow without a Python object per value: the replies are cut at every end of a line,
    and the cut is right if every value is as long as its header says: the first header is one, a value of the length
    that was announced is one, and so is then the header after it. A value with an end of a line inside breaks this, and
    then hiredis reads all of them, slowly.
    """
    cut = _cut(np.frombuffer(replies, np.uint8), count)
    return _read_slowly(replies, count) if cut is None else _taken(replies, *cut)


def _cut(data: Any, count: int) -> tuple[Any, Any, Any, Any] | None:
    """Where the lines begin and end, which of them are names and values, and the fields of each hash.

    None where the lines cannot be what they seem to be.
    """
    ends = np.flatnonzero(data == _CR)
    ends = ends[data[np.minimum(ends + 1, len(data) - 1)] == _LF]
    begins = np.concatenate(([0], ends[:-1] + _END_BYTES))
    if not len(ends) or ends[-1] + _END_BYTES != len(data):
        return None
    heads, elements = _heads(data, begins, ends, count)
    inner = np.ones(len(begins), bool)
    inner[heads] = False
    rest = np.flatnonzero(inner)
    headers, values = rest[0::2], rest[1::2]
    if len(heads) != count or 2 * elements.sum() != len(rest) or not _fit(data, begins, ends, headers, values):
        return None
    return begins, ends, values, elements // 2


def _heads(data: Any, begins: Any, ends: Any, count: int) -> tuple[Any, Any]:
    """The lines that begin a reply, and how many elements it has; fewer than `count` where another line is there."""
    arrays = np.flatnonzero(data[begins] == _ARRAY)
    elements = _numbers(data, begins, ends, arrays)
    if len(arrays) == count and np.array_equal(arrays[1:], arrays[:-1] + 1 + 2 * elements[:-1]):
        return arrays, elements
    known = dict(zip(arrays.tolist(), elements.tolist(), strict=True))  # some values look like the head of a reply
    heads: list[int] = []
    line = 0
    while len(heads) < count and known.get(line, -1) >= 0:
        heads.append(line)
        line += 1 + 2 * known[line]
    return np.array(heads, np.int64), np.array([known[head] for head in heads], np.int64)


def _fit(data: Any, begins: Any, ends: Any, headers: Any, values: Any) -> bool:
    """Whether every value is as long as the header before it says."""
    announced = _numbers(data, begins, ends, headers)
    return bool(np.all(data[begins[headers]] == _BULK) and np.all(announced == (ends - begins)[values]))


def _numbers(data: Any, begins: Any, ends: Any, lines: Any) -> Any:
    """The decimal number after the first byte of these lines; -1 where it is too long for one."""
    place, end = begins[lines] + 1, ends[lines]
    found = np.where(end - place > _DIGITS, -1, 0)
    for _ in range(_DIGITS):
        left = (place < end) & (found >= 0)
        if not left.any():
            break
        found = np.where(left, found * 10 + data[np.minimum(place, len(data) - 1)] - _ZERO, found)
        place = place + 1
    return found


def _taken(replies: memoryview, begins: Any, ends: Any, values: Any, sizes: Any) -> Hashes:
    """Every second element of this array is a line, and those between are the ends of lines."""
    offsets = np.empty(2 * len(begins) + 1, np.int32)
    offsets[0:-1:2], offsets[1::2], offsets[-1] = begins, ends, len(replies)
    lines = pa.StringArray.from_buffers(2 * len(begins), pa.py_buffer(offsets), pa.py_buffer(replies))
    names, held = (lines.take(pa.array(2 * chosen)) for chosen in (values[0::2], values[1::2]))
    return sizes, names, held


def _read_slowly(replies: memoryview, count: int) -> Hashes:
    reader = hiredis.Reader()
    reader.feed(bytes(replies))
    found = [reader.gets() for _ in range(count)]
    flat = [value for reply in found if isinstance(reply, list) for value in reply]
    sizes = [len(reply) // 2 if isinstance(reply, list) else -1 for reply in found]
    return np.array(sizes, np.int64), texts(flat[0::2]), texts(flat[1::2])
