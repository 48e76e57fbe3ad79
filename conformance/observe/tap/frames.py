"""Cut a stream of bytes into commands, however the network has cut it into pieces.

What goes in comes out byte for byte: the raw bytes of the frames, one after the other, and what is still `unread`,
are what was fed. After a `violation` nothing is cut any more: everything from the faulty frame on stays in `unread`.
"""

from __future__ import annotations

from typing import NamedTuple

from conformance.observe.tap.inline import split_inline
from conformance.observe.tap.resp import ProtocolViolation

MAX_BULK_BYTES = 512 * 1024 * 1024
"""Redis's own limit (`proto-max-bulk-len`)."""
MAX_LINE_BYTES = 64 * 1024
"""Redis's own limit for lines of commands."""
MAX_ARGUMENTS = 2**31 - 1

_STAR, _DOLLAR = ord("*"), ord("$")


class Command(NamedTuple):
    """A command as it was sent, and its words. Empty lines and empty arrays have none, and Redis ignores them."""

    raw: bytes
    args: tuple[bytes, ...]


class Cutter:
    """The bytes that are not handed out yet. `violation`: why no more frames will come; None while all is well."""

    def __init__(self) -> None:
        self.violation: ProtocolViolation | None = None
        self._buffer = bytearray()
        self._position = 0
        self._needed = 0

    @property
    def unread(self) -> bytes:
        """Bytes of a frame that is not complete, or all since a violation."""
        return bytes(self._buffer)

    def _pieces(self, data: bytes) -> bytes | bytearray:
        """What there is to look at: `data` alone where nothing was left over; empty while it cannot be enough."""
        if self.violation is None and not self._buffer:
            return data
        self._buffer += data
        return self._buffer if self.violation is None and len(self._buffer) >= self._needed else b""

    def _keep(self, data: bytes | bytearray, start: int, position: int) -> None:
        """Keep what belongs to an unfinished frame, and where to go on in it."""
        if data is self._buffer:
            del self._buffer[:start]
        elif start < len(data):
            self._buffer += memoryview(data)[start:]
        self._position = position - start
        self._needed = max(self._needed - start, 0)


class CommandParser(Cutter):
    """Bytes from a client in, commands out: arrays of bulk strings, and inline commands."""

    def __init__(self) -> None:
        super().__init__()
        self._args: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> list[Command]:
        """The commands that `data` completes. Stops where Redis would close the connection: see `violation`."""
        pieces = self._pieces(data)
        return self._scan(pieces) if pieces else []

    def _scan(self, data: bytes | bytearray) -> list[Command]:
        """Read on where the last piece ended, and keep the rest."""
        commands: list[Command] = []
        start, position, end = 0, self._position, len(data)
        self._needed = 0
        try:
            while position < end:
                if not self._missing:
                    if data[position] == _STAR:
                        after = self._header(data, position, MAX_ARGUMENTS)
                        if after is None:
                            break
                        position, self._missing = after
                    else:
                        line = data.find(b"\n", position)
                        if line < 0:
                            _refuse_long_line(end - position)
                            break
                        words = split_inline(bytes(data[position:line]).removesuffix(b"\r"))
                        position = line + 1
                        commands.append(Command(bytes(data[start:position]), words))
                        start = position
                        continue
                if not self._arguments(data, position):
                    position = self._position
                    break
                position = self._position
                commands.append(Command(bytes(data[start:position]), tuple(self._args)))
                self._args.clear()
                start = position
        except ProtocolViolation as violation:
            self.violation = violation
        self._keep(data, start, position)
        return commands

    def _arguments(self, data: bytes | bytearray, position: int) -> bool:
        """Read the missing words; whether all are there. Leaves the position behind the last one that is."""
        end = len(data)
        self._position = position
        while self._missing:
            if position >= end:
                return False
            if data[position] != _DOLLAR:
                raise ProtocolViolation(f"expected '$', got {chr(data[position])!r}")
            after = self._header(data, position, MAX_BULK_BYTES)
            if after is None:
                return False
            body, size = after
            if size < 0:
                raise ProtocolViolation("invalid bulk length")
            position = body + size + 2  # Redis does not look at these two bytes either
            if position > end:
                self._needed = position
                return False
            self._args.append(bytes(data[body : body + size]))
            self._missing -= 1
            self._position = position
        return True

    @staticmethod
    def _header(data: bytes | bytearray, position: int, limit: int) -> tuple[int, int] | None:
        """Where the line at `position` ends, and the number in it; numbers below zero in arrays count as zero."""
        line = data.find(b"\r", position + 1)
        if line < 0 or line + 1 >= len(data):
            _refuse_long_line(len(data) - position)
            return None
        number = number_in(data[position + 1 : line])
        if number > limit:
            raise ProtocolViolation(f"a length of {number} is too much")
        return line + 2, max(number, 0) if data[position] == _STAR else number


def number_in(text: bytes | bytearray) -> int:
    """A length. Raises ProtocolViolation for anything else. Python's int() would also take blanks and underscores."""
    if not (text[1:] if text.startswith((b"-", b"+")) else text).isdigit():
        raise ProtocolViolation(f"{bytes(text[:30])!r} is not a length")
    return int(text)


def _refuse_long_line(size: int) -> None:
    if size > MAX_LINE_BYTES:
        raise ProtocolViolation(f"a line of more than {MAX_LINE_BYTES} bytes")
