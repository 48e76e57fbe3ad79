"""Redis key names of a queue, and the cluster slots of keys.

All names start with `PREFIX:QUEUE:` (upstream `src/classes/queue-keys.ts`).
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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

LOCK: Final = "lock"
LOGS: Final = "logs"
DEPENDENCIES: Final = "dependencies"
PROCESSED: Final = "processed"
FAILED_CHILDREN: Final = "failed"
UNSUCCESSFUL: Final = "unsuccessful"

JOB_SUFFIXES: Final[Mapping[str, str]] = {
    LOCK: "string",
    LOGS: "list",
    DEPENDENCIES: "set",
    PROCESSED: "hash",
    FAILED_CHILDREN: "hash",
    UNSUCCESSFUL: "zset",
}
"""Suffixes of keys after `PREFIX:QUEUE:ID:`, with their Redis types. Deleting a job deletes all but the lock."""

OTHER_QUEUE_KEYS: Final[Mapping[str, str]] = {
    STALLED: "set",
    MARKER: "zset",
    REPEAT: "zset",
    META: "hash",
    EVENTS: "stream",
    ID_COUNTER: "string",
    PRIORITY_COUNTER: "string",
    LIMITER: "string",
    STALLED_CHECK: "string",
    f"{METRICS}:{COMPLETED}": "hash",
    f"{METRICS}:{FAILED}": "hash",
    f"{METRICS}:{COMPLETED}:data": "list",
    f"{METRICS}:{FAILED}:data": "list",
}
"""Single keys of a queue besides its containers (`states.JOB_CONTAINERS`), with their Redis types."""

EVENT_READER_SUFFIX: Final = ":qe"
"""End of the Redis connection name of a QueueEvents reader."""

NAMED_WORKER_INFIX: Final = ":w:"
"""Between the queue part and the worker's own name in the name of its blocking connection."""

SLOTS: Final = 16384
"""How many slots a Redis cluster has (Redis cluster specification, "hash tags")."""


def is_queue_name(name: str) -> bool:
    """Whether BullMQ accepts the name; keys of a queue with another name could be those of another queue."""
    return bool(name) and ":" not in name


@dataclass(frozen=True)
class QueueKeys:
    """Key names of one queue under one prefix."""

    prefix: str
    queue: str

    @property
    def qualified_name(self) -> str:
        """`PREFIX:QUEUE`, the way a parent reference names a queue."""
        return f"{self.prefix}:{self.queue}"

    @cached_property
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


def hashed_part(key: bytes) -> bytes:
    """The part of a key that determines its slot: the text in the first non-empty `{...}`, else the whole key."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1) if start >= 0 else -1
    return key[start + 1 : end] if end > start + 1 else key


def slot_of(key: bytes) -> int:
    """The slot of a key: CRC16 (XMODEM) modulo 16384."""
    return crc_hqx(hashed_part(key), 0) % SLOTS


def glob_escaped(text: str) -> str:
    r"""The text as a literal of Redis' glob language, for SCAN MATCH (`*`, `?`, `[`, `]` and `\` are special)."""
    return "".join(f"\\{character}" if character in "*?[]\\" else character for character in text)
