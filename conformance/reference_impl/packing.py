"""MessagePack arguments of the Lua scripts, byte for byte as Node's packer writes them (msgpackr 1.12, no records)."""

from __future__ import annotations

import marshal
import math
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.js_values import exact, joined_surrogates, object_keys, well_formed

_SHORT_STRING_UNITS: Final = 64
"""msgpackr writes shorter strings itself and passes lone surrogates through; longer ones go through Node's encoder."""

_MOST_KNOWN: Final = 32
"""Maps with more names than this are not cached."""

_TEXTS: Final = frozenset({str})
_HEADERS: Final = [struct.pack(">BH", 0xDE, length) for length in range(_MOST_KNOWN + 1)]

_LONGEST_KNOWN: Final = 1024
"""Options that take more bytes than this are packed each time."""

_WITHOUT_REFERENCES: Final = 2
"""The last version of marshal whose output does not depend on the number of references to a value."""

_LARGEST_MAP: Final = 2**16 - 1
"""Maps always have the header with a length of 16 bits, so that the length can be filled in afterwards."""


def pack(value: Any) -> bytes:
    """Encode for `cmsgpack.unpack`. Integers beyond 32 bits go as doubles, as in JavaScript.

    Raises TypeError for a value that has no form in JSON, InvalidArgument for a mapping with more than 65535 members,
    an integer that no double holds, and a value that is nested too deeply or contains itself.
    """
    written = bytearray()
    try:
        _write(value, written)
    except RecursionError:
        raise InvalidArgument("the options are nested too deeply, or contain themselves") from None
    return bytes(written)


def pack_fields(fields: Mapping[str, Any]) -> bytes:
    """Hash fields as the flat array that scripts unpack into HMSET; members that are None are left out."""
    flat: list[Any] = []
    for name, value in fields.items():
        if value is not None:
            flat += [name, value]
    return pack(flat)


def pack_known(options: Mapping[str, Any]) -> bytes:
    """Like `pack`, with a cache for options that repeat with every job."""
    exact_form = _exact_form(options)
    return pack(options) if exact_form is None else _packed_once(exact_form)


def pack_with(name: str, text: str, known: Mapping[str, Any]) -> bytes:
    """Like `pack({name: text, **known})`, with a cache for `known`, because only the text changes from job to job.

    `known` has neither this name, nor one that is an integer: those come first in JavaScript.
    """
    exact_form = _exact_form(known)
    if exact_form is None:
        return pack({name: text, **known})
    before, after = _around(name, exact_form)
    written = bytearray(before)
    _write_string(text, written)
    written += after
    return bytes(written)


def _exact_form(options: Mapping[str, Any]) -> bytes | None:
    """Return bytes that are equal only for equal values of equal types: 1, 1.0 and True have different packed forms.

    None if a value has another type, or is too large for the cache.
    """
    try:
        # marshal distinguishes 1, 1.0 and True, which a dict as cache key would treat as equal.
        exact_form = marshal.dumps(cast("Any", options), _WITHOUT_REFERENCES)
    except ValueError:
        return None
    return exact_form if len(exact_form) <= _LONGEST_KNOWN else None


@lru_cache(maxsize=256)
def _packed_once(exact_form: bytes) -> bytes:
    return pack(marshal.loads(exact_form))  # noqa: S302 - made by `_exact_form`


@lru_cache(maxsize=256)
def _around(name: str, exact_form: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after a text that is the first member of a map."""
    whole = pack({name: "", **marshal.loads(exact_form)})  # noqa: S302 - made by `_exact_form`
    before, empty, after = whole.partition(_packed_name(name) + b"\xa0")
    return before + empty[:-1], after


def _write(value: Any, written: bytearray) -> None:
    """Write any value; checks exact types first, because nearly all values have one of them."""
    kind = type(value)
    if kind is str:
        _write_string(value, written)
    elif value is None:
        written.append(0xC0)
    elif kind is int:
        _write_number(value, written)
    elif kind is dict:
        _write_map(value, written)
    elif kind is list:
        _write_array(value, written)
    else:
        _write_other(value, written)


def _write_other(value: Any, written: bytearray) -> None:
    if isinstance(value, str):
        _write_string(value, written)
    elif value is None:
        written.append(0xC0)
    elif isinstance(value, bool):
        written.append(0xC3 if value else 0xC2)
    elif isinstance(value, (int, float)):
        _write_number(value, written)
    elif isinstance(value, (dict, Mapping)):
        _write_map(value, written)
    elif isinstance(value, (list, tuple)):
        _write_array(value, written)
    else:
        raise TypeError(f"Do not know how to serialize a {type(value).__name__}")


def _write_map(value: Mapping[Any, Any], written: bytearray) -> None:
    if len(value) > _LARGEST_MAP:
        raise InvalidArgument(f"an object may have {_LARGEST_MAP} members, not {len(value)}")
    names = tuple(value)
    if len(names) <= _MOST_KNOWN and {*map(type, names)} <= _TEXTS:
        written += _HEADERS[len(names)]
        for name, packed_name in _layout(names):
            written += packed_name
            _write(value[name], written)
        return
    members = {_name_of(key): member for key, member in value.items()}
    written += struct.pack(">BH", 0xDE, len(members))
    for name in object_keys(members):
        written += _packed_name(name)
        _write(members[name], written)


def _name_of(key: Any) -> str:
    if not isinstance(key, (str, int, float)) and key is not None:
        raise TypeError(f"the names of options must be texts or numbers, not {key!r} ({type(key).__name__})")
    return str(key)


@lru_cache(maxsize=256)
def _layout(names: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """Names in the order of JavaScript, and as they are written: options have the same names with every job."""
    return [(name, _packed_name(name)) for name in object_keys(names)]


def _write_array(value: Sequence[Any], written: bytearray) -> None:
    length = len(value)
    if length < 2**4:
        written.append(0x90 | length)
    elif length < 2**16:
        written += struct.pack(">BH", 0xDC, length)
    else:
        written += struct.pack(">BI", 0xDD, length)
    for element in value:
        _write(element, written)


@lru_cache(maxsize=256)
def _packed_name(name: str) -> bytes:
    """Property names are few and come again with every job."""
    written = bytearray()
    _write_string(name, written)
    return bytes(written)


def _write_string(text: str, written: bytearray) -> None:
    encoded = text.encode() if text.isascii() else _encoded(text)
    length = len(encoded)
    if length < 32:
        written.append(0xA0 | length)
    elif length < 2**8:
        written += struct.pack(">BB", 0xD9, length)
    elif length < 2**16:
        written += struct.pack(">BH", 0xDA, length)
    else:
        written += struct.pack(">BI", 0xDB, length)
    written += encoded


def _encoded(text: str) -> bytes:
    joined = joined_surrogates(text)
    is_short = len(joined.encode("utf-16-le", "surrogatepass")) < 2 * _SHORT_STRING_UNITS
    return joined.encode("utf-8", "surrogatepass") if is_short else well_formed(joined).encode()


def _write_number(value: float, written: bytearray) -> None:
    """The shortest integer form where the value is an integer of 32 bits, else a double; -0 is 0."""
    # Most numbers in options are this small.
    if isinstance(value, int) and 0 <= value < 2**7:
        written.append(value)
        return
    if isinstance(value, int):
        whole: int | None = exact(value)
    else:
        whole = int(value) if value.is_integer() else None
    if whole is None or not -(2**31) <= whole < 2**32:
        written += struct.pack(">Bd", 0xCB, _double(value))
    elif whole >= 0:
        _write_unsigned(whole, written)
    else:
        _write_negative(whole, written)


def _write_unsigned(value: int, written: bytearray) -> None:
    if value < 2**7:
        written.append(value)
    elif value < 2**8:
        written += struct.pack(">BB", 0xCC, value)
    elif value < 2**16:
        written += struct.pack(">BH", 0xCD, value)
    else:
        written += struct.pack(">BI", 0xCE, value)


def _write_negative(value: int, written: bytearray) -> None:
    if value >= -(2**5):
        written += struct.pack(">b", value)
    elif value >= -(2**7):
        written += struct.pack(">Bb", 0xD0, value)
    elif value >= -(2**15):
        written += struct.pack(">Bh", 0xD1, value)
    else:
        written += struct.pack(">Bi", 0xD2, value)


def _double(value: float) -> float:
    """All NaN values have the same bytes."""
    return math.nan if math.isnan(value) else float(value)
