"""The states of a job, the Redis containers that hold the jobs of each, and what their scores mean.

`JOB_CONTAINERS` is the only table: other code selects rows from it, such as "all sorted sets" or "states that
`Queue.count` counts". Orders with a meaning in upstream have their own constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from conformance.protocol import keys

Score = Literal["priority", "due time", "time"]
"""`priority`: see `PRIORITY_FACTOR`. `due time`: see `DELAY_FACTOR`. `time`: Unix ms at which the job came in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContainer:
    """A key that gives the jobs in it their state; a job is in exactly one container.

    `key`: its name after `PREFIX:QUEUE:`. `job_type`: what getters and users call it (upstream `JobType`). `state`:
    what getState returns for a job in it (upstream `JobState`). `event`: the event of the stream with which a job comes
    in. `score`: what the scores of a sorted set are, None for a list. `pending`: counted by Queue.count. `fetched`:
    workers take their next job from it. `finished`: jobs in it have ended.
    """

    key: str
    job_type: str
    state: str
    event: str
    redis_type: Literal["list", "zset"]
    score: Score | None = None
    pending: bool = False
    fetched: bool = False
    finished: bool = False


def _list(key: str, *, state: str, event: str, job_type: str, pending: bool, fetched: bool = False) -> JobContainer:
    return JobContainer(
        key=key, job_type=job_type, state=state, event=event, redis_type="list", pending=pending, fetched=fetched
    )


def _sorted_set(
    key: str,
    *,
    score: Score,
    event: str | None = None,
    pending: bool = False,
    fetched: bool = False,
    finished: bool = False,
) -> JobContainer:
    """A sorted set: its state, type and key have the same name."""
    return JobContainer(
        key=key,
        job_type=key,
        state=key,
        event=event or key,
        redis_type="zset",
        score=score,
        pending=pending,
        fetched=fetched,
        finished=finished,
    )


JOB_CONTAINERS: Final = (
    _list(keys.WAIT, job_type="waiting", state="waiting", event="waiting", pending=True, fetched=True),
    _list(keys.PAUSED, job_type="paused", state="waiting", event="waiting", pending=True),
    _list(keys.ACTIVE, job_type="active", state="active", event="active", pending=False),
    _sorted_set(keys.PRIORITIZED, score="priority", event="waiting", pending=True, fetched=True),
    _sorted_set(keys.DELAYED, score="due time", pending=True),
    _sorted_set(keys.COMPLETED, score="time", finished=True),
    _sorted_set(keys.FAILED, score="time", finished=True),
    _sorted_set(keys.WAITING_CHILDREN, score="time", pending=True),
)
"""All of them, lists first. Fetching takes from the right end of a list, adding goes to the left."""

LIST_CONTAINERS: Final = tuple(container.key for container in JOB_CONTAINERS if container.redis_type == "list")
"""Containers that are Redis lists."""

ZSET_CONTAINERS: Final = tuple(container.key for container in JOB_CONTAINERS if container.redis_type == "zset")
"""Containers that are Redis sorted sets."""

QUEUE_KEYS: Final[Mapping[str, str]] = {
    **{container.key: container.redis_type for container in JOB_CONTAINERS},
    **keys.OTHER_QUEUE_KEYS,
}
"""Redis type of every key that a queue has once."""

STATE_CONTAINERS: Final = (*LIST_CONTAINERS, *ZSET_CONTAINERS)
"""A job is in exactly one of these; `stalled` is an additional set."""

UNFINISHED_CONTAINERS: Final = tuple(container.key for container in JOB_CONTAINERS if not container.finished)
"""Empty when everything is done."""

JOB_TYPES: Final = tuple(sorted(container.job_type for container in JOB_CONTAINERS))
"""Types for getters, in the order in which getters report all of them. `waiting` is the key `wait`."""

PENDING_TYPES: Final = ("waiting", "paused", "delayed", "prioritized", "waiting-children")
"""The types that Queue.count counts, in upstream's order (`queue-getters.ts`)."""

WAITING_CONTAINERS: Final = frozenset(container.key for container in JOB_CONTAINERS if container.event == "waiting")
"""The containers of a job after an event `waiting`."""

FETCHED_CONTAINERS: Final = frozenset(container.key for container in JOB_CONTAINERS if container.fetched)
"""Workers take their next job from these."""

STATE_LOOKUP: Final = (
    keys.COMPLETED,
    keys.FAILED,
    keys.DELAYED,
    keys.PRIORITIZED,
    keys.ACTIVE,
    keys.WAIT,
    keys.PAUSED,
    keys.WAITING_CHILDREN,
)
"""Containers in the order in which getState looks through them (upstream `getState-8.lua`)."""

REMOVAL_LOOKUP: Final = (
    keys.COMPLETED,
    keys.WAITING_CHILDREN,
    keys.DELAYED,
    keys.FAILED,
    keys.PRIORITIZED,
    keys.WAIT,
    keys.PAUSED,
    keys.ACTIVE,
)
"""Containers in the order in which a job's removal looks through them (upstream `removeJobFromAnyState.lua`)."""

STATE_UNKNOWN: Final = "unknown"
"""The answer of getState for a job without container."""

STATE_OF_CONTAINER: Final[Mapping[str, str]] = {container.key: container.state for container in JOB_CONTAINERS}
"""The answer of getState, by container."""

_CONTAINER_OF_TYPE: Final = {container.job_type: container.key for container in JOB_CONTAINERS}

DELAY_FACTOR: Final = 0x1000
"""A delayed score is the due time in ms times this, plus a number that keeps equal times in order."""

PRIORITY_FACTOR: Final = 0x1_0000_0000
"""A prioritized score is the priority times this, plus a counter that keeps equal priorities in order."""


def container_of(job_type: str) -> str:
    """Name of the Redis key that holds the jobs of a type; other names stay unchanged."""
    return _CONTAINER_OF_TYPE.get(job_type, job_type)


def delayed_score(due_ms: float) -> float:
    """Score of the first job that is due at this Unix time (upstream Lua include `getDelayedScore`)."""
    return due_ms * DELAY_FACTOR


def due_time(score: float) -> float:
    """Unix time in ms at which a job with this delayed score is due."""
    return score // DELAY_FACTOR


def priority_of(score: float) -> int:
    """Priority of a job with this prioritized score (upstream Lua include `getPriorityScore`)."""
    return int(score // PRIORITY_FACTOR)
