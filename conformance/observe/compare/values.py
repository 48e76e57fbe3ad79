"""Compare single values, hashes and JSON texts. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from conformance.observe.differences import Difference, difference
from conformance.observe.tables import Number, parsed_json

ABOUT_TOLERANCE_MS = 2000
"""How far two values `<about N ms>` of the worker-clock rule may be apart."""

_ABOUT = re.compile(r"<about (-?\d+) ms>")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_INTEGER_FIELDS = frozenset({"timestamp", "priority", "processedOn", "finishedOn", "ats", "atm", "stc"})
_JSON_FIELDS = frozenset({"data", "returnvalue", "progress", "opts", "parent", "stacktrace"})


def same(expected: Number | None, actual: Number | None) -> bool:
    """Equal, or both an approximate time and near to each other."""
    if expected == actual:
        return True
    if not (isinstance(expected, str) and isinstance(actual, str)):
        return False
    left, right = _ABOUT.fullmatch(expected), _ABOUT.fullmatch(actual)
    if left is None or right is None:
        return False
    return abs(int(left.group(1)) - int(right.group(1))) <= ABOUT_TOLERANCE_MS


def compare_fields(
    where: str, key: str, expected: Mapping[str, str], actual: Mapping[str, str]
) -> Iterator[Difference]:
    """Differences between two hashes, field by field; `opts` and other JSON as described at `compare_json`."""
    for field in sorted(expected.keys() | actual.keys()):
        left, right = expected.get(field), actual.get(field)
        if left is None or right is None:
            kind = "missing-field" if right is None else "extra-field"
            yield difference(kind, f"{where}.{field}", key, left, right, field=field)
        elif not same(left, right):
            yield from compare_field(where, key, field, left, right)


def compare_field(where: str, key: str, field: str, expected: str, actual: str) -> Iterator[Difference]:
    """Differences of one field that both sides have, with other texts."""
    if field in _JSON_FIELDS:
        yield from compare_json(f"{where}.{field}", key, field, expected, actual)
        return
    kind = "wrong-type" if field in _INTEGER_FIELDS and not _same_shape(expected, actual) else "wrong-value"
    yield difference(kind, f"{where}.{field}", key, expected, actual, field=field)


def _same_shape(expected: str, actual: str) -> bool:
    """Whether a number stands where a number is expected; a canonical label stands for any number."""
    return not _is_number(expected) or _is_number(actual)


def _is_number(text: str) -> bool:
    return text.startswith("<") or _NUMBER.fullmatch(text) is not None


def compare_json(where: str, key: str, field: str, expected: str, actual: str) -> Iterator[Difference]:
    """Differences between two JSON texts: options one by one, other values as a whole.

    The same value in another spelling is located at `WHERE.text`; what is not JSON at all is of the wrong type.
    """
    left, right = parsed_json(expected), parsed_json(actual)
    if right is None and actual != "null" and left is not None:
        yield difference("wrong-type", where, key, expected, actual, field=field)
    elif same_json(left, right) and left is not None:
        yield difference("wrong-value", f"{where}.text", key, expected, actual, field=field)
    elif field == "opts" and isinstance(left, dict) and isinstance(right, dict):
        yield from compare_options(where, key, left, right)
    elif type_name(left) != type_name(right):
        yield difference("wrong-type", where, key, expected, actual, field=field)
    else:
        yield difference("wrong-value", where, key, expected, actual, field=field)


def compare_options(
    where: str, key: str, expected: Mapping[str, Any], actual: Mapping[str, Any]
) -> Iterator[Difference]:
    """Differences between two option objects, option by option, nested ones with dotted names."""
    for name in sorted(expected.keys() | actual.keys()):
        place = f"{where}.{name}"
        if name not in actual:
            yield difference("missing-field", place, key, expected[name], None, field="opts")
        elif name not in expected:
            yield difference("extra-field", place, key, None, actual[name], field="opts")
        elif not same_json(expected[name], actual[name]):
            yield from _compare_option(place, key, expected[name], actual[name])


def _compare_option(place: str, key: str, expected: Any, actual: Any) -> Iterator[Difference]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        yield from compare_options(place, key, expected, actual)
        return
    kind = "wrong-value" if type_name(expected) == type_name(actual) else "wrong-type"
    yield difference(kind, place, key, expected, actual, field="opts")


def same_json(left: Any, right: Any) -> bool:
    """Equality of JSON values. Unlike Python's: `true` is not 1; like JavaScript's: 1 is 1.0."""
    if type_name(left) != type_name(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same_json(value, right[name]) for name, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    return bool(left == right)


def type_name(value: Any) -> str:
    """The JSON type of a value."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "number"
    names: dict[type[Any], str] = {str: "string", list: "array", dict: "object"}
    return names[type(value)]
