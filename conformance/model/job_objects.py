"""A job as the client holds it: its options, the Job object read from a hash, and what its user sees of it.

Options are written in three ways: as the JavaScript user gives them, as a Job object holds them, and as the job hash
stores them. `undefined` is a missing key; JSON null is None. A worker decides about retries from what it read when it
claimed the job. The driver forgets a claimed job as soon as one of the calls that give it back is made, successful or
not; a later call reads the hash again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from conformance.driver.ops.base import JobView, MaybeJob
from conformance.model.calls import HeldJob, NotModelled, refuse
from conformance.model.dispatch import CallContext
from conformance.model.state import QueueState
from conformance.model.texts import js_number, normalised_json, parse_int
from conformance.protocol.job_fields import (
    ALIAS_OF_OPTION,
    CHILD_FAILURE_OPTIONS,
    OPTION_OF_ALIAS,
    PRIORITY_LIMIT,
    TELEMETRY_ALIASES,
)
from conformance.protocol.states import QUEUE_KEYS

JobOptions = dict[str, Any]

_INTEGER = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


def is_number(value: Any) -> bool:
    """Whether JavaScript calls the value a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def job_object_options(options: Mapping[str, Any]) -> JobOptions:
    """The options that a Job object holds: `attempts` has a default, `backoff` is an object."""
    held: JobOptions = {"attempts": 0, **options}
    held.pop("repeatJobKey", None)
    backoff = held.pop("backoff", None)
    if is_number(backoff):
        held["backoff"] = {"type": "fixed", "delay": backoff}
    elif backoff:
        held["backoff"] = backoff
    return held


def encode_options(options: Mapping[str, Any]) -> JobOptions:
    """The options under the short names of the job hash."""
    stored: JobOptions = {}
    for name, value in options.items():
        if name == "telemetry":
            stored.update({TELEMETRY_ALIASES[part]: value[part] for part in TELEMETRY_ALIASES if part in (value or {})})
        else:
            stored[ALIAS_OF_OPTION.get(name, name)] = value
    return stored


def decode_options(text: str | None) -> JobOptions:
    """The options of a job hash under their full names."""
    options: JobOptions = {}
    telemetry = {alias: part for part, alias in TELEMETRY_ALIASES.items()}
    for name, value in json.loads(text or "{}").items():
        if name in telemetry:
            options.setdefault("telemetry", {})[telemetry[name]] = value
        else:
            options[OPTION_OF_ALIAS.get(name, name)] = value
    return options


def check_options(options: Mapping[str, Any], data_raw: str) -> None:
    """Node's checks before it sends anything, in its order. All have the same error code."""
    limit = options.get("sizeLimit")
    if limit and len(data_raw.encode("utf-8", "surrogatepass")) > limit:
        refuse("the data is larger than sizeLimit")
    if options.get("delay") and options.get("repeat") and not options["repeat"].get("count"):
        refuse("delay and repeat")
    if sum(bool(options.get(name)) for name in CHILD_FAILURE_OPTIONS) > 1:
        refuse("more than one option about failing children")
    if options.get("jobId"):
        _check_custom_id(options["jobId"])
    if options.get("priority"):
        _check_priority(options["priority"])
    for name in ("deduplication", "debounce"):
        if isinstance(options.get(name), dict) and not options[name].get("id"):  # to JavaScript, {} is true
            refuse(f"{name} without id")
    _check_backoff(options.get("backoff"))


def _check_backoff(backoff: Any) -> None:
    jitter: Any = backoff.get("jitter") if isinstance(backoff, dict) else None
    if is_number(jitter) and not 0 <= jitter <= 1:
        refuse("jitter should be between 0 and 1")


def _check_priority(priority: Any) -> None:
    if not is_number(priority) or priority != int(priority):
        refuse("priority should not be float")
    if priority > PRIORITY_LIMIT:
        refuse("priority is too large")


def _check_custom_id(job_id: Any) -> None:
    """Ids that look like generated ones are refused, and so are colons, except for the form of old repeatable jobs."""
    if not isinstance(job_id, str):
        refuse("an id that is not a text")
    if job_id == "NaN" or (_INTEGER.match(job_id) and js_number(float(parse_int(job_id) or 0)) == job_id):
        refuse("custom ids cannot be integers")
    if ":" in job_id and job_id.count(":") != 2:
        refuse("custom ids cannot contain a colon")


def check_modelled(options: Mapping[str, Any]) -> None:
    """Raise NotModelled for options whose effect the model does not know."""
    if "jobId" in options and options["jobId"] is None:
        raise NotModelled("the option jobId is null")
    job_id = options.get("jobId")
    if isinstance(job_id, str) and (job_id in QUEUE_KEYS or job_id.startswith(("0:", "repeat:", "de:"))):
        raise NotModelled(f"the job id {job_id!r}, which BullMQ uses for something else")
    for name, fits in _SHAPES.items():
        if options.get(name) is not None and not fits(options[name]):
            raise NotModelled(f"the option {name} is {options[name]!r}")


def _members(shape: Mapping[str, Callable[[Any], bool]]) -> Callable[[Any], bool]:
    """Whether a value is an object whose known members, where there are any, look as they should."""
    return lambda value: (
        isinstance(value, dict) and all(value.get(name) is None or fits(value[name]) for name, fits in shape.items())
    )


def _is_whole(value: Any) -> bool:
    return is_number(value) and value == int(value)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) or _is_whole(value)


def _is_delay(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


_DEDUPLICATION = _members({"id": _is_id, "ttl": _is_whole})
_KEEP = _members({"count": _is_whole, "age": is_number})
_SHAPES: Mapping[str, Callable[[Any], bool]] = {
    "attempts": is_number,
    "backoff": lambda value: is_number(value) or not value or _members({"delay": is_number})(value),
    "debounce": _DEDUPLICATION,
    "deduplication": _DEDUPLICATION,
    "delay": _is_delay,
    "parent": lambda value: (
        isinstance(value, dict) and all(isinstance(value.get(part), str) for part in ("id", "queue"))
    ),
    "removeOnComplete": lambda value: isinstance(value, bool) or _is_whole(value) or _KEEP(value),
    "removeOnFail": lambda value: isinstance(value, bool) or _is_whole(value) or _KEEP(value),
    "sizeLimit": is_number,
    "stackTraceLimit": lambda value: _is_whole(value) and value >= 0,
    "telemetry": lambda value: isinstance(value, dict),
    "timestamp": is_number,
}
"""Check the type of an option. JavaScript's conversions of other types are not modelled."""


def deduplication_id(options: Mapping[str, Any]) -> Any:
    """The deduplication id that the client sees in the options; `debounce` is the former name."""
    for name in ("deduplication", "debounce"):
        if options.get(name):
            return options[name].get("id")
    return None


def read_job(queue: QueueState, job: str) -> HeldJob | None:
    """A Job object of what is in Redis now; None where there is no hash."""
    fields = queue.jobs.get(job)
    if not fields:
        return None
    options = job_object_options(decode_options(fields.get("opts")))
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


def job_object(context: CallContext, job: str) -> HeldJob:
    """The Job object on which an operation acts: the one that the worker holds, or a new one, if need be an empty one.

    A job without a hash still has one, as a user holds an object whose hash has gone since.
    """
    return context.handle.held.get(job) or read_job(context.queue, job) or HeldJob(job)


def hold(context: CallContext, job: str, token: str) -> None:
    """The worker has claimed a job."""
    claimed = read_job(context.queue, job)
    if claimed is not None:
        context.handle.held[job] = claimed
        context.handle.tokens[job] = token


def maybe_job(view: JobView | None) -> MaybeJob:
    """The answer of operations that may find no job."""
    return MaybeJob(job=view)


def view_of(queue: QueueState, job: str) -> JobView | None:
    """The job as it is in Redis now; None where it has no hash."""
    fields = queue.jobs.get(job)
    if not fields:
        return None
    options = job_object_options(decode_options(fields.get("opts")))
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
    options = job_object_options({**given, "delay": delay})
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
