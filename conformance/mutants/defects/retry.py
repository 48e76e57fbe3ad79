"""Retries at the wrong place, at the wrong time, or none."""

from __future__ import annotations

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


@mutant("retry.jitter-ignored", kills=("retry.backoff.jitter",))
def jitter_ignored(damage: Damage) -> None:
    """The jitter of a back-off has no effect."""
    damage.replace(job_attempts, "spread", lambda delay, _jitter, _chance: delay)


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
