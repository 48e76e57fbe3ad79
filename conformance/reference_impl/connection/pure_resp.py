"""RESP in Python alone: what hiredis does for a connection, byte for byte the same, where that is not installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import InvalidResponse

_END_OF_LINE: Final = b"\r\n"
_NOT_YET: Final = object()
_OPENED: Final = object()

_BULK, _ARRAY, _INTEGER, _SIMPLE, _ERROR = b"$*:+-"


def pure_pack(words: Sequence[str | bytes]) -> bytes:
    """Return a command as Redis reads it. Raises UnicodeEncodeError for a text with a lone surrogate."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        encoded = word.encode() if isinstance(word, str) else word
        parts.append(b"$%d\r\n%b\r\n" % (len(encoded), encoded))
    return b"".join(parts)


@dataclass(slots=True)
class _OpenArray:
    """An array of which `missing` elements have not been read yet."""

    missing: int
    elements: list[Any] = field(default_factory=list)

    def take(self, element: Any) -> bool:
        """Add an element; returns whether it was the last."""
        self.elements.append(element)
        self.missing -= 1
        return not self.missing


class PureReader:
    """Makes replies (RESP2) of the bytes that come from Redis: bytes, int, None, list, and errors as values.

    What has been read of an array stays read while the rest is on its way, so that a large reply costs no more for
    coming in many pieces.
    """

    def __init__(self, error_of_text: Callable[[str], Exception]) -> None:
        self._error_of_text = error_of_text
        self._unread = bytearray()
        self._at = 0
        self._open: list[_OpenArray] = []

    def feed(self, data: bytes) -> None:
        """Take what was received."""
        del self._unread[: self._at]
        self._at = 0
        self._unread += data

    def gets(self) -> Any:
        """Return the next reply, False as long as it is not there whole. Raises InvalidResponse where it is none."""
        while (value := self._next_part()) is not _NOT_YET:
            if value is _OPENED:
                continue
            while self._open and self._open[-1].take(value):
                value = self._open.pop().elements
            if not self._open:
                return value
        return False

    def _next_part(self) -> Any:
        """Read a value, or the head of an array with elements, which is then open."""
        end = self._unread.find(_END_OF_LINE, self._at)
        if end < 0:
            return _NOT_YET
        kind, line = self._unread[self._at], self._unread[self._at + 1 : end]
        behind = end + len(_END_OF_LINE)
        if kind == _BULK:
            return self._bulk(self._number(line), behind)
        self._at = behind
        if kind == _ARRAY:
            return self._array(self._number(line))
        if kind == _INTEGER:
            return self._number(line)
        if kind == _SIMPLE:
            return bytes(line)
        if kind == _ERROR:
            return self._error_of_text(line.decode("utf-8", "replace"))
        raise InvalidResponse(f"Protocol error, got {chr(kind)!r} as reply type byte")

    def _bulk(self, length: int, begin: int) -> Any:
        if length < 0:
            self._at = begin
            return None
        end = begin + length
        behind = end + len(_END_OF_LINE)
        if len(self._unread) < behind:
            return _NOT_YET
        self._at = behind
        return bytes(self._unread[begin:end])

    def _array(self, count: int) -> Any:
        if count > 0:
            self._open.append(_OpenArray(count))
            return _OPENED
        return [] if count == 0 else None

    def _number(self, line: bytearray) -> int:
        try:
            return int(line)
        except ValueError:
            raise InvalidResponse(f"Protocol error, {bytes(line[:40])!r} is no number") from None
