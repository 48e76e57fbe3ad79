"""Job objects of the client: read from a hash, and remembered by workers.

A worker decides about retries from what it read when it claimed the job. The driver forgets a claimed job as soon as
one of the calls that give it back is made, successful or not; a later call reads the hash again.
"""

from __future__ import annotations

import json
from typing import Any

from conformance.model.calls import HeldJob
from conformance.model.options import decoded, of_job_object
from conformance.model.stage import Stage
from conformance.model.state import Queue
from conformance.model.texts import parse_int


def read_job(queue: Queue, job: str) -> HeldJob | None:
    """A Job object of what is in Redis now; None where there is no hash."""
    fields = queue.jobs.get(job)
    if not fields:
        return None
    options = of_job_object(decoded(fields.get("opts")))
    return HeldJob(
        id=job,
        opts=options,
        attempts_made=parse_int(fields.get("attemptsMade") or fields.get("atm") or "0") or 0,
        stack_traces=count_traces(fields.get("stacktrace")),
        parent_key=fields.get("parentKey") or parent_key_of(options),
    )


def parent_key_of(options: dict[str, Any]) -> str | None:
    """The parent's full key as the options name it, also when the hash knows no parent any more."""
    parent = options.get("parent")
    return f"{parent['queue']}:{parent['id']}" if parent else None


def count_traces(text: str | None) -> int:
    """The number of stack traces in a hash field."""
    traces = json.loads(text) if text else []
    return len(traces) if isinstance(traces, list) else 0


def job_object(stage: Stage, job: str) -> HeldJob:
    """The Job object on which an operation acts: the one that the worker holds, or a new one, if need be an empty one.

    A job without a hash still has one, as a user holds an object whose hash has gone since.
    """
    return stage.handle.held.get(job) or read_job(stage.queue, job) or HeldJob(job)


def hold(stage: Stage, job: str, token: str) -> None:
    """The worker has claimed a job."""
    claimed = read_job(stage.queue, job)
    if claimed is not None:
        stage.handle.held[job] = claimed
        stage.handle.tokens[job] = token
