"""Split a stream of bytes into commands or replies, however the network has cut it into pieces.

No bytes are changed or lost: the raw bytes of all frames plus `unread` are the input. After a `violation` no more
frames are split off: all bytes from the invalid frame on stay in `unread`.
"""

from __future__ import annotations

from typing import NamedTuple

from conformance.observe.tap.resp import ProtocolViolation, members

MAX_BULK_BYTES = 512 * 1024 * 1024
"""Redis's own limit (`proto-max-bulk-len`)."""
MAX_LINE_BYTES = 64 * 1024
"""Redis's own limit for lines of commands."""
MAX_ARGUMENTS = 2**31 - 1

MAX_DEPTH = 200
"""Deeper than any reply of Redis or its scripts."""

_STAR, _DOLLAR = ord("*"), ord("$")
_BLANKS = b" \t\r\n\v\f\0"
_ESCAPES = {ord("n"): b"\n", ord("r"): b"\r", ord("t"): b"\t", ord("b"): b"\b", ord("a"): b"\a"}
_HEX = b"0123456789abcdefABCDEF"
_DOUBLE, _SINGLE, _BACKSLASH = ord('"'), ord("'"), ord("\\")

_STREAM = -1
_CHUNKS = -2
_IN_LINE = frozenset(b"+-:_#,(")
_IN_BULK = frozenset(b"$=!")
_IN_AGGREGATE = frozenset(b"*~>%|")


class CommandFrame(NamedTuple):
    """The bytes of a command and its words. Empty lines and arrays have no words, and Redis ignores them."""

    raw: bytes
    args: tuple[bytes, ...]


class FrameSplitter:
    """The base of both parsers: the unread bytes. `violation`: why no more frames come; None while there is none."""

    def __init__(self) -> None:
        self.violation: ProtocolViolation | None = None
        self._buffer = bytearray()
        self._position = 0
        self._needed = 0

    @property
    def unread(self) -> bytes:
        """The bytes of an incomplete frame, or all bytes since a violation."""
        return bytes(self._buffer)

    def _pieces(self, data: bytes) -> bytes | bytearray:
        """The bytes to parse: `data` alone if nothing was left over; empty while a known frame is still incomplete."""
        # The common case: whole commands arrive in one piece and are parsed without a copy.
        if self.violation is None and not self._buffer:
            return data
        self._buffer += data
        # A large bulk arrives in many pieces: parsing again for each one would take quadratic time.
        return self._buffer if self.violation is None and len(self._buffer) >= self._needed else b""

    def _keep(self, data: bytes | bytearray, start: int, position: int) -> None:
        """Keep what belongs to an unfinished frame, and where to go on in it."""
        if data is self._buffer:
            # Only once per feed: deleting per frame would move the rest of the buffer each time.
            del self._buffer[:start]
        elif start < len(data):
            self._buffer += memoryview(data)[start:]
        self._position = position - start
        self._needed = max(self._needed - start, 0)


class CommandParser(FrameSplitter):
    """Bytes from a client in, commands out: arrays of bulk strings, and inline commands."""

    def __init__(self) -> None:
        super().__init__()
        self._args: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> list[CommandFrame]:
        """The commands that `data` completes. Stops where Redis would close the connection: see `violation`."""
        pieces = self._pieces(data)
        return self._scan(pieces) if pieces else []

    def _scan(self, data: bytes | bytearray) -> list[CommandFrame]:
        """Read on where the last piece ended, and keep the rest."""
        commands: list[CommandFrame] = []
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
                        commands.append(CommandFrame(bytes(data[start:position]), words))
                        start = position
                        continue
                if not self._arguments(data, position):
                    position = self._position
                    break
                position = self._position
                commands.append(CommandFrame(bytes(data[start:position]), tuple(self._args)))
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
            position = body + size + 2  # Redis does not check these two bytes either
            if position > end:
                self._needed = position
                return False
            self._args.append(bytes(data[body : body + size]))
            self._missing -= 1
            self._position = position
        return True

    @staticmethod
    def _header(data: bytes | bytearray, position: int, limit: int) -> tuple[int, int] | None:
        """The end of the line at `position`, and the number in it; numbers below zero in arrays count as zero."""
        line = data.find(b"\r", position + 1)
        # The "\n" may be in the next piece.
        if line < 0 or line + 1 >= len(data):
            _refuse_long_line(len(data) - position)
            return None
        number = number_in(data[position + 1 : line])
        if number > limit:
            # Redis closes the connection at this point, so the tap must not wait for that many bytes.
            raise ProtocolViolation(f"a length of {number} is too much")
        return line + 2, max(number, 0) if data[position] == _STAR else number


def number_in(text: bytes | bytearray) -> int:
    """A length. Raises ProtocolViolation for anything else. Python's int() would also take blanks and underscores."""
    if not text.isdigit() and not (text.startswith((b"-", b"+")) and text[1:].isdigit()):
        raise ProtocolViolation(f"{bytes(text[:30])!r} is not a length")
    return int(text)


def _refuse_long_line(size: int) -> None:
    if size > MAX_LINE_BYTES:
        raise ProtocolViolation(f"a line of more than {MAX_LINE_BYTES} bytes")


def split_inline(line: bytes) -> tuple[bytes, ...]:
    """The words of an inline command, a line as people type it into telnet (Redis `sdssplitargs`).

    Raises ProtocolViolation for quotes that are not closed, as Redis does.
    """
    if _DOUBLE not in line and _SINGLE not in line:
        return tuple(line.replace(b"\0", b" ").split())
    words: list[bytes] = []
    position = _skip_blanks(line, 0)
    while position < len(line):
        word, position = _word(line, position)
        words.append(word)
        position = _skip_blanks(line, position)
    return tuple(words)


def _skip_blanks(line: bytes, position: int) -> int:
    while position < len(line) and line[position] in _BLANKS:
        position += 1
    return position


def _word(line: bytes, position: int) -> tuple[bytes, int]:
    word = bytearray()
    while position < len(line) and line[position] not in _BLANKS:
        if line[position] in {_DOUBLE, _SINGLE}:
            position = _quoted(line, position, word)
            if position < len(line) and line[position] not in _BLANKS:
                raise ProtocolViolation("a quote that ends inside a word")
            return bytes(word), position
        word.append(line[position])
        position += 1
    return bytes(word), position


def _quoted(line: bytes, start: int, word: bytearray) -> int:
    """Append what is between the quotes; where the line goes on behind them."""
    quote, position = line[start], start + 1
    while position < len(line):
        if line[position] == quote:
            return position + 1
        if line[position] == _BACKSLASH and position + 1 < len(line):
            position = _escaped(line, position, quote, word)
        else:
            word.append(line[position])
            position += 1
    raise ProtocolViolation("a quote that is not closed")


def _escaped(line: bytes, position: int, quote: int, word: bytearray) -> int:
    following = line[position + 1]
    if quote == _SINGLE:
        # Between single quotes only the quote itself can be escaped.
        word.append(_SINGLE if following == _SINGLE else _BACKSLASH)
        return position + (2 if following == _SINGLE else 1)
    digits = line[position + 2 : position + 4]
    if following == ord("x") and len(digits) == 2 and all(digit in _HEX for digit in digits):
        word.append(int(digits, 16))
        return position + 4
    word += _ESCAPES.get(following, bytes((following,)))
    return position + 2


class ReplyParser(FrameSplitter):
    """Bytes from Redis in, the raw bytes of complete replies out, RESP2 and RESP3 alike. `resp.decode` reads them."""

    def __init__(self) -> None:
        super().__init__()
        self._open: list[int] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The replies that `data` completes. Stops at anything that is not RESP: see `violation`."""
        pieces = self._pieces(data)
        return self._scan(pieces) if pieces else []

    def _scan(self, data: bytes | bytearray) -> list[bytes]:
        frames: list[bytes] = []
        start, position = 0, self._position
        self._needed = 0
        try:
            while True:
                after = self._value(data, position)
                if after is None:
                    break
                position = after
                if not self._open:
                    frames.append(bytes(memoryview(data)[start:position]))
                    start = position
        except ProtocolViolation as violation:
            self.violation = violation
        self._keep(data, start, position)
        return frames

    def _value(self, data: bytes | bytearray, position: int) -> int | None:
        """The end of the header, line or bulk at `position`; None if that is not there yet."""
        line = data.find(b"\r\n", position)
        if line < 0:
            return None
        marker, body = data[position], line + 2
        if marker in _IN_BULK:
            if data[position + 1 : line] == b"?":
                self._push(_CHUNKS)
                return body
            body = self._behind_bulk(data, body, number_in(data[position + 1 : line]))
            if body < 0:
                return None
        elif marker in _IN_AGGREGATE:
            if self._opens(marker, data[position + 1 : line]):
                return body
        elif marker == ord(";"):
            return self._chunk(data, body, number_in(data[position + 1 : line]))
        elif marker == ord("."):
            self._end_of(_STREAM)
        elif marker not in _IN_LINE:
            raise ProtocolViolation(f"unknown marker {chr(marker)!r} in a reply")
        self._one_done()
        return body

    def _behind_bulk(self, data: bytes | bytearray, body: int, size: int) -> int:
        """The end of a bulk of this size; -1 if it is incomplete."""
        if size < 0:
            return body
        if size > MAX_BULK_BYTES:
            raise ProtocolViolation(f"a bulk of {size} bytes")
        end = body + size + 2
        if end > len(data):
            self._needed = end
            return -1
        if data[end - 2 : end] != b"\r\n":
            raise ProtocolViolation(f"a bulk of {size} bytes does not end where it should")
        return end

    def _opens(self, marker: int, header: bytes | bytearray) -> bool:
        """Start an aggregate; False if it has no members."""
        if header == b"?":
            self._push(_STREAM)
            return True
        count = members(bytes((marker,)), number_in(header))
        if count > 0:
            self._push(count)
        return count > 0

    def _chunk(self, data: bytes | bytearray, body: int, size: int) -> int | None:
        if not self._open or self._open[-1] != _CHUNKS:
            raise ProtocolViolation("a piece of a streamed string outside of one")
        if size == 0:
            self._end_of(_CHUNKS)
            self._one_done()
            return body
        end = self._behind_bulk(data, body, size)
        return None if end < 0 else end

    def _push(self, count: int) -> None:
        # Bounds the memory that invalid bytes can claim.
        if len(self._open) >= MAX_DEPTH:
            raise ProtocolViolation(f"nested deeper than {MAX_DEPTH}")
        self._open.append(count)

    def _end_of(self, what: int) -> None:
        if not self._open or self._open.pop() != what:
            raise ProtocolViolation("the end of an aggregate that was not started")

    def _one_done(self) -> None:
        """A value is complete; perhaps also the aggregate that it is the last member of, and so on."""
        while self._open and self._open[-1] > 0:
            self._open[-1] -= 1
            if self._open[-1]:
                return
            self._open.pop()
