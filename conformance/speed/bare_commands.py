"""The commands of one call, sent again by hand: what the call would take without the library."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import hiredis

from conformance.driver.ops.lifecycle import RedisAddress
from conformance.observe.tap.recording import CommandRecord

TIMEOUT_S = 60.0
CHUNK = 65_536


class BareConnection:
    """A plain connection to the same address as the client's: no pool, no parsing of options, no script cache."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = hiredis.Reader()

    def took_s(self, packed: bytes, replies: int) -> float:
        """Send packed commands in one write, and return the time until all replies are there (s).

        Raises ConnectionError if the server closes the connection.
        """
        started = time.perf_counter()
        self._socket.sendall(packed)
        for _ in range(replies):
            while self._reader.gets() is False:
                chunk = self._socket.recv(CHUNK)
                if not chunk:
                    raise ConnectionError("the server has closed the connection")
                self._reader.feed(chunk)
        return time.perf_counter() - started


@contextmanager
def bare_connection(address: RedisAddress) -> Iterator[BareConnection]:
    """Connect by hand, and log in if the address has a password."""
    host, _, port = address.nodes[0].rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        # Like every client: otherwise small writes would wait for each other.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bare = BareConnection(connection)
        if address.password is not None:
            login = [address.username, address.password] if address.username else [address.password]
            bare.took_s(packed([[word.encode() for word in ("AUTH", *login)]]), 1)
        if address.db:
            bare.took_s(packed([[b"SELECT", str(address.db).encode()]]), 1)
        yield bare


def packed(commands: Sequence[Sequence[bytes]]) -> bytes:
    """Commands as they cross the wire."""
    return b"".join(
        b"*%d\r\n%s" % (len(words), b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        for words in commands
    )


def words_of(commands: Sequence[CommandRecord]) -> list[tuple[bytes, ...]]:
    """The words of recorded commands. Raises ValueError if there is none, or if one was not recorded as a whole."""
    if not commands or any(command.clipped for command in commands):
        raise ValueError("the commands of the call were not recorded")
    return [command.args for command in commands]
