"""Operations on one job, called on a queue handle (or on a worker handle if the client needs one)."""

from __future__ import annotations

from typing import Literal

import msgspec

from conformance.driver.ops.base import Count, Flag, JsonText, Nothing, Op, operation
from conformance.driver.ops.queue import StateName


@operation("job.updateData", on="queue", answer=Nothing)
class UpdateData(Op[Nothing], frozen=True):
    """Job.updateData."""

    job: str
    data_raw: str


@operation("job.updateProgress", on="queue", answer=Nothing)
class UpdateProgress(Op[Nothing], frozen=True):
    """Job.updateProgress."""

    job: str
    value_raw: str


@operation("job.log", on="queue", answer=Count)
class Log(Op[Count], frozen=True):
    """Queue.addJobLog(id, row, keepLogs): number of rows kept."""

    job: str
    row: str
    keep_logs: int | None = None


@operation("job.clearLogs", on="queue", answer=Nothing)
class ClearLogs(Op[Nothing], frozen=True):
    """Job.clearLogs(keepLogs)."""

    job: str
    keep_logs: int | None = None


@operation("job.promote", on="queue", answer=Nothing)
class Promote(Op[Nothing], frozen=True):
    """Job.promote."""

    job: str


@operation("job.changeDelay", on="queue", answer=Nothing)
class ChangeDelay(Op[Nothing], frozen=True):
    """Job.changeDelay."""

    job: str
    delay_ms: int


@operation("job.changePriority", on="queue", answer=Nothing)
class ChangePriority(Op[Nothing], frozen=True):
    """Job.changePriority({priority, lifo})."""

    job: str
    priority: int = 0
    lifo: bool = False


@operation("job.retry", on="queue", answer=Nothing)
class Retry(Op[Nothing], frozen=True):
    """Job.retry(state, {resetAttemptsMade, resetAttemptsStarted}); the options: 5.66 and newer."""

    job: str
    state: Literal["completed", "failed"] = "failed"
    reset_attempts_made: bool = False
    reset_attempts_started: bool = False


@operation("job.remove", on="queue", answer=Nothing)
class RemoveJob(Op[Nothing], frozen=True):
    """Job.remove({removeChildren}). A locked job is a failure (Node: `could not be removed because it is locked`)."""

    job: str
    remove_children: bool = True


@operation("job.getState", on="queue", answer=StateName)
class GetState(Op[StateName], frozen=True):
    """Job.getState."""

    job: str


@operation("job.isFinished", on="queue", answer=Flag)
class IsFinished(Op[Flag], frozen=True):
    """Job.isCompleted or Job.isFailed."""

    job: str


@operation("job.waitUntilFinished", on="queue", answer=JsonText)
class WaitUntilFinished(Op[JsonText], frozen=True):
    """Job.waitUntilFinished(queueEvents, ttl) on the QueueEvents handle `events`; fails with job-failed or timeout."""

    job: str
    events: str
    ttl_ms: int | None = None


class Dependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Children of a job by full key. Values of `processed` are JSON texts, of `ignored` plain failure reasons."""

    processed: dict[str, str] = {}
    unprocessed: list[str] = []
    ignored: dict[str, str] = {}
    failed: list[str] = []


@operation("job.getDependencies", on="queue", answer=Dependencies)
class GetDependencies(Op[Dependencies], frozen=True):
    """Job.getDependencies."""

    job: str


class DependenciesCount(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of children by outcome."""

    processed: int
    unprocessed: int
    ignored: int
    failed: int


@operation("job.getDependenciesCount", on="queue", answer=DependenciesCount)
class GetDependenciesCount(Op[DependenciesCount], frozen=True):
    """Job.getDependenciesCount({processed, unprocessed, ignored, failed})."""

    job: str


class ChildTexts(msgspec.Struct, frozen=True, kw_only=True):
    """A text per child, by full child key."""

    values: dict[str, str]


@operation("job.getChildrenValues", on="queue", answer=ChildTexts)
class GetChildrenValues(Op[ChildTexts], frozen=True):
    """Job.getChildrenValues; each value as JSON text."""

    job: str


@operation("job.getIgnoredChildrenFailures", on="queue", answer=ChildTexts)
class GetIgnoredChildrenFailures(Op[ChildTexts], frozen=True):
    """Job.getIgnoredChildrenFailures; each value is the plain failure reason."""

    job: str


@operation("job.removeChildDependency", on="queue", answer=Flag)
class RemoveChildDependency(Op[Flag], frozen=True):
    """Job.removeChildDependency: true when a relation was removed."""

    job: str


@operation("job.removeUnprocessedChildren", on="queue", answer=Nothing)
class RemoveUnprocessedChildren(Op[Nothing], frozen=True):
    """Job.removeUnprocessedChildren."""

    job: str


@operation("job.removeDeduplicationKey", on="queue", answer=Flag)
class RemoveJobDeduplicationKey(Op[Flag], frozen=True):
    """Job.removeDeduplicationKey: true when the key was this job's and is gone."""

    job: str
