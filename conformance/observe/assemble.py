"""From raw keys to the typed tables of a snapshot. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from conformance.observe.layout import EXPIRING, LISTS, SORTED_SETS, Place, place_of, split_key
from conformance.observe.tables import (
    DEPENDENCY_KINDS,
    TABLES,
    Counter,
    Deduplication,
    Dependency,
    Event,
    Expiring,
    Expiry,
    Job,
    Lock,
    LogRow,
    Marker,
    Membership,
    Meta,
    Metrics,
    Scheduler,
    Snapshot,
    Unknown,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawKey:
    """A key as read. `value`: text, list of text, dict, or pairs (zset: member and score, stream: id and fields)."""

    key: str
    type: str
    value: Any
    ttl_ms: int = -1


def assemble(prefix: str, taken_ms: int, raw_keys: Iterable[RawKey]) -> Snapshot:
    """Sort every key into its table. A key that was read as nothing, or that nothing fits, becomes an `Unknown` row."""
    tables: dict[str, list[Any]] = {table: [] for table in TABLES}
    repeat: dict[tuple[str, str], float] = {}
    records: dict[tuple[str, str], dict[str, str]] = {}
    metrics: dict[tuple[str, str], tuple[dict[str, str], tuple[str, ...]]] = {}
    raw_keys = list(raw_keys)
    scheduler_keys = _scheduler_keys(prefix, raw_keys)
    for raw in raw_keys:
        place = _place(prefix, raw, scheduler_keys)
        if raw.ttl_ms >= 0 and place.kind not in EXPIRING | {"unknown"}:
            tables["expiries"].append(Expiry(key=raw.key, kind=place.kind, ttl_ms=raw.ttl_ms))
        if place.kind == "repeat":
            repeat.update({(place.queue, member): score for member, score in raw.value})
        elif place.kind == "scheduler":
            records[place.queue, place.subject] = raw.value
        elif place.kind.startswith("metrics:"):
            _collect_metrics(metrics, place, raw)
        else:
            table, rows = _rows(place, raw)
            tables[table].extend(rows)
    tables["schedulers"] = [
        Scheduler(queue=queue, id=sid, next=repeat.get((queue, sid)), fields=records.get((queue, sid)))
        for queue, sid in sorted(repeat.keys() | records.keys())
    ]
    tables["metrics"] = [
        Metrics(queue=queue, kind=kind, fields=fields, points=points)
        for (queue, kind), (fields, points) in sorted(metrics.items())
    ]
    return Snapshot(prefix=prefix, taken_ms=taken_ms, **{name: tuple(rows) for name, rows in tables.items()})


def _scheduler_keys(prefix: str, raw_keys: list[RawKey]) -> frozenset[str]:
    """Keys of the scheduler records that `repeat` announces; a record alone might look like the hash of a job."""
    announced: set[str] = set()
    for raw in raw_keys:
        queue, rest = split_key(prefix, raw.key)
        if rest == "repeat" and raw.type == "zset" and raw.value is not None:
            announced.update(f"{prefix}:{queue}:repeat:{member}" for member, _ in raw.value)
    return frozenset(announced)


def _place(prefix: str, raw: RawKey, scheduler_keys: frozenset[str]) -> Place:
    """What a key is. A value that could not be read is unknown."""
    if raw.value is None:
        return Place(queue=split_key(prefix, raw.key)[0], kind="unknown")
    fields = raw.value if raw.type == "hash" else ()
    if raw.key in scheduler_keys and raw.type == "hash" and "timestamp" not in fields:
        queue, rest = split_key(prefix, raw.key)
        return Place(queue=queue, kind="scheduler", subject=rest.removeprefix("repeat:"))
    return place_of(prefix, raw.key, raw.type, fields)


def _collect_metrics(
    metrics: dict[tuple[str, str], tuple[dict[str, str], tuple[str, ...]]], place: Place, raw: RawKey
) -> None:
    """Join `metrics:KIND` and `metrics:KIND:data`."""
    kind = place.kind.split(":")[1]
    fields, points = metrics.get((place.queue, kind), ({}, ()))
    if place.kind.endswith(":data"):
        points = tuple(raw.value)
    else:
        fields = raw.value
    metrics[place.queue, kind] = (fields, points)


def _rows(place: Place, raw: RawKey) -> tuple[str, list[Any]]:
    """The table of a key, and the rows that the key gives."""
    if place.kind in LISTS:
        return "memberships", [
            Membership(queue=place.queue, container=place.kind, job=job, position=position)
            for position, job in enumerate(raw.value)
        ]
    if place.kind in SORTED_SETS:
        return "memberships", [
            Membership(queue=place.queue, container=place.kind, job=job, score=score) for job, score in raw.value
        ]
    table, make = _MAKERS.get(place.kind, ("unknown", _unknown))
    return table, make(place, raw)


def _unknown(_: Place, raw: RawKey) -> list[Any]:
    return [Unknown(key=raw.key, type=raw.type, value=raw.value, ttl_ms=raw.ttl_ms)]


def _dependencies(place: Place, raw: RawKey) -> list[Any]:
    """One row per child; what stands beside the child depends on the Redis type."""
    kind = DEPENDENCY_KINDS[place.kind.removeprefix("job:")]
    if raw.type == "hash":
        return [
            Dependency(queue=place.queue, parent=place.subject, kind=kind, child=child, value=value)
            for child, value in sorted(raw.value.items())
        ]
    if raw.type == "zset":
        return [
            Dependency(queue=place.queue, parent=place.subject, kind=kind, child=child, score=score)
            for child, score in raw.value
        ]
    return [Dependency(queue=place.queue, parent=place.subject, kind=kind, child=child) for child in raw.value]


def _expiring(place: Place, raw: RawKey) -> list[Any]:
    return [Expiring(queue=place.queue, name=place.kind, value=raw.value, ttl_ms=raw.ttl_ms)]


def _counter(place: Place, raw: RawKey) -> list[Any]:
    return [Counter(queue=place.queue, name=place.kind, value=raw.value)]


def _events(place: Place, raw: RawKey) -> list[Any]:
    return [Event(queue=place.queue, id=entry, fields=tuple(fields.items())) for entry, fields in raw.value]


def _logs(place: Place, raw: RawKey) -> list[Any]:
    return [
        LogRow(queue=place.queue, job=place.subject, position=position, text=text)
        for position, text in enumerate(raw.value)
    ]


_MAKERS: dict[str, tuple[str, Callable[[Place, RawKey], list[Any]]]] = {
    "job": ("jobs", lambda place, raw: [Job(queue=place.queue, id=place.subject, fields=raw.value)]),
    "stalled": (
        "memberships",
        lambda place, raw: [Membership(queue=place.queue, container="stalled", job=job) for job in raw.value],
    ),
    "job:lock": (
        "locks",
        lambda place, raw: [Lock(queue=place.queue, job=place.subject, token=raw.value, ttl_ms=raw.ttl_ms)],
    ),
    "deduplication": (
        "deduplications",
        lambda place, raw: [Deduplication(queue=place.queue, id=place.subject, job=raw.value, ttl_ms=raw.ttl_ms)],
    ),
    "marker": (
        "markers",
        lambda place, raw: [Marker(queue=place.queue, member=member, score=score) for member, score in raw.value],
    ),
    "meta": ("metas", lambda place, raw: [Meta(queue=place.queue, fields=raw.value)]),
    "job:logs": ("logs", _logs),
    "events": ("events", _events),
    "limiter": ("limiters", _expiring),
    "stalled-check": ("stalled_checks", _expiring),
    "id": ("counters", _counter),
    "pc": ("counters", _counter),
    **{f"job:{suffix}": ("dependencies", _dependencies) for suffix in DEPENDENCY_KINDS},
}
