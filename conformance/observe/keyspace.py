"""Which key under a prefix means what, and its rows in the typed tables of a snapshot. No I/O.

A key is `PREFIX:QUEUE:REST`. A queue name holds no `:` (upstream `queue-base.ts` refuses it), a job id may; therefore
the queue is what stands between the prefix and the next colon, and everything after it is the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from conformance.observe.relay import relay_place
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
from conformance.protocol.keys import JOB_SUFFIXES
from conformance.protocol.states import LIST_CONTAINERS, QUEUE_KEYS, ZSET_CONTAINERS

DEDUPLICATION = "de:"
KEPT_BACK = "dn:"
SCHEDULER = "repeat:"

SCHEDULER_ONLY_FIELDS = frozenset({"ic", "every", "pattern", "startDate", "endDate", "limit", "tz", "offset"})
"""Fields of a scheduler record that no job hash has."""

EXPIRING = frozenset({"job:lock", "deduplication", "limiter", "stalled-check"})
"""Kinds of key that BullMQ lets expire; a time to live on any other kind is a row of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedKey:
    """The kind of a key.

    `kind`: a name of `QUEUE_KEYS`, `job:` and a suffix of `JOB_SUFFIXES`, `job`, `deduplication`, `kept-back`,
    `scheduler` or `unknown`.
    `subject`: the job id, deduplication id or scheduler id; empty for keys that a queue has once.
    """

    queue: str
    kind: str
    subject: str = ""


def split_key(prefix: str, key: str) -> tuple[str, str]:
    """The queue and the rest of a key; both empty where the key is not of the form `PREFIX:QUEUE:REST`."""
    queue, colon, rest = key.removeprefix(f"{prefix}:").partition(":")
    return (queue, rest) if colon and rest and key.startswith(f"{prefix}:") else ("", "")


def decode_key(prefix: str, key: str, redis_type: str, fields: Iterable[str] = ()) -> DecodedKey:
    """The kind of a key, from its name and type, and for a hash from its field names.

    A name that BullMQ reserves but with another Redis type is `unknown`, unless it is a hash: then it is a job with a
    reserved id, as BullMQ itself would see it.
    """
    queue, rest = split_key(prefix, key)
    if not rest or relay_place(prefix, key) is not None:
        return DecodedKey(queue=queue, kind="unknown")
    if QUEUE_KEYS.get(rest) == redis_type:
        return DecodedKey(queue=queue, kind=rest)
    if rest.startswith(DEDUPLICATION) and redis_type == "string":
        return DecodedKey(queue=queue, kind="deduplication", subject=rest.removeprefix(DEDUPLICATION))
    names = frozenset(fields)
    # `timestamp` is in every job: one may have such an id.
    if rest.startswith(KEPT_BACK) and redis_type == "hash" and "timestamp" not in names:
        return DecodedKey(queue=queue, kind="kept-back", subject=rest.removeprefix(KEPT_BACK))
    owned = _owned_by_job(queue, rest, redis_type, names)
    if owned is not None:
        return owned
    if redis_type != "hash":
        return DecodedKey(queue=queue, kind="unknown", subject=rest)
    # An iteration is a job hash under the same start; `timestamp` is in every job and in no record.
    if rest.startswith(SCHEDULER) and names & SCHEDULER_ONLY_FIELDS and "timestamp" not in names:
        return DecodedKey(queue=queue, kind="scheduler", subject=rest.removeprefix(SCHEDULER))
    return DecodedKey(queue=queue, kind="job", subject=rest)


def _owned_by_job(queue: str, rest: str, redis_type: str, names: frozenset[str]) -> DecodedKey | None:
    """A key `JOB:SUFFIX`. The hashes of finished children have child keys as fields, and those contain a colon."""
    job, colon, suffix = rest.rpartition(":")
    if not (colon and job) or JOB_SUFFIXES.get(suffix) != redis_type:
        return None
    # A job whose id ends in such a suffix has field names without a colon.
    if redis_type == "hash" and not all(":" in name for name in names):
        return None
    return DecodedKey(queue=queue, kind=f"job:{suffix}", subject=job)


def is_reserved(rest: str) -> bool:
    """Whether BullMQ gives a meaning to this name after `PREFIX:QUEUE:` (jobs aside)."""
    return rest in QUEUE_KEYS or rest.rpartition(":")[2] in JOB_SUFFIXES or rest.startswith((DEDUPLICATION, KEPT_BACK))


@dataclass(frozen=True, slots=True, kw_only=True)
class RawKey:
    """A key as read. `value`: text, list of text, dict, or pairs (zset: member and score, stream: id and fields).

    `expires_ms`: the moment at which it ends, Unix ms, if the reader asked for it.
    """

    key: str
    type: str
    value: Any
    ttl_ms: int = -1
    expires_ms: int | None = None


def assemble(prefix: str, taken_ms: int, raw_keys: Iterable[RawKey]) -> Snapshot:
    """Sort every key into its table. A key that was read as nothing, or that nothing fits, becomes an `Unknown` row."""
    tables: dict[str, list[Any]] = {table: [] for table in TABLES}
    repeat: dict[tuple[str, str], float] = {}
    records: dict[tuple[str, str], dict[str, str]] = {}
    metrics: dict[tuple[str, str], tuple[dict[str, str], tuple[str, ...]]] = {}
    # Read twice: `repeat` must be known before the hashes, which come in any order.
    raw_keys = list(raw_keys)
    scheduler_keys = _scheduler_keys(prefix, raw_keys)
    for raw in raw_keys:
        key = _decoded(prefix, raw, scheduler_keys)
        if raw.ttl_ms >= 0 and key.kind not in EXPIRING | {"unknown"}:
            tables["expiries"].append(Expiry(key=raw.key, kind=key.kind, **_lifetime(raw)))
        if key.kind == "repeat":
            repeat.update({(key.queue, member): score for member, score in raw.value})
        elif key.kind == "scheduler":
            records[key.queue, key.subject] = raw.value
        elif key.kind.startswith("metrics:"):
            _collect_metrics(metrics, key, raw)
        else:
            table, rows = _rows(key, raw)
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


def _decoded(prefix: str, raw: RawKey, scheduler_keys: frozenset[str]) -> DecodedKey:
    """The kind of a key. A value that could not be read is unknown."""
    if raw.value is None:
        return DecodedKey(queue=split_key(prefix, raw.key)[0], kind="unknown")
    fields = raw.value if raw.type == "hash" else ()
    if raw.key in scheduler_keys and raw.type == "hash" and "timestamp" not in fields:
        queue, rest = split_key(prefix, raw.key)
        return DecodedKey(queue=queue, kind="scheduler", subject=rest.removeprefix("repeat:"))
    return decode_key(prefix, raw.key, raw.type, fields)


def _collect_metrics(
    metrics: dict[tuple[str, str], tuple[dict[str, str], tuple[str, ...]]], key: DecodedKey, raw: RawKey
) -> None:
    """Join `metrics:KIND` and `metrics:KIND:data`."""
    kind = key.kind.split(":")[1]
    fields, points = metrics.get((key.queue, kind), ({}, ()))
    if key.kind.endswith(":data"):
        points = tuple(raw.value)
    else:
        fields = raw.value
    metrics[key.queue, kind] = (fields, points)


def _rows(key: DecodedKey, raw: RawKey) -> tuple[str, list[Any]]:
    """The table of a key, and the rows that the key gives."""
    if key.kind in LIST_CONTAINERS:
        return "memberships", [
            Membership(queue=key.queue, container=key.kind, job=job, position=position)
            for position, job in enumerate(raw.value)
        ]
    if key.kind in ZSET_CONTAINERS:
        return "memberships", [
            Membership(queue=key.queue, container=key.kind, job=job, score=score) for job, score in raw.value
        ]
    table, make = _MAKERS.get(key.kind, ("unknown", _unknown))
    return table, make(key, raw)


def _lifetime(raw: RawKey) -> dict[str, Any]:
    return {"ttl_ms": raw.ttl_ms, "expires_ms": raw.expires_ms}


def _unknown(_: DecodedKey, raw: RawKey) -> list[Any]:
    return [Unknown(key=raw.key, type=raw.type, value=raw.value, **_lifetime(raw))]


def _dependencies(key: DecodedKey, raw: RawKey) -> list[Any]:
    """One row per child; its value depends on the Redis type."""
    kind = DEPENDENCY_KINDS[key.kind.removeprefix("job:")]
    if raw.type == "hash":
        return [
            Dependency(queue=key.queue, parent=key.subject, kind=kind, child=child, value=value)
            for child, value in sorted(raw.value.items())
        ]
    if raw.type == "zset":
        return [
            Dependency(queue=key.queue, parent=key.subject, kind=kind, child=child, score=score)
            for child, score in raw.value
        ]
    return [Dependency(queue=key.queue, parent=key.subject, kind=kind, child=child) for child in raw.value]


def _expiring(key: DecodedKey, raw: RawKey) -> list[Any]:
    return [Expiring(queue=key.queue, name=key.kind, value=raw.value, **_lifetime(raw))]


def _counter(key: DecodedKey, raw: RawKey) -> list[Any]:
    return [Counter(queue=key.queue, name=key.kind, value=raw.value)]


def _events(key: DecodedKey, raw: RawKey) -> list[Any]:
    return [Event(queue=key.queue, id=entry, fields=tuple(fields.items())) for entry, fields in raw.value]


def _logs(key: DecodedKey, raw: RawKey) -> list[Any]:
    return [
        LogRow(queue=key.queue, job=key.subject, position=position, text=text)
        for position, text in enumerate(raw.value)
    ]


_MAKERS: dict[str, tuple[str, Callable[[DecodedKey, RawKey], list[Any]]]] = {
    "job": ("jobs", lambda key, raw: [Job(queue=key.queue, id=key.subject, fields=raw.value)]),
    "stalled": (
        "memberships",
        lambda key, raw: [Membership(queue=key.queue, container="stalled", job=job) for job in raw.value],
    ),
    "job:lock": (
        "locks",
        lambda key, raw: [Lock(queue=key.queue, job=key.subject, token=raw.value, **_lifetime(raw))],
    ),
    "deduplication": (
        "deduplications",
        lambda key, raw: [Deduplication(queue=key.queue, id=key.subject, job=raw.value, **_lifetime(raw))],
    ),
    "kept-back": (
        "deduplications",
        lambda key, raw: [Deduplication(queue=key.queue, id=key.subject, job="", next=raw.value, **_lifetime(raw))],
    ),
    "marker": (
        "markers",
        lambda key, raw: [Marker(queue=key.queue, member=member, score=score) for member, score in raw.value],
    ),
    "meta": ("metas", lambda key, raw: [Meta(queue=key.queue, fields=raw.value)]),
    "job:logs": ("logs", _logs),
    "events": ("events", _events),
    "limiter": ("limiters", _expiring),
    "stalled-check": ("stalled_checks", _expiring),
    "id": ("counters", _counter),
    "pc": ("counters", _counter),
    **{f"job:{suffix}": ("dependencies", _dependencies) for suffix in DEPENDENCY_KINDS},
}
