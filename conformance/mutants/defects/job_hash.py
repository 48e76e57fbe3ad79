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

_STORED = 'command[1] == "HMSET" and at(command, "opts")'
"""Lua condition: the command that stores a new job."""


@mutant("job.name-as-json", kills=("job.hash.name",))
def name_as_json(damage: Damage) -> None:
    """The field `name` is JSON."""
    damage.commands(
        "add*Job", f"if {_STORED} then change(command, 'name', cjson.encode(command[at(command, 'name')])) end"
    )


@mutant("job.data-twice-encoded", kills=("job.hash.data", "interop.plain"))
def data_twice_encoded(damage: Damage) -> None:
    """The field `data` is the JSON text of a JSON text."""
    damage.around(job_module, "data_text", lambda healthy: lambda data: stringify(healthy(data)))


@mutant("job.data-escaped", kills=("job.hash.json-text",))
def data_escaped(damage: Damage) -> None:
    """Characters outside ASCII are escaped."""
    damage.around(job_module, "data_text", lambda healthy: lambda data: json.dumps(json.loads(healthy(data))))


@mutant("job.data-spaced", kills=("job.hash.json-text",))
def data_spaced(damage: Damage) -> None:
    """JSON has spaces after its commas and colons."""
    damage.around(
        job_module, "data_text", lambda healthy: lambda data: json.dumps(json.loads(healthy(data)), ensure_ascii=False)
    )


@mutant("job.timestamp-in-seconds", kills=("job.hash.timestamp",))
def timestamp_in_seconds(damage: Damage) -> None:
    """The field `timestamp` is in seconds."""
    damage.commands(
        "add*Job",
        f"if {_STORED} then change(command, 'timestamp', math.floor(command[at(command, 'timestamp')] / 1000)) end",
    )


@mutant("job.delay-missing", kills=("job.hash.delay",))
def delay_missing(damage: Damage) -> None:
    """The field `delay` is not stored."""
    damage.commands("addDelayedJob", f"if {_STORED} then drop(command, 'delay') end")


@mutant("job.priority-missing", kills=("job.hash.priority",))
def priority_missing(damage: Damage) -> None:
    """The field `priority` is always 0."""
    damage.commands("addPrioritizedJob", f"if {_STORED} then change(command, 'priority', 0) end")


@mutant("job.starts-counted-twice", kills=("job.hash.attempts-started",), by=("job-hash/times_are_in_ms",))
def starts_counted_twice(damage: Damage) -> None:
    """Each start counts two attempts."""
    damage.commands("moveTo*", 'if command[1] == "HINCRBY" and command[3] == "ats" then command[4] = 2 end')


@mutant("job.attempts-not-counted", kills=("job.hash.attempts-made",))
def attempts_not_counted(damage: Damage) -> None:
    """A finished attempt is not counted."""
    damage.commands("moveToFinished", 'if command[1] == "HINCRBY" and command[3] == "atm" then return 1 end')


@mutant("job.retries-not-counted", kills=("job.hash.attempts-made",))
def retries_not_counted(damage: Damage) -> None:
    """An attempt that is retried is not counted."""
    damage.commands("retryJob", 'if command[1] == "HINCRBY" and command[3] == "atm" then return 1 end')


@mutant("job.start-in-seconds", kills=("job.hash.processed-on",))
def start_in_seconds(damage: Damage) -> None:
    """The field `processedOn` is in seconds."""
    damage.commands(
        "moveTo*",
        'if at(command, "processedOn") then '
        'change(command, "processedOn", math.floor(command[at(command, "processedOn")] / 1000)) end',
    )


@mutant("job.finish-in-seconds", kills=("job.hash.finished-on",))
def finish_in_seconds(damage: Damage) -> None:
    """The field `finishedOn` is in seconds."""
    damage.commands(
        "moveToFinished",
        'if at(command, "finishedOn") then change(command, "finishedOn", math.floor(ARGV[2] / 1000)) end',
    )


@mutant("job.finish-score-zero", kills=("job.hash.finished-on",))
def finish_score_zero(damage: Damage) -> None:
    """Finished jobs have no score."""
    damage.commands("moveToFinished", 'if command[1] == "ZADD" and command[3] == ARGV[2] then command[3] = 0 end')


@mutant("job.result-twice-encoded", kills=("job.hash.returnvalue",))
def result_twice_encoded(damage: Damage) -> None:
    """The field `returnvalue` is the JSON text of a JSON text."""
    _finish_with(damage, lambda value: stringify(stringify(value)))


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


@mutant("job.always-signed", kills=("job.hash.processed-by",))
def always_signed(damage: Damage) -> None:
    """The field `pb` is there without a name too."""
    damage.commands(
        "moveToActive",
        'if at(command, "processedOn") and not at(command, "pb") then '
        'command[#command + 1] = "pb" command[#command + 1] = "" end',
    )


@mutant("job.never-signed", kills=("job.hash.processed-by",))
def never_signed(damage: Damage) -> None:
    """The field `pb` is never written."""
    damage.commands("moveToActive", 'if at(command, "processedOn") then drop(command, "pb") end')


@mutant(
    "job.progress-as-text",
    kills=("job.hash.progress", "progress.stored"),
    by=("events/the_reader_delivers_a_jobs_life",),
)
def progress_as_text(damage: Damage) -> None:
    """The field `progress` holds every value as a JSON string."""
    damage.commands(
        "updateProgress", 'if command[1] == "HSET" then change(command, "progress", cjson.encode(command[4])) end'
    )


@mutant("job.another-field", kills=("job.hash.no-others",))
def another_field(damage: Damage) -> None:
    """The hash has a field of the client's own."""
    damage.commands(
        "addStandardJob", f'if {_STORED} then command[#command + 1] = "language" command[#command + 1] = "python" end'
    )


@mutant("job.attempts-long-name", kills=("job.hash.no-others",))
def attempts_long_name(damage: Damage) -> None:
    """The attempts are counted under their long name."""
    damage.commands(
        "moveToFinished", 'if command[1] == "HINCRBY" and command[3] == "atm" then command[3] = "attemptsMade" end'
    )


def _finish_with(damage: Damage, value_text: Function) -> None:
    """Write another text as the result."""

    def broken(complete: Function) -> Function:
        async def move_to_completed(job: Job, value: Any, token: str, fetch_next: bool = True) -> Any:
            return await complete(job, RawJson(value_text(value)), token, fetch_next)

        return move_to_completed

    damage.around(Job, "moveToCompleted", broken)
