"""The difference between two values: where it is, of which kind, and how grave. No I/O."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import isinf
from typing import Any

from conformance.findings import Severity
from conformance.observe.tables import Number, parsed_json

KINDS: tuple[str, ...] = (
    "missing-job",
    "extra-job",
    "no-state",
    "two-states",
    "wrong-state",
    "wrong-type",
    "missing-key",
    "extra-key",
    "missing-lock",
    "extra-lock",
    "missing-member",
    "extra-member",
    "wrong-order",
    "missing-field",
    "extra-field",
    "wrong-value",
    "ttl",
    "missing-event",
    "extra-event",
    "wrong-event-order",
    "event-field",
)
"""Every kind, in the order in which they explain: a job that is missing explains more than a field that differs."""

SEVERITIES: tuple[tuple[str, str, Severity], ...] = (
    ("*.text", "*", "cosmetic"),
    ("membership.state", "no-state", "lost-jobs"),
    ("*", "wrong-type", "breaks-others"),
    ("job", "*", "breaks-others"),
    ("job.stacktrace", "*", "wrong-behaviour"),
    ("job.atm", "*", "wrong-behaviour"),
    ("job.ats", "*", "wrong-behaviour"),
    ("job.stc", "*", "wrong-behaviour"),
    ("job.defa", "*", "wrong-behaviour"),
    ("job.finishedOn", "*", "wrong-behaviour"),
    ("job.failedReason", "*", "wrong-behaviour"),
    ("job.pb", "*", "cosmetic"),
    ("job.tm", "*", "cosmetic"),
    ("job.name", "*", "breaks-others"),
    ("job.data", "*", "breaks-others"),
    ("job.opts", "*", "breaks-others"),
    ("job.timestamp", "*", "breaks-others"),
    ("job.parent*", "*", "breaks-others"),
    ("job.returnvalue", "*", "breaks-others"),
    ("job.*", "missing-field", "missing"),
    ("job.*", "extra-field", "cosmetic"),
    ("membership.state", "*", "breaks-others"),
    ("membership.ghost", "*", "breaks-others"),
    ("membership.delayed.score", "*", "breaks-others"),
    ("membership.prioritized.score", "*", "breaks-others"),
    ("lock", "missing-lock", "breaks-others"),
    ("lock.left", "extra-lock", "breaks-others"),
    ("lock.token", "*", "breaks-others"),
    ("dependency.*", "*", "breaks-others"),
    ("marker.base", "missing-key", "breaks-others"),
    ("marker.delay", "*", "breaks-others"),
    ("counter.id", "*", "breaks-others"),
    ("dedup.next", "missing-key", "lost-jobs"),
    ("dedup*", "*", "breaks-others"),
    ("scheduler*", "*", "breaks-others"),
    ("meta", "*", "missing"),
    ("meta.version", "*", "cosmetic"),
    ("meta.*", "*", "breaks-others"),
    ("expiry*", "*", "breaks-others"),
    ("event.*.field-order", "*", "cosmetic"),
    ("event.*", "missing-event", "missing"),
    ("event.*", "extra-event", "wrong-behaviour"),
    ("metrics*", "missing-key", "missing"),
    ("unknown.relay.*", "*", "breaks-others"),
    ("unknown*", "*", "cosmetic"),
)
"""Pattern of the locator, pattern of the kind, severity. The first row that matches counts; else `wrong-behaviour`."""

MEANT_BY_ABSENCE: Mapping[str, int] = {"job.opts.attempts": 0}
"""Values that say the same as a missing field, by locator: readers take a job without `attempts` for one with 0."""

TEXT_LIMIT = 120
"""Longest text of a value in a difference, in characters."""

ABSENT = "(absent)"
"""Stands where one side has nothing."""

APPROXIMATELY = "<about "
"""Start of the text for a delay that is compared with a tolerance, `<about N ms>`."""

ABOUT_TOLERANCE_MS = 2000
"""How far two values `<about N ms>` of the worker-clock rule may be apart."""

_ABOUT = re.compile(rf"{APPROXIMATELY}(-?\d+) ms>")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_INTEGER_FIELDS = frozenset({"timestamp", "priority", "processedOn", "finishedOn", "ats", "atm", "stc"})
_JSON_FIELDS = frozenset({"data", "returnvalue", "progress", "opts", "parent", "stacktrace"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One located disagreement.

    `where`: dotted locator for attribution (`job.opts.attempts`, `event.waiting.prev`). `key`: `QUEUE:ID` of the job,
    or the key without prefix. `field`: the field of the hash or event, where it is about one. `expected`, `actual`:
    short texts, JSON-quoted.
    """

    kind: str
    severity: Severity
    where: str
    key: str
    field: str = ""
    expected: str
    actual: str

    def __str__(self) -> str:
        """One line: what, where, and both sides."""
        field = f" field {self.field}" if self.field else ""
        place = f"{self.kind} [{self.severity}] {self.where} at {self.key}{field}"
        return f"{place}: expected {self.expected}, got {self.actual}"


def difference(kind: str, where: str, key: str, expected: Any, actual: Any, *, field: str = "") -> Difference:
    """Make a difference: look its severity up, and write both values as short texts that show where they part.

    Raises AssertionError for equal values: no client is at fault for a difference that is none.
    """
    if type(expected) is type(actual) and expected == actual:
        raise AssertionError(f"the kit reports a difference of {where} at {key}, but both sides have {expected!r}")
    left, right = summarise_pair(expected, actual)
    is_meant = kind == "missing-field" and where in MEANT_BY_ABSENCE and expected == MEANT_BY_ABSENCE[where]
    severity = "cosmetic" if is_meant else severity_of(where, kind)
    return Difference(kind=kind, severity=severity, where=where, key=key, field=field, expected=left, actual=right)


def severity_of(where: str, kind: str) -> Severity:
    """How grave a difference of this kind at this place is."""
    # The order of the table matters: special rows come before general ones.
    for place, kinds, severity in SEVERITIES:
        if fnmatchcase(where, place) and fnmatchcase(kind, kinds):
            return severity
    return "wrong-behaviour"


def sort_key(found: Difference) -> tuple[Any, ...]:
    """Sort by explanation: first what explains most, then by place and key; numeric ids in numeric order."""
    return (KINDS.index(found.kind), found.where, natural(found.key), found.field, found.expected, found.actual)


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts `q:2` before `q:10`."""
    parts = re.split(r"(\d+)", text, flags=re.ASCII)
    return tuple((0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts)


def summarise(value: Any) -> str:
    """A value as a short text."""
    return _shortened(_text(value), 0)


BYTES_SHOWN = 4
"""Bytes that are shown of texts that look the same."""


def summarise_pair(expected: Any, actual: Any) -> tuple[str, str]:
    """Two values as short texts; long ones are cut around the first character in which they differ.

    Texts that look the same (another normalisation of Unicode, invisible characters) get the first byte that differs.
    """
    left, right = _text(expected), _text(actual)
    common = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    shown = _shortened(left, common), _shortened(right, common)
    if left == right or _appearance(left) != _appearance(right):
        return shown
    return shown[0] + _bytes_from(left, common), shown[1] + _bytes_from(right, common)


def _appearance(text: str) -> str:
    """The text as a reader sees it."""
    visible = (character for character in text if unicodedata.category(character) != "Cf")
    return unicodedata.normalize("NFKC", "".join(visible))


def _bytes_from(text: str, place: int) -> str:
    """The number and the bytes of a character of a text in quotes, and of the next ones."""
    quotes = len('"') if text.startswith('"') else 0
    inside = text[quotes : len(text) - quotes]
    before, here = (
        part.encode("utf-8", "surrogateescape") for part in (inside[: place - quotes], inside[place - quotes :])
    )
    return f" (from byte {len(before)}: {here[:BYTES_SHOWN].hex(' ') or 'its end'})"


def _text(value: Any) -> str:
    if value is None:
        return ABSENT
    # Redis returns scores as floats; `5.0` next to `5` would look like a difference.
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, default=str)


def _shortened(text: str, around: int) -> str:
    """At most TEXT_LIMIT characters, from a little before `around`; `…` stands where something was cut."""
    if len(text) <= TEXT_LIMIT:
        return text
    # A third before the difference, so that the reader sees what precedes it.
    start = max(0, min(around - TEXT_LIMIT // 3, len(text) - TEXT_LIMIT))
    end = start + TEXT_LIMIT
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


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
    """Whether the value is a number if a number is expected; a canonical label counts as any number."""
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


def same_reading(left: str, right: str) -> bool:
    """Whether two clients have read one stored JSON value alike, by the texts that they make of it.

    Numbers are compared as far as JavaScript can hold them: a client that keeps more digits than Node, or a number
    beyond all doubles, which is null to Node, reads no less. Texts that are not JSON say nothing alike.
    """
    try:
        readings = [json.loads(text, parse_int=_as_javascript, parse_float=_as_javascript) for text in (left, right)]
    except ValueError:
        return False
    return same_json(*readings)


def _as_javascript(digits: str) -> float | None:
    number = float(digits)
    return None if isinf(number) else number


def type_name(value: Any) -> str:
    """The JSON type of a value."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "number"
    names: dict[type[Any], str] = {str: "string", list: "array", dict: "object"}
    return names[type(value)]
