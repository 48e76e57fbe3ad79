"""When a cron pattern is due next, to the second, as cron-parser 4.9 reckons it.

A job scheduler whose iterations two clients make by turns needs the same instant from both, so the search follows
cron-parser: field by field, the largest first, with its rules for an hour that the clocks skip or show twice. Python's
cron libraries have other rules: in 6072 cases (46 patterns, 12 zones, instants around changes of the clocks) croniter
7.0 differed in 275 and cronsim 2.8 in 933, by patterns that they refuse and by hours of such a change.
"""

from __future__ import annotations

from typing import Final

from conformance.reference_impl.encoding.js_date import iso_text
from conformance.reference_impl.encoding.js_json import js_string
from conformance.reference_impl.schedules.cron_fields import CronError, parse_pattern
from conformance.reference_impl.schedules.cron_time import Moment, OffsetAt, UnknownZone, zone_named

_MOST_STEPS: Final = 10_000
"""A pattern that is not met within so many steps has no next instant."""

_HOURS: Final = 24
_SKIPPED: Final = 2
"""The hand of the clock moves by two hours: one of them does not exist."""


class NoNextInstant(ValueError):
    """The pattern is readable, but never due again."""


def next_instant(pattern: str, after: int, *, tz: str | None = None, end: int | None = None) -> int:
    """Answer the first instant (Unix ms) later than `after` at which the pattern is due, not beyond `end`.

    Raises CronError for a pattern or a zone that cannot be read, NoNextInstant where there is none.
    """
    return CronSearch(pattern, after, tz=tz).first(end)


class CronSearch:
    """Looks for the first instant later than `after` (Unix ms). Raises CronError, like `next_instant`.

    It stands at the moment that is being looked at, and remembers a change of the clocks that it met on the way.
    """

    def __init__(self, pattern: str, after: int, *, tz: str | None = None) -> None:
        self._pattern = parse_pattern(pattern)
        self._after = after
        self._at = Moment(after, _zone(tz, after))
        self._hour_after_gap: int | None = None
        self._repeated_hour: int | None = None

    def first(self, end: int | None = None) -> int:
        """Answer the instant, not beyond `end`. Raises NoNextInstant."""
        for _ in range(_MOST_STEPS - 1):
            if end is not None and end < self._at.instant:
                raise NoNextInstant("Out of the timespan range")
            if not self._move():
                return self._at.instant
        raise NoNextInstant("Invalid expression, loop limit exceeded")

    def _move(self) -> bool:
        """Go on to the next candidate; False where the pattern is met."""
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
        """Where both the day and the weekday are restricted, one of them is enough."""
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
            # This hour was due already, before the clocks went back.
            self._repeated_hour = None
            self._step(at.next_hour())
            return True
        if self._hour_after_gap != hour:
            self._hour_after_gap = None
            self._step(at.next_hour())
            return True
        if hour - 1 in self._pattern.hour:
            # The hour that is due was skipped: the one after it stands in.
            return False
        self._at = at.next_hour()
        return True

    def _move_within_hour(self) -> bool:
        shown, pattern, at = self._at.shown, self._pattern, self._at
        if shown.minute not in pattern.minute:
            self._step(at.next_minute())
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
        """Move within a day, and notice a change of the clocks, unless the pattern takes every hour anyway."""
        hour, shown = self._at.shown.hour, there.shown
        self._at = there
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
