"""The snapshot: everything under one key prefix, as typed tables. No I/O.

Rows are frozen and hold text exactly as Redis has it (UTF-8, other bytes as surrogate escapes). Scores and times to
live are numbers, until a canonical rule replaces them by a text such as `<finishedOn>`: hence their type `Number`.
Every row names its queue, because a prefix holds several queues as soon as flows are used.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

Number: TypeAlias = float | int | str
"""A number as read, or the text that a canonical rule put in its place."""

DEPENDENCY_KINDS: Mapping[str, str] = {
    "dependencies": "pending",
    "processed": "processed",
    "failed": "failed",
    "unsuccessful": "unsuccessful",
}
"""From the suffix of the parent's key to the kind of dependency row."""


def parsed_json(text: str | None) -> Any:
    """The value of a JSON text; None without a text, and for one that is not JSON (`NaN`).

    For a text that is nested too deep for Python, but not for Node, the text itself is returned.
    """
    if text is None:
        return None
    try:
        # Python reads NaN and Infinity, which JavaScript's JSON.parse refuses: Node could not read such a job.
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        return text
    except ValueError:
        return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


@lru_cache(maxsize=64)
def _parsed_options(text: str | None) -> Mapping[str, Any]:
    """Kept, because rules and checks ask for the options of one job several times in a row."""
    parsed = parsed_json(text)
    return parsed if isinstance(parsed, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job hash."""

    queue: str
    id: str
    fields: Mapping[str, str]

    @property
    def opts(self) -> dict[str, Any]:
        """The options as parsed from the field `opts`; empty where that is missing or is not a JSON object."""
        return dict(_parsed_options(self.fields.get("opts")))

    @property
    def is_iteration(self) -> bool:
        """Whether a job scheduler made it: then the field `rjk` names the scheduler.

        An empty text names none, unless the id has it too: the option `repeat` of a job whose key was lost gives that.
        """
        scheduler = self.fields.get("rjk")
        return bool(scheduler) or (scheduler == "" and self.id.startswith("repeat::"))

    def number(self, field: str) -> float | None:
        """A field as a number; None where it is missing or is not a number."""
        return as_number(self.fields.get(field))


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A job id in a container: `position` from the left in a list, `score` in a sorted set, neither in `stalled`."""

    queue: str
    container: str
    job: str
    position: int | None = None
    score: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """`JOB:lock`. `ttl_ms` is -1 where the lock does not expire.

    `expires_ms`, here and below: when the key ends by the server's clock, Unix ms; None if it never does, or if the
    reader did not ask. Unlike a time to live it does not depend on when it was read.
    """

    queue: str
    job: str
    token: str
    ttl_ms: Number
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A child in one of the four keys of its parent.

    `kind`: `pending`, `processed` (value: return value as JSON), `failed` (value: reason, plain text) or `unsuccessful`
    (score: failure time in ms). `child` is the child's full key.
    """

    queue: str
    parent: str
    kind: str
    child: str
    value: str | None = None
    score: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One row of a job's log."""

    queue: str
    job: str
    position: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An entry of the event stream: its stream id, and all fields in order, `event` included."""

    queue: str
    id: str
    fields: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The kind of event, empty where the entry has no field `event`."""
        return self.get("event") or ""

    @property
    def job(self) -> str:
        """The id of the job it speaks about, empty where it has none."""
        return self.get("jobId") or ""

    def get(self, field: str) -> str | None:
        """The first value of a field."""
        return next((value for name, value in self.fields if name == field), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """A job scheduler: its entry in `repeat` (`next`, ms) and its record `repeat:ID`; either may be missing (None)."""

    queue: str
    id: str
    next: Number | None = None
    fields: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplication:
    """`de:ID`: the job that owns a deduplication id. `ttl_ms` is -1 where the key does not expire.

    Or `dn:ID` (5.72 and newer): `next` is what is kept of the job that is stored when the owner ends; `job` is empty.
    """

    queue: str
    id: str
    job: str
    ttl_ms: Number
    expires_ms: int | None = None
    next: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The settings of a queue."""

    queue: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A wake-up token: member `0` for work available now, member `1` with the due time in ms as its score."""

    queue: str
    member: str
    score: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiring:
    """A string with a time to live that a queue has once: `limiter` or `stalled-check` (`name`)."""

    queue: str
    name: str
    value: str
    ttl_ms: Number
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """`id` or `pc` (`name`)."""

    queue: str
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Metrics of one kind (`completed`, `failed`): the hash, and the points per minute, newest first."""

    queue: str
    kind: str
    fields: Mapping[str, str]
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """A key that expires although BullMQ never lets a key of this kind expire."""

    key: str
    kind: str
    ttl_ms: Number
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A key that has no meaning in BullMQ, or a known name with a foreign Redis type. `value` as JSON-like Python."""

    key: str
    type: str
    value: Any
    ttl_ms: Number
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything under `prefix` at one time. `taken_ms`: the Redis server's clock when it was read, Unix ms."""

    prefix: str
    taken_ms: int
    jobs: tuple[Job, ...] = ()
    memberships: tuple[Membership, ...] = ()
    locks: tuple[Lock, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    logs: tuple[LogRow, ...] = ()
    events: tuple[Event, ...] = ()
    schedulers: tuple[Scheduler, ...] = ()
    deduplications: tuple[Deduplication, ...] = ()
    metas: tuple[Meta, ...] = ()
    markers: tuple[Marker, ...] = ()
    limiters: tuple[Expiring, ...] = ()
    stalled_checks: tuple[Expiring, ...] = ()
    counters: tuple[Counter, ...] = ()
    metrics: tuple[Metrics, ...] = ()
    expiries: tuple[Expiry, ...] = ()
    unknown: tuple[Unknown, ...] = ()

    @property
    def queues(self) -> list[str]:
        """Names of all queues that have a row, sorted."""
        return sorted({row.queue for row in self.rows() if hasattr(row, "queue")})

    def rows(self) -> Iterator[Any]:
        """Every row of every table."""
        for table in TABLES:
            yield from getattr(self, table)

    def job(self, queue: str, job: str) -> Job | None:
        """A job by its id."""
        return next((row for row in self.jobs if row.queue == queue and row.id == job), None)

    def members(self, queue: str, container: str) -> list[str]:
        """The ids of a container: lists from left to right, sorted sets by score."""
        return [row.job for row in self.memberships if row.queue == queue and row.container == container]

    def containers_of(self, queue: str, job: str) -> list[str]:
        """The containers that hold a job, `stalled` aside; BullMQ means it to be exactly one."""
        return [
            row.container
            for row in self.memberships
            if row.queue == queue and row.job == job and row.container != "stalled"
        ]

    def events_of(self, queue: str) -> list[Event]:
        """The event stream of a queue, oldest first."""
        return [row for row in self.events if row.queue == queue]

    def meta(self, queue: str) -> Mapping[str, str]:
        """The settings of a queue; empty where it has none."""
        return next((row.fields for row in self.metas if row.queue == queue), {})


TABLES: tuple[str, ...] = tuple(field.name for field in fields(Snapshot) if field.name not in {"prefix", "taken_ms"})
"""Names of the tables of a snapshot."""


_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", re.ASCII)


ExpiringRow: TypeAlias = Lock | Deduplication | Expiring | Expiry | Unknown


def moment_of(row: ExpiringRow, snapshot: Snapshot) -> float | None:
    """Unix ms at which a key ends; None if it never does.

    A reader that did not ask for the moment has read the time to live when the snapshot was taken.
    """
    if row.expires_ms is not None:
        return row.expires_ms
    ttl_ms = as_number(row.ttl_ms)
    return None if ttl_ms is None or ttl_ms < 0 else snapshot.taken_ms + ttl_ms


def as_number(value: object) -> float | None:
    """A value as a finite number; None where it is not one, also for texts that only Python takes for numbers."""
    if isinstance(value, str):
        return _number_in(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


@lru_cache(maxsize=4096)
def _number_in(text: str) -> float | None:
    """Kept, because rules ask for the same times of a job again and again."""
    number = float(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and math.isfinite(number) else None
