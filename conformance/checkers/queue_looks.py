"""One look: the state of a queue at a moment. The times are of Redis' own clock, in Unix ms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.protocol import keys
from conformance.protocol.states import FETCHED_CONTAINERS


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


@dataclass(frozen=True, kw_only=True)
class EventCounts:
    """Events since the look before. `complete`: False if some were trimmed or too many to read."""

    active: int = 0
    stalled: int = 0
    added: int = 0
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class QueueLook:
    """A queue at one moment.

    `sizes`: members of each container. `exists`: the queue has settings. `is_held`: a pause, a rate limit or the
    concurrency of the queue keeps workers from taking jobs. `has_marker`: the key that wakes a worker exists.
    `next_jobs`: the ends of `wait` and `prioritized` from which workers take. `holders`: the workers that hold locks,
    by the first half of their tokens; None: there are more active jobs than are read. `overdue`: delayed jobs past
    their time and the grace; `overdue_ms`: how long ago the first of them was due. `dead_schedules`: ids and times of
    schedules without a next iteration.
    """

    at_ms: int
    sizes: Mapping[str, int]
    exists: bool = True
    is_paused: bool = False
    is_held: bool = False
    has_marker: bool = False
    next_jobs: tuple[str, ...] = ()
    events: EventCounts = EventCounts()
    workers: tuple[WorkerConnection, ...] = ()
    holders: frozenset[str] | None = frozenset()
    overdue: int = 0
    overdue_ms: int = 0
    dead_schedules: frozenset[tuple[str, int]] = field(default=frozenset())

    @property
    def waiting(self) -> int:
        """Jobs that a worker may take now."""
        return sum(self.sizes.get(name, 0) for name in FETCHED_CONTAINERS)

    @property
    def backlog(self) -> int:
        """Jobs that wait, those of a paused queue included."""
        return self.waiting + self.sizes.get(keys.PAUSED, 0)

    @property
    def is_claimable(self) -> bool:
        """Whether a worker that is alive would take a job."""
        return self.waiting > 0 and not self.is_held
