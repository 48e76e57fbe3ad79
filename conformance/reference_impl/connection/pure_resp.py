"""RESP in pure Python, used if hiredis is not installed; the bytes are identical."""

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
"""Marks an array that is not complete yet."""

_BULK, _ARRAY, _INTEGER, _SIMPLE, _ERROR = b"$", b"*", b":", b"+", b"-"
_SHORT_TEXT: Final = 64
"""Bytes: an array whose elements are longer on average is read element by element."""
_LENGTHS: Final = {b"$%d" % length: length for length in range(1024)}
"""Length by header line, for short texts: a dict lookup is faster than parsing the number."""


def pure_pack(words: Sequence[str | bytes]) -> bytes:
    """Return a command in RESP. Raises UnicodeEncodeError for a text with a lone surrogate."""
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
"""Characters: a longer word is data, and is not cached."""
_packed_name: Final = lru_cache(4096)(_packed_text)
"""Cache of encoded words: most words of a command repeat, such as key names, fields, a token or a script digest."""


class PureReader:
    """Parses replies (RESP2) from bytes of Redis into bytes, int, None, list, and errors as values.

    Parsed elements of an incomplete array are kept, and a long text is joined once it is complete. So a large reply
    costs no more if it arrives in many pieces.
    """

    def __init__(self, error_of_text: Callable[[str], Exception]) -> None:
        self._error_of_text = error_of_text
        self._received: list[bytes] = []
        self._missing = 0
        self._unread = b""
        self._at = 0
        self._open: list[tuple[list[Any], int]] = []
        """Incomplete arrays, the outermost first: their elements so far, and their final length."""

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        # Joined only in `gets`: joining for each piece would copy a large reply again and again.
        self._received.append(data)
        self._missing -= len(data)

    def gets(self) -> Any:
        """Return the next reply, or False until it is complete. Raises InvalidResponse for bytes that are not RESP."""
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
                start, end = behind, behind + length
                behind = end + _LENGTH_OF_END
                # Remember how much is missing, so that the next pieces do not parse from the start.
                if received < behind:
                    self._missing = behind - received
                    break
                value = unread[start:end]
            at = behind
            if value is not _OPENED and (not self._open or (value := self._closed(value)) is not _OPENED):
                self._at = at
                return value
        self._at = at
        return False

    def _short(self, kind: bytes, line: bytes) -> Any:
        """Return the value of a line, or open the array that the line announces."""
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
        """Append a value to its array; returns the reply if the value completes it, else _OPENED."""
        while self._open:
            elements, count = self._open[-1]
            elements.append(value)
            if len(elements) < count:
                return _OPENED
            value = elements
            self._open.pop()
        return value


def _texts(unread: bytes, start: int, count: int) -> tuple[list[bytes], int] | None:
    """Return the elements of an array and its end, if all are short texts that have arrived completely; else None.

    The hash of a job is such an array. `split` in C reads it at once, and each text must have the length that its
    header line announces. A text that contains a line end does not match, and is read by its length instead.
    """
    if not unread.startswith(_BULK, start):
        return None
    near = unread[start : start + count * _SHORT_TEXT]
    lines = near.split(_END_OF_LINE, 2 * count)
    texts = lines[1:-1:2]
    if len(lines) != 2 * count + 1 or list(map(_LENGTHS.get, lines[:-1:2])) != list(map(len, texts)):
        return None
    return texts, start + len(near) - len(lines[-1])


def _number(line: bytes) -> int:
    try:
        return int(line)
    except ValueError:
        raise InvalidResponse(f"Protocol error, {line[:40]!r} is not a number") from None
