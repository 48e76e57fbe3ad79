"""What a client reads of a scheduler: its record `repeat:<id>` and its score in `repeat`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.reference_impl.encoding import js_json
from conformance.reference_impl.jobs import options

_PATTERN_PART: Final = 4
"""Place of the pattern in an old key `name:id:endDate:tz:pattern`."""


@dataclass(frozen=True, kw_only=True)
class SchedulerTemplate:
    """What the jobs of a scheduler are made of; None for what the template does not say."""

    data: Any = None
    opts: Mapping[str, Any] | None = None
    has_data: bool = False


@dataclass(frozen=True, kw_only=True)
class SchedulerRecord:
    """A scheduler. Times are Unix ms, `every` and `offset` ms. `key` is its id; `id` only stands in old repeat keys."""

    key: str
    name: str | None = None
    next: int | None = None
    id: str | None = None
    iterationCount: int | None = None
    limit: int | None = None
    startDate: int | None = None
    endDate: int | None = None
    tz: str | None = None
    pattern: str | None = None
    every: int | None = None
    offset: int | None = None
    template: SchedulerTemplate | None = None


def read_scheduler(key: str, fields: Mapping[str, str] | None, following: int | None) -> SchedulerRecord | None:
    """Read a scheduler; without a record an id with colons is taken for an old repeat key.

    Raises ValueError where a template is not JSON.
    """
    if fields is None:
        return read_repeat_key(key, following) if ":" in key else None
    return SchedulerRecord(
        key=key,
        name=fields.get("name"),
        next=following,
        iterationCount=js_json.parse_int(fields.get("ic")),
        limit=js_json.parse_int(fields.get("limit")),
        startDate=js_json.parse_int(fields.get("startDate")),
        endDate=js_json.parse_int(fields.get("endDate")),
        every=js_json.parse_int(fields.get("every")),
        offset=js_json.parse_int(fields.get("offset")),
        tz=fields.get("tz") or None,
        pattern=fields.get("pattern") or None,
        template=_template(fields.get("data"), fields.get("opts")),
    )


def read_repeat_key(key: str, following: int | None) -> SchedulerRecord:
    """Read a repeat key of old versions, which spells its options out."""
    name, job_id, end, tz, *_ = [*key.split(":"), "", "", ""]
    return SchedulerRecord(
        key=key,
        name=name,
        next=following,
        id=job_id or None,
        endDate=js_json.parse_int(end) or None,
        tz=tz or None,
        pattern=":".join(key.split(":")[_PATTERN_PART:]) or None,
    )


def _template(data: str | None, opts: str | None) -> SchedulerTemplate | None:
    if not data and not opts:
        return None
    return SchedulerTemplate(
        data=js_json.parse(data) if data else None,
        opts=options.decode(js_json.parse(opts)) if opts else None,
        has_data=bool(data),
    )
