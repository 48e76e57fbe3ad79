"""Handles: opening and closing them, and the events that they send."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from conformance.driver.ops.base import JobView, Nothing, Op, operation

Role = Literal["queue", "worker", "events", "flow", "relay"]
ConnectionForm = Literal["options", "url", "client"]
Processor = Literal["manual", "ask", "noop", "echo", "sleep", "fail", "throw", "progress", "steps", "sandboxed"]
"""The processor of a worker.

`manual`: nothing by itself; the kit claims and finishes jobs with single calls. `ask`: the client's real loop; the
driver sends each job to the kit as event `job`, and the kit answers with `resolve`. The others run inside the driver,
with `processor_args`: `noop` returns null; `echo` returns the data; `sleep` waits `ms`, then returns null; `fail`
throws an Error with `message` on the first `times` attempts, then returns null; `throw` always throws `message`;
`progress` reports each of `values`, then returns null; `steps` follows the job's data: `{"steps": [{"do": "progress",
"value": v} | {"do": "log", "row": s} | {"do": "sleep", "ms": n} | {"do": "fail", "message": s, "until_attempt": n} |
{"do": "unrecoverable", "message": s} | {"do": "return", "value": v}]}`.

`sandboxed` (capability `sandbox`): like `steps`, but in a process of its own, which the client starts for its
processors. More steps: `merge` updates the data to its own fields and those of `value`; `delay` moves the job to
delayed for `ms` and throws DelayedError; `exit` ends the process with `code`, at once or `after_ms` later while the
next steps go on; `fail` with `cyclic` throws an error that refers to itself. The `message` of `delay` and
`unrecoverable` may be empty: then the error is made without one. With the argument `start`, each process first does
this before it takes a job: `chat` (send a message of its own, if the client has such messages), `throw-once` (only
the first one throws an Error) or `exit-once` (only the first one ends, with code 3).
"""


@operation("open", on="driver", answer=Nothing)
class Open(Op[Nothing], frozen=True):
    """Create a client object under the handle of the call. Answer once it is connected and ready.

    `options` are BullMQ's own option names (QueueOptions, WorkerOptions, QueueEventsOptions, RelayOptions) without
    `connection` and `prefix`. `processor` and `processor_args` are for role worker only. A worker of processor `manual`
    must not start its loop, its stalled check or its lock renewal; others start immediately unless `options.autorun` is
    false. For roles flow and relay, `queue` is ignored: the queue names are in the flow, and a relay has none.
    `unheard` (a capability): no listener for `error` is added, as users forget to do. `meter` (a capability; 5.69.0 and
    newer): the object gets telemetry with a meter, and each measurement is an event `measured`.

    `library` (capability `library`; queue, worker and events): with all rules of the written specification for a
    library: checks and limits of jobs, its cap and spread of back-off, its pauses before reconnecting; metrics and logs
    of all levels are kept for `metrics.scrape` and `logs.read`. Lengths of queues are measured at least once a second.
    The options may then have `workerId`, and the error of a job that the kit lets `fail` is one that passes.
    """

    role: Role
    queue: str
    prefix: str
    redis: RedisAddress
    processor: Processor | None = None
    processor_args: dict[str, Any] = msgspec.field(default_factory=dict)
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    library: bool = False
    unheard: bool = False
    meter: bool = False


@operation("close", on="any", answer=Nothing)
class Close(Op[Nothing], frozen=True):
    """Close the handle as the client's user would. `force` (workers): do not wait for running jobs."""

    force: bool = False


@operation("reset", on="driver", answer=Nothing)
class Reset(Op[Nothing], frozen=True):
    """Close every handle without waiting for jobs, forget unresolved jobs, and let the clock run again."""


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of Redis for a handle. `nodes` are `host:port`; more than one only in mode `cluster`.

    `form`: how the client gets it: as single options (in mode `cluster` as the client likes it best), as one `url`, or
    as a `client` of the Redis library, which all handles with the same address share. `fail_fast`: a call that finds no
    Redis fails soon instead of waiting for it. Both need a capability; options that the client does not know are not
    to be made up by the driver.
    """

    mode: Literal["standalone", "cluster"]
    nodes: list[str]
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: bool = False
    form: ConnectionForm = "options"
    fail_fast: bool = False


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a worker's `job` event."""

    job: JobView
    token: str


class JobIdEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a worker's `active`, `completed`, `failed` and `stalled`; a queue's `removed` and `progress`."""

    job: str


class JobIdsEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a worker's `locksRenewed` and `lockRenewalFailed` events."""

    jobs: list[str]


class CancelledEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a worker's `cancelled` event; `reason`: the text given, None if there was none."""

    job: str
    reason: str | None = None


class MeasuredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `measured`: a number that the client has given to an instrument of its user's meter."""

    kind: Literal["counter", "histogram", "gauge"]
    name: str
    value: float
    attributes: dict[str, Any]


class ErrorEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of an `error` event, and of `uncaught`: an error that would end the process of the client's user."""

    message: str


class QueueEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a `queue-event`."""

    name: str
    event_id: str
    fields: dict[str, Any]


class MessageEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a relay's `message`. `pattern`: of the subscription that got it; `ts`: its publishing (Unix ms)."""

    pattern: str
    topic: str
    data_raw: str
    mid: str
    ts: float
    retained: bool


class SweptEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a relay's `swept`: the nodes that it removed."""

    nodes: list[str]


class LagEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a relay's `lag`: the number of its unread messages."""

    unread: int


EVENT_ARGS: dict[str, type[Any]] = {
    "job": JobEvent,
    "active": JobIdEvent,
    "completed": JobIdEvent,
    "failed": JobIdEvent,
    "stalled": JobIdEvent,
    "cancelled": CancelledEvent,
    "locksRenewed": JobIdsEvent,
    "lockRenewalFailed": JobIdsEvent,
    "measured": MeasuredEvent,
    "removed": JobIdEvent,
    "progress": JobIdEvent,
    "drained": Nothing,
    "paused": Nothing,
    "resumed": Nothing,
    "closed": Nothing,
    "error": ErrorEvent,
    "uncaught": ErrorEvent,
    "queue-event": QueueEvent,
    "message": MessageEvent,
    "swept": SweptEvent,
    "recovered": Nothing,
    "lag": LagEvent,
}
"""Arguments of every event that the kit knows. Other events stay unchecked: a driver may be newer than the kit."""
