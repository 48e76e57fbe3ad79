"""A stage without clients and without Redis: sequences are generated on the model alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from conformance.driver.ops import REGISTRY
from conformance.fuzz.findings import Known, StepDifference
from conformance.fuzz.modes import Mode
from conformance.fuzz.stage import Stage
from conformance.fuzz.steps import Step


class DryPlay:
    """Nobody plays."""

    live = True

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def perform(self, step: Step) -> list[StepDifference]:
        """Only note the step."""
        self.steps.append(step)
        return []

    def news(self, found: Sequence[StepDifference]) -> list[StepDifference]:
        """Nothing new."""
        return list(found)

    def end(self, why: str) -> None:
        """Go on noting."""


class DryStage:
    """Keeps every sequence in `plays`."""

    mode: Mode = "differential"
    frozen = exact_data = breaks_redis = cuts = True
    operations = frozenset(REGISTRY)

    def __init__(self) -> None:
        self.plays: list[DryPlay] = []

    def begin(self, known: Known | None = None) -> DryPlay:  # noqa: ARG002 - the interface has it
        """A new sequence."""
        self.plays.append(DryPlay())
        return self.plays[-1]

    def end(self, play: DryPlay) -> None:
        """Nothing to clear."""


def dry_stage() -> tuple[Stage, list[Any]]:
    """The stage, and the list that its plays go into."""
    stage = DryStage()
    return cast("Stage", stage), stage.plays
