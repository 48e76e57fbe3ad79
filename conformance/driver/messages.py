"""The lines of the driver protocol, version 1: JSON objects, one per line, told apart by their `type`.

Kit to driver: `Hello`, `Call`. Driver to kit: `Ready`, `Result`, `Event`. Field names are snake_case; operation names
and everything inside `options` and `opts` keep BullMQ's own spelling. Every line is validated when it is read: an
unknown `type`, a missing field or a field of the wrong type is a protocol violation, unknown extra fields are ignored
so that a driver can be newer than the kit.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

PROTOCOL_VERSION = 1
MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is refused without being parsed (bytes, the newline included)."""

Capability = Literal["clock", "manual-worker", "managed-worker", "cluster", "raw-data"]
"""What a driver can do beyond single operations.

`clock`: obeys `now_ms`. `manual-worker`: workers of processor `manual`. `managed-worker`: the client's real loop.
`cluster`: accepts `redis.mode` `cluster`. `raw-data`: `data_raw` reaches Redis as the exact text that was sent.
"""

ErrorCode = Literal[
    "missing-job",  # -1: the job hash does not exist
    "missing-lock",  # -2
    "wrong-state",  # -3: the job is not in the container that the operation needs
    "pending-dependencies",  # -4
    "missing-parent",  # -5
    "lock-mismatch",  # -6: another token owns the lock
    "parent-replaced",  # -7
    "scheduler-job",  # -8: the job is the current iteration of a scheduler
    "failed-children",  # -9
    "scheduler-collision",  # -10 and -11
    "invalid-argument",  # refused by the client before anything was sent to Redis
    "job-failed",  # waitUntilFinished: the job ended as failed
    "timeout",  # the client gave up waiting
    "connection-lost",  # usually with definite=false
    "other",
]


class ClientInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who is behind a driver: name, implementation language, its own version, the BullMQ version that it targets."""

    name: str
    language: str
    version: str
    targets: str = "5.62.0"


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="hello"):
    """The kit's first line. `seed` feeds whatever the driver does at random."""

    protocol: int
    seed: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ready"):
    """The driver's first line: who it drives, the operations it has, and its capabilities."""

    protocol: int
    client: ClientInfo
    ops: list[str]
    capabilities: list[str]


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a handle finds Redis. `nodes` are `host:port`; more than one only in mode `cluster`."""

    mode: Literal["standalone", "cluster"]
    nodes: list[str]
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: bool = False


class Call(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="call", omit_defaults=True):
    """One operation on one handle.

    `deadline_ms`: how long the kit waits for the result. `now_ms` (Unix ms, only sent to drivers with `clock`): the
    client's clock stands still at this instant until a later call brings another one; `reset` lets it run again.
    """

    id: int
    op: str
    args: dict[str, Any]
    handle: str | None = None
    deadline_ms: int = 5000
    now_ms: int | None = None


class DriverError(msgspec.Struct, frozen=True, kw_only=True):
    """Why an operation did not succeed. `definite`: the client is sure that it did not happen."""

    message: str
    code: str = "other"
    definite: bool = True


class Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """The answer to one call: `ok` it happened, `fail` it certainly did not, `info` nobody knows, `unsupported`."""

    id: int
    status: Literal["ok", "fail", "info", "unsupported"]
    value: Any = None
    error: DriverError | None = None
    reason: str | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="event"):
    """Something that happened at a handle without being asked for; names and arguments are in `ops/events.py`."""

    handle: str
    name: str
    args: dict[str, Any] = {}


KitLine = Hello | Call
DriverLine = Ready | Result | Event
