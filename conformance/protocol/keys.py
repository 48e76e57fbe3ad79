"""Redis key names of a queue. All of them start with `PREFIX:QUEUE:` (upstream `src/classes/queue-keys.ts`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_PREFIX: Final = "bull"

WAIT: Final = "wait"
PAUSED: Final = "paused"
ACTIVE: Final = "active"
PRIORITIZED: Final = "prioritized"
DELAYED: Final = "delayed"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
WAITING_CHILDREN: Final = "waiting-children"
STALLED: Final = "stalled"

META: Final = "meta"
ID_COUNTER: Final = "id"
PRIORITY_COUNTER: Final = "pc"
MARKER: Final = "marker"
EVENTS: Final = "events"
LIMITER: Final = "limiter"
STALLED_CHECK: Final = "stalled-check"
REPEAT: Final = "repeat"
DEDUPLICATION: Final = "de"
METRICS: Final = "metrics"

LIST_CONTAINERS: Final = (WAIT, PAUSED, ACTIVE)
"""Containers of job ids that are Redis lists."""

ZSET_CONTAINERS: Final = (PRIORITIZED, DELAYED, COMPLETED, FAILED, WAITING_CHILDREN)
"""Containers of job ids that are Redis sorted sets."""

STATE_CONTAINERS: Final = (*LIST_CONTAINERS, *ZSET_CONTAINERS)
"""A job is in exactly one of these; `stalled` is a set beside them."""

LOCK: Final = "lock"
LOGS: Final = "logs"
DEPENDENCIES: Final = "dependencies"
PROCESSED: Final = "processed"
FAILED_CHILDREN: Final = "failed"
UNSUCCESSFUL: Final = "unsuccessful"

JOB_SUFFIXES: Final = (LOCK, LOGS, DEPENDENCIES, PROCESSED, FAILED_CHILDREN, UNSUCCESSFUL)
"""What may follow `PREFIX:QUEUE:ID:`. Deleting a job deletes all of them except the lock."""

EVENT_READER_SUFFIX: Final = ":qe"
"""End of the Redis connection name of a QueueEvents reader."""

NAMED_WORKER_INFIX: Final = ":w:"
"""Between the queue part and the worker's own name in the name of its blocking connection."""


@dataclass(frozen=True)
class QueueKeys:
    """Key names of one queue under one prefix."""

    prefix: str
    queue: str

    @property
    def qualified_name(self) -> str:
        """`PREFIX:QUEUE`, the way a parent reference names a queue."""
        return f"{self.prefix}:{self.queue}"

    @property
    def base(self) -> str:
        """`PREFIX:QUEUE:`, what scripts expect as the key prefix."""
        return f"{self.qualified_name}:"

    def key(self, name: str) -> str:
        """Full key of a queue-level name or of a job id."""
        return f"{self.base}{name}"

    def keys(self, *names: str) -> list[str]:
        """Full keys, in the order given."""
        base = self.base
        return [base + name for name in names]

    def of_job(self, job_id: str, suffix: str) -> str:
        """Full key of a job's companion, for example its lock."""
        return f"{self.base}{job_id}:{suffix}"

    def deduplication(self, deduplication_id: str) -> str:
        """Full key that holds the id of the job which owns a deduplication id."""
        return f"{self.base}{DEDUPLICATION}:{deduplication_id}"
