"""Everything that the queues under one prefix consist of, named as in Redis.

A queue is its containers, its job hashes with what belongs to them, and a few settings and counters. Lists are written
from left to right: jobs enter at the left end, workers take them from the right end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import pairwise
from typing import Any, TypeVar

from conformance.model.calls import ModelHandle, NotModelled
from conformance.observe.tables import Event
from conformance.protocol.keys import is_queue_name

MADE_ID = "00000000-0000-4000-8000-"
"""The start of ids in place of random ones."""


class SortedSet:
    """Members by ascending score; equal scores by the bytes of the member, as in Redis.

    Ids that are drawn at random have no known place among equal scores. `guessed`: whether an order was asked for
    which depends on that, since it was set to False.
    """

    def __init__(self) -> None:
        self._scores: dict[str, float] = {}
        self.guessed = False

    def __contains__(self, member: object) -> bool:
        return member in self._scores

    def __len__(self) -> int:
        return len(self._scores)

    def __iter__(self) -> Iterator[str]:
        return iter(self.members())

    def copy(self) -> SortedSet:
        """An independent copy."""
        duplicate = SortedSet()
        duplicate._scores = dict(self._scores)
        return duplicate

    def add(self, member: str, score: float) -> None:
        """Insert a member, or move it to another score."""
        self._scores[member] = float(score)

    def remove(self, member: str) -> bool:
        """Whether the member was there."""
        return self._scores.pop(member, None) is not None

    def score(self, member: str) -> float | None:
        """The member's score; None if it is not a member."""
        return self._scores.get(member)

    def members(self) -> list[str]:
        """All members in order."""
        return [member for member, _ in self.items()]

    def items(self) -> list[tuple[str, float]]:
        """Members with scores, in order."""
        ordered = sorted(self._scores.items(), key=lambda item: (item[1], item[0].encode("utf-8", "surrogatepass")))
        for (left, lower), (right, higher) in pairwise(ordered):
            self.guessed |= lower == higher and (MADE_ID in left or MADE_ID in right)
        return ordered

    def between(self, low: float = -math.inf, high: float = math.inf) -> list[str]:
        """Members with a score in [low, high], in order."""
        return [member for member, score in self.items() if low <= score <= high]

    def first_score(self) -> float | None:
        """The lowest score; None for an empty set."""
        return min(self._scores.values(), default=None)

    def pop_first(self) -> str | None:
        """Take out the first member; None for an empty set."""
        members = self.members()
        if not members:
            return None
        del self._scores[members[0]]
        return members[0]

    def clear(self) -> None:
        """Take out everything."""
        self._scores.clear()


@dataclass(slots=True)
class ExpiringValue:
    """A string key. `due_ms`: when the server lets it expire, by the server's clock; None: never."""

    value: str
    due_ms: int | None = None

    def ttl_ms(self, server_ms: int) -> int:
        """Time to live as PTTL returns it: -1 for a key that does not expire."""
        return -1 if self.due_ms is None else self.due_ms - server_ms


def list_range(items: list[str], start: int, end: int) -> list[str]:
    """LRANGE and ZRANGE by index: both ends included, negative ones counted from the right."""
    size = len(items)
    first = max(start + size if start < 0 else start, 0)
    last = end + size if end < 0 else end
    return items[first : last + 1] if last >= first else []


JobFields = dict[str, str]
"""A job hash: every value is text, exactly as in Redis."""

MODEL_PREFIX = "the-model"
"""The prefix that the model's keys have; the canonical rule `own-prefix` makes it equal to any other."""

Value = TypeVar("Value")


def copied(value: Value) -> Value:
    """An independent copy of a part of the state; much faster than `copy.deepcopy`, which knows less about it."""
    duplicate: Any = value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, dict):
        duplicate = {key: copied(item) for key, item in value.items()}
    elif isinstance(value, (list, set, SortedSet)):
        duplicate = value.copy()
    elif is_dataclass(value) and not isinstance(value, type | Event):
        duplicate = type(value)(
            **{attribute.name: copied(getattr(value, attribute.name)) for attribute in fields(value)}
        )
    result: Value = duplicate
    return result


@dataclass(slots=True)
class FlowRelations:
    """The children of a job, by their full keys and by how they ended."""

    unprocessed: dict[str, None] = field(default_factory=dict)
    """Key `dependencies`, a set: not finished yet."""
    processed: dict[str, str] = field(default_factory=dict)
    """Key `processed`: completed, with the return value."""
    ignored: dict[str, str] = field(default_factory=dict)
    """Key `failed`: failed without failing the parent, with the reason."""
    failed: SortedSet = field(default_factory=SortedSet)
    """Key `unsuccessful`: failed, and with it the parent; scored with the time (ms)."""

    def exists(self) -> bool:
        """Whether any of the four keys is there: Redis keeps no empty ones."""
        return any(len(part) > 0 for part in (self.unprocessed, self.processed, self.ignored, self.failed))


@dataclass(slots=True)
class MetricsRecord:
    """Counts of finished jobs: the hash, and the points per minute, newest first."""

    fields: dict[str, str] = field(default_factory=dict)
    points: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBackJob:
    """A job that is about to be added, or that waits until the owner of its deduplication id ends.

    `options` under their short names; `links`: its fields that name a parent, whose full key is `parent_key`.
    """

    id: str
    name: str
    data_raw: str
    options: dict[str, Any]
    links: dict[str, str]
    parent_key: str | None


@dataclass(slots=True)
class QueueState:
    """One queue."""

    name: str
    base: str
    """`PREFIX:QUEUE:`, the beginning of every key."""

    wait: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    active: list[str] = field(default_factory=list)
    prioritized: SortedSet = field(default_factory=SortedSet)
    delayed: SortedSet = field(default_factory=SortedSet)
    completed: SortedSet = field(default_factory=SortedSet)
    failed: SortedSet = field(default_factory=SortedSet)
    waiting_children: SortedSet = field(default_factory=SortedSet)
    stalled: set[str] = field(default_factory=set)
    marker: dict[str, float] = field(default_factory=dict)

    jobs: dict[str, JobFields] = field(default_factory=dict)
    locks: dict[str, ExpiringValue] = field(default_factory=dict)
    logs: dict[str, list[str]] = field(default_factory=dict)
    flow_relations: dict[str, FlowRelations] = field(default_factory=dict)

    meta: dict[str, str] = field(default_factory=dict)
    id_counter: int | None = None
    priority_counter: int | None = None
    events: list[Event] = field(default_factory=list)
    limiter: ExpiringValue | None = None
    stalled_check: ExpiringValue | None = None
    deduplications: dict[str, ExpiringValue] = field(default_factory=dict)
    kept_back: dict[str, KeptBackJob] = field(default_factory=dict)
    """Keys `dn:ID` of 5.72 and newer, by the deduplication id."""
    scheduler_times: SortedSet = field(default_factory=SortedSet)
    """Key `repeat`: scheduler ids by the time of their current iteration (ms)."""
    scheduler_records: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics: dict[str, MetricsRecord] = field(default_factory=dict)

    def key(self, job: str) -> str:
        """The full key of a job's hash."""
        return self.base + job

    def hash(self, job: str) -> JobFields:
        """The job's hash; writing to one that does not exist makes it, as in Redis."""
        return self.jobs.setdefault(job, {})

    def field(self, job: str, name: str) -> str | None:
        """A field of the job's hash; None where the field or the hash is missing."""
        return self.jobs.get(job, {}).get(name)

    def relations(self, job: str) -> FlowRelations:
        """The job's children, for writing."""
        return self.flow_relations.setdefault(job, FlowRelations())

    def children(self, job: str) -> FlowRelations:
        """The job's children, for reading."""
        return self.flow_relations.get(job, FlowRelations())

    def container(self, name: str) -> list[str] | SortedSet:
        """A container by the name of its key."""
        containers: dict[str, list[str] | SortedSet] = {
            "wait": self.wait,
            "paused": self.paused,
            "active": self.active,
            "prioritized": self.prioritized,
            "delayed": self.delayed,
            "completed": self.completed,
            "failed": self.failed,
            "waiting-children": self.waiting_children,
        }
        if name not in containers:
            raise NotModelled(f"the state {name!r}")
        return containers[name]


@dataclass(slots=True)
class ModelState:
    """All queues under one prefix, the open handles, and the server's clock."""

    prefix: str = MODEL_PREFIX
    server_ms: int = 0
    """The server's clock, in ms since the start of the model; it only affects times to live."""
    queues: dict[str, QueueState] = field(default_factory=dict)
    handles: dict[str, ModelHandle] = field(default_factory=dict)
    made_ids: int = 0
    scripts: set[str] = field(default_factory=set)
    """The adding scripts that Redis has since the last flush."""
    journal: list[Event] = field(default_factory=list)
    """The events of the call that is going on."""
    determined: bool = True

    def queue(self, name: str) -> QueueState:
        """A queue by its name; every name is a queue."""
        if name not in self.queues:
            self.queues[name] = QueueState(name, f"{self.prefix}:{name}:")
        return self.queues[name]

    def locate(self, key: str) -> tuple[QueueState, str]:
        """The queue and the id in a full job key.

        The scripts take what follows the last colon for the id. Raises NotModelled for ids with a colon.
        """
        base, _, job = key.rpartition(":")
        prefix, _, name = base.partition(":")
        if prefix != self.prefix or not is_queue_name(name):
            raise NotModelled(f"the relative {key!r}: ids with a colon in flows, or a key of another prefix")
        return self.queue(name), job

    def exists(self, key: str) -> bool:
        """Whether the hash of a job exists, by its full key."""
        if not key.startswith(f"{self.prefix}:"):
            return False
        queue, job = self.locate(key)
        return job in queue.jobs

    def copy(self) -> ModelState:
        """An independent copy. Events are shared, because they never change."""
        return copied(self)

    def sorted_sets(self) -> Iterator[SortedSet]:
        """Every sorted set that there is."""
        for queue in self.queues.values():
            yield from (queue.prioritized, queue.delayed, queue.completed, queue.failed, queue.waiting_children)
            yield queue.scheduler_times
            yield from (relations.failed for relations in queue.flow_relations.values())

    def new_id(self) -> str:
        """An id in the form of a uuid, for jobs of flows that are given none."""
        self.made_ids += 1
        return f"{MADE_ID}{self.made_ids:012x}"

    def pass_time(self, duration_ms: int) -> None:
        """Let the server's clock go on, and forget what has expired."""
        self.server_ms += duration_ms
        for queue in self.queues.values():
            queue.locks = dict(self._living(queue.locks))
            queue.deduplications = dict(self._living(queue.deduplications))
            queue.limiter = self._alive(queue.limiter)
            queue.stalled_check = self._alive(queue.stalled_check)

    def expiring(self, value: str, duration_ms: float) -> ExpiringValue:
        """A key that lives for this long (ms) from now on."""
        return ExpiringValue(value, self.server_ms + int(duration_ms))

    def _living(self, keys: dict[str, ExpiringValue]) -> Iterator[tuple[str, ExpiringValue]]:
        return ((name, key) for name, key in keys.items() if self._alive(key))

    def _alive(self, key: ExpiringValue | None) -> ExpiringValue | None:
        return None if key is None or (key.due_ms is not None and key.due_ms <= self.server_ms) else key
