"""Cron patterns, as far as the model knows them: five or six fields of `*`, numbers, ranges, lists and steps, in UTC.

With six fields the first one is the second. Names, `L`, `#`, `?` and time zones are not modelled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from conformance.model.calls import NotModelled

LIMITS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
"""Lowest and highest value of second, minute, hour, day of the month, month, and day of the week (0 and 7: Sunday)."""
FURTHEST_DAYS = 366 * 8
_PART = re.compile(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?")


@dataclass(frozen=True, slots=True)
class Pattern:
    """The values that each field allows."""

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


def parse(pattern: str) -> Pattern:
    """Read a pattern. Raises NotModelled for what the model does not know."""
    fields = pattern.split()
    if len(fields) == 5:
        fields = ["0", *fields]
    if len(fields) != 6:
        raise NotModelled(f"the cron pattern {pattern!r}")
    seconds, minutes, hours, days, months, weekdays = (
        _values(field, *limits, pattern) for field, limits in zip(fields, LIMITS, strict=True)
    )
    weekdays = frozenset(day % 7 for day in weekdays)
    restricted = len(days) < 31 and len(weekdays) < 7
    return Pattern(seconds, minutes, hours, days, months, weekdays, any_day_will_do=restricted)


def _values(field: str, low: int, high: int, pattern: str) -> frozenset[int]:
    allowed: set[int] = set()
    for part in field.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise NotModelled(f"the cron pattern {pattern!r}")
        first, last, step = found.groups()
        begin = low if first is None else int(first)
        end = high if first is None or (step and last is None) else int(last or begin)
        if not low <= begin <= end <= high or step == "0":
            raise NotModelled(f"the cron pattern {pattern!r}")
        allowed.update(range(begin, end + 1, int(step or 1)))
    return frozenset(allowed)


def next_time(pattern: str, after_ms: float) -> int | None:
    """The first time (Unix ms) of the pattern that is later; None where there is none for years."""
    known = parse(pattern)
    start = datetime.fromtimestamp(after_ms // 1000, UTC) + timedelta(seconds=1)
    day = start.replace(hour=0, minute=0, second=0)
    for _ in range(FURTHEST_DAYS):
        if known.allows_day(day):
            found = _first_on(known, day, start)
            if found is not None:
                return int(found.timestamp()) * 1000
        day += timedelta(days=1)
    return None


def _first_on(pattern: Pattern, day: datetime, start: datetime) -> datetime | None:
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
