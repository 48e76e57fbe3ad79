"""Commands as Redis reads them, with arguments encoded as ioredis does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import hiredis

from conformance.reference_impl.js_values import exact, js_number, well_formed

Argument = str | bytes | int | float | bool | None
Command = tuple[Argument, ...]

_pack: Final[Callable[[tuple[str | bytes, ...]], bytes]] = cast("Any", hiredis).pack_command
"""Its published type is that of a tuple of one."""

_NOT_FINITE: Final = {"inf": b"Infinity", "-inf": b"-Infinity", "nan": b"NaN"}


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
