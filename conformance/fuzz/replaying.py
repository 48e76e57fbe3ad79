"""Playing a replay file on a client, and what it shows there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from conformance.fuzz.findings import Known, StepDifference
from conformance.fuzz.replay_file import Replay
from conformance.fuzz.stage import Stage
from conformance.fuzz.steps import Step


@dataclass(frozen=True)
class Played:
    """One step, and what was different after it that was not before. `beside`: what the file says not to count."""

    step: Step
    differences: tuple[StepDifference, ...] = ()
    beside: tuple[StepDifference, ...] = ()


@dataclass(frozen=True)
class Playback:
    """What a file showed. `unplayed`: why the rest of the steps says nothing about the client; empty if they all do."""

    steps: tuple[Played, ...]
    unplayed: str = ""

    @property
    def fails(self) -> bool:
        """Whether the client differs from the oracle in a way that counts."""
        return any(one.differences for one in self.steps)

    def shows(self, replay: Replay) -> bool:
        """Whether one of the differences is of a class that the file is about."""
        return any(difference.group in replay.groups for one in self.steps for difference in one.differences)


def play_back(stage: Stage, replay: Replay) -> Playback:
    """Play the file until the sides go apart, or to its end."""
    play = stage.begin(Known(set(replay.header.beside)))
    played: list[Played] = []
    try:
        for step in replay.steps:
            found = play.perform(step)
            news = play.news(found)
            played.append(Played(step, tuple(news), _others(found, news)))
            if not play.live:
                break
    finally:
        stage.end(play)
    decided = play.live or any(one.differences or one.beside for one in played)
    return Playback(tuple(played), "" if decided else play.why_over)


def _others(found: Collection[StepDifference], news: Collection[StepDifference]) -> tuple[StepDifference, ...]:
    return tuple(one for one in found if one not in news)
