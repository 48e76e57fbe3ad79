"""The RDB file of a running server, as it hands it to a new replica.

As `redis-cli --rdb` does, which need not be installed for it: the address, user and TLS are those of every other
connection. The server forks once, and is held up by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from redis.exceptions import RedisError

from conformance.problems import EnvironmentProblem
from conformance.servers.connection import connect, explained
from conformance.servers.setting import RedisUrl
from reports.snapshot.plan import nodes_of
from reports.snapshot.replies import NodeSocket, to_resp

_MARK_BYTES = 40
_LONGEST_HEAD = 512


def fetch_rdb(address: RedisUrl, folder: Path) -> list[Path]:
    """The RDB file of each node, below the folder. Raises EnvironmentProblem."""
    with explained(address), connect(address) as client:
        nodes = nodes_of(client, address)
    return [_fetch(address, node, folder / f"{number}.rdb") for number, node in enumerate(nodes)]


def _fetch(address: RedisUrl, node: str, path: Path) -> Path:
    try:
        with explained(address, node), NodeSocket(address, node) as server, path.open("wb") as file:
            for received in _sent(server):
                file.write(received)
    except OSError as error:
        raise EnvironmentProblem(
            f"the RDB file of {node} was not received: {error}", hint="is the disk full (TMPDIR says which)?"
        ) from error
    return path


def _sent(server: NodeSocket) -> Iterator[bytes]:
    """The bytes of the file, without what the server writes around them. Raises redis errors and OSError."""
    # Older servers know only the first; each is an offer that may be refused.
    server.exchange([(b"REPLCONF", b"capa", b"eof"), (b"REPLCONF", b"rdb-only", b"1")])
    server.send(to_resp((b"SYNC",)))
    head, rest = _head(server)
    if not head.startswith(b"$"):
        raise RedisError(f"SYNC was refused: {head.decode('utf-8', 'replace').lstrip('-')}")
    if head.startswith(b"$EOF:"):
        yield from _until_mark(server, rest, head.removeprefix(b"$EOF:"))
    else:
        yield from _counted_bytes(server, rest, int(head[1:]))


def _head(server: NodeSocket) -> tuple[bytes, bytes]:
    """The first line and what came with it. Empty lines come as long as the server works on the file."""
    received = b""
    while b"\n" not in received and len(received) < _LONGEST_HEAD:
        received = (received + server.receive()).lstrip(b"\r\n")
    head, _, rest = received.partition(b"\r\n")
    return head, rest


def _until_mark(server: NodeSocket, received: bytes, mark: bytes) -> Iterator[bytes]:
    """The bytes before the mark; the server sends nothing after it until it gets a reply."""
    while not received.endswith(mark):
        yield received[:-_MARK_BYTES]
        received = received[-_MARK_BYTES:] + server.receive()
    yield received[:-_MARK_BYTES]


def _counted_bytes(server: NodeSocket, received: bytes, count: int) -> Iterator[bytes]:
    while len(received) < count:
        yield received
        count -= len(received)
        received = server.receive()
    yield received[:count]
