"""The workers of a Redis, as CLIENT LIST shows their blocking connections."""

from __future__ import annotations

import base64
import binascii
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.protocol.keys import NAMED_WORKER_INFIX


@dataclass(frozen=True, kw_only=True)
class WorkerConnection:
    """The connection with which a worker waits for markers (BZPOPMIN), and for nothing else.

    `place`: node and number of the connection, unique while Redis runs. `name`: the worker's own name, often empty.
    `age_s`: since it was opened, `idle_s`: since its last command or reply, both in s. `is_blocked`: it waits.
    """

    place: str
    address: str
    name: str
    age_s: int
    idle_s: int
    is_blocked: bool


def workers_by_queue(
    prefix: str, nodes: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, list[WorkerConnection]]:
    """The workers among the connections of each node, by queue: they have the names that getWorkers looks for."""
    found: defaultdict[str, list[WorkerConnection]] = defaultdict(list)
    for node, connections in nodes.items():
        for queue, worker in _workers(prefix, node, connections):
            found[queue].append(worker)
    return dict(found)


def _workers(
    prefix: str, node: str, connections: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, WorkerConnection]]:
    for fields in connections:
        queue, own_name = _owner(prefix, str(fields.get("name", "")))
        if queue is None:
            continue
        yield (
            queue,
            WorkerConnection(
                place=f"{node} {fields.get('id', fields.get('addr', ''))}",
                address=str(fields.get("addr", "")),
                name=own_name,
                age_s=_whole(fields.get("age")),
                idle_s=_whole(fields.get("idle")),
                is_blocked="b" in str(fields.get("flags", "")),
            ),
        )


def _owner(prefix: str, name: str) -> tuple[str | None, str]:
    """The queue and the own name of a worker by the name of its connection; None for another connection."""
    if not name.startswith(f"{prefix}:"):
        return None, ""
    encoded, infix, own_name = name[len(prefix) + 1 :].partition(NAMED_WORKER_INFIX)
    if ":" in encoded:  # a reader of events, or another prefix
        return None, ""
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8") or None, own_name if infix else ""
    except (binascii.Error, UnicodeDecodeError):
        return None, ""


def _whole(text: Any) -> int:
    return int(text) if str(text).isdigit() else 0
