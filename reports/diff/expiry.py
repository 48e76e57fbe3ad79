"""Times to live as moments: two stores that are the same may have been read minutes apart. No Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from conformance.observe.canonical_rules import CLOCK_TOLERANCE_MS
from conformance.observe.tables import Deduplication, ExpiringRow, Expiry, Lock, Snapshot, Unknown, moment_of
from reports.diff.hidden_values import HiddenCounts
from reports.diff.values import DiffSettings

SAME_MOMENT = "<the same moment>"

EXACT_MS = 100
"""Two moments that are as near as this were read from the same time to live."""

_RULES: Mapping[str, str] = {
    "locks": "lock-ttl",
    "deduplications": "dedup-ttl",
    "limiters": "limiter-ttl",
    "stalled_checks": "stalled-check-ttl",
    "expiries": "",
    "unknown": "",
}
"""Tables whose keys expire, and the rule that otherwise judges their times to live."""


def with_same_moments(
    expected: Snapshot, actual: Snapshot, settings: DiffSettings, hidden: HiddenCounts
) -> tuple[Snapshot, Snapshot]:
    """Both sides, with one label for the times to live of keys that end at the same moment.

    Clocks of two servers may differ a little. Values hidden for it are added to `hidden` under the rule of the table;
    if that is off, moments must be exactly the same. Keys that end at different moments, and those that never
    end, stay as they are: the rules check them.
    """
    sides = [expected, actual]
    for table, rule in _RULES.items():
        tolerance_ms = CLOCK_TOLERANCE_MS if not rule or settings.has_rule(rule) else EXACT_MS
        same = _same_moments(table, expected, actual, tolerance_ms)
        if rule and (inexact := sum(apart_ms > EXACT_MS for apart_ms in same.values())):
            hidden[rule] += inexact
        sides = [_labelled(side, table, same.keys()) for side in sides]
    return sides[0], sides[1]


def without_ended(
    expected: Snapshot, actual: Snapshot, settings: DiffSettings, hidden: HiddenCounts
) -> tuple[Snapshot, Snapshot]:
    """Both sides without the keys that only one of them has because they ended before the other was read.

    They are added to `hidden` under the rule of their table; where that is switched off, they stay.
    """
    sides = [expected, actual]
    for table, rule in _RULES.items():
        if not rule or not settings.has_rule(rule):
            continue
        names = [{_name(row, side) for row in getattr(side, table)} for side in sides]
        for number, other in ((0, 1), (1, 0)):
            rows = getattr(sides[number], table)
            kept = [
                row for row in rows if _name(row, sides[number]) in names[other] or not _has_ended(row, sides, number)
            ]
            if len(kept) < len(rows):
                hidden[rule] += len(rows) - len(kept)
                changed: dict[str, Any] = {table: tuple(kept)}
                sides[number] = replace(sides[number], **changed)
    return sides[0], sides[1]


def _has_ended(row: ExpiringRow, sides: Sequence[Snapshot], number: int) -> bool:
    """Whether a key of one side had ended when the reading of the other one did."""
    moment = moment_of(row, sides[number])
    return moment is not None and moment <= sides[1 - number].taken_ms


def _same_moments(
    table: str, expected: Snapshot, actual: Snapshot, tolerance_ms: int
) -> Mapping[tuple[str, ...], float]:
    """The keys that end at the same moment on both sides, and how far apart these are (ms)."""
    left, right = (
        {_name(row, side): moment for row in getattr(side, table) if (moment := moment_of(row, side)) is not None}
        for side in (expected, actual)
    )
    apart = {name: abs(left[name] - right[name]) for name in left.keys() & right.keys()}
    return {name: apart_ms for name, apart_ms in apart.items() if apart_ms <= tolerance_ms}


def _labelled(side: Snapshot, table: str, same: Collection[tuple[str, ...]]) -> Snapshot:
    rows = [replace(row, ttl_ms=SAME_MOMENT) if _name(row, side) in same else row for row in getattr(side, table)]
    changed: dict[str, Any] = {table: tuple(rows)}
    return replace(side, **changed)


def _name(row: ExpiringRow, side: Snapshot) -> tuple[str, ...]:
    """Queue and name of a key within its table; the same on both sides."""
    if isinstance(row, Expiry | Unknown):
        return (row.key.removeprefix(f"{side.prefix}:"),)
    if isinstance(row, Lock):
        return row.queue, row.job
    return row.queue, row.id if isinstance(row, Deduplication) else row.name
