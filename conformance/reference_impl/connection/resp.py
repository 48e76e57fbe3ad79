"""Commands as Redis reads them, with arguments encoded as ioredis does, and what reads its replies.

hiredis does both where it is installed, else Python alone (`pure_resp`): the same bytes and values, only slower.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from redis.exceptions import InvalidResponse

from conformance.reference_impl.connection.pure_resp import PureReader, pure_pack
from conformance.reference_impl.js_values import exact, js_number, well_formed

Argument = str | bytes | int | float | bool | None
Command = tuple[Argument, ...]


class ReplyReader(Protocol):
    """Makes replies of the bytes that come from Redis."""

    def feed(self, data: bytes) -> None:
        """Take what was received."""
        ...

    def gets(self) -> Any:
        """Return the next reply, False as long as it is not there whole. Raises InvalidResponse."""
        ...


def _hiredis() -> Any:
    """The module, or None where it is not installed."""
    try:
        return importlib.import_module("hiredis")
    except ImportError:
        return None


_HIREDIS: Final = _hiredis()
_pack: Final[Callable[[tuple[str | bytes, ...]], bytes]] = _HIREDIS.pack_command if _HIREDIS else pure_pack

IS_ACCELERATED: Final = _HIREDIS is not None
"""Whether hiredis is at work."""

_NOT_FINITE: Final = {"inf": b"Infinity", "-inf": b"-Infinity", "nan": b"NaN"}


def reply_reader(error_of_text: Callable[[str], Exception]) -> ReplyReader:
    """Return a reader for one connection. An error reply becomes what `error_of_text` makes of its text: a value."""
    if _HIREDIS is None:
        return PureReader(error_of_text)
    reader: ReplyReader = _HIREDIS.Reader(protocolError=InvalidResponse, replyError=error_of_text)
    return reader


def packed(command: Sequence[Argument]) -> bytes:
    """Return the bytes of a command. Its first word may be a name with a subcommand, like `SCRIPT LOAD`."""
    name, *arguments = command
    words = str(name).split()
    plain = [word if isinstance(word, (str, bytes)) else encode_argument(word) for word in arguments]
    try:
        return _pack((*words, *plain))
    except UnicodeEncodeError:  # a text has surrogates; looking for them beforehand would cost every other command
        return _pack((*words, *map(encode_argument, arguments)))


def encode_argument(value: Argument) -> bytes:
    """Encode an argument as ioredis does: numbers as JavaScript prints them, nothing as an empty string.

    Raises InvalidArgument for an integer that JavaScript and Lua would change.
    """
    if isinstance(value, str):
        return well_formed(value).encode()
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return b"%d" % exact(value)
    return _NOT_FINITE.get(str(value)) or js_number(value).encode()
