"""How values become text on their way into Redis, and what a JavaScript user reads back.

Numbers that Lua hands to Redis have up to 17 significant digits, numbers that Lua joins to a text have 14, and so have
numbers in JSON that Lua's cjson writes. `data`, `progress` and `returnvalue` never pass through Lua's JSON.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

from conformance.model.calls import script_breaks

SPARSE_FROM, SPARSE_RATIO = 10, 2
"""cjson refuses arrays with more than 10 places of which less than half are filled."""
ARRAY_INDEX_LIMIT = 2**32 - 1
"""JavaScript enumerates keys that are array indices below this first, in ascending order."""


def number_text(value: float) -> str:
    """A number as an argument of a Redis command called by Lua."""
    # -0 is written as 0.
    return "0" if value == 0 else f"{float(value):.17g}"


def joined_number(value: float) -> str:
    """A number that Lua joins to a text, for example in the id of a scheduler's iteration."""
    return "0" if value == 0 else f"{float(value):.14g}"


def argument(value: Any) -> str:
    """A value of unpacked options as an argument of a Redis command: only texts and numbers are possible."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        script_breaks("command arguments must be strings or integers")
    return number_text(value)


def lua_true(value: Any) -> bool:
    """Truth in Lua: everything but nil and false, 0 and the empty text included."""
    return value is not None and value is not False


def cjson(value: Any) -> str:
    """JSON as Lua's cjson encodes what was unpacked from msgpack: nil is nothing, and an empty table is `{}`."""
    if isinstance(value, dict):
        pairs = [f"{_quoted(key)}:{cjson(item)}" for key, item in value.items() if item is not None]
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return _cjson_array(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if not math.isfinite(value):
        script_breaks("Cannot serialise number: must not be NaN or Inf")
    return joined_number(value)


def _cjson_array(items: list[Any]) -> str:
    filled = [place for place, item in enumerate(items, start=1) if item is not None]
    if not filled:
        return "{}"
    if filled[-1] > SPARSE_FROM and filled[-1] > len(filled) * SPARSE_RATIO:
        script_breaks("Cannot serialise table: excessively sparse array")
    return "[" + ",".join(cjson(item) for item in items[: filled[-1]]) + "]"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def normalised_json(text: str) -> str:
    """The text that JSON.stringify(JSON.parse(text)) gives. Raises ValueError for what is not JSON."""
    return _stringified(json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_no_constant))


def _number(text: str) -> float:
    return float(text)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _stringified(value: Any) -> str:
    if isinstance(value, dict):
        indices = sorted((key for key in value if _is_index(key)), key=int)
        ordered = [*indices, *(key for key in value if not _is_index(key))]
        return "{" + ",".join(f"{_js_quoted(key)}:{_stringified(value[key])}" for key in ordered) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_stringified, value)) + "]"
    if isinstance(value, str):
        return _js_quoted(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return js_number(value)


def _is_index(key: str) -> bool:
    canonical = key.isascii() and key.isdigit() and (key == "0" or not key.startswith("0"))
    return canonical and int(key) < ARRAY_INDEX_LIMIT


def _js_quoted(text: str) -> str:
    """Control characters and lone surrogates escaped, everything else as it is."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char for char in quoted)


def js_number(value: float) -> str:
    """A number as JavaScript prints it in JSON; what is not finite is null."""
    if not math.isfinite(value):
        return "null"
    if value == 0:
        return "0"
    _, digits, exponent = Decimal(repr(abs(value))).normalize().as_tuple()
    written = "".join(map(str, digits))
    point = len(written) + int(exponent)
    sign_text = "-" if value < 0 else ""
    if len(written) <= point <= 21:
        return sign_text + written.ljust(point, "0")
    if 0 < point <= 21:
        return f"{sign_text}{written[:point]}.{written[point:]}"
    if -6 < point <= 0:
        return f"{sign_text}0.{written.rjust(len(written) - point, '0')}"
    fraction = f".{written[1:]}" if len(written) > 1 else ""
    return f"{sign_text}{written[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def parse_int(text: str | None) -> int | None:
    """JavaScript's parseInt: the leading integer of a text; None in place of NaN."""
    body = (text or "").strip()
    sign = -1 if body.startswith("-") else 1
    digits = ""
    for char in body.lstrip("+-"):
        if not (char.isascii() and char.isdigit()):
            break
        digits += char
    return sign * int(digits) if digits else None
