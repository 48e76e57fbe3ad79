"""RESP in Python alone: what hiredis does for a connection, byte for byte the same, where that is not installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.exceptions import InvalidResponse

_END_OF_LINE: Final = b"\r\n"
_LENGTH_OF_END: Final = len(_END_OF_LINE)
_NOTHING: Final = b"-1"
_OPENED: Final = object()
"""Stands for an array that is not there whole."""

_BULK, _ARRAY, _INTEGER, _SIMPLE, _ERROR = b"$*:+-"


def pure_pack(words: Sequence[str | bytes]) -> bytes:
    """Return a command as Redis reads it. Raises UnicodeEncodeError for a text with a lone surrogate."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        encoded = word.encode() if isinstance(word, str) else word
        parts.append(b"$%d\r\n%b\r\n" % (len(encoded), encoded))
    return b"".join(parts)


class PureReader:
    """Makes replies (RESP2) of the bytes that come from Redis: bytes, int, None, list, and errors as values.

    What has been read of an array stays read while the rest is on its way, and a long text is put together once it is
    there, so that a large reply costs no more for coming in many pieces.
    """

    def __init__(self, error_of_text: Callable[[str], Exception]) -> None:
        self._error_of_text = error_of_text
        self._received: list[bytes] = []
        self._missing = 0
        self._unread = b""
        self._at = 0
        self._open: list[tuple[list[Any], int]] = []
        """Arrays that are being read, the outermost first: their elements so far, and how many there will be."""

    def feed(self, data: bytes) -> None:
        """Take what was received."""
        self._received.append(data)
        self._missing -= len(data)

    def gets(self) -> Any:
        """Return the next reply, False as long as it is not there whole. Raises InvalidResponse where it is none."""
        if self._missing > 0:
            return False
        if self._received:
            self._unread, self._at = b"".join([self._unread[self._at :], *self._received]), 0
            self._received.clear()
        unread = self._unread
        while (end := unread.find(_END_OF_LINE, self._at)) >= 0:
            kind, line = unread[self._at], unread[self._at + 1 : end]
            behind = end + _LENGTH_OF_END
            if kind == _BULK and line != _NOTHING:
                begin, end = behind, behind + _number(line)
                behind = end + _LENGTH_OF_END
                if len(unread) < behind:
                    self._missing = behind - len(unread)
                    return False
                value: Any = unread[begin:end]
            else:
                value = self._short(kind, line)
            self._at = behind
            if value is not _OPENED and (value := self._closed(value)) is not _OPENED:
                return value
        return False

    def _short(self, kind: int, line: bytes) -> Any:
        """Return the value that is one line, or open the array of which it is the head."""
        if kind == _INTEGER:
            return _number(line)
        if kind == _SIMPLE:
            return line
        if kind == _ERROR:
            return self._error_of_text(line.decode("utf-8", "replace"))
        if kind == _ARRAY and (count := _number(line)) > 0:
            self._open.append(([], count))
            return _OPENED
        if kind == _ARRAY and line != _NOTHING:
            return []
        if kind in (_ARRAY, _BULK):
            return None
        raise InvalidResponse(f"Protocol error, got {chr(kind)!r} as reply type byte")

    def _closed(self, value: Any) -> Any:
        """Put a value into the array that it belongs to; returns the reply that is whole with it, or _OPENED."""
        while self._open:
            elements, count = self._open[-1]
            elements.append(value)
            if len(elements) < count:
                return _OPENED
            value = elements
            self._open.pop()
        return value


def _number(line: bytes) -> int:
    try:
        return int(line)
    except ValueError:
        raise InvalidResponse(f"Protocol error, {line[:40]!r} is no number") from None
