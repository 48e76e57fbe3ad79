"""The workers of a Redis, as CLIENT LIST shows their blocking connections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.checkers.production import named_queue
from conformance.checkers.queue_looks import WorkerConnection
from conformance.protocol.keys import EVENT_READER_SUFFIX, NAMED_WORKER_INFIX


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
        if not queue:
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


def _owner(prefix: str, name: str) -> tuple[str, str]:
    """The queue and the own name of a worker by the name of its connection; empty for another connection."""
    rest = name.removeprefix(f"{prefix}:")
    _, infix, own_name = rest.partition(NAMED_WORKER_INFIX)
    if rest == name or (not infix and rest.endswith(EVENT_READER_SUFFIX)):
        return "", ""
    return named_queue(name, prefix), own_name


def _whole(text: Any) -> int:
    return int(text) if str(text).isdigit() else 0
