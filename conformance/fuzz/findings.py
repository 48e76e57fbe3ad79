"""What a comparison brings to light, and the class by which findings are told apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec

from conformance.observe.differences import Severity

HARMLESS = (
    "answer.",
    "event.",
    "job.",
    "meta",
    "marker",
    "metrics",
    "log",
    "expiry",
    "unknown",
    "stalled",
    "ttl.",
    "invariant.",
)
"""Places where a difference does not lead the two sides into different states, so that the sequence can go on."""

LEADS_ASTRAY = ("job.parent", "job.rjk", "job.deid", "job.atm", "job.delay", "job.priority", "meta.paused")
"""Exceptions: fields by which the scripts choose their way."""


class DifferenceClass(msgspec.Struct, frozen=True, order=True):
    """Findings of one class count as one: the same operation leaves the same kind of difference at the same place."""

    op: str
    where: str
    kind: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.op}: {self.kind} {self.where}"

    @property
    def harmless(self) -> bool:
        """Whether both sides can go on from here in step."""
        if self.kind.startswith("outcome "):
            return False
        return self.where.startswith(HARMLESS) and not self.where.startswith(LEADS_ASTRAY)


@dataclass
class Known:
    """What is no news: classes, and everything at places that match a pattern (glob)."""

    groups: set[DifferenceClass] = field(default_factory=set)
    places: tuple[str, ...] = ()

    def covers(self, difference: StepDifference) -> bool:
        """Whether a difference is no news; what is merely cosmetic never is, as in the gate."""
        return (
            difference.severity == "cosmetic"
            or difference.group in self.groups
            or any(fnmatchcase(difference.where, place) for place in self.places)
        )


@dataclass(frozen=True)
class StepDifference:
    """One disagreement after one step. `key`: the job or key it is about; the values as short texts."""

    op: str
    where: str
    kind: str
    key: str
    expected: str
    actual: str
    severity: Severity = "wrong-behaviour"

    @property
    def group(self) -> DifferenceClass:
        """The class of this difference."""
        return DifferenceClass(self.op, self.where, self.kind)

    @property
    def spot(self) -> tuple[str, str, str]:
        """What stays the same while the difference lasts from step to step."""
        return self.where, self.kind, self.key

    def __str__(self) -> str:
        """One line."""
        at = f" at {self.key}" if self.key else ""
        return f"{self.kind} {self.where}{at}: expected {self.expected}, got {self.actual}"
