"""Retries at the wrong place, at the wrong time, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.jobs import attempts as job_attempts
from conformance.reference_impl.jobs.job import Job


@mutant("retry.runs-next", kills=("retry.immediately",))
def runs_next(damage: Damage) -> None:
    """A retried job goes before those that wait."""
    damage.argument("retryJob", 2, lambda _push: "RPUSH")


@mutant("retry.lifo-forgotten", kills=("retry.lifo",))
def lifo_forgotten(damage: Damage) -> None:
    """A retried lifo job goes behind those that wait."""
    damage.argument("retryJob", 2, lambda _push: "LPUSH")


@mutant("retry.one-too-many", kills=("retry.exhausted",))
def one_too_many(damage: Damage) -> None:
    """`attempts` counts the retries and not the tries."""
    _edit_attempts(damage, lambda attempts: attempts + 1)


@mutant("retry.one-too-few", kills=("retry.exhausted",))
def one_too_few(damage: Damage) -> None:
    """The last attempt is never made."""
    _edit_attempts(damage, lambda attempts: attempts - 1)


@mutant("retry.hopeless-too", kills=("retry.unrecoverable",))
def hopeless_too(damage: Damage) -> None:
    """An UnrecoverableError is retried like any other."""

    def broken(fail: Function) -> Function:
        async def move_to_failed(job: Job, error: BaseException, *args: Any) -> Any:
            return await fail(job, BullMQError(str(error)), *args)

        return move_to_failed

    damage.around(Job, "moveToFailed", broken)


@mutant("retry.at-once", kills=("retry.backoff.fixed", "retry.backoff.exponential"))
def at_once(damage: Damage) -> None:
    """`backoff` has no effect."""

    async def no_delay(*_args: Any, **_more: Any) -> float:
        return 0

    damage.replace(job_attempts, "delay_before_retry", no_delay)


@mutant("retry.linear", kills=("retry.backoff.exponential",))
def linear(damage: Damage) -> None:
    """An exponential back-off grows by the same amount each time."""

    def broken(delay: Function) -> Function:
        async def delay_before_retry(chosen: Mapping[str, Any] | None, attempt: int, *args: Any, **more: Any) -> float:
            if chosen and chosen["type"] == "exponential":
                return float(chosen["delay"]) * attempt
            return float(await delay(chosen, attempt, *args, **more))

        return delay_before_retry

    damage.around(job_attempts, "delay_before_retry", broken)


@mutant("retry.doubles-first", kills=("retry.backoff.exponential",))
def doubles_first(damage: Damage) -> None:
    """An exponential back-off starts with twice its delay."""

    def broken(delay: Function) -> Function:
        async def delay_before_retry(chosen: Mapping[str, Any] | None, attempt: int, *args: Any, **more: Any) -> float:
            return float(await delay(chosen, attempt + 1, *args, **more))

        return delay_before_retry

    damage.around(job_attempts, "delay_before_retry", broken)


@mutant("retry.in-seconds", kills=("retry.backoff.fixed",))
def in_seconds(damage: Damage) -> None:
    """The delay of a back-off is taken for seconds."""

    def broken(delay: Function) -> Function:
        async def delay_before_retry(*args: Any, **more: Any) -> float:
            return 1000 * float(await delay(*args, **more))

        return delay_before_retry

    damage.around(job_attempts, "delay_before_retry", broken)


@mutant("retry.result-left", kills=("retry.manual.completed",))
def result_left(damage: Damage) -> None:
    """A completed job retried by hand keeps its result."""
    damage.argument("reprocessJob", 2, lambda _field: "failedReason")


@mutant("retry.manual-runs-next", kills=("retry.manual",))
def manual_runs_next(damage: Damage) -> None:
    """A job retried by hand goes before those that wait."""
    damage.argument("reprocessJob", 1, lambda _push: "RPUSH")


@mutant("retry.manual-lifo-forgotten", kills=("retry.manual",))
def manual_lifo_forgotten(damage: Damage) -> None:
    """A lifo job retried by hand goes behind those that wait."""
    damage.argument("reprocessJob", 1, lambda _push: "LPUSH")


@mutant("retry.stacktrace-unlimited", kills=("retry.stacktrace-limit",))
def stacktrace_unlimited(damage: Damage) -> None:
    """`stackTraceLimit` has no effect."""

    def broken(remember: Function) -> Function:
        def remember_all(job: Job, error: BaseException) -> None:
            older = job.stacktrace
            remember(job, error)
            job.stacktrace = [*older, job.stacktrace[-1]]
            damage.witness.note()

        return remember_all

    damage.around(job_attempts, "_remember_stack", broken)


@mutant("retry.stacktrace-oldest", kills=("retry.stacktrace-limit",))
def stacktrace_oldest(damage: Damage) -> None:
    """`stackTraceLimit` keeps the oldest stack traces."""

    def broken(remember: Function) -> Function:
        def remember_oldest(job: Job, error: BaseException) -> None:
            older = job.stacktrace
            remember(job, error)
            job.stacktrace = [*older, job.stacktrace[-1]][: job.opts.get("stackTraceLimit")]
            damage.witness.note()

        return remember_oldest

    damage.around(job_attempts, "_remember_stack", broken)


@mutant("retry.stacktrace-newest-first", kills=("retry.stacktrace-limit",))
def stacktrace_newest_first(damage: Damage) -> None:
    """The newest stack trace is first."""

    def broken(remember: Function) -> Function:
        def remember_first(job: Job, error: BaseException) -> None:
            job.stacktrace = job.stacktrace[1:] + job.stacktrace[:1]
            remember(job, error)
            job.stacktrace = job.stacktrace[-1:] + job.stacktrace[:-1]
            damage.witness.note()

        return remember_first

    damage.around(job_attempts, "_remember_stack", broken)


@mutant("retry.jitter-ignored", kills=("retry.backoff.jitter",))
def jitter_ignored(damage: Damage) -> None:
    """The jitter of a back-off has no effect."""
    damage.replace(job_attempts, "spread", lambda delay, _jitter, _chance: delay)


@mutant("retry.jitter-constant", kills=("retry.backoff.jitter",))
def jitter_constant(damage: Damage) -> None:
    """A jitter shortens every delay by the same amount."""
    damage.replace(job_attempts, "spread", lambda delay, jitter, _chance: delay * (1 - jitter / 2))


@mutant("retry.jitter-lengthens", kills=("retry.backoff.jitter",))
def jitter_lengthens(damage: Damage) -> None:
    """A jitter makes the delays longer."""
    damage.around(
        job_attempts, "spread", lambda healthy: lambda delay, jitter, chance: 2 * delay - healthy(delay, jitter, chance)
    )


def _edit_attempts(damage: Damage, edit: Function) -> None:
    def broken(delay: Function) -> Function:
        async def retry_delay(job: Job, error: BaseException) -> Any:
            stated = job.opts
            job.opts = {**stated, "attempts": edit(stated.get("attempts") or 1)}
            damage.witness.note()
            try:
                return await delay(job, error)
            finally:
                job.opts = stated

        return retry_delay

    damage.around(job_attempts, "_retry_delay", broken)
