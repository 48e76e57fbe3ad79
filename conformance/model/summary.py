"""A quick look at a snapshot: equal summaries mean that no canonical rule would find a difference.

Comparing after each step is dear; mostly nothing differs. Where summaries differ, the canonical rules decide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from conformance.observe.tables import TABLES, Event, Job, Snapshot

Summary = Mapping[str, Any]

_BY_VALUE = frozenset({"opts", "parent"})
"""Fields whose JSON was written by Lua: the order of the keys says nothing."""


def summary(snapshot: Snapshot) -> Summary:
    """What there is, table by table; the order of rows counts only for events."""
    others = {table: sorted(map(_row, getattr(snapshot, table)), key=repr) for table in TABLES}
    events: dict[str, list[tuple[tuple[str, str], ...]]] = {}
    for event in snapshot.events:
        events.setdefault(event.queue, []).append(event.fields)
    return {**others, "events": events}


def _row(row: Any) -> Any:
    if isinstance(row, Event):
        return None
    if isinstance(row, Job):
        return (row.queue, row.id, tuple(sorted((name, _field(name, value)) for name, value in row.fields.items())))
    return tuple(_value(name, getattr(row, name)) for name in row.__dataclass_fields__)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _field(key, text)) for key, text in value.items()))
    return float(value) if name in {"score", "next"} and value is not None else value


@lru_cache(maxsize=4096)
def _field(name: str, text: str) -> str:
    try:
        if name in _BY_VALUE:
            return json.dumps(json.loads(text), sort_keys=True)
        if name == "stacktrace":
            return str(len(json.loads(text)))
    except ValueError:
        pass
    return text
