"""Stricter checks than Node's, before anything is written: `Policy.strict_options` and `Policy.max_payload_bytes`.

Node's own checks (`options.validate`) come on top of these and are never off. Jobs that were added by others are
read whatever their options are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from conformance.reference_impl.encoding import js_json
from conformance.reference_impl.encoding.js_json import is_number
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.policy import MEGABYTE, policy_of

MANY_KEPT_JOBS: Final = 10_000
"""Keeping more finished jobs than this costs memory and time; that deserves a warning."""

_BACKOFF_TYPES: Final = ("fixed", "exponential")
_REMOVE_OPTIONS: Final = ("removeOnComplete", "removeOnFail")


def check_new_job(owner_opts: Mapping[str, Any], name: Any, options: Mapping[str, Any]) -> list[str]:
    """Check name and options of a job as the user gave them; answers warnings.

    Does nothing unless the policy asks for it. Raises InvalidArgument that names the field and the constraint.
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
    options_text = js_json.stringify(stored_options)
    size = sum(len(js_json.well_formed(text).encode()) for text in (data_text, options_text))
    if size > limit:
        raise InvalidArgument(
            f"Job payload {size / MEGABYTE:.1f} MB exceeds limit of {limit / MEGABYTE:g} MB "
            f"({size} of {limit} bytes, data and options together)",
            field="data",
            constraint=f"at most {limit} bytes together with the options",
        )


def check_progress(owner_opts: Mapping[str, Any], progress: Any) -> None:
    """Check a progress that is a number; other values are the user's own. Raises InvalidArgument."""
    if policy_of(owner_opts).strict_options and is_number(progress):
        _require("progress", "between 0 and 100", progress, holds=0 <= progress <= 100)


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
    """Numbers in an option that says how many finished jobs to keep; true and false have none."""
    if isinstance(chosen, Mapping):
        yield from ((f"{option}.{name}", chosen[name]) for name in ("count", "age") if chosen.get(name) is not None)
    elif chosen is not None and not isinstance(chosen, bool):
        yield option, chosen


def _require(field: str, constraint: str, value: Any, *, holds: bool) -> None:
    if not holds:
        raise InvalidArgument(f"{field} must be {constraint}, not {value!r}", field=field, constraint=constraint)
