"""When the next iteration of something that repeats is due (upstream `repeatStrategy` of job schedulers and repeat)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from conformance.reference_impl.clock import Clock
from conformance.reference_impl.encoding.js_date import milliseconds
from conformance.reference_impl.encoding.js_json import truthy
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.schedules.cron import CronSearch, NoNextInstant

RepeatOptions = Mapping[str, Any]
"""BullMQ's RepeatOptions: pattern or every (ms), tz, limit, startDate, endDate, immediately, count."""

RepeatStrategy = Callable[[int, RepeatOptions, str], int | Awaitable[int | None] | None]
"""Setting `repeatStrategy`: answers the Unix ms of the iteration after an instant (Unix ms), for a job of this name."""


async def ask(strategy: RepeatStrategy, after: int, repeat: RepeatOptions, name: str) -> int | None:
    """Call a strategy, which may be a coroutine function."""
    answer = strategy(after, repeat, name)
    return await answer if inspect.isawaitable(answer) else answer


def cron_strategy(clock: Clock) -> RepeatStrategy:
    """Make the strategy of job schedulers: the pattern alone counts; intervals are reckoned by the Lua script."""

    def strategy(after: int, repeat: RepeatOptions, _name: str) -> int | None:
        return next_by_pattern(after, repeat, clock)

    return strategy


def legacy_strategy(clock: Clock) -> RepeatStrategy:
    """Make the strategy of the option `repeat`: intervals fall on multiples of `every` since 1970."""

    def strategy(after: int, repeat: RepeatOptions, _name: str) -> int | None:
        if not truthy(repeat.get("every")):
            return next_by_pattern(after, repeat, clock)
        every = repeat["every"]
        if truthy(repeat.get("pattern")):
            raise InvalidArgument("Both .pattern and .every options are defined for this repeatable job")
        slot = int(after // every * every)
        return slot if truthy(repeat.get("immediately")) else slot + every

    return strategy


def next_by_pattern(after: int, repeat: RepeatOptions, clock: Clock) -> int | None:
    """Answer the first instant of a pattern after `after` and after startDate; with `immediately` it is now.

    None when there is none up to endDate. Raises CronError for a pattern that cannot be read.
    """
    start, end = date_of(repeat, "startDate"), date_of(repeat, "endDate")
    begin = max(after, start) if start is not None else after
    tz = "UTC" if truthy(repeat.get("utc")) else repeat.get("tz")
    search = CronSearch(str(repeat.get("pattern")), begin, tz=tz)
    if truthy(repeat.get("immediately")):
        return clock.now_ms()
    try:
        return search.first(end)
    except NoNextInstant:
        return None


def date_of(repeat: RepeatOptions, name: str) -> int | None:
    """Answer the option startDate or endDate in Unix ms, None without it. Raises InvalidArgument."""
    given = repeat.get(name)
    return milliseconds(given) if truthy(given) else None


def next_count(repeat: RepeatOptions) -> int | None:
    """Answer the number of the next iteration, from 1 on; None when the limit is reached."""
    count = int(repeat.get("count") or 0) + 1
    if "limit" in repeat and count > (repeat["limit"] or 0):
        return None
    return count


def is_over(repeat: RepeatOptions, now: int) -> bool:
    """Whether endDate has passed."""
    end = date_of(repeat, "endDate")
    return end is not None and now > end


def refuse_past_end(repeat: RepeatOptions, now: int) -> None:
    """Raise InvalidArgument where endDate has passed before anything was scheduled."""
    if is_over(repeat, now):
        raise InvalidArgument("End date must be greater than current timestamp")
