"""Instants in a time zone, moved by the calendar: what a clock on the wall shows, also around a change of the clocks.

Which instant a wall time means, when it occurs twice or not at all, follows luxon 3: the offset from before the move is
tried first, and a time in a gap is read with the smaller offset.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cached_property, lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

OffsetAt = Callable[[int], int]
"""Distance of a zone from UTC (ms) at an instant (Unix ms)."""


class UnknownZone(ValueError):
    """No time zone has this name."""


@dataclass(frozen=True)
class Moment:
    """An instant (Unix ms) and the zone whose clock shows it."""

    instant: int
    zone: OffsetAt

    @cached_property
    def shown(self) -> datetime:
        """What the clock shows, to the ms; its zone means nothing."""
        return _EPOCH + timedelta(milliseconds=self.instant + self.zone(self.instant))

    @property
    def weekday(self) -> int:
        """Sunday is 0."""
        return self.shown.isoweekday() % 7

    def next_month(self) -> Moment:
        """Midnight at the beginning of the next month."""
        shown = self.shown
        year, month = (shown.year + 1, 1) if shown.month == 12 else (shown.year, shown.month + 1)
        # Two moves, as a shorter month first cuts the day and only then goes to the 1st.
        return self.showing(_same_day_or_last(shown, year, month)).showing(datetime(year, month, 1, tzinfo=UTC))

    def next_day(self) -> Moment:
        """Midnight at the beginning of the next day."""
        return self.in_days(1)

    def in_days(self, days: int) -> Moment:
        """Midnight so many days on."""
        there = self.showing(self.shown + timedelta(days=days))
        return there.showing(there.shown.replace(hour=0, minute=0, second=0, microsecond=0))

    def next_hour(self) -> Moment:
        """Answer the beginning of the next hour, and always a later instant."""
        moved = self.later(HOUR)
        moved = moved.showing(moved.shown.replace(minute=0, second=0, microsecond=0))
        return moved.later(HOUR) if moved.instant <= self.instant else moved

    def next_minute(self) -> Moment:
        """Answer the beginning of the next minute."""
        moved = self.later(MINUTE)
        moved = moved.showing(moved.shown.replace(second=0, microsecond=0))
        return moved.later(HOUR) if moved.instant < self.instant else moved

    def next_second(self) -> Moment:
        """Answer the beginning of the next second."""
        moved = self.later(SECOND)
        moved = moved.showing(moved.shown.replace(microsecond=0))
        return moved.later(HOUR) if moved.instant < self.instant else moved

    def later(self, duration: int) -> Moment:
        """So many ms on."""
        return Moment(self.instant + duration, self.zone)

    def showing(self, shown: datetime) -> Moment:
        """Answer the instant at which the clock shows this; what occurs twice is read with the offset from here."""
        wall = (shown - _EPOCH) // timedelta(milliseconds=1)
        return Moment(_instant_of(wall, self.zone(self.instant), self.zone), self.zone)


def zone_named(name: str | None) -> OffsetAt:
    """Find a zone: an IANA name in any case, `utc`, `UTC+3`, or None for the machine's own. Raises UnknownZone."""
    lowered = (name or "local").lower()
    if lowered in ("local", "system", "default"):
        return _local_offset
    fixed = re.fullmatch(r"utc(?:([+-][0-9]{1,2})(?::([0-9]{2}))?)?|gmt", lowered)
    if fixed:
        hours, minutes = int(fixed.group(1) or 0), int(fixed.group(2) or 0)
        sign = -1 if (fixed.group(1) or "").startswith("-") else 1
        return _offsets_of(timezone(timedelta(hours=hours, minutes=sign * minutes)))
    return _offsets_of(_iana_zone(lowered))


@lru_cache
def _iana_zone(lowered: str) -> ZoneInfo:
    names = {name.lower(): name for name in available_timezones()}
    try:
        return ZoneInfo(names[lowered])
    except (KeyError, ZoneInfoNotFoundError):
        raise UnknownZone(lowered) from None


def _offsets_of(zone: tzinfo) -> OffsetAt:
    def offset(instant: int) -> int:
        found = (_EPOCH + timedelta(milliseconds=instant)).astimezone(zone).utcoffset()
        return (found or timedelta()) // timedelta(milliseconds=1)

    return offset


def _local_offset(instant: int) -> int:
    found = (_EPOCH + timedelta(milliseconds=instant)).astimezone().utcoffset()
    return (found or timedelta()) // timedelta(milliseconds=1)


def _instant_of(wall: int, guess: int, zone: OffsetAt) -> int:
    """Read a wall time (ms), trying the offset `guess` first, then the one that holds there."""
    first = zone(wall - guess)
    if first == guess:
        return wall - guess
    second = zone(wall - first)
    return wall - first if second == first else wall - min(first, second)


def _same_day_or_last(shown: datetime, year: int, month: int) -> datetime:
    after = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return shown.replace(year=year, month=month, day=min(shown.day, (after - timedelta(days=1)).day))
