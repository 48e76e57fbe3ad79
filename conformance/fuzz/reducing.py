"""Making a sequence shorter and plainer for as long as it still shows what it is about.

Hypothesis shrinks first, choice by choice, which is thorough and takes its time. What is done here works on steps: it
is quick on long sequences, and finds what a choice-wise shrink cannot, such as a smaller number for every later job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.fuzz.effort import Allowance
from conformance.fuzz.findings import DifferenceClass, Known, StepDifference
from conformance.fuzz.simpler import simpler_steps, without
from conformance.fuzz.stage import Stage
from conformance.fuzz.steps import Step

REDUCE_SECONDS = 30.0
"""On an idle machine; see `Allowance`."""


@dataclass(frozen=True)
class Shown:
    """What a sequence showed when it was played: `differences` are the news of its last step.

    `beside`: known classes that it met on its way.
    """

    steps: tuple[Step, ...]
    differences: tuple[StepDifference, ...]
    beside: tuple[DifferenceClass, ...]
    reproduced: bool


class Reducer:
    """Plays sequences again, to see whether they still show the class `group`."""

    def __init__(self, stage: Stage, known: Known, group: DifferenceClass) -> None:
        self._stage, self._known, self._group = stage, known, group
        self._allowance = Allowance(REDUCE_SECONDS)

    def reduce(self, steps: Sequence[Step], *, within_s: float = REDUCE_SECONDS) -> Shown:
        """The shortest sequence that can be had in the time."""
        best = self.show(steps)
        self._allowance = Allowance(within_s)
        better: Shown | None = best if best.reproduced else None
        while better is not None:
            best = better
            better = self._first_that_shows(_shorter(best.steps)) or self._first_that_shows(simpler_steps(best.steps))
        return best

    def show(self, steps: Sequence[Step]) -> Shown:
        """Play a sequence until it shows the class, or to its end."""
        play = self._stage.begin(self._known)
        taken: list[Step] = []
        beside: list[DifferenceClass] = []
        try:
            for step in steps:
                taken.append(step)
                found = play.perform(step)
                news = play.news(found)
                beside += [one.group for one in found if one not in news and one.severity != "cosmetic"]
                if any(one.group == self._group for one in news):
                    return Shown(tuple(taken), tuple(news), tuple(dict.fromkeys(beside)), reproduced=True)
        finally:
            self._stage.end(play)
        return Shown(tuple(steps), (), tuple(dict.fromkeys(beside)), reproduced=False)

    def _first_that_shows(self, candidates: Iterator[Sequence[Step]]) -> Shown | None:
        for candidate in candidates:
            if self._allowance.over:
                return None
            shown = self.show(candidate)
            if shown.reproduced:
                return shown
        return None


def _shorter(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The sequence without a part of it, large parts first; its last step is what it is about and stays."""
    size = max(1, (len(steps) - 1) // 2)
    while size:
        for start in range(len(steps) - 1 - size, -1, -size):
            yield without(steps, frozenset(range(start, start + size)))
        size //= 2
