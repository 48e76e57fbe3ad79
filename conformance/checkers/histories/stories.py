"""What belongs together in a history: a call with its answer, all lines about one job, a fault from begin to end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from conformance.checkers.histories.lines import (
    Answer,
    Event,
    FaultBegan,
    FaultEnded,
    Invoke,
    Line,
    PlannedJob,
    RunStarted,
)


@dataclass
class CallStory:
    """A call and its answer, if one came."""

    invoke: Invoke
    answer: Answer | None = None


@dataclass
class JobStory:
    """All lines about one job. An id that was used twice (after a loss) has two stories."""

    queue: str
    id: str
    name: str = ""
    planned: PlannedJob | None = None
    acknowledged_ms: float | None = None
    lines: list[Line] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        """What Redis told about it, in order."""
        return [line for line in self.lines if isinstance(line, Event)]

    @property
    def starts(self) -> list[RunStarted]:
        """The calls of its processor."""
        return [line for line in self.lines if isinstance(line, RunStarted)]

    @property
    def label(self) -> str:
        """For messages."""
        return f"{self.queue}:{self.id}" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From the beginning of a fault until it was healed (infinite where it never was)."""

    fault: str
    target: str
    began_ms: float
    ended_ms: float
    skew_ms: float = 0
    resume_ms: float | None = None
    lost_since_ms: float | None = None
    torn: bool = False

    def touches(self, since_ms: float, until_ms: float, *, margin_ms: float = 0) -> bool:
        """Whether it was on at some time of the interval, or up to `margin_ms` before it."""
        return self.began_ms <= until_ms and self.ended_ms + margin_ms >= since_ms


def window_of(began: FaultBegan, ended: FaultEnded | None) -> Window:
    """A window; without end where the fault was never healed."""
    return Window(
        fault=began.fault,
        target=began.target,
        began_ms=began.at_ms,
        ended_ms=ended.at_ms if ended else math.inf,
        skew_ms=began.skew_ms,
        resume_ms=began.resume_ms,
        lost_since_ms=ended.lost_since_ms if ended else None,
        torn=ended is not None and ended.torn,
    )


def server_ms(event: Event) -> int:
    """When Redis wrote the entry, Unix ms by its own clock."""
    return int(event.entry.partition("-")[0])


def entry_number(entry: str) -> tuple[int, int]:
    """The id of a stream entry as numbers, which have its order."""
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence or 0)
