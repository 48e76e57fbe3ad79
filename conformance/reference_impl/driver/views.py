"""Jobs, schedulers, flows, addresses and errors of the client as messages of the driver protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from redis.asyncio import Redis
from redis.exceptions import RedisError

from conformance.driver.serve import OpError
from conformance.protocol.scripts import DRIVER_CODES, ErrorCode
from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.errors import (
    BullMQError,
    Closed,
    InvalidArgument,
    JobFailed,
    JobLocked,
    PartlyStored,
    ScriptError,
    WaitTimeout,
)
from conformance.reference_impl.flow_producer import JobNode
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.js_values import RawJson, parse, stringify
from conformance.reference_impl.recurrence import SchedulerRecord, SchedulerTemplate

Json = dict[str, Any]
Handler = Callable[[str | None, Json], Awaitable[Json | None]]

_CODES: tuple[tuple[type[BaseException], str], ...] = (
    (InvalidArgument, "invalid-argument"),
    (JobLocked, "lock-mismatch"),
    (JobFailed, "job-failed"),
    (WaitTimeout, "timeout"),
)


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

    It still holds the exact text of its data, while a user would see the value.
    """
    if job is None:
        return {"job": None}
    data = parse(job.data.text) if isinstance(job.data, RawJson) else job.data
    return {"job": {**job_view(job), "data_raw": stringify(data), "stacktrace_length": None}}


def scheduler_view(found: SchedulerRecord) -> Json:
    """SchedulerView."""
    template = found.template or SchedulerTemplate()
    return {
        "key": found.key,
        "name": found.name or "",
        "next": found.next,
        "every": found.every,
        "pattern": found.pattern,
        "tz": found.tz,
        "limit": found.limit,
        "start_date": found.startDate,
        "end_date": found.endDate,
        "iteration_count": found.iterationCount,
        "offset": found.offset,
        "template_data_raw": stringify(template.data) if template.has_data else None,
        "template_opts": None if template.opts is None else dict(template.opts),
    }


def flow_view(node: JobNode) -> Json:
    """FlowNode; children without a hash are left out, as they are in Node."""
    children = [flow_view(child) for child in node.children if child is not None]
    return {"id": node.job.known_id, "queue": node.job.queueName, "children": children}


def texts_by_key(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as JSON texts."""
    return {key: stringify(value) for key, value in values.items()}


def new_job(entry: Mapping[str, Any]) -> Json:
    """Return an element of addBulk as the client takes it."""
    return {"name": entry["name"], "data": raw(entry.get("data_raw"), "{}"), "opts": entry.get("opts") or {}}


def flow_job(node: Mapping[str, Any]) -> Json:
    """Return a node of a flow as FlowProducer takes it."""
    return {
        "name": node["name"],
        "queueName": node["queue"],
        "data": raw(node.get("data_raw"), "{}"),
        "opts": node.get("opts") or {},
        "children": [flow_job(child) for child in node.get("children") or ()],
    }


def raw(text: str | None, default: str = "null") -> RawJson:
    """Return an exact JSON text of the kit as the client takes it."""
    return RawJson(default if text is None else text)


def connection_of(redis: Mapping[str, Any]) -> Any:
    """RedisAddress as the option `connection` of the client."""
    form, fields = redis.get("form"), {key: redis[key] for key in redis if key not in {"form", "fail_fast"}}
    if redis["mode"] == "cluster" or form not in {"url", "client"}:
        return Address.of(fields)
    login = f"{quote(redis['username'] or '')}:{quote(redis['password'])}@" if redis.get("password") else ""
    url = f"{'rediss' if redis.get('tls') else 'redis'}://{login}{redis['nodes'][0]}/{redis.get('db', 0)}"
    # The client only copies the settings, so that one object more makes no difference.
    return url if form == "url" else Redis.from_url(url)


def translated(error: Exception) -> OpError:
    """Convert an error into the answer of an operation; undecided after a lost connection."""
    if isinstance(error, OpError):
        return error
    if isinstance(error, WaitTimeout):
        return OpError("timeout", str(error))
    # Before the error types: a timeout of the connection is a TimeoutError too, and only this one is undecided.
    if is_connection_problem(error) or isinstance(error, Closed):
        return OpError("connection-lost", str(error), status="info")
    if isinstance(error, PartlyStored):
        return OpError("other", str(error), status="info")
    if isinstance(error, ScriptError) and error.code in DRIVER_CODES:
        return OpError(DRIVER_CODES[ErrorCode(error.code)], str(error))
    for kind, code in _CODES:
        if isinstance(error, kind):
            return OpError(code, str(error))
    if isinstance(error, TypeError) and "serialize" in str(error):
        return OpError("invalid-argument", str(error))
    return OpError("other", _error_text(error))


def _error_text(error: Exception) -> str:
    """The text of an error; for an error of Redis with its code (`ERR`), which redis-py splits off."""
    if isinstance(error, BullMQError):
        return str(error)
    if isinstance(error, RedisError):
        code = getattr(error, "status_code", None)
        return f"{code} {error}" if code else str(error)
    return f"{type(error).__name__}: {error}"


def translating(handler: Handler) -> Handler:
    """Wrap a handler so that every error of the client has its protocol name."""

    async def handle(name: str | None, args: Json) -> Json | None:
        try:
            return await handler(name, args)
        except Exception as error:
            raise translated(error) from error

    return handle
