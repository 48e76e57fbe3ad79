"""Names and types of BullMQ's options and local events, for type checkers and editors, and to find misspelt ones.

mypy checks the names in dicts that are written where they are used, and in variables of these types. Methods also take
a `dict[str, Any]`, whose names mypy does not know, because Node.js stores options that it does not know; names that
are nearly right are refused when used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Required, TypedDict, final

from conformance.protocol.job_fields import OPTION_OF_ALIAS, TELEMETRY_ALIASES
from conformance.reference_impl.known_names import refuse_misspelt


@final
class UnknownOption:
    """Type of an option whose name is unknown: no value has it, but an Any passes for it."""


@final
class MisspeltOption:
    """The same again: between two types that do not go together, mypy infers a dict from its own values alone."""


AnyOptions = Mapping[str, UnknownOption] | Mapping[str, MisspeltOption]
"""A mapping to Any, such as a `dict[str, Any]`. A dict that is written with a misspelt name is not one."""


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


class RepeatOptions(TypedDict, total=False):
    """When a repeating job is due: a cron `pattern` in the zone `tz`, or `every` (ms); dates are Unix ms or texts."""

    pattern: str
    every: float
    tz: str
    utc: bool
    limit: int
    count: int
    startDate: Any
    endDate: Any
    currentDate: Any
    immediately: bool
    offset: float
    key: str
    jobId: str
    prevMillis: float


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
    repeat: RepeatOptions | AnyOptions
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


class JobTemplate(TypedDict, total=False):
    """A job that a scheduler adds: by default its name is the scheduler's id, and its data are {}."""

    name: str
    data: Any
    opts: JobsOptions | AnyOptions


class BulkJob(TypedDict, total=False):
    """A job of addBulk."""

    name: Required[str]
    data: Any
    opts: JobsOptions | AnyOptions | None


class FlowJob(TypedDict, total=False):
    """A job of a flow to add, with its children."""

    name: Required[str]
    queueName: Required[str]
    data: Any
    prefix: str
    opts: JobsOptions | AnyOptions | None
    children: Sequence[FlowJob | AnyOptions] | None


class FlowQueueOptions(TypedDict, total=False):
    """Options of the jobs that a flow adds to a queue."""

    defaultJobOptions: JobsOptions | AnyOptions


class FlowOptions(TypedDict, total=False):
    """Options of a flow: those of its queues, by their names."""

    queuesOptions: Mapping[str, FlowQueueOptions | AnyOptions]


class _Connected(TypedDict, total=False):
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


class _Adding(TypedDict, total=False):
    defaultJobOptions: JobsOptions | AnyOptions
    streams: Mapping[str, Any]
    skipMetasUpdate: bool


class _Starting(TypedDict, total=False):
    autorun: bool


class _Reading(TypedDict, total=False):
    lastEventId: str
    blockingTimeout: int


class _Working(TypedDict, total=False):
    name: str
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


class QueueOptions(_Connected, _Adding, total=False):
    """Options of a queue."""


class WorkerOptions(_Connected, _Starting, _Working, total=False):
    """Options of a worker: `drainDelay` in s, other times in ms."""


class QueueEventsOptions(_Connected, _Starting, _Reading, total=False):
    """Options of an event reader: `blockingTimeout` in ms."""


class ClientOptions(_Connected, _Adding, _Starting, _Working, _Reading, total=False):
    """Options of all clients together, for a dict that a program shares between them: each reads its own."""


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

_KEPT_JOBS: Final = frozenset(KeptJobs.__annotations__)

REPEAT_OPTIONS: Final = frozenset(RepeatOptions.__annotations__)
"""Names of the options of a schedule."""

CLIENT_OPTIONS: Final = frozenset(ClientOptions.__annotations__)
"""Names of the options of queues, workers and event readers. Programs share dicts of options between these."""

_WITHIN_JOB_OPTIONS: Final = {
    "removeOnComplete": _KEPT_JOBS,
    "removeOnFail": _KEPT_JOBS,
    "deduplication": frozenset(DeduplicationOptions.__annotations__),
    "debounce": frozenset(DeduplicationOptions.__annotations__),
    "repeat": REPEAT_OPTIONS,
}
"""Names within options of a job. Not of `backoff`: a strategy of the program may read others."""

_WITHIN_CLIENT_OPTIONS: Final = {
    "removeOnComplete": _KEPT_JOBS,
    "removeOnFail": _KEPT_JOBS,
    "limiter": frozenset(LimiterOptions.__annotations__),
}
"""Names within options of a worker."""

NODE_EVENTS: Final = frozenset(
    {
        *("active", "added", "cleaned", "closed", "closing", "completed", "debounced", "deduplicated", "delayed"),
        *("drained", "duplicated", "error", "failed", "paused", "progress", "ready", "removed", "resumed", "stalled"),
        *("waiting", "waiting-children", "retries-exhausted", "ioredis:close"),
    }
)
"""Events of Node.js's classes. Most exist in one of them only; listening elsewhere is useless, but not misspelt."""


def refuse_misspelt_job_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a misspelt option of a job, also one within another option."""
    refuse_misspelt(options, JOB_OPTIONS, what="job option")
    _refuse_within(options, _WITHIN_JOB_OPTIONS)


def refuse_misspelt_client_options(options: Mapping[str, Any], client: str) -> None:
    """Raise InvalidArgument for a misspelt option of a client, such as a `Worker`, or within one of its options."""
    refuse_misspelt(options, CLIENT_OPTIONS, what=f"option of a {client}")
    _refuse_within(options, _WITHIN_CLIENT_OPTIONS)
    refuse_misspelt_job_options(options.get("defaultJobOptions") or {})


def _refuse_within(options: Mapping[str, Any], names_within: Mapping[str, frozenset[str]]) -> None:
    for name in names_within.keys() & options.keys():
        if isinstance(options[name], Mapping):
            refuse_misspelt(options[name], names_within[name], what=f"key of the option {name!r}:")
