"""Operations on a queue handle: adding, controlling, reading. Names are those of BullMQ's class Queue."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from conformance.driver.ops.base import Count, Counts, Flag, Ids, JobRef, Jobs, MaybeJob, Nothing, Op, operation


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a bulk: `data_raw` is JSON text, `opts` are BullMQ's JobsOptions."""

    name: str
    data_raw: str = "{}"
    opts: dict[str, Any] = {}


@operation("queue.add", on="queue", answer=JobRef)
class Add(Op[JobRef], frozen=True):
    """Queue.add. With capability raw-data, `data_raw` reaches the hash byte for byte."""

    name: str
    data_raw: str = "{}"
    opts: dict[str, Any] = msgspec.field(default_factory=dict)


@operation("queue.addBulk", on="queue", answer=Ids)
class AddBulk(Op[Ids], frozen=True):
    """Queue.addBulk."""

    jobs: list[NewJob]


@operation("queue.pause", on="queue", answer=Nothing)
class Pause(Op[Nothing], frozen=True):
    """Queue.pause: the whole queue, for every worker."""


@operation("queue.resume", on="queue", answer=Nothing)
class Resume(Op[Nothing], frozen=True):
    """Queue.resume."""


@operation("queue.isPaused", on="queue", answer=Flag)
class IsPaused(Op[Flag], frozen=True):
    """Queue.isPaused."""


@operation("queue.getJob", on="queue", answer=MaybeJob)
class GetJob(Op[MaybeJob], frozen=True):
    """Queue.getJob."""

    job: str


@operation("queue.getJobs", on="queue", answer=Jobs)
class GetJobs(Op[Jobs], frozen=True):
    """Queue.getJobs(types, start, end, asc). Types are BullMQ's JobType names (`waiting`, ...); empty: not given."""

    types: list[str] = msgspec.field(default_factory=list)
    start: int = 0
    end: int = -1
    asc: bool = False


@operation("queue.getJobCounts", on="queue", answer=Counts)
class GetJobCounts(Op[Counts], frozen=True):
    """Queue.getJobCounts(...types). Empty: not given, which means all types."""

    types: list[str] = msgspec.field(default_factory=list)


@operation("queue.getJobCountByTypes", on="queue", answer=Count)
class GetJobCountByTypes(Op[Count], frozen=True):
    """Queue.getJobCountByTypes(...types): the sum. Empty: not given, which means all types."""

    types: list[str] = msgspec.field(default_factory=list)


@operation("queue.count", on="queue", answer=Count)
class CountPending(Op[Count], frozen=True):
    """Queue.count: jobs that still wait to be processed (waiting, paused, delayed, prioritized, waiting-children)."""


@operation("queue.getCountsPerPriority", on="queue", answer=Counts)
class GetCountsPerPriority(Op[Counts], frozen=True):
    """Queue.getCountsPerPriority."""

    priorities: list[int]


class StateName(msgspec.Struct, frozen=True, kw_only=True):
    """A state as the client names it."""

    state: str


@operation("queue.getJobState", on="queue", answer=StateName)
class GetJobState(Op[StateName], frozen=True):
    """Queue.getJobState: `waiting`, `active`, ..., or `unknown`."""

    job: str


class JobLogs(msgspec.Struct, frozen=True, kw_only=True):
    """Log rows in the requested order, and the total number of rows."""

    logs: list[str]
    count: int


@operation("queue.getJobLogs", on="queue", answer=JobLogs)
class GetJobLogs(Op[JobLogs], frozen=True):
    """Queue.getJobLogs(id, start, end, asc)."""

    job: str
    start: int = 0
    end: int = -1
    asc: bool = True


@operation("queue.drain", on="queue", answer=Nothing)
class Drain(Op[Nothing], frozen=True):
    """Queue.drain(delayed)."""

    delayed: bool = False


@operation("queue.clean", on="queue", answer=Ids)
class Clean(Op[Ids], frozen=True):
    """Queue.clean(grace, limit, type). `grace_ms`: only jobs older than this. `limit` 0: no limit.

    `waiting` is another name of `wait`.
    """

    grace_ms: int
    limit: int
    type: Literal["completed", "wait", "waiting", "active", "paused", "prioritized", "delayed", "failed"] = "completed"


@operation("queue.obliterate", on="queue", answer=Nothing)
class Obliterate(Op[Nothing], frozen=True):
    """Queue.obliterate({force, count})."""

    force: bool = False
    count: int = 1000


@operation("queue.remove", on="queue", answer=Count)
class Remove(Op[Count], frozen=True):
    """Queue.remove(id, {removeChildren}): 1 removed, 0 locked."""

    job: str
    remove_children: bool = True


@operation("queue.retryJobs", on="queue", answer=Nothing)
class RetryJobs(Op[Nothing], frozen=True):
    """Queue.retryJobs({count, state, timestamp}). `timestamp` (Unix ms): only jobs finished before it."""

    count: int = 1000
    state: Literal["completed", "failed"] = "failed"
    timestamp: int | None = None


@operation("queue.promoteJobs", on="queue", answer=Nothing)
class PromoteJobs(Op[Nothing], frozen=True):
    """Queue.promoteJobs({count})."""

    count: int = 1000


@operation("queue.trimEvents", on="queue", answer=Count)
class TrimEvents(Op[Count], frozen=True):
    """Queue.trimEvents(maxLength): number of removed entries."""

    max_length: int


class MetricsView(msgspec.Struct, frozen=True, kw_only=True):
    """Queue.getMetrics: `data` are counts per minute, newest first; `count` is the number of points."""

    meta: dict[str, float]
    data: list[float]
    count: int


@operation("queue.getMetrics", on="queue", answer=MetricsView)
class GetMetrics(Op[MetricsView], frozen=True):
    """Queue.getMetrics(type, start, end)."""

    type: Literal["completed", "failed"]
    start: int = 0
    end: int = -1


@operation("queue.setGlobalConcurrency", on="queue", answer=Nothing)
class SetGlobalConcurrency(Op[Nothing], frozen=True):
    """Queue.setGlobalConcurrency."""

    concurrency: int


@operation("queue.removeGlobalConcurrency", on="queue", answer=Nothing)
class RemoveGlobalConcurrency(Op[Nothing], frozen=True):
    """Queue.removeGlobalConcurrency."""


class MaybeNumber(msgspec.Struct, frozen=True, kw_only=True):
    """A number, or None where none is set."""

    value: float | None


@operation("queue.getGlobalConcurrency", on="queue", answer=MaybeNumber)
class GetGlobalConcurrency(Op[MaybeNumber], frozen=True):
    """Queue.getGlobalConcurrency."""


@operation("queue.setGlobalRateLimit", on="queue", answer=Nothing)
class SetGlobalRateLimit(Op[Nothing], frozen=True):
    """Queue.setGlobalRateLimit(max, duration): at most `max` starts per `duration_ms`."""

    max: int
    duration_ms: int


@operation("queue.removeGlobalRateLimit", on="queue", answer=Nothing)
class RemoveGlobalRateLimit(Op[Nothing], frozen=True):
    """Queue.removeGlobalRateLimit."""


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The queue-wide rate limit; both None if none is set."""

    max: int | None
    duration_ms: int | None


@operation("queue.getGlobalRateLimit", on="queue", answer=RateLimit)
class GetGlobalRateLimit(Op[RateLimit], frozen=True):
    """Queue.getGlobalRateLimit."""


@operation("queue.rateLimit", on="queue", answer=Nothing)
class SetRateLimit(Op[Nothing], frozen=True):
    """Queue.rateLimit(expireTimeMs): overrides the limit for this long."""

    expire_ms: int


@operation("queue.removeRateLimitKey", on="queue", answer=Nothing)
class RemoveRateLimitKey(Op[Nothing], frozen=True):
    """Queue.removeRateLimitKey."""


@operation("queue.getRateLimitTtl", on="queue", answer=Count)
class GetRateLimitTtl(Op[Count], frozen=True):
    """Queue.getRateLimitTtl(maxJobs): ms until the next start is allowed; `count` holds it."""

    max_jobs: int | None = None


@operation("queue.isMaxed", on="queue", answer=Flag)
class IsMaxed(Op[Flag], frozen=True):
    """Queue.isMaxed: the queue-wide concurrency is used up."""


class MaybeText(msgspec.Struct, frozen=True, kw_only=True):
    """A text, or None if there is none."""

    value: str | None


@operation("queue.getVersion", on="queue", answer=MaybeText)
class GetVersion(Op[MaybeText], frozen=True):
    """Queue.getVersion: the library that last wrote `meta`, as `<library>:<version>`."""


@operation("queue.getDeduplicationJobId", on="queue", answer=MaybeText)
class GetDeduplicationJobId(Op[MaybeText], frozen=True):
    """Queue.getDeduplicationJobId."""

    id: str


@operation("queue.removeDeduplicationKey", on="queue", answer=Count)
class RemoveDeduplicationKey(Op[Count], frozen=True):
    """Queue.removeDeduplicationKey: number of keys removed."""

    id: str


class WorkerNames(msgspec.Struct, frozen=True, kw_only=True):
    """Names of the workers that are connected to the queue."""

    names: list[str]


@operation("queue.getWorkers", on="queue", answer=WorkerNames)
class GetWorkers(Op[WorkerNames], frozen=True):
    """Queue.getWorkers."""


@operation("queue.getWorkersCount", on="queue", answer=Count)
class GetWorkersCount(Op[Count], frozen=True):
    """Queue.getWorkersCount."""


class MetaView(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue; None if one is not set."""

    paused: bool
    concurrency: int | None = None
    max: int | None = None
    duration_ms: int | None = None
    max_len_events: int | None = None
    version: str | None = None


@operation("queue.getMeta", on="queue", answer=MetaView)
class GetMeta(Op[MetaView], frozen=True):
    """Queue.getMeta (5.63 and newer)."""


@operation("queue.removeOrphanedJobs", on="queue", answer=Count)
class RemoveOrphanedJobs(Op[Count], frozen=True):
    """Queue.removeOrphanedJobs(count, limit) (5.70.2 and newer): number of jobs removed. `limit` 0: no limit."""

    count: int = 1000
    limit: int = 0


@operation("queue.publishEvent", on="queue", answer=Nothing)
class PublishEvent(Op[Nothing], frozen=True):
    """QueueEventsProducer.publishEvent({eventName, ...fields}, maxEvents) on the queue of the handle."""

    event_name: str
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    max_length: int = 1000


@operation("queue.exportPrometheusMetrics", on="queue", answer=MaybeText)
class ExportPrometheusMetrics(Op[MaybeText], frozen=True):
    """Queue.exportPrometheusMetrics(globalVariables): the text that Prometheus reads."""

    variables: dict[str, str] | None = None
