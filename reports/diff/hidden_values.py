"""Values that differ between two stores and that a canonical rule hides, counted by rule. No Spark.

Values are fields of hashes and events, scores, times to live, tokens and members. The ids of stream entries are not
counted: they differ between any two stores.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

from conformance.observe.canonical_rules import CanonicalContext, CanonicalRule
from conformance.observe.tables import TABLES, Snapshot

HiddenCounts: TypeAlias = "Counter[str]"
"""Values by the name of the rule that hides them."""

_Place: TypeAlias = "tuple[Any, ...]"
"""Table, queue, name of the row, and column or field."""

_Value: TypeAlias = "tuple[Any, ...]"
"""A place, and the value there."""

_NAMED_BY = ("job", "id", "parent", "name", "member", "kind", "key", "queue")
"""Columns that identify a row within its queue; the first that a row has."""

_NAME = 3
"""Elements of a place that identify the row."""

_NOT_COUNTED = frozenset({("memberships", "position"), ("events", "id")})


def canonical_pair(
    sides: Sequence[Snapshot],
    rules: Iterable[CanonicalRule],
    context: CanonicalContext,
    hidden: HiddenCounts,
    tables: Sequence[str] = TABLES,
) -> tuple[Snapshot, Snapshot]:
    """Both sides in canonical form; the values of these tables that a rule has made equal are added to `hidden`."""
    for rule in rules:
        changed = [rule.apply(side, context) for side in sides]
        note_hidden(rule.name, sides, changed, hidden, tables)
        sides = changed
    return sides[0], sides[1]


def note_hidden(
    rule: str,
    before: Sequence[Snapshot],
    after: Sequence[Snapshot],
    hidden: HiddenCounts,
    tables: Sequence[str] = TABLES,
) -> None:
    """Add the values that differed between the two sides before, and do not afterwards."""
    touched = [table for table in tables if _rows_of(before, table) != _rows_of(after, table)]
    counts = [
        _fewer(earlier, later, by_row=not _renames(before, after, touched))
        for earlier, later in zip(_values_apart(before, touched), _values_apart(after, touched), strict=True)
    ]
    if count := max(counts):
        hidden[rule] += count


def _fewer(earlier: Counter[_Value], later: Counter[_Value], *, by_row: bool) -> int:
    """How many values no longer differ. How many, not which: a rule may also change what still differs.

    `by_row`: what a rule sets apart in one row does not make up for what it hides in another.
    """
    rows: defaultdict[_Place, int] = defaultdict(int)
    for values, sign in ((earlier, 1), (later, -1)):
        for value, count in values.items():
            rows[value[:_NAME] if by_row else ()] += sign * count
    return sum(count for count in rows.values() if count > 0)


def _renames(before: Sequence[Snapshot], after: Sequence[Snapshot], tables: Sequence[str]) -> bool:
    """Whether a rule has given rows other names, so that they cannot be followed."""
    return any(
        {value[:_NAME] for value in _values(earlier, tables)} != {value[:_NAME] for value in _values(later, tables)}
        for earlier, later in zip(before, after, strict=True)
    )


def _rows_of(sides: Sequence[Snapshot], table: str) -> list[Any]:
    return [getattr(side, table) for side in sides]


def _values_apart(sides: Sequence[Snapshot], tables: Sequence[str]) -> tuple[Counter[_Value], Counter[_Value]]:
    """The values that each side has and the other has not."""
    left, right = (Counter(_values(side, tables)) for side in sides)
    return left - right, right - left


def _values(side: Snapshot, tables: Sequence[str]) -> Iterator[_Value]:
    """Every value of these tables, behind the place at which it stands."""
    for table, row in ((name, row) for name in tables for row in getattr(side, name)):
        naming = next(column for column in _NAMED_BY if hasattr(row, column))
        place = (table, getattr(row, "queue", ""), getattr(row, naming))
        for column in fields(row):
            if column.name not in ("queue", naming) and (table, column.name) not in _NOT_COUNTED:
                yield from _values_of_column(place, column.name, getattr(row, column.name))


def _values_of_column(place: _Place, column: str, value: Any) -> Iterator[_Value]:
    if column == "fields" and value is not None:
        pairs = value.items() if isinstance(value, Mapping) else value
        yield from ((*place, name, text) for name, text in pairs)
    else:
        yield (*place, column, repr(value))
