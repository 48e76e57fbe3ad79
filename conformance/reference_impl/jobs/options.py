"""Job options: validation and stored form (upstream `src/classes/job.ts`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from conformance.protocol.job_fields import (
    ALIAS_OF_OPTION,
    CHILD_FAILURE_OPTIONS,
    OPTION_OF_ALIAS,
    PARENT_FLAG_OPTIONS,
    PRIORITY_LIMIT,
    TELEMETRY_ALIASES,
)
from conformance.reference_impl import js_values
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.js_values import is_number, js_number, parse_int, truthy
from conformance.reference_impl.policy import MEGABYTE, policy_of

_TELEMETRY_NAMES: Final = {alias: name for name, alias in TELEMETRY_ALIASES.items()}
_SELDOM_GIVEN: Final = frozenset(
    {"sizeLimit", "repeat", "priority", "deduplication", "debounce", *CHILD_FAILURE_OPTIONS}
)
"""Options checked besides the id and the back-off. Most jobs have none of them, and then skip these checks."""

MANY_KEPT_JOBS: Final = 10_000
"""Keeping more finished jobs than this costs memory and time, so it causes a warning."""

_BACKOFF_TYPES: Final = ("fixed", "exponential")
_REMOVE_OPTIONS: Final = ("removeOnComplete", "removeOnFail")
JobOptions = dict[str, Any]
"""BullMQ's JobsOptions under their full names."""


def normalize(options: Mapping[str, Any]) -> JobOptions:
    """Return the options of a new Job object: `attempts` comes first and is 0 unless given, `backoff` is an object."""
    # First, because Lua's order of keys depends on the order of insertion.
    normal: JobOptions = {"attempts": 0, **options}
    normal.pop("repeatJobKey", None)
    normal["backoff"] = normalize_backoff(options.get("backoff"))
    if normal["backoff"] is None:
        del normal["backoff"]
    return normal


def normalize_backoff(backoff: Any) -> Any:
    """Return the option as it is stored: a bare number means a fixed delay in ms, an empty value means none."""
    if is_number(backoff) and math.isfinite(backoff):
        return {"type": "fixed", "delay": backoff}
    return backoff if truthy(backoff) else None


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
    """Return stored options under their full names. Some languages store an empty map as an array."""
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
    if parent is None:
        return None
    return f"{required(parent, 'queue', 'the option parent')}:{required(parent, 'id', 'the option parent')}"


def required(fields: Any, name: str, what: str) -> Any:
    """Return a required field. Raises InvalidArgument if it is missing; `what` names its owner."""
    if not isinstance(fields, Mapping) or fields.get(name) is None:
        raise InvalidArgument(f"{what} needs {name!r}: {fields!r}", field=name, constraint="given")
    return fields[name]


def parent_field(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the hash field `parent`: the parent and what this job's failure does to it."""
    parent = options.get("parent")
    if parent is None:
        return None
    flags = {ALIAS_OF_OPTION[name]: True for name in PARENT_FLAG_OPTIONS if truthy(options.get(name))}
    return {"id": parent["id"], "queueKey": parent["queue"], **flags}


def deduplication_id(options: Mapping[str, Any]) -> str | None:
    """Return the deduplication id; `debounce` is the option's former name."""
    chosen = options.get("deduplication") or options.get("debounce")
    # `isinstance` of an abstract class is slow, and most jobs have neither option.
    return chosen.get("id") if chosen and isinstance(chosen, Mapping) else None


def not_a_text(what: str, value: Any) -> InvalidArgument:
    """Return the error for a name or id of another type; Node.js stops with an error of JavaScript there."""
    kind = type(value).__name__
    return InvalidArgument(f"{what} must be a text, not {value!r} ({kind})", field=what, constraint="a text")


def validate_explicit_id(options: Mapping[str, Any]) -> None:
    """Check an id for Queue.add: the scripts would treat some ids as markers. addBulk does not check.

    Raises InvalidArgument.
    """
    job_id = options.get("jobId")
    if job_id is None:
        return
    if not isinstance(job_id, str):
        raise not_a_text("jobId", job_id)
    if job_id == "0" or job_id.startswith("0:"):
        raise InvalidArgument("JobId cannot be '0' or start with 0:", field="jobId", constraint="not 0 or 0:...")


def validate(name: str, options: Mapping[str, Any], data_text: str) -> None:
    """Check a job as Node.js does, in the same order and with the same texts. Raises InvalidArgument."""
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


def check_new_job(owner_opts: Mapping[str, Any], name: Any, options: Mapping[str, Any]) -> list[str]:
    """Check name and options of a job as the user gave them, more strictly than Node; returns warnings.

    Does nothing unless the policy has `strict_options`. The checks of Node.js (`validate`) always apply as well. Stored
    jobs of other clients are read with any options. Raises InvalidArgument with field and constraint.
    """
    if not policy_of(owner_opts).strict_options:
        return []
    _require("name", "a text that is not empty", name, holds=isinstance(name, str) and name != "")
    _check_number(options, "priority", "0 or more", least=0)
    _check_number(options, "delay", "0 ms or more", least=0)
    _check_number(options, "attempts", "1 or more", least=1)
    _check_number(options, "timestamp", "a Unix time in ms", least=1)
    _check_backoff(options.get("backoff"))
    for option in _REMOVE_OPTIONS:
        _check_removal(option, options.get(option))
    return list(_warnings(options))


def check_payload(owner_opts: Mapping[str, Any], data_text: str, stored_options: Mapping[str, Any]) -> None:
    """Check the size of data and options together, as JSON in UTF-8. Raises InvalidArgument with both sizes."""
    limit = policy_of(owner_opts).max_payload_bytes
    if limit is None:
        return
    options_text = js_values.stringify(stored_options)
    size = sum(len(js_values.well_formed(text).encode()) for text in (data_text, options_text))
    if size > limit:
        raise InvalidArgument(
            f"Job payload {size / MEGABYTE:.1f} MB exceeds limit of {limit / MEGABYTE:g} MB "
            f"({size} of {limit} bytes, data and options together)",
            field="data",
            constraint=f"at most {limit} bytes together with the options",
        )


def check_progress(owner_opts: Mapping[str, Any], progress: Any) -> None:
    """Check a progress that is a number; other values are not checked. Raises InvalidArgument."""
    if policy_of(owner_opts).strict_options and is_number(progress):
        _require("progress", "between 0 and 100", progress, holds=0 <= progress <= 100)


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
        raise not_a_text("jobId", job_id)
    whole = parse_int(job_id)
    # As JavaScript compares: with the text of a double, which is `NaN` where there is no number.
    if job_id == ("NaN" if whole is None else js_number(float(whole))):
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
    jitter = chosen.get("jitter") if chosen and isinstance(chosen, Mapping) else None
    if is_number(jitter) and not 0 <= jitter <= 1:
        raise InvalidArgument("Jitter should be between 0 and 1", field="backoff.jitter", constraint="0 to 1")


def _encode_telemetry(value: Any) -> dict[str, Any]:
    members = value if isinstance(value, Mapping) else {}
    return {alias: members[name] for name, alias in TELEMETRY_ALIASES.items() if members.get(name) is not None}


def _check_number(options: Mapping[str, Any], field: str, constraint: str, *, least: float) -> None:
    value = options.get(field)
    if value is not None:
        _require(field, constraint, value, holds=is_number(value) and value >= least)


def _check_backoff(backoff: Any) -> None:
    if backoff is None:
        return
    if not isinstance(backoff, Mapping):
        _require("backoff", "more than 0 ms", backoff, holds=is_number(backoff) and backoff > 0)
        return
    kind, delay = backoff.get("type"), backoff.get("delay")
    _require("backoff.type", "fixed or exponential", kind, holds=kind in _BACKOFF_TYPES)
    _require("backoff.delay", "more than 0 ms", delay, holds=is_number(delay) and delay > 0)


def _check_removal(option: str, chosen: Any) -> None:
    for field, value in _kept(option, chosen):
        _require(field, "0 or more", value, holds=is_number(value) and value >= 0)


def _warnings(options: Mapping[str, Any]) -> Iterator[str]:
    for option in _REMOVE_OPTIONS:
        for field, value in _kept(option, options.get(option)):
            if not field.endswith(".age") and value > MANY_KEPT_JOBS:
                yield f"{field} is {value}: keeping more than {MANY_KEPT_JOBS} finished jobs slows a queue down"


def _kept(option: str, chosen: Any) -> Iterator[tuple[str, Any]]:
    """The numbers in `removeOnComplete` or `removeOnFail`; true and false have none."""
    if isinstance(chosen, Mapping):
        yield from ((f"{option}.{name}", chosen[name]) for name in ("count", "age") if chosen.get(name) is not None)
    elif chosen is not None and not isinstance(chosen, bool):
        yield option, chosen


def _require(field: str, constraint: str, value: Any, *, holds: bool) -> None:
    if not holds:
        raise InvalidArgument(f"{field} must be {constraint}, not {value!r}", field=field, constraint=constraint)
