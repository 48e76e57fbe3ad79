"""Playing one sequence: every step on both sides at once, then a look at Redis, then what is different now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Protocol

from conformance.fuzz.answers import Answer
from conformance.fuzz.comparing import Sight, answer_differences, state_differences, unchanged
from conformance.fuzz.cutting import Cutter, cut_call
from conformance.fuzz.dump import Eyes
from conformance.fuzz.findings import Known, StepDifference
from conformance.fuzz.sides import Side
from conformance.fuzz.steps import CallStep, ClockStep, FaultStep, Step
from conformance.observe.tap.rules import Phase
from conformance.participants.clock import ParticipantClock

REWIND_AFTER_S, TOO_LATE_S = 1.0, 8.0
"""Redis's own clock cannot be stopped, but times to live can be given back what has passed. They are multiples of 10 s,
as most steps of the clock are: a second more or less decides nothing, eight seconds in a single step may."""


class Looks(Protocol):
    """Takes a look at both sides: what was expected first."""

    def __call__(self) -> tuple[Sight, Sight]:
        """Both sights, of one instant."""
        ...


@dataclass
class Play:
    """One sequence on two sides. `known`: what is no news; `live` is False as soon as the sides went apart.

    `prefixes` are those in Redis; `cut` disconnects both clients.
    """

    expected: Side
    actual: Side
    look: Looks
    eyes: Eyes
    clock: ParticipantClock
    pool: Executor
    prefixes: Sequence[str]
    cut: Callable[[], None]
    known: Known = field(default_factory=Known)
    live: bool = True
    why_over: str = ""
    differences: list[StepDifference] = field(default_factory=list)
    """Everything that is different at present."""
    seen: tuple[Sight, Sight] | None = None
    """The last look at both sides."""
    cutter: Cutter | None = None
    """Cuts the client's connection at a command, where something stands between it and Redis."""
    last_step: str = ""
    """Why the step that is being taken is the last one; empty where it is not."""
    killed: bool = False
    """Whether connections were killed in this sequence."""
    spoken: set[str] = field(default_factory=set)
    """Handles of the client that have answered since then."""
    _held: float = field(default_factory=time.monotonic)

    def perform(self, step: Step) -> list[StepDifference]:
        """Take one step and return what is different now and was not before, known classes included.

        A play that is over takes no more steps and returns nothing.
        """
        if not self.live:
            return []
        self._hold_time()
        found = self._act(step)
        if not self.live:
            return found
        before = self.differences
        found += self.new_differences(step)
        if time.monotonic() - self._held > TOO_LATE_S and self.clock.frozen:
            self.end("a step took so long that times to live tell nothing any more")
            self.differences = before
            return []
        if any(not difference.group.harmless for difference in found):
            self.end("the two sides are no longer in the same state")
        elif self.last_step:
            self.end(self.last_step)
        return found

    def new_differences(self, step: Step) -> list[StepDifference]:
        """Look at both sides: what is different now and was not at the last look."""
        last, self.seen = self.seen, self.look()
        if last is not None and all(map(unchanged, last, self.seen)):
            return []
        before = {difference.spot for difference in self.differences}
        self.differences = state_differences(step.name, *self.seen, frozen=self.clock.frozen)
        return [difference for difference in self.differences if difference.spot not in before]

    def news(self, found: Sequence[StepDifference]) -> list[StepDifference]:
        """Those differences that are not known yet."""
        return [difference for difference in found if not self.known.covers(difference)]

    def end(self, why: str) -> None:
        """From here on, nothing that the two sides do can be compared."""
        self.live, self.why_over = False, why

    def _hold_time(self) -> None:
        """Where time stands still, let it stand still in Redis as well."""
        passed = time.monotonic() - self._held
        if self.clock.frozen and passed > REWIND_AFTER_S:
            self.eyes.rewind(self.prefixes, int(passed * 1000))
            self._held += passed

    def _act(self, step: Step) -> list[StepDifference]:
        if isinstance(step, CallStep):
            return self._call(step)
        for side in (self.expected, self.actual):
            side.endure(step)
        match step:
            case ClockStep():
                self.clock.pass_ms(step.ms)
                self.eyes.age(self.prefixes, step.ms)
            case FaultStep(fault="delete-lock"):
                self.eyes.delete([f"{prefix}:{step.queue}:{step.job}:lock" for prefix in self.prefixes])
            case FaultStep(fault="wake"):
                self.eyes.delete([f"{prefix}:{step.queue}:marker" for prefix in self.prefixes])
            case FaultStep(fault="script-flush"):
                self.eyes.flush_scripts()
            case FaultStep():
                self.cut()
                self.killed = True
                self.spoken.clear()
        return []

    def _call(self, step: CallStep) -> list[StepDifference]:
        if step.cut:
            return self._cut_call(step, step.cut)
        now_ms = self.clock.call_ms()
        beside = self.pool.submit(self.expected.perform, step, now_ms)
        ours = self.actual.perform(step, now_ms)
        theirs = beside.result()
        if why := self.incomparable(theirs, ours) or self._was_cut_off(step, ours):
            self.end(why)
            return []
        return answer_differences(
            step.name, theirs, ours, (self.expected.prefix, self.actual.prefix), frozen=self.clock.frozen
        )

    def _was_cut_off(self, step: CallStep, ours: Answer) -> str:
        """Why this call may be undecided: it was the first on a connection that had been killed; empty otherwise."""
        first = self.killed and step.handle not in self.spoken
        self.spoken.add(step.handle)
        return "the connection was killed just before the call" if first and ours.status == "info" else ""

    def _cut_call(self, step: CallStep, phase: Phase) -> list[StepDifference]:
        if self.cutter is None:
            self.end("nothing stands between the client and Redis that could cut its connection")
            return []
        return cut_call(self, step, phase, self.cutter)

    def incomparable(self, theirs: Answer, ours: Answer) -> str:
        """Why nothing can be said about the client after these two answers; empty where something can."""
        if theirs.status in {"info", "broken", "unsupported"}:
            return f"the oracle itself did not give an answer: {theirs.message}"
        return ours.message if ours.status == "unsupported" else ""
