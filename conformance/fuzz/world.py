"""What the generator may know of the state: which jobs there are, where, and who holds them. Read from the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from conformance.observe.differences import natural
from conformance.observe.layout import STATES
from conformance.observe.tables import Snapshot

State: TypeAlias = str
"""The container that a job is in (`wait`, `paused`, `active`, ...), or `missing`."""

MISSING: State = "missing"
JOB_STATES: tuple[State, ...] = (*STATES, MISSING)


@dataclass(frozen=True)
class QueueWorld:
    """One queue. `jobs`: state by id, in a stable order; `tokens`: lock token by id of the locked jobs."""

    jobs: dict[str, State] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    schedulers: tuple[str, ...] = ()
    deduplications: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    paused: bool = False

    def state_of(self, job: str) -> State:
        """The state of a job, `missing` where there is none."""
        return self.jobs.get(job, MISSING)

    def in_states(self, states: Iterable[State]) -> list[str]:
        """The jobs in any of the states, in a stable order."""
        wanted = frozenset(states)
        return [job for job, state in self.jobs.items() if state in wanted]


@dataclass(frozen=True)
class World:
    """All queues of the sequence by name; a queue that nothing was written to yet is empty."""

    queues: dict[str, QueueWorld] = field(default_factory=dict)

    def queue(self, name: str) -> QueueWorld:
        """One queue."""
        return self.queues.get(name, EMPTY)


EMPTY = QueueWorld()


def world_of(snapshot: Snapshot) -> World:
    """What the generator may know of a snapshot."""
    return World({queue: _queue_of(snapshot, queue) for queue in snapshot.queues})


def _queue_of(snapshot: Snapshot, queue: str) -> QueueWorld:
    states = {row.job: row.container for row in snapshot.memberships if row.queue == queue and row.container in STATES}
    paused = "paused" in snapshot.meta(queue)
    return QueueWorld(
        jobs=dict(sorted(states.items(), key=lambda item: natural(item[0]))),
        tokens={row.job: row.token for row in snapshot.locks if row.queue == queue},
        schedulers=tuple(sorted(row.id for row in snapshot.schedulers if row.queue == queue)),
        deduplications=tuple(sorted(row.id for row in snapshot.deduplications if row.queue == queue)),
        parents=tuple(sorted({row.parent for row in snapshot.dependencies if row.queue == queue}, key=natural)),
        paused=paused,
    )
