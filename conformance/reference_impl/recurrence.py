"""Repeat options, the next due time of a schedule, and the record of a stored one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.protocol import keys as names
from conformance.reference_impl import js_values
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.connection import flat_mapping, texts
from conformance.reference_impl.cron import CronSearch, NoNextInstant
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.record import JobOwner
from conformance.reference_impl.js_values import milliseconds, truthy

RepeatMapping = Mapping[str, Any]
"""RepeatOptions, and any others that a strategy of the program reads."""

RepeatStrategy = Callable[[int, RepeatMapping, str], int | Awaitable[int | None] | None]
"""Setting `repeatStrategy`: returns the Unix ms of the iteration after an instant (Unix ms), for a job of this name."""


async def ask_strategy(strategy: RepeatStrategy, after: int, repeat: RepeatMapping, name: str) -> int | None:
    """Call a strategy, which may be a coroutine function."""
    due = strategy(after, repeat, name)
    return await due if inspect.isawaitable(due) else due


def cron_strategy(clock: Clock) -> RepeatStrategy:
    """Make the strategy of job schedulers: the pattern alone counts; the Lua script computes intervals."""

    def strategy(after: int, repeat: RepeatMapping, _name: str) -> int | None:
        return next_by_pattern(after, repeat, clock)

    return strategy


def legacy_strategy(clock: Clock) -> RepeatStrategy:
    """Make the strategy of the option `repeat`: intervals fall on multiples of `every` since 1970."""

    def strategy(after: int, repeat: RepeatMapping, _name: str) -> int | None:
        if not truthy(repeat.get("every")):
            return next_by_pattern(after, repeat, clock)
        every = repeat["every"]
        if truthy(repeat.get("pattern")):
            raise InvalidArgument("Both .pattern and .every options are defined for this repeatable job")
        slot = int(after // every * every)
        return slot if truthy(repeat.get("immediately")) else slot + every

    return strategy


def next_by_pattern(after: int, repeat: RepeatMapping, clock: Clock) -> int | None:
    """Return the first instant of a pattern after `after` and after startDate; with `immediately` it is now.

    None if there is none up to endDate. Raises CronError for an invalid pattern.
    """
    start, end = date_of(repeat, "startDate"), date_of(repeat, "endDate")
    begin = max(after, start) if start is not None else after
    tz = "UTC" if truthy(repeat.get("utc")) else repeat.get("tz")
    # Parsed even with `immediately`: an invalid pattern must fail now and not at the second iteration.
    search = CronSearch(str(repeat.get("pattern")), begin, tz=tz)
    if truthy(repeat.get("immediately")):
        return clock.now_ms()
    try:
        return search.first(end)
    except NoNextInstant:
        return None


def date_of(repeat: RepeatMapping, name: str) -> int | None:
    """Return the option startDate or endDate in Unix ms, None without it. Raises InvalidArgument."""
    given = repeat.get(name)
    return milliseconds(given) if truthy(given) else None


def next_count(repeat: RepeatMapping) -> int | None:
    """Return the number of the next iteration, from 1 on; None when the limit is reached."""
    count = int(repeat.get("count") or 0) + 1
    if "limit" in repeat and count > (repeat["limit"] or 0):
        return None
    return count


def is_over(repeat: RepeatMapping, now: int) -> bool:
    """Whether endDate has passed."""
    end = date_of(repeat, "endDate")
    return end is not None and now > end


def refuse_past_end(repeat: RepeatMapping, now: int) -> None:
    """Raise InvalidArgument if endDate has passed before anything was scheduled."""
    if is_over(repeat, now):
        raise InvalidArgument("End date must be greater than current timestamp")


_PATTERN_PART: Final = 4
"""Place of the pattern in an old key `name:id:endDate:tz:pattern`."""


@dataclass(frozen=True, kw_only=True)
class SchedulerTemplate:
    """The template of a scheduler's jobs; None for parts that it does not set."""

    data: Any = None
    opts: Mapping[str, Any] | None = None
    has_data: bool = False


@dataclass(frozen=True, kw_only=True)
class SchedulerRecord:
    """A scheduler. Times are Unix ms, `every` and `offset` ms. `key` is its id; `id`: old repeat keys only."""

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


async def read_schedulers(owner: JobOwner, start: int, end: int, *, asc: bool) -> list[SchedulerRecord]:
    """Read schedulers and repeat keys by rank: the one that is due last first, unless `asc`."""
    repeat = owner.keys.key(names.REPEAT)

    async def read(key: str, following: int | None) -> SchedulerRecord | None:
        fields = await owner.connection.command("HGETALL", f"{repeat}:{key}")
        return read_scheduler(key, flat_mapping(fields), following)

    members = texts(await owner.connection.command("ZRANGE" if asc else "ZREVRANGE", repeat, start, end, "WITHSCORES"))
    scores = zip(members[::2], members[1::2], strict=True)
    records = await asyncio.gather(*(read(key, js_values.parse_int(score)) for key, score in scores))
    return [record for record in records if record is not None]


def read_scheduler(key: str, fields: Mapping[str, str] | None, following: int | None) -> SchedulerRecord | None:
    """Read a scheduler; without a record an id with colons is taken for an old repeat key.

    Raises ValueError if a template is not JSON.
    """
    if fields is None:
        return read_repeat_key(key, following) if ":" in key else None
    return SchedulerRecord(
        key=key,
        name=fields.get("name"),
        next=following,
        iterationCount=js_values.parse_int(fields.get("ic")),
        limit=js_values.parse_int(fields.get("limit")),
        startDate=js_values.parse_int(fields.get("startDate")),
        endDate=js_values.parse_int(fields.get("endDate")),
        every=js_values.parse_int(fields.get("every")),
        offset=js_values.parse_int(fields.get("offset")),
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
        endDate=js_values.parse_int(end) or None,
        tz=tz or None,
        pattern=":".join(key.split(":")[_PATTERN_PART:]) or None,
    )


def _template(data: str | None, opts: str | None) -> SchedulerTemplate | None:
    if not data and not opts:
        return None
    return SchedulerTemplate(
        data=js_values.parse(data) if data else None,
        opts=options.decode(js_values.parse(opts)) if opts else None,
        has_data=bool(data),
    )
