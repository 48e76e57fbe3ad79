"""Search for the highest rate at which a load keeps its thresholds: double until one is missed, then bisect. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from reports.load.result import LoadResult
from reports.load.thresholds import JudgedThreshold, Outcome

CLOSE_ENOUGH = 1.1
"""The search ends where the lowest rate that misses is less than this many times the highest one that keeps."""

MOST_TRIALS = 14
LOWEST_RATE = 1.0


class RateTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A load at one rate (jobs/s). `measured`: by threshold. `run`: name of its folder."""

    rate: float
    achieved: float
    outcome: Outcome
    measured: dict[str, float | None]
    reason: str = ""
    run: str = ""


class RateSearch(msgspec.Struct, frozen=True, kw_only=True):
    """All trials in their order, and what they show.

    `kept`: the highest rate that kept all thresholds, 0 where none did. `missed`: the lowest one above it that did not;
    None where none was found. `limited_by_harness`: the next higher one was undecided, because the harness itself was
    late: the system may be able to do more than `kept`.
    """

    trials: list[RateTrial]
    kept: float
    missed: float | None
    limited_by_harness: bool = False


def trial_of(rate: float, run: str, result: LoadResult, judged: Sequence[JudgedThreshold]) -> RateTrial:
    """The trial of one rate. A missed threshold counts before an undecided one.

    A load that harness lag has spoilt is undecided.
    """
    outcomes = {each.outcome for each in judged}
    worst: Outcome = "failed" if "failed" in outcomes else "undecided" if "undecided" in outcomes else "passed"
    return RateTrial(
        rate=rate,
        achieved=result.produced.per_second,
        outcome=worst,
        measured={each.threshold.text: each.measured for each in judged},
        reason="; ".join(dict.fromkeys(each.reason for each in judged if each.reason)),
        run=run,
    )


def search_rate(try_rate: Callable[[float], RateTrial], first: float) -> RateSearch:
    """Try rates until the highest one that keeps the thresholds is known to a tenth, or MOST_TRIALS were made."""
    trials: list[RateTrial] = []
    rate = first
    while len(trials) < MOST_TRIALS:
        trials.append(try_rate(rate))
        kept, missed = _bounds(trials)
        following = _next_rate(kept, missed)
        if following is None:
            break
        rate = following
    kept, missed = _bounds(trials)
    undecided = {trial.rate for trial in trials if trial.outcome == "undecided"}
    return RateSearch(trials=trials, kept=kept, missed=missed, limited_by_harness=missed in undecided)


def _bounds(trials: list[RateTrial]) -> tuple[float, float | None]:
    """The highest rate kept below every one that was not, and the lowest one that was not."""
    missed = min((trial.rate for trial in trials if trial.outcome != "passed"), default=None)
    kept = [trial.rate for trial in trials if trial.outcome == "passed" and (missed is None or trial.rate < missed)]
    return max(kept, default=0.0), missed


def _next_rate(kept: float, missed: float | None) -> float | None:
    if missed is None:
        return kept * 2
    if not kept:
        return missed / 2 if missed / 2 >= LOWEST_RATE else None
    return (kept * missed) ** 0.5 if missed / kept > CLOSE_ENOUGH else None


def search_sentence(search: RateSearch) -> str:
    """The result in one sentence."""
    if not search.kept:
        return "no rate that was tried keeps the thresholds"
    highest = f"{search.kept:,.0f} jobs/s keeps the thresholds"
    if search.missed is None:
        return f"{highest}; no higher rate was tried"
    if search.limited_by_harness:
        return f"{highest}; at {search.missed:,.0f} jobs/s the harness itself is late, so this rate is undecided"
    return f"{highest}, {search.missed:,.0f} jobs/s does not"
