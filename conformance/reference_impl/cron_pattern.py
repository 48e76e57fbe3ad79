"""Cron patterns as BullMQ reads them: those of cron-parser 4.9, with seconds, names, `L`, `#` and `?`.

This module only reads the pattern; `cron` computes the instants.
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
"""A weekday occurs at most this often in a month."""


class CronError(InvalidArgument):
    """An invalid pattern or time zone; the texts are those of cron-parser."""


@dataclass(frozen=True)
class CronField:
    """Values of one field, ascending, with duplicates as in the pattern; `last` are the texts with an `L`."""

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
        """Whether every day of this month is included; February counts 29 days."""
        return len(self.day) >= _DAYS_IN_MONTH[month - 1]

    @property
    def takes_all_weekdays(self) -> bool:
        """Whether every weekday is included: 0 to 7 are eight values."""
        return len(self.weekday) == _WEEKDAY.high - _WEEKDAY.low + 1


@dataclass(frozen=True)
class _FieldKind:
    """The values that a field allows."""

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


_WEEKDAY: Final = _FieldKind(0, 7, "L#?", _WEEKDAYS)
_KINDS: Final = (
    _FieldKind(0, 59, default="0"),
    _FieldKind(0, 59),
    _FieldKind(0, 23),
    _FieldKind(1, 31, "L?"),
    _FieldKind(1, 12, names=_MONTHS),
    _WEEKDAY,
)
"""Seconds to weekdays; a pattern with fewer fields lacks the first ones."""


def parse_pattern(text: str) -> CronPattern:
    """Read a pattern. Raises CronError."""
    words = _NICKNAMES.get(text, text).split()
    if len(words) > len(_KINDS):
        raise CronError("Invalid cron expression")
    words = [kind.default for kind in _KINDS[: len(_KINDS) - len(words)]] + words
    second, minute, hour, day, month = (_field(word, kind) for word, kind in zip(words[:-1], _KINDS[:-1], strict=True))
    weekday, occurrence = _split_occurrence(words[-1])
    pattern = CronPattern(second, minute, hour, day, month, _field(weekday, _WEEKDAY), occurrence)
    return _without_impossible_days(pattern)


def _split_occurrence(word: str) -> tuple[str, int]:
    """Split `5#2`, which means the second Friday."""
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
    """Drop the days that the only month of a pattern does not have. Raises CronError if no day remains."""
    if len(pattern.month) != 1:
        return pattern
    longest = _DAYS_IN_MONTH[pattern.month.values[0] - 1]
    days = pattern.day
    if days.values and days.values[0] > longest:
        raise CronError("Invalid explicit day of month definition")
    possible = tuple(day for day in days.values if day <= longest)
    return replace(pattern, day=CronField(possible, tuple(text for text in days.last if text == _LAST)))


def _field(word: str, kind: _FieldKind) -> CronField:
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
        base = atom.partition("/")[0]
        if kind.allows_last and _LAST in base and "-" not in base:
            last.append(base)
        else:
            values += _atom(atom, kind)
    return CronField(tuple(sorted(values)), tuple(sorted(last)))


def _without_names(word: str, kind: _FieldKind) -> str:
    def number(found: re.Match[str]) -> str:
        name = found.group().lower()
        if name not in kind.names:
            raise CronError(f'Validation error, cannot resolve alias "{name}"')
        return str(kind.names.index(name) + (0 if kind.is_weekday else 1))

    return re.sub("[a-zA-Z]{3}", number, word) if kind.names else word


def _atom(atom: str, kind: _FieldKind) -> list[int]:
    """Values of a number, a range, or a step through one of them."""
    base, *steps = atom.split("/")
    if len(steps) > 1:
        raise CronError(f"Invalid repeat: {atom}")
    if steps and (base.isdigit() or not base):
        base = f"{base}-{kind.high}"
    if "-" in base:
        return _range(base, steps[0] if steps else "1", kind)
    number = _number(base)
    if number is None or not kind.low <= number <= kind.high:
        seen = base if number is None else number
        raise CronError(f"Constraint error, got value {seen} expected range {kind.low}-{kind.high}")
    return [number % 7 if kind.is_weekday else number]


def _range(text: str, step_text: str, kind: _FieldKind) -> list[int]:
    first, last, *_ = text.split("-")
    if not (first or last):
        raise CronError(f"Invalid range: {text}")
    low, high = (_number(text), None) if not first else (_number(first), _number(last))
    if not first or low is None or high is None or low < kind.low or high > kind.high:
        seen = f"value {_shown(low)}" if not first else f"range {_shown(low)}-{_shown(high)}"
        raise CronError(f"Constraint error, got {seen} expected range {kind.low}-{kind.high}")
    if low > high:
        raise CronError(f"Invalid range: {text}")
    # A range up to 7 includes the Sunday that is 0.
    also_sunday = [0] if kind.is_weekday and high % 7 == 0 and low != 0 else []
    return [*also_sunday, *range(low, high + 1, _step(step_text))]


def _step(text: str) -> int:
    step = _number(text)
    if not step or step < 0:
        raise CronError(f"Constraint error, cannot repeat at every {_shown(step)} time.")
    return step


def _number(text: str) -> int | None:
    """Read a number as JavaScript does: an empty text is 0, and None means NaN."""
    if not text:
        return 0
    return int(text) if re.fullmatch("-?[0-9]+", text) else None


def _shown(number: int | None) -> str:
    return "NaN" if number is None else str(number)
