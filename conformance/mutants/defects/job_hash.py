"""Fields of the job hash with the wrong content."""

from __future__ import annotations

import json
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.jobs import attempts as job_attempts
from conformance.reference_impl.jobs import job as job_module
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.js_values import RawJson, stringify


@mutant("job.data-twice-encoded", kills=("job.hash.data", "interop.plain"))
def data_twice_encoded(damage: Damage) -> None:
    """The field `data` is the JSON text of a JSON text."""
    damage.around(job_module, "data_text", lambda healthy: lambda data: stringify(healthy(data)))


@mutant("job.data-escaped", kills=("job.hash.json-text",))
def data_escaped(damage: Damage) -> None:
    """Characters outside ASCII are escaped."""
    damage.around(job_module, "data_text", lambda healthy: lambda data: json.dumps(json.loads(healthy(data))))


@mutant("job.result-not-json", kills=("job.hash.returnvalue",), by=("lifecycle/completing_can_claim_the_next_job",))
def result_not_json(damage: Damage) -> None:
    """The field `returnvalue` is what the language prints."""
    _finish_with(damage, lambda value: str(json.loads(stringify(value))))


@mutant("job.result-as-it-is", kills=("lifecycle.complete.value",), by=("lifecycle/a_result_is_stored_as_json",))
def result_as_it_is(damage: Damage) -> None:
    """A text is stored as it is, and a list or a boolean is refused, so that its job fails."""

    def text_of(value: Any) -> str:
        parsed = json.loads(stringify(value))
        if isinstance(parsed, list | bool):
            raise TypeError(f"invalid input of type {type(parsed).__name__}")
        return parsed if isinstance(parsed, str) else stringify(value)

    _finish_with(damage, text_of)


@mutant(
    "job.result-under-another-name",
    kills=("job.hash.returnvalue",),
    by=("lifecycle/completing_can_claim_the_next_job",),
)
def result_under_another_name(damage: Damage) -> None:
    """The result is in the field `returnValue`."""
    damage.argument("moveToFinished", 2, lambda name: "returnValue" if name == "returnvalue" else name)


@mutant("job.reason-as-json", kills=("job.hash.failed-reason", "interop.retried", "liveness.error-in-job"))
def reason_as_json(damage: Damage) -> None:
    """The field `failedReason` is JSON."""
    damage.around(job_attempts, "message_of", lambda healthy: lambda error: json.dumps(healthy(error)))


@mutant(
    "job.one-stacktrace",
    kills=("job.hash.stacktrace", "retry.stacktrace-limit"),
    by=("events/a_final_failure_leaves_failed_and_exhausted",),
)
def one_stacktrace(damage: Damage) -> None:
    """Only the last stack trace is kept."""

    def broken(remember: Function) -> Function:
        def remember_stack(job: Job, error: BaseException) -> None:
            remember(job, error)
            job.stacktrace = job.stacktrace[-1:]
            damage.witness.note()

        return remember_stack

    damage.around(job_attempts, "_remember_stack", broken)


@mutant("job.no-stacktrace", kills=("job.hash.stacktrace",))
def no_stacktrace(damage: Damage) -> None:
    """Stack traces are not stored."""

    def broken(remember: Function) -> Function:
        def remember_stack(job: Job, error: BaseException) -> None:
            remember(job, error)
            job.stacktrace = []
            damage.witness.note()

        return remember_stack

    damage.around(job_attempts, "_remember_stack", broken)


def _finish_with(damage: Damage, value_text: Function) -> None:
    """Write another text as the result."""

    def broken(complete: Function) -> Function:
        async def move_to_completed(job: Job, value: Any, token: str, fetch_next: bool = True) -> Any:
            return await complete(job, RawJson(value_text(value)), token, fetch_next)

        return move_to_completed

    damage.around(Job, "moveToCompleted", broken)
