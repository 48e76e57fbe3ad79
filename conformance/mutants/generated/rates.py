"""The share of mutants that were killed, with its confidence interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import sqrt
from typing import TypeVar

Item = TypeVar("Item")

_Z = 1.959964
"""Of the normal distribution, for an interval of 95 %."""


@dataclass(frozen=True)
class KillRate:
    """`killed` of `effective` mutants."""

    killed: int
    effective: int

    @property
    def percent(self) -> float:
        """The share, in percent; 0 of none is 0."""
        return 100 * self.killed / self.effective if self.effective else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval of 95 %, in percent."""
        n = self.effective
        if n == 0:
            return 0.0, 100.0
        share = self.killed / n
        middle = share + _Z**2 / (2 * n)
        reach = _Z * sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
        return 100 * (middle - reach) / (1 + _Z**2 / n), 100 * (middle + reach) / (1 + _Z**2 / n)

    def is_below(self, percent: float, *, significant: bool = False) -> bool:
        """Whether the share is below `percent`; `significant`: whether the whole interval is."""
        return (self.interval[1] if significant else self.percent) < percent

    def __str__(self) -> str:
        """`114 of 120, 95 % (89 to 98)`."""
        low, high = self.interval
        return f"{self.killed} of {self.effective}, {self.percent:.0f} % ({low:.0f} to {high:.0f})"


def kill_rate(killed: Iterable[bool]) -> KillRate:
    """The rate of effective mutants; one value each: whether it was killed."""
    said = list(killed)
    return KillRate(sum(said), len(said))


def rates_by(
    items: Iterable[Item], group_of: Callable[[Item], str], is_killed: Callable[[Item], bool]
) -> dict[str, KillRate]:
    """The rate of each group, by name."""
    groups: dict[str, list[bool]] = {}
    for item in items:
        groups.setdefault(group_of(item), []).append(is_killed(item))
    return {name: kill_rate(groups[name]) for name in sorted(groups)}
