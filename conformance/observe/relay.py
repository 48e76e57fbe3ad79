"""The keys of BullMQ's relay (6.4 and newer), which passes messages between processes: `PREFIX::relay:{NAMESPACE}:…`.

A relay belongs to no queue. Leases, inboxes, counters and the ids of endpoints end with its processes; the layout, the
patterns and the retained messages are for all. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from conformance.observe.tables import Unknown

NAMESPACES = "namespaces"
_RETAINED = ":ret"
_PATTERN = "t|"
"""Start of the members of `subs` that name a pattern; the others name nodes and endpoints."""


def relay_place(prefix: str, key: str) -> str | None:
    """The name of a relay's key within its namespace, `namespaces` for their list; None for any other key."""
    found = re.fullmatch(rf"{re.escape(prefix)}::relay:(?:\{{.*?\}}:(.+)|({NAMESPACES}))", key, re.DOTALL)
    return found and (found[1] or found[2])


def relay_content(prefix: str, rows: Iterable[Unknown]) -> Iterator[tuple[str, str, Any]]:
    """The content by which two relays are compared: place, key without prefix, and value."""
    for row in rows:
        place, key = relay_place(prefix, row.key), row.key.removeprefix(f"{prefix}:")
        if place == "layout":
            yield "layout", key, row.value
        elif place == "subs" and row.type == "zset":
            members = [member for member, *_ in row.value]
            yield "patterns", key, sorted(member.removeprefix(_PATTERN) for member in members if _PATTERN in member[:2])
        elif place is not None and place.endswith(_RETAINED) and row.type == "hash":
            yield "retained", key, row.value.get("d")
