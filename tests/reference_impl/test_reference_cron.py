"""Cron patterns of the reference client against the cron-parser that real BullMQ uses."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from conformance.reference_impl.cron import NoNextInstant, UnknownZone, next_instant, zone_named
from conformance.reference_impl.cron_pattern import CronError, parse_pattern
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package

ORACLE = Path(__file__).parent / "cron_oracle.mjs"
Case = tuple[str, str | None, int]

ZONES: tuple[str | None, ...] = (
    *(None, "UTC", "utc", "UTC+3", "UTC-9:30", "Europe/Berlin", "europe/paris", "Europe/Dublin", "Europe/Lisbon"),
    *("America/New_York", "America/Sao_Paulo", "America/Santiago", "America/Havana", "America/St_Johns"),
    *("Asia/Kolkata", "Asia/Tehran", "Asia/Beirut", "Asia/Gaza", "Africa/Casablanca", "Antarctica/Troll"),
    *("Australia/Lord_Howe", "Pacific/Apia", "Pacific/Chatham", "Nowhere/City"),
)
FIXED_PATTERNS = (
    *("* * * * *", "*/5 * * * *", "0 9 * * *", "30 2 * * *", "0 2 * * *", "30 1 * * *", "0 0 * * *", "15 10 * * 1-5"),
    *("*/10 * * * * *", "0 30 2 * * *", "0 0 1 * *", "0 0 L * *", "0 0 * * 5L", "0 0 * * 1#2", "0 12 13 * 5"),
    *("0 0 29 2 *", "0 0 31 * *", "0 0 1,15 * 3", "5 4 * * sun", "0 0 * * 7", "0 0 * jan *", "@daily", "@hourly"),
    *("@weekly", "@monthly", "@yearly", "0 */2 * * *", "0 1-3 * * *", "*/30 0-3 * * *", "0 0 ? * 1", "1/7 * * * *"),
    *("0 0 30 2 *", "0 0 31 4 *", "* * * *", "5", "0 0 * * 1-7", "0 0 * * 6-7", "45 */3 */2 * *", "* 2 * * *"),
    *("0 0 12 * * 1-5", "0 2 * 3 0", "0 0 * * L", "59 59 23 31 12 *", "0 0 * * 0-7/2", "0 0 * * mon-fri/2"),
)
BAD_PATTERNS = (
    *("60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "0 0 31 2 *", "* * * * * * *", "x", "a b"),
    *("1,,2 * * * *", ", * * * *", "1-5/0 * * * *", "5-1 * * * *", "1/2/3 * * * *", "/5 * * * *", "- * * * *"),
    *(
        "5- * * * *",
        "-5 * * * *",
        "* * * foo *",
        "* * * * foo",
        "* * * * 1#6",
        "* * * * 1#0",
        "* * * * 1#",
        "* * * * 1,2#3",
    ),
    *(
        "* * * * 1-3#2",
        "* * * * 1/2#2",
        "* * * * 1#2#3",
        "L * * * *",
        "* * L-3 * *",
        "* * LW * *",
        "* * *,? * *",
        "1.5 * * * *",
    ),
)

BEFORE_CHANGES = (
    *("2019-03-10T06:00", "2019-11-03T04:00", "2019-03-31T00:00", "2019-10-27T00:00", "2019-04-06T14:00"),
    *("2019-10-05T14:00", "2020-02-28T23:00", "2019-12-31T20:00", "2018-02-17T22:00", "2018-11-04T01:00"),
    *("2019-09-08T02:00", "2011-12-29T08:00"),
)
"""Hours before clocks change somewhere, and the ends of a month, of a year, and of a day that Samoa never had."""


DEADLINE_S = 120.0
AT_ONCE = 100
"""Questions and answers that fit into the two pipes, so that neither side waits for the other to read."""


class CronParser:
    """Node's cron-parser, in a process that answers one line for each line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, cases: Sequence[Case]) -> list[dict[str, Any]]:
        """When these are due, as Node says."""
        overdue = threading.Timer(DEADLINE_S, self._process.kill)
        overdue.start()
        try:
            return [
                answer for first in range(0, len(cases), AT_ONCE) for answer in self._asked(cases[first:][:AT_ONCE])
            ]
        finally:
            overdue.cancel()

    def _asked(self, cases: Sequence[Case]) -> list[dict[str, Any]]:
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        questions.writelines(f"{json.dumps(case)}\n" for case in cases)
        questions.flush()
        return [json.loads(answers.readline()) for _ in cases]


@pytest.fixture(scope="module")
def cron_parser() -> Iterator[CronParser]:
    node = find_node(None)
    root = ensure_package(node, announce=print).root
    command = [str(node.path), str(ORACLE), str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield CronParser(process)


def results_of_reference(case: Case) -> dict[str, Any]:
    pattern, zone, after = case
    try:
        return {"due": next_instant(pattern, after, tz=zone)}
    except (CronError, NoNextInstant) as error:
        return {"error": str(error)}


def differences(cron_parser: CronParser, cases: Sequence[Case]) -> list[tuple[Case, dict[str, Any], dict[str, Any]]]:
    """Cases in which the two do not agree: the case, what Node says, what the reference says."""
    pairs = zip(cases, cron_parser(cases), map(results_of_reference, cases), strict=True)
    return [(case, expected, actual) for case, expected, actual in pairs if expected != actual]


def unix_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES, ids=str)
def test_patterns_around_changes_of_the_clocks(zone: str | None, cron_parser: CronParser) -> None:
    dice = random.Random(f"{zone}")
    starts = [unix_ms(text) + dice.randrange(6 * 3_600_000) for text in BEFORE_CHANGES]
    cases: list[Case] = [(pattern, zone, start) for pattern in FIXED_PATTERNS for start in dice.sample(starts, 3)]
    assert differences(cron_parser, cases) == []


class PatternGenerator:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def case(self) -> Case:
        start = unix_ms("2015-01-01T00:00") + self.dice.randrange(6 * 365 * 86_400_000)
        return self.pattern(), self.dice.choice(ZONES), start

    def pattern(self) -> str:
        fields = [
            *(self.field(0, 59, 0.1), self.field(0, 59, 0.2), self.field(0, 23, 0.25)),
            self.field(1, 31, 0.55, "L", "?"),
            self.field(1, 12, 0.6, "jan", "FEB", "Mar"),
            self.field(0, 7, 0.55, "mon", "FRI", "5L", "0L", "7", "sun-tue", "2#3", "?"),
        ]
        return " ".join(fields[self.dice.choice((0, 1, 1, 1, 2)) :])

    def field(self, low: int, high: int, free: float, *special: str) -> str:
        if self.dice.random() < free:
            return "*"
        return ",".join(self.atom(low, high, special) for _ in range(self.dice.choice((1, 1, 1, 2, 3))))

    def atom(self, low: int, high: int, special: tuple[str, ...]) -> str:
        first, last = sorted(self.dice.choices(range(low, high + 1), k=2))
        forms = [f"{first}", f"{last}", f"{first}-{last}", f"{first}-{last}/{self.dice.randint(1, 7)}"]
        forms += [f"*/{self.dice.randint(1, 12)}", f"{first}/{self.dice.randint(1, 9)}", *special[:2]]
        return self.dice.choice([*forms, *special])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_made_up_patterns(seed: int, cron_parser: CronParser) -> None:
    inventor = PatternGenerator(seed)
    assert differences(cron_parser, [inventor.case() for _ in range(500)]) == []


def test_patterns_that_cannot_be_read_have_the_same_words(cron_parser: CronParser) -> None:
    cases: list[Case] = [(pattern, "UTC", 1_700_000_000_000) for pattern in BAD_PATTERNS]
    assert all("error" in answer for answer in cron_parser(cases))
    assert differences(cron_parser, cases) == []


def test_a_difference_is_noticed(cron_parser: CronParser, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself can fail."""
    monkeypatch.setattr("conformance.reference_impl.cron.zone_named", lambda _name: zone_named("UTC+1"))
    assert differences(cron_parser, [("0 0 * * *", "UTC", 1_700_000_000_000)])


def test_the_end_is_the_last_instant_that_is_checked() -> None:
    assert next_instant("0 0 * * *", 0, tz="UTC", end=86_400_000) == 86_400_000
    with pytest.raises(NoNextInstant, match="Out of the timespan range"):
        next_instant("0 0 * * *", 0, tz="UTC", end=86_399_999)


def test_a_pattern_that_is_never_due_ends() -> None:
    with pytest.raises(NoNextInstant, match="loop limit exceeded"):
        next_instant("0 0 31 4,6 *", 0, tz="UTC")


def test_zones() -> None:
    assert zone_named("UTC-9:30")(0) == -9.5 * 3_600_000
    assert zone_named("gmt")(0) == 0
    assert zone_named("EUROPE/BERLIN")(0) == 3_600_000
    for name in ("Nowhere/City", ""):
        with pytest.raises(UnknownZone):
            zone_named(name)


@pytest.mark.slow
def test_fields_keep_what_the_pattern_names() -> None:
    pattern = parse_pattern("*/20 1,3-5 L jan-MAR 5#2")
    assert pattern.minute.values == (0, 20, 40)
    assert pattern.hour.values == (1, 3, 4, 5)
    assert pattern.day.last == ("L",)
    assert pattern.month.values == (1, 2, 3)
    assert (pattern.weekday.values, pattern.occurrence) == ((5,), 2)
    assert not pattern.takes_all_weekdays
    assert parse_pattern("* * * * *").takes_all_weekdays
