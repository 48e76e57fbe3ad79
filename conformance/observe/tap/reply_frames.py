"""Cut a stream of bytes into replies, however the network has cut it into pieces. RESP2 and RESP3 alike."""

from __future__ import annotations

from conformance.observe.tap.frames import MAX_BULK_BYTES, Cutter, number_in
from conformance.observe.tap.resp import ProtocolViolation, members

MAX_DEPTH = 200
"""Nested deeper than anything that Redis or one of its scripts can answer."""

_STREAM = -1
_CHUNKS = -2

_IN_LINE = frozenset(b"+-:_#,(")
_IN_BULK = frozenset(b"$=!")
_IN_AGGREGATE = frozenset(b"*~>%|")


class ReplyParser(Cutter):
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
        """Where the header, line or bulk at `position` ends; None if that is not there yet."""
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
        """Where a bulk of this size ends, -1 if it is not all there."""
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
        """Begin an aggregate; False if it has no members."""
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
        if len(self._open) >= MAX_DEPTH:
            raise ProtocolViolation(f"nested deeper than {MAX_DEPTH}")
        self._open.append(count)

    def _end_of(self, what: int) -> None:
        if not self._open or self._open.pop() != what:
            raise ProtocolViolation("the end of something that was not begun")

    def _one_done(self) -> None:
        """A value is complete; perhaps also the aggregate that it is the last member of, and so on."""
        while self._open and self._open[-1] > 0:
            self._open[-1] -= 1
            if self._open[-1]:
                return
            self._open.pop()
