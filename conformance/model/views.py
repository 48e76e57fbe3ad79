"""A job as the client shows it to its user: read from the hash, with numbers parsed and options under full names."""

from __future__ import annotations

from typing import Any

from conformance.driver.ops.base import JobView, MaybeJob
from conformance.model.holding import count_traces, parent_key_of
from conformance.model.options import JobOptions, decoded, deduplication_id, of_job_object
from conformance.model.state import Queue
from conformance.model.texts import normalised_json, parse_int


def maybe_job(view: JobView | None) -> MaybeJob:
    """The answer of operations that may find no job."""
    return MaybeJob(job=view)


def view_of(queue: Queue, job: str) -> JobView | None:
    """The job as it is in Redis now; None where it has no hash."""
    fields = queue.jobs.get(job)
    if not fields:
        return None
    options = of_job_object(decoded(fields.get("opts")))
    return JobView(
        id=job,
        name=fields.get("name", ""),
        data_raw=normalised_json(fields.get("data") or "{}"),
        opts=options,
        timestamp=parse_int(fields.get("timestamp")),
        delay=parse_int(fields.get("delay")),
        priority=parse_int(fields.get("priority")),
        attempts_made=parse_int(fields.get("attemptsMade") or fields.get("atm") or "0"),
        attempts_started=parse_int(fields.get("ats") or "0"),
        stalled_counter=parse_int(fields.get("stc") or "0"),
        progress_raw=normalised_json(fields.get("progress") or "0"),
        returnvalue_raw=_returned(fields.get("returnvalue")),
        failed_reason=fields.get("failedReason") or None,
        stacktrace_length=count_traces(fields.get("stacktrace")),
        processed_on=parse_int(fields.get("processedOn")),
        finished_on=parse_int(fields.get("finishedOn")),
        processed_by=fields.get("pb") or None,
        parent_key=fields.get("parentKey") or parent_key_of(options),
        deduplication_id=fields.get("deid") or _text(deduplication_id(options)),
    )


def view_of_iteration(job: str, name: str, data_raw: str, given: JobOptions, *, delay: float) -> JobView:
    """The Job object that an upsert of a scheduler makes by itself, without reading it back."""
    options = of_job_object({**given, "delay": delay})
    return JobView(
        id=job,
        name=name,
        data_raw=normalised_json(data_raw),
        opts=options,
        timestamp=options["timestamp"],
        delay=delay,
        priority=options.get("priority") or 0,
        attempts_made=0,
        attempts_started=0,
        stalled_counter=0,
        progress_raw="0",
        returnvalue_raw="null",
        deduplication_id=_text(deduplication_id(options)),
    )


def _returned(text: str | None) -> str | None:
    """No value reads as null; a text that is not JSON reads as no value."""
    if text is None:
        return "null"
    try:
        return normalised_json(text)
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
