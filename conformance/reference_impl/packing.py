"""MessagePack arguments of the Lua scripts, with the value types that Node's packer would send (msgpackr 1.12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgpack

from conformance.reference_impl.js_json import is_number, joined_surrogates, object_keys, well_formed

_SMALLEST_INTEGER: Final = -(2**31)
_LARGEST_INTEGER: Final = 2**32 - 1
_SHORT_STRING_UNITS: Final = 64
"""msgpackr writes shorter strings itself and passes lone surrogates through; longer ones go through Node's encoder."""


def pack(value: Any) -> bytes:
    """Encode for `cmsgpack.unpack`. Integers beyond 32 bits go as doubles, as in JavaScript."""
    packed: bytes = msgpack.packb(_as_javascript(value), unicode_errors="surrogatepass")
    return packed


def pack_fields(fields: Mapping[str, Any]) -> bytes:
    """Hash fields as the flat array that scripts unpack into HMSET; members that are None are left out."""
    flat: list[Any] = []
    for name, value in fields.items():
        if value is not None:
            flat += [name, value]
    return pack(flat)


def _as_javascript(value: Any) -> Any:
    if isinstance(value, str):
        return _string(value)
    if is_number(value):
        return _number(value)
    if isinstance(value, Mapping):
        members = {str(key): member for key, member in value.items()}
        return {_string(name): _as_javascript(members[name]) for name in object_keys(members)}
    if isinstance(value, (list, tuple)):
        return [_as_javascript(element) for element in value]
    return value


def _string(text: str) -> str:
    joined = joined_surrogates(text)
    is_short = len(joined.encode("utf-16-le", "surrogatepass")) < 2 * _SHORT_STRING_UNITS
    return joined if is_short else well_formed(joined)


def _number(value: float) -> float:
    if isinstance(value, float) and value.is_integer():
        return _number(int(value))
    if isinstance(value, int) and not _SMALLEST_INTEGER <= value <= _LARGEST_INTEGER:
        return float(value)
    return value
