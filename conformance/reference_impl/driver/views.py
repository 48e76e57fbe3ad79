"""Jobs and opened addresses in the words of the driver protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.encoding.js_json import RawJson, parse, stringify
from conformance.reference_impl.jobs.job import Job

Json = dict[str, Any]


def job_view(job: Job) -> Json:
    """JobView: the job as a user of the client sees it."""
    return {
        "id": job.id or "",
        "name": job.name,
        "data_raw": stringify(job.data),
        "opts": job.opts,
        "timestamp": job.timestamp,
        "delay": job.delay,
        "priority": job.priority,
        "attempts_made": job.attemptsMade,
        "attempts_started": job.attemptsStarted,
        "stalled_counter": job.stalledCounter,
        "progress_raw": stringify(job.progress),
        "returnvalue_raw": stringify(job.returnvalue),
        "failed_reason": job.failedReason,
        "stacktrace_length": len(job.stacktrace),
        "processed_on": job.processedOn,
        "finished_on": job.finishedOn,
        "processed_by": job.processedBy,
        "parent_key": job.parentKey,
        "deduplication_id": job.deduplicationId,
    }


def maybe_job(job: Job | None) -> Json:
    """MaybeJob."""
    return {"job": None if job is None else job_view(job)}


def made_job(job: Job | None) -> Json:
    """MaybeJob of a job that was only made: like Node's it has no list of stack traces yet.

    It still holds the exact text of its data; its user would see the value.
    """
    if job is None:
        return {"job": None}
    data = parse(job.data.text) if isinstance(job.data, RawJson) else job.data
    return {"job": {**job_view(job), "data_raw": stringify(data), "stacktrace_length": None}}


def texts_by_key(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as JSON texts."""
    return {key: stringify(value) for key, value in values.items()}


def new_job(entry: Mapping[str, Any]) -> Json:
    """Answer an element of addBulk as the client takes it."""
    return {"name": entry["name"], "data": raw(entry.get("data_raw"), "{}"), "opts": entry.get("opts") or {}}


def raw(text: str | None, default: str = "null") -> RawJson:
    """Answer an exact JSON text from the kit."""
    return RawJson(default if text is None else text)


def address(redis: Mapping[str, Any]) -> Address:
    """RedisAddress as the client takes it."""
    return Address.of(redis)
