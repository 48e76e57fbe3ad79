"""How names, data and options are written down: JSON, MessagePack, and what Lua makes of it."""

from __future__ import annotations

from typing import Any

from .steps import Case, add, case, do, queue

_TEXTS = {
    "ascii": "plain",
    "empty": "",
    "quotes": 'a"b\\c/d',
    "control": "\x00\b\t\n\x0b\f\r\x1f\x7f",
    "latin": "äöüß é",
    "beyond-bmp": "\U0001f600\U00010000",
    "separators": "\u2028\u2029\ufeff",
    "31-bytes": "x" * 31,
    "32-bytes": "x" * 32,
    "63-units": "é" * 63,
    "64-units": "é" * 64,
    "255-bytes": "y" * 255,
    "256-bytes": "y" * 256,
    "70000-bytes": "z" * 70_000,
    "1000-emoji": "\U0001f600" * 1000,
}
"""Lengths at which MessagePack changes the header of a text, and texts that JSON or Lua escape."""

_DATA = {
    "null": "null",
    "number": "1.50",
    "text": '"a"',
    "list": " [ 1 , 2 ] ",
    "doubled-names": '{"a":1.0,"a":2}',
    "numbers-beyond-doubles": "[1e400,12345678901234567890,-0,1e-7]",
    "escaped": '"\\u0000\\ud800\\u00e9 \\/"',
    "index-names": '{"10":1,"9":2,"b":3}',
    "deep": "[" * 60 + "]" * 60,
    "large": '"' + "d" * 200_000 + '"',
}

_OPTIONS: dict[str, object] = {
    "integers": [0, 1, 127, 128, 255, 256, 65535, 65536, 4294967295, 4294967296, 9007199254740993],
    "negative-integers": [-1, -31, -32, -33, -128, -129, -32768, -32769, -2147483648, -2147483649],
    "floats": [0.1, 1.5, -2.25, 1e300, 5e-324, 1e15, 123456789012345, 1e14, 1.0, -0.0],
    "texts": ["", "é", "/", '"', "\u007f", "x" * 32, "x" * 300],
    "nothing": [None, True, False],
    "empty": [{}, [], [None], {"a": None}],
    "holes": [1, None, 2],
    "nested": {"a": {"b": {"c": [1, {"d": 2}]}}},
    "order": {"dd": 1, "cc": 2, "bb": 3, "aa": 4, "10": 5, "9": 6, "01": 7, "-1": 8},
    "15-members": {f"k{number}": number for number in range(15)},
    "16-members": {f"k{number}": number for number in range(16)},
    "many-members": {f"name {number}": [number] for number in range(300)},
    "15-elements": list(range(15)),
    "16-elements": list(range(16)),
    "many-elements": list(range(70_000)),
    "foreign-names": {"": 1, "é": 2, "\U0001f600": 3, "a/b": 4, "x" * 40: 5},
}


def _named(kind: str, name: str) -> Case:
    return case(f"name-{kind}", queue(), add(name), do("queue.getJob", job="1"))


def _holding(kind: str, data: str) -> Case:
    return case(f"data-{kind}", queue(), add("a", data), do("queue.getJob", job="1"))


def _optional(kind: str, value: object) -> Case:
    return case(f"option-{kind}", queue(), add("a", custom=value), do("queue.getJob", job="1"))


_MANY: dict[str, Any] = {f"o{number}": number for number in range(40)}

CASES = (
    *(_named(kind, name) for kind, name in _TEXTS.items()),
    *(_holding(kind, data) for kind, data in _DATA.items()),
    *(_optional(kind, value) for kind, value in _OPTIONS.items()),
    case("many-options", queue(), add("a", **_MANY)),
    case(
        "one-text-in-every-place", queue(), add("é\U0001f600/", '"é\U0001f600/"', jobId="é\U0001f600", é="é\U0001f600/")
    ),
)
