"""What two snapshots can disagree about: the difference, its kinds, and how grave each one is. No I/O."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["breaks-others", "wrong-behaviour", "missing", "cosmetic"]

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
    ("membership.delayed.score", "*", "breaks-others"),
    ("membership.prioritized.score", "*", "breaks-others"),
    ("lock", "missing-lock", "breaks-others"),
    ("lock", "extra-lock", "breaks-others"),
    ("lock.token", "*", "breaks-others"),
    ("dependency.*", "*", "breaks-others"),
    ("marker.base", "missing-key", "breaks-others"),
    ("marker.delay", "*", "breaks-others"),
    ("counter.id", "*", "breaks-others"),
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
    ("unknown*", "*", "cosmetic"),
)
"""Pattern of the locator, pattern of the kind, severity. The first row that matches counts; else `wrong-behaviour`."""

TEXT_LIMIT = 120
"""Longest text of a value in a difference, in characters."""

ABSENT = "(absent)"
"""Stands where one side has nothing."""


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
    """Make a difference: look its severity up, and write both values as short texts that show where they part."""
    left, right = summarise_pair(expected, actual)
    return Difference(
        kind=kind, severity=severity_of(where, kind), where=where, key=key, field=field, expected=left, actual=right
    )


def severity_of(where: str, kind: str) -> Severity:
    """How grave a difference of this kind at this place is."""
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


def summarise_pair(expected: Any, actual: Any) -> tuple[str, str]:
    """Two values as short texts; long ones are cut around the first character in which they differ."""
    left, right = _text(expected), _text(actual)
    common = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    return _shortened(left, common), _shortened(right, common)


def _text(value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, default=str)


def _shortened(text: str, around: int) -> str:
    """At most TEXT_LIMIT characters, from a little before `around`; `…` stands where something was cut."""
    if len(text) <= TEXT_LIMIT:
        return text
    start = max(0, min(around - TEXT_LIMIT // 3, len(text) - TEXT_LIMIT))
    end = start + TEXT_LIMIT
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
