"""Cron patterns as BullMQ reads them: those of cron-parser 4.9, with seconds, names, `L`, `#` and `?`.

Read here is only what the pattern says; `cron` finds the instants.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from conformance.reference_impl.errors import InvalidArgument

_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAYS_IN_MONTH: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LAST: Final = "L"
_MOST_OCCURRENCES: Final = 5
"""A weekday occurs at most so often in a month."""


class CronError(InvalidArgument):
    """A pattern or a time zone that cannot be read; the texts are those of cron-parser."""


@dataclass(frozen=True)
class CronField:
    """Values of one field, ascending, as often as the pattern names them; `last` are the texts with an `L`."""

    values: tuple[int, ...]
    last: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values) + len(self.last)

    def __contains__(self, value: int) -> bool:
        return value in self.values


@dataclass(frozen=True)
class CronPattern:
    """A pattern. Sunday is 0 and may be 7 too. `occurrence`: only this one of the weekday in a month; 0 is any."""

    second: CronField
    minute: CronField
    hour: CronField
    day: CronField
    month: CronField
    weekday: CronField
    occurrence: int = 0

    def takes_all_days(self, month: int) -> bool:
        """Whether no day of this month is left out; February counts 29 days."""
        return len(self.day) >= _DAYS_IN_MONTH[month - 1]

    @property
    def takes_all_weekdays(self) -> bool:
        """Whether no weekday is left out: 0 to 7 are eight values."""
        return len(self.weekday) == _WEEKDAY.high - _WEEKDAY.low + 1


@dataclass(frozen=True)
class _Kind:
    """What may stand in a field."""

    low: int
    high: int
    characters: str = ""
    names: tuple[str, ...] = ()
    default: str = "*"

    @property
    def allows_last(self) -> bool:
        return _LAST in self.characters

    @property
    def is_weekday(self) -> bool:
        return self.names is _WEEKDAYS


_WEEKDAY: Final = _Kind(0, 7, "L#?", _WEEKDAYS)
_KINDS: Final = (
    _Kind(0, 59, default="0"),
    _Kind(0, 59),
    _Kind(0, 23),
    _Kind(1, 31, "L?"),
    _Kind(1, 12, names=_MONTHS),
    _WEEKDAY,
)
"""Seconds to weekdays; a pattern with fewer fields lacks the first ones."""


def parse_pattern(text: str) -> CronPattern:
    """Read a pattern. Raises CronError."""
    words = _NICKNAMES.get(text, text).split()
    if len(words) > len(_KINDS):
        raise CronError("Invalid cron expression")
    words = [kind.default for kind in _KINDS[: len(_KINDS) - len(words)]] + words
    words[-1], occurrence = _split_occurrence(words[-1])
    pattern = CronPattern(*(_field(word, kind) for word, kind in zip(words, _KINDS, strict=True)), occurrence)
    return _without_impossible_days(pattern)


def _split_occurrence(word: str) -> tuple[str, int]:
    """Take `5#2` apart: the second Friday."""
    weekday, separator, number = word.partition("#")
    if not separator:
        return word, 0
    for character in ",/-":
        if character in word:
            raise CronError(
                f"Constraint error, invalid dayOfWeek `#` and `{character}` special characters are incompatible"
            )
    if not re.fullmatch("[0-9]+", number) or not 1 <= int(number) <= _MOST_OCCURRENCES:
        raise CronError("Constraint error, invalid dayOfWeek occurrence number (#)")
    return weekday, int(number)


def _without_impossible_days(pattern: CronPattern) -> CronPattern:
    """Leave out the days that the only month of a pattern does not have. Raises CronError where none is left."""
    if len(pattern.month) != 1:
        return pattern
    longest = _DAYS_IN_MONTH[pattern.month.values[0] - 1]
    days = pattern.day
    if days.values and days.values[0] > longest:
        raise CronError("Invalid explicit day of month definition")
    possible = tuple(day for day in days.values if day <= longest)
    return replace(pattern, day=CronField(possible, tuple(text for text in days.last if text == _LAST)))


def _field(word: str, kind: _Kind) -> CronField:
    text = _without_names(word, kind)
    if not re.fullmatch(f"[,*0-9/{re.escape(kind.characters)}-]+", text):
        raise CronError(f"Invalid characters, got value: {text}")
    text = text.replace("*" if "*" in text else "?", f"{kind.low}-{kind.high}")
    atoms = text.split(",")
    if not all(atoms):
        raise CronError("Invalid list value format")
    values: list[int] = []
    last: list[str] = []
    for atom in atoms:
        if kind.allows_last and _LAST in atom and "-" not in atom:
            last.append(atom.partition("/")[0])
        else:
            values += _atom(atom, kind)
    return CronField(tuple(sorted(values)), tuple(sorted(last)))


def _without_names(word: str, kind: _Kind) -> str:
    def number(found: re.Match[str]) -> str:
        name = found.group().lower()
        if name not in kind.names:
            raise CronError(f'Validation error, cannot resolve alias "{name}"')
        return str(kind.names.index(name) + (0 if kind.is_weekday else 1))

    return re.sub("[a-zA-Z]{3}", number, word) if kind.names else word


def _atom(atom: str, kind: _Kind) -> list[int]:
    """Values of a number, a range, or a step through one of them."""
    base, *steps = atom.split("/")
    if len(steps) > 1:
        raise CronError(f"Invalid repeat: {atom}")
    if steps and base.isdigit():
        base = f"{base}-{kind.high}"
    if "-" in base:
        return _range(base, steps[0] if steps else "1", kind)
    if not base.isdigit() or not kind.low <= int(base) <= kind.high:
        raise CronError(f"Constraint error, got value {base} expected range {kind.low}-{kind.high}")
    return [int(base) % 7 if kind.is_weekday else int(base)]


def _range(text: str, step_text: str, kind: _Kind) -> list[int]:
    first, last, *_ = text.split("-")
    if not (first.isdigit() and last.isdigit()) or int(first) < kind.low or int(last) > kind.high:
        raise CronError(f"Constraint error, got range {first}-{last} expected range {kind.low}-{kind.high}")
    low, high = int(first), int(last)
    if low > high:
        raise CronError(f"Invalid range: {text}")
    if not step_text.isdigit() or int(step_text) < 1:
        raise CronError(f"Constraint error, cannot repeat at every {step_text or 0} time.")
    values = list(range(low, high + 1, int(step_text)))
    if kind.is_weekday and high % 7 == 0:
        # A range up to 7 includes the Sunday that is 0, and the steps then count from there.
        return _weekdays_through_sunday(low, high, int(step_text))
    return values


def _weekdays_through_sunday(low: int, high: int, step: int) -> list[int]:
    if low == 0:
        return list(range(0, high + 1, step))
    return [0, *range(low, high + 1, step)]
