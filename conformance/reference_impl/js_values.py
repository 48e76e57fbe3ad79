"""Values as in JavaScript: the text of `JSON.stringify`, numbers, truthiness, and dates.

BullMQ stores `data`, `returnvalue` and `progress` as the text of `JSON.stringify`, and counts its bytes for
`sizeLimit`, so numbers, key order and escapes must be those of ECMAScript, byte for byte. Only integers that no double
holds, which JavaScript would change silently, are written with all their digits, as Python reads them. Dates are read
as by `new Date(value)`, for numbers and the common texts.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, Final, NoReturn, TypeGuard

from conformance.reference_impl.errors import InvalidArgument

_SHORT_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_MUST_ESCAPE: Final = re.compile('["\\\\\x00-\x1f\ud800-\udfff]')
_LEADING_INTEGER: Final = re.compile(r"\s*([+-]?[0-9]+)")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LARGEST_INDEX: Final = 2**32 - 2
_LONGEST_INTEGER_TEXT: Final = 4000
"""Python converts at most 4300 digits between text and integer; longer numbers stay texts."""

LARGEST_EXACT: Final = 2**53
"""Up to here a double holds every integer, and so do JavaScript and Lua."""

_LONGEST_INTEGER_BITS: Final = 13_287
"""An integer with this number of bits has 4000 digits."""

_LONGEST_SHOWN_BITS: Final = 256

_MAX_PLAIN_DIGITS: Final = 21
"""From 1e21 on JavaScript writes an exponent."""

_MIN_PLAIN_EXPONENT: Final = -6
"""Below 1e-6 too."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class RawJson:
    """A JSON text that reaches Redis exactly as it is, unparsed."""

    text: str


def stringify(value: Any) -> str:
    """`JSON.stringify(value)`. None is null.

    Raises TypeError for values that JSON has no form for, InvalidArgument for a value that is nested too deeply or
    contains itself, has an integer of more than 4000 digits, or a NaN or infinity, which JavaScript would make null.
    """
    pieces: list[str] = []
    try:
        _write(value, pieces)
    except RecursionError:
        raise InvalidArgument(
            "the value is nested too deeply, or contains itself", constraint="JSON that is not so deep"
        ) from None
    return "".join(pieces)


def parse(text: str) -> Any:
    """`JSON.parse(text)`; a number that neither an integer nor a double of Python holds is a RawJson.

    Raises ValueError for anything that is not strictly JSON (`NaN`, for instance), or is nested too deeply.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply to be read") from None


def js_number(value: float) -> str:
    """`String(value)` of a finite number, an integer with all its digits. Not finite: `null`, as in JSON.

    Raises InvalidArgument for an integer of more than 4000 digits.
    """
    if isinstance(value, int):
        return _digits(value)
    double = float(value)
    if not math.isfinite(double):
        return "null"
    if double == 0:
        return "0"
    text = _shortest_decimal(abs(double))
    return f"-{text}" if double < 0 else text


def js_string(text: str) -> str:
    """`JSON.stringify` of a string: lone surrogates are escaped, everything else from U+0020 on is not."""
    return f'"{_MUST_ESCAPE.sub(_escape, joined_surrogates(text))}"'


def joined_surrogates(text: str) -> str:
    """Return the text with each pair of surrogate code points joined to the character that it encodes."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def well_formed(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD, which is how Node encodes a string as UTF-8."""
    return _SURROGATE.sub("\ufffd", joined_surrogates(text))


def object_keys(names: Iterable[str]) -> list[str]:
    """Property names in JavaScript's order: array indexes ascending, then the others as they came."""
    ordered = list(names)
    if not any(map(str.isdigit, ordered)):
        return ordered
    indexes = [name for name in ordered if _is_array_index(name)]
    if not indexes:
        return ordered
    return sorted(indexes, key=int) + [name for name in ordered if not _is_array_index(name)]


def truthy(value: Any) -> bool:
    """`Boolean(value)`: unlike in Python, empty lists and objects count as true."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, (list, tuple, Mapping)):
        return True
    if isinstance(value, float) and math.isnan(value):
        return False
    return bool(value)


def is_number(value: Any) -> TypeGuard[int | float]:
    """`typeof value === 'number'`."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def parse_int(text: str | None) -> int | None:
    """`parseInt(text)`: the leading integer of a text; None means NaN, or more than 4000 digits."""
    if text is None:
        return None
    digits = text
    if not (text.isdecimal() and text.isascii()):
        found = _LEADING_INTEGER.match(text)
        digits = found.group(1) if found else ""
    return int(digits) if 0 < len(digits) <= _LONGEST_INTEGER_TEXT else None


def to_number(value: Any) -> float:
    """`Number(value)` of a JSON value that is not an array; NaN where JavaScript has NaN."""
    if value is None or isinstance(value, (bool, int, float)):
        return value or 0
    with contextlib.suppress(ValueError):
        return float(value.strip() or 0) if isinstance(value, str) else math.nan
    return math.nan


def exact(value: int) -> int:
    """Return an integer to be stored as a double. Raises InvalidArgument if a double cannot hold it."""
    if -LARGEST_EXACT <= value <= LARGEST_EXACT:
        return value
    raise InvalidArgument(
        f"the integer {_shown(value)} is beyond 2**53, where Redis and Node.js would change it; pass it as a text",
        constraint="an integer between -2**53 and 2**53",
    )


def round_half_up(value: float) -> float:
    """`Math.round`: halves go up, unlike Python's `round`. Doubles from 2**53 on have no fraction, and stay doubles."""
    return math.floor(value + 0.5) if abs(value) < LARGEST_EXACT else value


def milliseconds(value: Any) -> int:
    """Return the Unix ms of a number (ms), a datetime, or a text in ISO 8601 or RFC 2822.

    As in JavaScript a text without a zone is the machine's time, except a date alone, which is UTC. Raises
    InvalidArgument for anything else; JavaScript would go on with an invalid date.
    """
    if is_number(value):
        return int(value)
    if isinstance(value, datetime):
        return _instant(value)
    if isinstance(value, str):
        return _instant(_read_date(value))
    raise InvalidArgument(f"Invalid date: {value!r}")


def iso_text(instant: int) -> str:
    """`Date.prototype.toISOString` of Unix ms."""
    return (_EPOCH + timedelta(milliseconds=instant)).strftime("%Y-%m-%dT%H:%M:%S.") + f"{instant % 1000:03}Z"


def _write(value: Any, pieces: list[str]) -> None:
    if value is None:
        pieces.append("null")
    elif isinstance(value, str):
        pieces.append(js_string(value))
    elif isinstance(value, bool):
        pieces.append("true" if value else "false")
    elif isinstance(value, (int, float)):
        pieces.append(js_number(_finite(value)))
    elif isinstance(value, Mapping):
        _write_object(value, pieces)
    elif isinstance(value, (list, tuple)):
        _write_array(value, pieces)
    elif isinstance(value, RawJson):
        pieces.append(value.text)
    else:
        raise TypeError(f"Do not know how to serialize a {type(value).__name__}")


def _finite(value: float) -> float:
    """Refuse numbers that are not finite, with the text of Python's json; JavaScript writes null."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(
            f"Out of range float values are not JSON compliant: {value!r}", constraint="a finite number"
        )
    return value


def _write_object(value: Mapping[Any, Any], pieces: list[str]) -> None:
    members = {_property_name(key): member for key, member in value.items()}
    separator = "{"
    for name in object_keys(members):
        pieces.append(f"{separator}{js_string(name)}:")
        _write(members[name], pieces)
        separator = ","
    pieces.append("}" if members else "{}")


def _write_array(value: Iterable[Any], pieces: list[str]) -> None:
    pieces.append("[")
    separator = ""
    for element in value:
        pieces.append(separator)
        _write(element, pieces)
        separator = ","
    pieces.append("]")


def _property_name(key: Any) -> str:
    if isinstance(key, str):
        return joined_surrogates(key)
    # As in Python's json; the text of a tuple, a date or an object as a key is a mistake that is hard to find.
    if key is None or isinstance(key, (bool, int, float)):
        return stringify(key)
    raise TypeError(f"the keys of an object must be texts or numbers, not {key!r} ({type(key).__name__})")


def _is_array_index(name: str) -> bool:
    if not (name.isascii() and name.isdigit()):
        return False
    return name == "0" or (name[0] != "0" and int(name) <= _LARGEST_INDEX)


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04x}"


def _shortest_decimal(positive: float) -> str:
    """ECMAScript `Number::toString` for a positive finite double; `repr` finds the same shortest digits."""
    _, digit_tuple, exponent = Decimal(repr(positive)).as_tuple()
    if not isinstance(exponent, int):
        raise TypeError(f"{positive} is not finite")
    digits = "".join(map(str, digit_tuple)).lstrip("0")
    point = len(digits) + exponent
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= _MAX_PLAIN_DIGITS:
        return digits + "0" * (point - count)
    if 0 < point <= _MAX_PLAIN_DIGITS:
        return f"{digits[:point]}.{digits[point:]}"
    if _MIN_PLAIN_EXPONENT < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if count > 1 else ""
    sign = "+" if point > 0 else "-"
    return f"{digits[0]}{fraction}e{sign}{abs(point - 1)}"


def _digits(value: int) -> str:
    if value.bit_length() > _LONGEST_INTEGER_BITS:
        raise InvalidArgument(f"an integer of {value.bit_length()} bits is too long", constraint="at most 4000 digits")
    return int.__repr__(value)


def _shown(value: int) -> str:
    return hex(value) if value.bit_length() > _LONGEST_SHOWN_BITS else str(value)


def _parse_integer(text: str) -> int | RawJson:
    return int(text) if len(text) <= _LONGEST_INTEGER_TEXT else RawJson(text)


def _parse_float(text: str) -> float | RawJson:
    number = float(text)
    return number if math.isfinite(number) else RawJson(text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_int=_parse_integer, parse_float=_parse_float, parse_constant=_refuse_constant)


def _read_date(text: str) -> datetime:
    if re.fullmatch(r"\d{4}(-\d{2}){0,2}", text):
        text = f"{text}-01-01"[: len("2000-01-01")] + "T00:00Z"
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with contextlib.suppress(ValueError):
            return read(text)
    raise InvalidArgument(f"Invalid date: {text}")


def _instant(moment: datetime) -> int:
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
