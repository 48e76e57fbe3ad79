"""Statistics of a ratio over several rounds: the median, and the interval that contains the true one. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

WANTED_CONFIDENCE = 0.9


@dataclass(frozen=True, kw_only=True)
class RatioInterval:
    """The median of the ratios of all rounds, and an interval around it.

    `confidence`: how likely the interval holds the median of infinitely many such rounds. It follows from the number
    of rounds alone, for any distribution: each further round is above that median with probability one half.
    """

    median: float
    low: float
    high: float
    confidence: float


def ratio_interval(ratios: Sequence[float]) -> RatioInterval:
    """The narrowest interval between two of the ratios with a confidence of at least 90 %.

    Four rounds and fewer do not get there; then it is the lowest to the highest. Raises ValueError without a ratio.
    """
    if not ratios:
        raise ValueError("there is no round")
    ordered, rounds = sorted(ratios), len(ratios)
    left_out = max(
        (count for count in range((rounds + 1) // 2) if confidence(rounds, count) >= WANTED_CONFIDENCE), default=0
    )
    return RatioInterval(
        median=statistics.median(ordered),
        low=ordered[left_out],
        high=ordered[rounds - 1 - left_out],
        confidence=confidence(rounds, left_out),
    )


def confidence(rounds: int, left_out: int) -> float:
    """Of the interval without the `left_out` lowest and highest ratios: both its ends are on their own side."""
    beyond = sum(comb(rounds, count) for count in range(left_out + 1))
    return max(0.0, 1 - 2 * beyond / float(2**rounds))
