"""Names and types of BullMQ's options and local events, for type checkers and editors, and to find misspelt ones.

`options: WorkerOptions = {...}` and `JobsOptions(attempts=3)` let mypy check the names. Every method also takes any
other mapping, because Node.js stores options that it does not know; names that are nearly right are refused when used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict

from conformance.protocol.job_fields import OPTION_OF_ALIAS, TELEMETRY_ALIASES


class KeptJobs(TypedDict, total=False):
    """How many finished jobs to keep, and for how long (s)."""

    age: float
    count: int


class BackoffOptions(TypedDict, total=False):
    """When a failed attempt is repeated: `delay` in ms, `jitter` from 0 to 1; `maxDelay` (ms) is this library's."""

    type: str
    delay: float
    jitter: float
    maxDelay: float


class DeduplicationOptions(TypedDict, total=False):
    """Which jobs are the same: `ttl` in ms."""

    id: str
    ttl: int
    extend: bool
    replace: bool


class ParentOptions(TypedDict):
    """The parent of a job: its id, and its queue as `PREFIX:QUEUE`."""

    id: str
    queue: str


class LimiterOptions(TypedDict):
    """At most `max` starts per `duration` ms."""

    max: int
    duration: int


class JobsOptions(TypedDict, total=False):
    """Options of a job: `delay` and `timestamp` in ms."""

    timestamp: float
    priority: int
    delay: float
    attempts: int
    backoff: float | BackoffOptions
    lifo: bool
    removeOnComplete: bool | int | KeptJobs
    removeOnFail: bool | int | KeptJobs
    keepLogs: int
    stackTraceLimit: int
    sizeLimit: int
    repeat: Mapping[str, Any]
    repeatJobKey: str
    jobId: str
    parent: ParentOptions
    prevMillis: int
    deduplication: DeduplicationOptions
    debounce: DeduplicationOptions
    failParentOnFailure: bool
    continueParentOnFailure: bool
    ignoreDependencyOnFailure: bool
    removeDependencyOnFailure: bool
    telemetry: Mapping[str, Any]


class ClientOptions(TypedDict, total=False):
    """Options of everything that has a connection. The last five exist only in this library."""

    connection: Any
    blockingConnection: bool
    prefix: str
    skipVersionCheck: bool
    skipWaitingForReady: bool
    telemetry: Any
    settings: Mapping[str, Any]
    policy: Any
    workerId: str
    logger: Any
    metricsCollector: Any
    metricsInterval: float


class QueueOptions(ClientOptions, total=False):
    """Options of a queue."""

    defaultJobOptions: JobsOptions
    streams: Mapping[str, Any]
    skipMetasUpdate: bool


class WorkerOptions(ClientOptions, total=False):
    """Options of a worker: `drainDelay` in s, other times in ms."""

    name: str
    autorun: bool
    concurrency: int
    limiter: LimiterOptions
    metrics: Mapping[str, Any]
    maxStartedAttempts: int
    maxStalledCount: int
    stalledInterval: int
    removeOnComplete: KeptJobs
    removeOnFail: KeptJobs
    skipStalledCheck: bool
    skipLockRenewal: bool
    drainDelay: float
    lockDuration: int
    lockRenewTime: int
    runRetryDelay: int
    useWorkerThreads: bool
    workerForkOptions: Mapping[str, Any]
    workerThreadsOptions: Mapping[str, Any]


class QueueEventsOptions(ClientOptions, total=False):
    """Options of an event reader: `blockingTimeout` in ms."""

    autorun: bool
    lastEventId: str
    blockingTimeout: int


LinkEvent = Literal["error", "warning", "closed", "disconnected", "reconnecting", "reconnected", "unreachable"]
"""Local events of every client."""

QueueEvent = LinkEvent | Literal["waiting", "paused", "resumed", "removed", "cleaned", "progress"]
"""Local events of a queue."""

JobEvent = Literal["active", "completed", "failed", "progress", "stalled", "drained", "paused", "resumed", "closing"]
"""Local events of a worker that Node.js has too."""

LockEvent = Literal["heartbeat", "heartbeatFailed", "stalledCheckSkipped"]
"""Local events of a worker about its locks."""

WorkerEvent = JobEvent | LockEvent | LinkEvent
"""Local events of a worker."""

JOB_OPTIONS: Final = frozenset(
    {*JobsOptions.__annotations__, *OPTION_OF_ALIAS, *OPTION_OF_ALIAS.values(), *TELEMETRY_ALIASES.values(), "deid"}
)
"""All names of job options, also those under which some are stored."""

CLIENT_OPTIONS: Final = frozenset(
    name for options in (QueueOptions, WorkerOptions, QueueEventsOptions) for name in options.__annotations__
)
"""Names of the options of queues, workers and event readers. Programs share dicts of options between these."""

NODE_EVENTS: Final = frozenset(
    {
        *("active", "added", "cleaned", "closed", "closing", "completed", "debounced", "deduplicated", "delayed"),
        *("drained", "duplicated", "error", "failed", "paused", "progress", "ready", "removed", "resumed", "stalled"),
        *("waiting", "waiting-children", "retries-exhausted", "ioredis:close"),
    }
)
"""Events of Node.js's classes. Most exist in one of them only; listening elsewhere is useless, but not misspelt."""
