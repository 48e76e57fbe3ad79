"""Job options: what is stored, and what is refused (upstream `src/classes/job.ts`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from conformance.protocol.options import (
    ALIAS_OF_OPTION,
    CHILD_FAILURE_OPTIONS,
    OPTION_OF_ALIAS,
    PARENT_FLAG_OPTIONS,
    PRIORITY_LIMIT,
    TELEMETRY_ALIASES,
)
from conformance.reference_impl.encoding.js_json import is_number, js_number, parse_int, truthy
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs import backoff

_TELEMETRY_NAMES: Final = {alias: name for name, alias in TELEMETRY_ALIASES.items()}

_SELDOM_GIVEN: Final = frozenset(
    {"sizeLimit", "repeat", "priority", "deduplication", "debounce", *CHILD_FAILURE_OPTIONS}
)
"""Options that are checked beside the id and the back-off: most jobs have none of them, which is told at once."""

JobOptions = dict[str, Any]
"""BullMQ's JobsOptions under their full names."""


def normalize(options: Mapping[str, Any]) -> JobOptions:
    """Answer the options of a new Job object: `attempts` comes first and is 0 unless given, `backoff` is an object."""
    normal: JobOptions = {"attempts": 0, **options}
    normal.pop("repeatJobKey", None)
    normal["backoff"] = backoff.normalize(options.get("backoff"))
    if normal["backoff"] is None:
        del normal["backoff"]
    return normal


def encode(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under their stored names. The order is kept: it decides the order that Lua gives them."""
    stored: dict[str, Any] = {}
    for name, value in options.items():
        if name == "telemetry":
            stored |= _encode_telemetry(value)
        else:
            stored[ALIAS_OF_OPTION.get(name, name)] = value
    return stored


def decode(stored: Mapping[str, Any] | list[Any]) -> JobOptions:
    """Answer stored options under their full names. An array is what some languages write for an empty map."""
    options: JobOptions = {}
    if isinstance(stored, list):
        return options
    for name, value in stored.items():
        if name in _TELEMETRY_NAMES:
            options["telemetry"] = {**options.get("telemetry", {}), _TELEMETRY_NAMES[name]: value}
        else:
            options[OPTION_OF_ALIAS.get(name, name)] = value
    return options


def parent_key(parent: Mapping[str, Any] | None) -> str | None:
    """Full key of the job that an option `parent` ({id, queue}) names."""
    return None if parent is None else f"{parent['queue']}:{parent['id']}"


def parent_field(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Answer the hash field `parent`: the parent and what this job's failure does to it."""
    parent = options.get("parent")
    if parent is None:
        return None
    flags = {ALIAS_OF_OPTION[name]: True for name in PARENT_FLAG_OPTIONS if truthy(options.get(name))}
    return {"id": parent["id"], "queueKey": parent["queue"], **flags}


def deduplication_id(options: Mapping[str, Any]) -> str | None:
    """Answer the id under which later adds count as the same job; `debounce` is the option's former name."""
    chosen = options.get("deduplication") or options.get("debounce")
    return chosen.get("id") if isinstance(chosen, Mapping) else None


def validate_explicit_id(options: Mapping[str, Any]) -> None:
    """Queue.add refuses ids that the scripts take for a marker; addBulk does not look.

    Raises InvalidArgument.
    """
    job_id = options.get("jobId")
    if job_id is None:
        return
    if not isinstance(job_id, str):
        raise InvalidArgument("jobId?.startsWith is not a function", field="jobId", constraint="a text")
    if job_id == "0" or job_id.startswith("0:"):
        raise InvalidArgument("JobId cannot be '0' or start with 0:", field="jobId", constraint="not 0 or 0:...")


def validate(name: str, options: Mapping[str, Any], data_text: str) -> None:
    """Everything that Node checks before it sends a job, in its order and with its texts. Raises InvalidArgument."""
    if _SELDOM_GIVEN.isdisjoint(options):
        _validate_job_id(options.get("jobId"))
        _validate_jitter(options.get("backoff"))
        return
    _validate_size(name, options.get("sizeLimit"), data_text)
    _validate_repeat(options)
    _validate_exclusive(options)
    _validate_job_id(options.get("jobId"))
    _validate_priority(options.get("priority"))
    _validate_deduplication(options)
    _validate_jitter(options.get("backoff"))


def _validate_size(name: str, limit: Any, data_text: str) -> None:
    if is_number(limit) and limit and len(data_text.encode(errors="replace")) > limit:
        raise InvalidArgument(
            f"The size of job {name} exceeds the limit {limit} bytes",
            field="data",
            constraint=f"at most {js_number(limit)} bytes (sizeLimit)",
        )


def _validate_repeat(options: Mapping[str, Any]) -> None:
    repeat = options.get("repeat")
    is_first = not (isinstance(repeat, Mapping) and truthy(repeat.get("count")))
    if truthy(options.get("delay")) and truthy(repeat) and is_first:
        raise InvalidArgument("Delay and repeat options could not be used together")


def _validate_exclusive(options: Mapping[str, Any]) -> None:
    chosen = [name for name in CHILD_FAILURE_OPTIONS if truthy(options.get(name))]
    if len(chosen) > 1:
        raise InvalidArgument(
            f"The following options cannot be used together: {', '.join(chosen)}",
            field=chosen[0],
            constraint=f"not together with {', '.join(chosen[1:])}",
        )


def _validate_job_id(job_id: Any) -> None:
    if not truthy(job_id):
        return
    if not isinstance(job_id, str):
        raise InvalidArgument("this.opts.jobId.includes is not a function", field="jobId", constraint="a text")
    if str(parse_int(job_id)) == job_id:
        raise InvalidArgument("Custom Id cannot be integers", field="jobId", constraint="not an integer")
    # Ids of old repeatable jobs have exactly two colons.
    if ":" in job_id and job_id.count(":") != 2:
        raise InvalidArgument("Custom Id cannot contain :", field="jobId", constraint="without a colon")


def _validate_priority(priority: Any) -> None:
    if not truthy(priority):
        return
    if not is_number(priority) or priority != int(priority):
        raise InvalidArgument("Priority should not be float", field="priority", constraint="an integer")
    if priority > PRIORITY_LIMIT:
        raise InvalidArgument(
            f"Priority should be between 0 and {PRIORITY_LIMIT}",
            field="priority",
            constraint=f"at most {PRIORITY_LIMIT}",
        )


def _validate_deduplication(options: Mapping[str, Any]) -> None:
    for option, title in (("deduplication", "Deduplication"), ("debounce", "Debounce")):
        chosen = options.get(option)
        if truthy(chosen) and not (isinstance(chosen, Mapping) and truthy(chosen.get("id"))):
            raise InvalidArgument(f"{title} id must be provided", field=f"{option}.id", constraint="a text")


def _validate_jitter(chosen: Any) -> None:
    jitter = chosen.get("jitter") if isinstance(chosen, Mapping) else None
    if is_number(jitter) and not 0 <= jitter <= 1:
        raise InvalidArgument("Jitter should be between 0 and 1", field="backoff.jitter", constraint="0 to 1")


def _encode_telemetry(value: Any) -> dict[str, Any]:
    members = value if isinstance(value, Mapping) else {}
    return {alias: members[name] for name, alias in TELEMETRY_ALIASES.items() if members.get(name) is not None}
