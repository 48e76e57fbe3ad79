"""Encoder of commands, with arguments as ioredis encodes them, and reader of replies.

hiredis does both if it is installed, else `pure_resp`: the same bytes and values, only slower.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, Self

from redis.exceptions import InvalidResponse

from conformance.reference_impl.connection.pure_resp import PureReader, pure_pack
from conformance.reference_impl.js_values import exact, js_number, well_formed

Argument = str | bytes | int | float | bool | None
Command = tuple[Argument, ...]


class ReplyReader(Protocol):
    """Parses replies from bytes of Redis."""

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        ...

    def gets(self) -> Any:
        """Return the next reply, or False until it is complete. Raises InvalidResponse for bytes that are not RESP."""
        ...


def _hiredis() -> Any:
    """The module hiredis, or None if it is not installed."""
    try:
        return importlib.import_module("hiredis")
    except ImportError:
        return None


_HIREDIS: Final = _hiredis()
_pack: Final[Callable[[tuple[str | bytes, ...]], bytes]] = _HIREDIS.pack_command if _HIREDIS else pure_pack

_NOT_FINITE: Final = {"inf": b"Infinity", "-inf": b"-Infinity", "nan": b"NaN"}


def reply_reader(error_of_text: Callable[[str], Exception]) -> ReplyReader:
    """Return a reader for one connection. An error reply becomes what `error_of_text` makes of its text: a value."""
    if _HIREDIS is None:
        return PureReader(error_of_text)
    reader: ReplyReader = _HIREDIS.Reader(protocolError=InvalidResponse, replyError=error_of_text)
    return reader


class CommandHead(str):
    """The first words of a command, which many commands share, as the name of the command: they are packed once."""

    __slots__ = ("length", "packed")

    def __new__(cls, *words: str) -> Self:
        """Pack the words. Raises UnicodeEncodeError for a lone surrogate."""
        head = super().__new__(cls, words[0])
        head.packed = bulks(*words)
        head.length = len(words)
        return head

    length: int
    packed: bytes


def packed(command: Sequence[Argument]) -> bytes:
    """Return the bytes of a command. Its first word may be a name with a subcommand, like `SCRIPT LOAD`."""
    name, *arguments = command
    if isinstance(name, CommandHead):
        return _packed_after(name, arguments)
    words = str(name).split()
    plain = [word if isinstance(word, (str, bytes)) else encode_argument(word) for word in arguments]
    try:
        return _pack((*words, *plain))
    except UnicodeEncodeError:  # a text has surrogates; a check beforehand would slow down every other command
        return _pack((*words, *map(encode_argument, arguments)))


def _packed_after(head: CommandHead, arguments: Sequence[Argument]) -> bytes:
    parts = [b"*%d\r\n" % (head.length + len(arguments)), head.packed]
    for argument in arguments:
        word = argument if isinstance(argument, bytes) else encode_argument(argument)
        parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(parts)


def bulk(word: bytes) -> bytes:
    """Return the bytes of one word of a command."""
    return b"$%d\r\n%b\r\n" % (len(word), word)


def bulks(*words: str) -> bytes:
    """Return the bytes of several words of a command. Raises UnicodeEncodeError for a lone surrogate."""
    return b"".join([bulk(word.encode()) for word in words])


def encode_argument(value: Argument) -> bytes:
    """Encode an argument as ioredis does: numbers as JavaScript prints them, nothing as an empty string.

    Raises InvalidArgument for an integer that JavaScript and Lua would change.
    """
    if isinstance(value, str):
        return value.encode() if value.isascii() else well_formed(value).encode()
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return b"%d" % exact(value)
    return _NOT_FINITE.get(str(value)) or js_number(value).encode()
