"""The commands of one user, read from MONITOR: those that it sends, and those that its scripts call.

MONITOR shows the address of a connection and not its user. The connections of the client are those that log in: on the
private Redis of a run, only the client under test does so. A line of a script (`[0 lua]`) follows its call.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from conformance.observe.tap.commands import keys_of
from conformance.servers.setting import RedisUrl, split_node

ALWAYS_ALLOWED = frozenset({"auth", "hello", "quit", "reset"})
"""Commands that Redis lets every user send, even before the login."""

CONTAINERS = frozenset({"acl", "client", "cluster", "command", "config", "function", "memory", "object"}) | frozenset(
    {"latency", "module", "pubsub", "script", "slowlog", "xgroup", "xinfo"}
)
"""Commands whose first word names the permission as well: `client|setname`."""

CHANNELS = frozenset({"psubscribe", "publish", "spublish", "ssubscribe", "subscribe"})

_LINE = re.compile(rb"\+(?P<at>\d+\.\d+) \[\d+ (?P<place>[^\]]*)\] ")
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_SHORT = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}
_CHUNK = 1 << 20
MOST_WORDS = 64
"""Words of a command that are read: no command of BullMQ has keys after them."""


@dataclass(frozen=True, kw_only=True)
class UsedCommand:
    """One use of a command by the client. `at_s`: Unix time. `name` as in ACL rules, such as `client|setname`."""

    at_s: float
    name: str
    keys: tuple[bytes, ...]
    channels: tuple[bytes, ...] = ()


class MonitorLines:
    """Turns lines of MONITOR into uses of the client."""

    def __init__(self) -> None:
        self._client: set[bytes] = set()
        self._last = b""

    def use(self, line: bytes) -> UsedCommand | None:
        """The use that a line is about; None if another connection sent the command, or every user may send it."""
        head = _LINE.match(line)
        if head is None:
            return None
        place = head["place"]
        words = [
            _unescaped(word[1]) for word, _ in zip(_WORD.finditer(line, head.end()), range(MOST_WORDS), strict=False)
        ]
        name = words[0].decode("latin-1").lower() if words else ""
        if place == b"lua":
            place = self._last
        else:
            self._last = place
            if name == "auth" or (name == "hello" and any(word.lower() == b"auth" for word in words)):
                self._client.add(place)
        if place not in self._client or not name or name in ALWAYS_ALLOWED:
            return None
        channels = tuple(words[1:2] if name in {"publish", "spublish"} else words[1:]) if name in CHANNELS else ()
        keys = () if channels else tuple(key for key in keys_of(name.upper(), tuple(words)) if key)
        return UsedCommand(at_s=float(head["at"]), name=permission_name(name, words), keys=keys, channels=channels)


def permission_name(name: str, words: Sequence[bytes]) -> str:
    """The name of a command in ACL rules."""
    return f"{name}|{words[1].decode('latin-1').lower()}" if name in CONTAINERS and len(words) > 1 else name


def _unescaped(word: bytes) -> bytes:
    return _ESCAPED.sub(_byte, word) if b"\\" in word else word


def _byte(found: re.Match[bytes]) -> bytes:
    inner = found[1]
    return bytes([int(inner[1:], 16)]) if len(inner) == 3 else _SHORT.get(inner, inner)


@contextmanager
def monitored(address: RedisUrl, note: Callable[[UsedCommand], None]) -> Iterator[None]:
    """Call `note` with every use of the client during the block, in another thread. Raises OSError."""
    lines, host_port = MonitorLines(), split_node(address.nodes[0])
    with socket.create_connection(host_port) as connection:
        connection.sendall(b"MONITOR\r\n")
        ended = threading.Event()
        thread = threading.Thread(target=_read, args=(connection, lines, note, ended), name="monitor", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            # Lines that are still on their way are read before the socket ends.
            thread.join()


def _read(
    connection: socket.socket, lines: MonitorLines, note: Callable[[UsedCommand], None], ended: threading.Event
) -> None:
    connection.settimeout(0.2)
    rest = b""
    while True:
        try:
            data = connection.recv(_CHUNK)
        except TimeoutError:
            if ended.is_set():
                return
            continue
        if not data:
            return
        *whole, rest = (rest + data).split(b"\r\n")
        for line in whole:
            use = lines.use(line)
            if use is not None:
                note(use)


def now_s() -> float:
    """Unix time in s: the clock of MONITOR on this machine."""
    return time.time()
