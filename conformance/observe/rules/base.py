"""What a canonical rule is, and the helpers that all rules share. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from conformance.observe.tables import TABLES, Snapshot

PLAUSIBLE_SINCE_MS = 1_400_000_000_000
"""Unix ms (2014): an earlier number is not the time of a job but some other unit, for example seconds."""

CLOCK_TOLERANCE_MS = 2000
"""How far a client's clock may differ from the server's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a rule may know besides the snapshot: what the scenario asked for. Times in ms, None where unknown.

    `lock_duration_ms`, `limiter_duration_ms`, `stalled_interval_ms`: upper ends of the times to live. The lower end is
    `ttl_floor_ms`: a scenario that has just set a lock of 30 s may demand that more than 25 s are left.
    """

    lock_duration_ms: int | None = 30_000
    limiter_duration_ms: int | None = None
    stalled_interval_ms: int | None = None
    ttl_floor_ms: int = 0


_SORTED = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))

Transform = Callable[[Snapshot, Context], Snapshot]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One named normalisation. `reason`: why two conforming clients may differ here.

    Applying a rule to its own result changes nothing, and a value that does not fit the rule stays as it is, so that it
    shows up as a difference.
    """

    name: str
    reason: str
    transform: Transform = field(repr=False)

    def apply(self, snapshot: Snapshot, context: Context) -> Snapshot:
        """The snapshot with this one normalisation."""
        return self.transform(snapshot, context)


def canonical_json(value: Any) -> str:
    """JSON text with sorted keys: equal values give equal texts."""
    return _SORTED.encode(value)


def with_fields(mapping: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The hash with some fields replaced; None leaves a field as it is."""
    return {**mapping, **{name: value for name, value in changes.items() if value is not None}}


def within(ttl_ms: float | str, upper_ms: int | None, label: str, floor_ms: int = 0) -> float | str:
    """The label where a time to live lies in its band, else the raw value (-1, no expiry, always stays)."""
    if isinstance(ttl_ms, str) or ttl_ms < floor_ms or ttl_ms < 0:
        return ttl_ms
    return label if upper_ms is None or ttl_ms <= upper_ms else ttl_ms


def map_texts(snapshot: Snapshot, change: Callable[[str], str]) -> Snapshot:
    """The snapshot with every text in it changed: ids, keys, names and values of fields, stream ids aside."""
    tables: dict[str, Any] = {
        table: tuple(_map_row(row, change) for row in getattr(snapshot, table)) for table in TABLES
    }
    return replace(snapshot, **tables)


def _map_row(row: Any, change: Callable[[str], str]) -> Any:
    changed = {item.name: _map_value(getattr(row, item.name), change) for item in fields(row)}
    return replace(row, **changed)


def _map_value(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(name): _map_value(inner, change) for name, inner in value.items()}
    if isinstance(value, list):
        return [_map_value(inner, change) for inner in value]
    if isinstance(value, tuple):
        return tuple(_map_value(inner, change) for inner in value)
    return value
