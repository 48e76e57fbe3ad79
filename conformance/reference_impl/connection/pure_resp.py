"""RESP in Python alone: what hiredis does for a connection, byte for byte the same, where that is not installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from redis.exceptions import InvalidResponse

_END_OF_LINE: Final = b"\r\n"
_LENGTH_OF_END: Final = len(_END_OF_LINE)
_NOTHING: Final = b"-1"
_NO_TEXT: Final = b"$-1"
_OPENED: Final = object()
"""Stands for an array that is not there whole."""

_BULK, _ARRAY, _INTEGER, _SIMPLE, _ERROR = b"$", b"*", b":", b"+", b"-"
_SHORT_TEXT: Final = 64
"""Bytes: an array whose texts and lines are longer on an average is read text by text."""
_LENGTHS: Final = {b"$%d" % length: length for length in range(1024)}
"""How long the text is before which a line stands, for most texts: looking it up is faster than reading the number."""


def pure_pack(words: Sequence[str | bytes]) -> bytes:
    """Return a command as Redis reads it. Raises UnicodeEncodeError for a text with a lone surrogate."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        if isinstance(word, bytes):
            parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
        else:
            parts.append(_packed_name(word) if len(word) <= _LONGEST_NAME else _packed_text(word))
    return b"".join(parts)


def _packed_text(word: str) -> bytes:
    encoded = word.encode()
    return b"$%d\r\n%b\r\n" % (len(encoded), encoded)


_LONGEST_NAME: Final = 64
"""Characters: a longer word is data, and is not kept."""
_packed_name: Final = lru_cache(4096)(_packed_text)
"""Most words of a command are those of the one before: names of keys and fields, a token, the digest of a script."""


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
        unread, at, received = self._unread, self._at, len(self._unread)
        find, length_of = unread.find, _LENGTHS.get
        while (end := find(_END_OF_LINE, at)) >= 0:
            line = unread[at:end]
            behind = end + _LENGTH_OF_END
            length = length_of(line)
            if length is None and line.startswith(_BULK) and line != _NO_TEXT:
                length = _number(line[1:])
            value: Any
            if length is None:
                value = self._short(line[:1], line[1:])
                if value is _OPENED and (whole := _texts(unread, behind, self._open[-1][1])) is not None:
                    value, behind = whole
                    self._open.pop()
            else:
                begin, end = behind, behind + length
                behind = end + _LENGTH_OF_END
                if received < behind:
                    self._missing = behind - received
                    break
                value = unread[begin:end]
            at = behind
            if value is not _OPENED and (not self._open or (value := self._closed(value)) is not _OPENED):
                self._at = at
                return value
        self._at = at
        return False

    def _short(self, kind: bytes, line: bytes) -> Any:
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
        raise InvalidResponse(f"Protocol error, got {str(kind, 'latin-1')!r} as reply type byte")

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


def _texts(unread: bytes, begin: int, count: int) -> tuple[list[bytes], int] | None:
    """Return the elements of an array, and where it ends, if all are short texts that are there whole; else None.

    The hash of a job is such a one. All is done at once here, by what Python has in C, and the texts are those that the
    lines before them announce: a text with the end of a line in it does not fit, and is read by its length.
    """
    if not unread.startswith(_BULK, begin):
        return None
    near = unread[begin : begin + count * _SHORT_TEXT]
    lines = near.split(_END_OF_LINE, 2 * count)
    texts = lines[1:-1:2]
    if len(lines) != 2 * count + 1 or list(map(_LENGTHS.get, lines[:-1:2])) != list(map(len, texts)):
        return None
    return texts, begin + len(near) - len(lines[-1])


def _number(line: bytes) -> int:
    try:
        return int(line)
    except ValueError:
        raise InvalidResponse(f"Protocol error, {line[:40]!r} is no number") from None
