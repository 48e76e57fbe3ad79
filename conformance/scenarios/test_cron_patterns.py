"""Cron patterns at their edges: of every field, of every month, and where clocks are changed.

Many patterns are tried in each scenario, every one by a scheduler of its own: what is refused, and which time comes
first, are differences to Node. All start in a future year, so that the current time does not decide the result. The
start is given in ms, which every client takes: dates given as text are not the subject here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from conformance.driver.errors import OperationFailed
from conformance.participants.expect import holds
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant

A_WEDNESDAY = "2033-05-18T03:33:51.457Z"
NEW_YEARS_EVE = "2039-12-31T23:59:59.999Z"
BEFORE_A_LEAP_DAY = "2040-02-28T23:59:59.000Z"

DAYS_OF_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
MONDAY = "1"


def _about_month(month: int) -> list[str]:
    """Its last day and the one after it; all of its days, or all but one, together with a weekday."""
    days = DAYS_OF_MONTHS[month - 1]
    return [
        *(f"0 0 {day} {month} *" for day in (days, days + 1)),
        *(f"0 0 1-{day} {month} {MONDAY}" for day in (days - 1, days, days + 1)),
        f"0 0 {days}-31 {month} *",
        f"0 0 L {month} {MONDAY}",
    ]


MONTHS = {f"months-{first}-to-{first + 2}": range(first, first + 3) for first in (1, 4, 7, 10)}

FIELDS: Mapping[str, tuple[str, int, int]] = {
    "seconds": ("{} 30 12 * * *", 0, 59),
    "minutes": ("{} 12 * * *", 0, 59),
    "hours": ("30 {} * * *", 0, 23),
    "days": ("30 12 {} * *", 1, 31),
    "months": ("30 12 15 {} *", 1, 12),
    "weekdays": ("30 12 * * {}", 0, 7),
}
"""Each field in a pattern whose other fields are plain, with its least and its largest value."""


def _edges(low: int, high: int) -> list[str]:
    """Values of a field at the edges of its range."""
    return [
        *(str(value) for value in (low, low + 1, high - 1, high, high + 1)),
        *([str(low - 1)] if low else []),
        *(f"{low}-{high}", f"{low}-{high + 1}", f"{low + 1}-{high}", f"{high}-{high}", f"{high}-{low}"),
        *(
            "*/2",
            f"*/{high}",
            f"{high}/2",
            f"{low + 1}/3",
            f"{low}-{high}/4",
            f"{low},{high}",
            f"{low},{low}",
            "?",
            "*",
        ),
    ]


WORDS: Mapping[str, tuple[str, list[str]]] = {
    "names-of-months": ("30 12 15 {} *", ["jan", "DEC", "feb-Apr", "jun,sep", "jan-dec/5", "mon", "july", "1,aug"]),
    "names-of-weekdays": ("30 12 * * {}", ["sun", "SAT", "sun-tue", "Thu-sun", "mon,fri", "6,sun", "jan", "monday"]),
    "days-of-weeks": ("30 12 * * {}", ["1#1", "5#5", "0#2", "7#3", "sun#4", "1#0", "1#6", "1#", "#1", "1,2#1", "1#x"]),
    "occurrences": ("30 12 * * {}", [f"{day}#{number}" for day in range(7) for number in range(1, 6)]),
    "last-days": ("30 12 {} * *", ["L", "1,L", "L,31", "L-2", "L/2", "LW", "15-L", "1L"]),
    "last-weekdays": ("30 12 * * {}", ["0L", "5L", "7L", "1L,5L", "2,4L", "L", "8L", "xL"]),
    "days-and-weekdays": (
        "30 12 {}",
        ["1 * 0", "1,15 * 1-5", "L * 3", "*/10 * 0-6", "1-31 * 2", "* * 0-7", "* * 6-7", "15,30,L 2 *", "13 2 5"],
    ),
    "lists": ("{} 12 * * *", ["1,2,3", "3,1,2", "1,,2", ",1", "1,", "1-3,2-4", "5-7,30/10", "1 ,2"]),
    "ranges": ("{} 12 * * *", ["1-2-3", "-5", "5-", "-", "*-5", "5-*", "1--3", "07-09", "20-10,5", "9-9"]),
    "steps": ("{} 12 * * *", ["/5", "5/", "1/2/3", "*/1", "*/59", "*/60", "*/-1", "1-9/3", "1-9/10", "**", "*5"]),
    "nicknames": (
        "{}",
        ["@yearly", "@monthly", "@weekly", "@daily", "@hourly", "@annually", "@midnight", "@never", "@Weekly"],
    ),
    "counts-of-fields": (
        "{}",
        ["*", "5", "5 4", "5 4 3", "5 4 3 2", "1 2 3 4 5 6", "1 2 3 4 5 6 7", "  5  4 * * * ", "0 0 30 2 *", "x"],
    ),
}
"""Other values of a field than numbers, valid and invalid."""


def _ms(date: str) -> int:
    """The date in ms (Unix)."""
    return round(datetime.fromisoformat(date).timestamp() * 1000)


def _try_all(queue: QueueHandle, patterns: Iterable[str], *starts: str, **repeat: Any) -> None:
    """Make a scheduler of each pattern, for each start."""
    made = 0
    for number, (pattern, start) in enumerate((pattern, start) for pattern in patterns for start in starts):
        # That Node refuses it as well is compared with the other answers.
        with suppress(OperationFailed):
            queue.schedule(f"s{number}", {"pattern": pattern, "tz": "UTC", "startDate": _ms(start), **repeat})
            made += 1
    holds(made, "some of the patterns make a schedule", seen=made)


@pytest.mark.parametrize("months", MONTHS)
@scenario("scheduler.pattern", tier="full")
@also_in_core("months-7-to-9")
def test_every_month_has_its_days(client: Participant, months: str) -> None:
    """A day that it does not have is refused, and one that it has comes."""
    patterns = [pattern for month in MONTHS[months] for pattern in _about_month(month)]
    _try_all(client.queue(), patterns, A_WEDNESDAY)


@pytest.mark.parametrize("field", FIELDS)
@scenario("scheduler.pattern", tier="full")
@also_in_core("seconds")
def test_every_field_has_its_edges(client: Participant, field: str) -> None:
    """Values outside these ranges are refused."""
    pattern, low, high = FIELDS[field]
    _try_all(client.queue(), map(pattern.format, _edges(low, high)), A_WEDNESDAY)


@pytest.mark.parametrize("kind", WORDS)
@scenario("scheduler.pattern", tier="full")
@also_in_core("counts-of-fields | days-of-weeks | last-weekdays | lists | ranges | steps")
def test_what_else_stands_in_a_pattern(client: Participant, kind: str) -> None:
    """Names, nicknames, last days, lists, ranges and steps."""
    pattern, words = WORDS[kind]
    _try_all(client.queue(), map(pattern.format, words), A_WEDNESDAY, NEW_YEARS_EVE)


AROUND_CHANGES: Mapping[str, tuple[str, ...]] = {
    "Europe/Berlin": ("2040-03-24T22:59:59.000Z", "2040-03-25T00:59:59.999Z", "2040-10-28T00:15:00.000Z"),
    "America/New_York": ("2040-03-11T06:30:00.000Z", "2040-11-04T05:30:00.000Z", "2040-11-04T06:30:00.000Z"),
    "America/Havana": ("2040-03-11T04:30:00.000Z", "2040-11-04T04:30:00.000Z"),
    "Australia/Lord_Howe": ("2040-10-06T15:15:00.000Z", "2040-03-31T14:30:00.000Z"),
}
"""Zones, and instants shortly before and at changes of their clocks: by an hour, at midnight, and by half an hour."""

THROUGH_CHANGES = (
    *("0 0 * * *", "30 0 * * *", "30 1 * * *", "30 2 * * *", "0 3 * * *", "*/20 1,2 * * *", "15 * * * *"),
    *("*/10 30 0-3 * * *", "0 2 L * *", "0 0 1 * *", "0 2 * * 0"),
)


@pytest.mark.parametrize("zone", AROUND_CHANGES)
@scenario("scheduler.pattern", tier="full")
@also_in_core("America/Havana | America/New_York | Australia/Lord_Howe")
def test_clocks_are_changed(client: Participant, zone: str) -> None:
    """An hour that does not exist, and one that comes twice."""
    _try_all(client.queue(), THROUGH_CHANGES, *AROUND_CHANGES[zone], tz=zone)


@scenario("scheduler.pattern", tier="full")
def test_what_a_year_ends_with(client: Participant) -> None:
    """Days, months and years are passed, leap days among them."""
    patterns = ["0 0 29 2 *", "59 59 23 * * *", "0 0 31 */2 *", "0 0 1 1 *", "0 0 L 2 *", "0 0 * * 5#5", "* * * * * *"]
    _try_all(client.queue(), patterns, A_WEDNESDAY, NEW_YEARS_EVE, BEFORE_A_LEAP_DAY)


ZONES = (
    *("utc", "UTC+3", "utc-11", "UTC+05:45", "UTC-03:30", "GMT", "gmt+1", "asia/KATHMANDU", "Etc/GMT+5"),
    *("UTC+", "UTC+123", "Mars/Base", "", " UTC"),
)


@scenario("scheduler.pattern")
def test_zones_have_many_names(client: Participant) -> None:
    """Those of the IANA in any case, and distances from UTC."""
    queue = client.queue()
    for zone in ZONES:
        with suppress(OperationFailed):
            queue.schedule(f"in {zone}", {"pattern": "30 12 * * *", "tz": zone, "startDate": _ms(A_WEDNESDAY)})
    holds(queue.redis.members("repeat"), "some of the zones make a schedule", seen=queue.redis.members("repeat"))
