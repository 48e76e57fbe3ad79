"""When a job scheduler runs, by a period or by a cron pattern, and the options of its jobs.

`every` runs at once, and then each time the period has passed since the run before; runs that were missed are left out.
`pattern` runs at the times of a cron pattern. The id of an iteration is `repeat:SCHEDULER:TIME`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from conformance.model.calls import NotModelled, refuse
from conformance.model.job_objects import JobOptions, is_number
from conformance.model.texts import joined_number

CRON_LIMITS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
"""Lowest and highest value of second, minute, hour, day of the month, month, and day of the week (0 and 7: Sunday)."""
FURTHEST_DAYS = 366 * 8
"""How far ahead the next time of a pattern is looked for: 29 February may be eight years away."""
_CRON_PART = re.compile(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?")


def iteration_id(scheduler: str, time: float) -> str:
    """The id of the iteration at this time (ms)."""
    return f"repeat:{scheduler}:{joined_number(time)}"


def every_next(previous: float | None, every: float, now_ms: int, phase: float, start: float | None) -> int:
    """When a scheduler with a period runs next (ms): one period after the last run, or at the next slot after now."""
    if previous is None:
        return math.floor(max(start or now_ms, now_ms))
    following = previous + every
    # Missed runs are left out: the next slot after now, in the phase of the first run.
    if following < now_ms:
        following = math.floor(now_ms / every) * every + every + phase
    return math.floor(following)


def _pattern_next(repeat: Mapping[str, Any], after_ms: float, now_ms: int) -> float | None:
    """When a scheduler with a pattern runs next (ms); None: never again."""
    if repeat.get("tz") is not None:
        raise NotModelled("time zones of schedulers")
    start, end = repeat.get("startDate"), repeat.get("endDate")
    from_ms = max(start, after_ms) if start else after_ms
    following = next_time(repeat["pattern"], from_ms)
    # After the pattern was read, so that an invalid one is refused here too.
    if repeat.get("immediately"):
        return max(now_ms, after_ms)
    if following is None or (end and following > end):
        return None
    return max(following, after_ms)


def check_repeat(repeat: Mapping[str, Any], now_ms: int) -> None:
    """What Node refuses before it sends anything: an end in the past, neither or both of pattern and period."""
    if any(not is_number(repeat.get(name) or 0) for name in ("startDate", "endDate", "every", "limit", "count")):
        raise NotModelled("a date or number of a scheduler that is given as text")
    if repeat.get("endDate") and repeat["endDate"] < now_ms:
        refuse("the end date has passed")
    if bool(repeat.get("pattern")) == bool(repeat.get("every")):
        refuse("either pattern or every")
    if repeat.get("immediately") and repeat.get("startDate"):
        refuse("immediately and startDate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A scheduler as one call sees it. `template`: options for its jobs; `iteration`: number of the next run."""

    id: str
    name: str
    data_raw: str
    repeat: Mapping[str, Any]
    template: Mapping[str, Any]

    @property
    def iteration(self) -> float:
        """The number of the next run, counted from 1."""
        done: float = self.repeat.get("count") or 0
        return done + 1

    def is_over(self, now_ms: int) -> bool:
        """Whether the limit of runs or the end date forbids another iteration."""
        if "limit" in self.repeat and self.iteration > (self.repeat["limit"] or 0):
            return True
        return bool(self.repeat.get("endDate")) and now_ms > self.repeat["endDate"]

    def pattern_time(self, now_ms: int) -> float | None:
        """When the pattern wants the next run (ms); None: never, or there is no pattern."""
        if not self.repeat.get("pattern"):
            return None
        return _pattern_next(self.repeat, max(self.template.get("prevMillis") or 0, now_ms), now_ms)

    def job_options(self, time: float | None, now_ms: int) -> JobOptions:
        """The options of an iteration: those of the template, and what the worker needs to make the next one."""
        dates = {name: self.repeat[name] for name in ("startDate", "endDate") if self.repeat.get(name)}
        dropped = {"immediately", "offset", "startDate", "endDate"}
        kept = {name: value for name, value in self.repeat.items() if name not in dropped}
        options = {name: value for name, value in self.template.items() if name not in {"prevMillis", "delay", "jobId"}}
        options |= {
            "repeat": {**kept, "count": self.iteration, **dates},
            "jobId": f"repeat:{self.id}:{'undefined' if time is None else joined_number(time)}",
            "timestamp": now_ms,
            "repeatJobKey": self.id,
        }
        if time is not None:
            options |= {"delay": max(time - now_ms, 0), "prevMillis": time}
        return options


@dataclass(frozen=True, slots=True)
class CronTimes:
    """A cron pattern in UTC: the values that each field allows.

    Modelled are five or six fields of `*`, numbers, ranges, lists and steps; with six, the first one is the second.
    Names, `L`, `#`, `?` and time zones are not modelled.
    """

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day_will_do: bool
    """Day of the month and day of the week are both restricted: then one of them is enough."""

    def allows_day(self, day: datetime) -> bool:
        """Whether the pattern has a time on this day."""
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_date or by_weekday) if self.any_day_will_do else (by_date and by_weekday)


def parse_pattern(pattern: str) -> CronTimes:
    """Read a pattern. Raises NotModelled for what the model does not know."""
    fields = pattern.split()
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) != 6:
        raise NotModelled(f"the cron pattern {pattern!r}")
    seconds, minutes, hours, days, months, weekdays = (
        _values(field, *limits, pattern) for field, limits in zip(fields, CRON_LIMITS, strict=True)
    )
    weekdays = frozenset(day % 7 for day in weekdays)
    restricted = len(days) < 31 and len(weekdays) < 7
    return CronTimes(seconds, minutes, hours, days, months, weekdays, any_day_will_do=restricted)


def _values(field: str, low: int, high: int, pattern: str) -> frozenset[int]:
    allowed: set[int] = set()
    for part in field.split(","):
        found = _CRON_PART.fullmatch(part)
        if found is None:
            raise NotModelled(f"the cron pattern {pattern!r}")
        first, last, step = found.groups()
        start = low if first is None else int(first)
        end = high if first is None or (step and last is None) else int(last or start)
        if not low <= start <= end <= high or step == "0":
            raise NotModelled(f"the cron pattern {pattern!r}")
        allowed.update(range(start, end + 1, int(step or 1)))
    return frozenset(allowed)


def next_time(pattern: str, after_ms: float) -> int | None:
    """The first time (Unix ms) of the pattern that is later; None where there is none for years."""
    known = parse_pattern(pattern)
    # Strictly later, because the run at `after_ms` itself is being made.
    start = datetime.fromtimestamp(after_ms // 1000, UTC) + timedelta(seconds=1)
    day = start.replace(hour=0, minute=0, second=0)
    for _ in range(FURTHEST_DAYS):
        if known.allows_day(day):
            found = _first_on(known, day, start)
            if found is not None:
                return int(found.timestamp()) * 1000
        day += timedelta(days=1)
    return None


def _first_on(pattern: CronTimes, day: datetime, start: datetime) -> datetime | None:
    for hour in sorted(pattern.hours):
        if day.replace(hour=hour, minute=59, second=59) < start:
            continue
        for minute in sorted(pattern.minutes):
            if day.replace(hour=hour, minute=minute, second=59) < start:
                continue
            for second in sorted(pattern.seconds):
                moment = day.replace(hour=hour, minute=minute, second=second)
                if moment >= start:
                    return moment
    return None
