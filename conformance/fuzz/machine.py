"""The state machine: each rule draws the next steps from the model's state, takes them, and compares."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Protocol

from hypothesis import strategies as st
from hypothesis import target
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from conformance.driver.ops import lifecycle
from conformance.fuzz.answers import Answer
from conformance.fuzz.coverage import JOB_OPS, Combination, combinations
from conformance.fuzz.findings import StepDifference
from conformance.fuzz.foresight import Foresight
from conformance.fuzz.play import Play
from conformance.fuzz.scene import MAIN, QUEUE_OF, Pair, Scene
from conformance.fuzz.steps import CallStep, ClockStep, FaultStep, Step
from conformance.fuzz.strategies.families import MOODS, next_steps
from conformance.fuzz.strategies.options import favourites
from conformance.participants.clock import FROZEN_START_MS


class Conductor(Protocol):
    """What a machine needs from the run that it is part of."""

    def begin(self) -> tuple[Play, Scene, Foresight]:
        """Set the stage for a sequence."""
        ...

    def about_to(self) -> None:
        """A step is going to be taken. May end the run."""
        ...

    def cover(self, found: Collection[Combination], *, compared: bool) -> int:
        """Take note of what a step has covered; returns how much of it is new to the run."""
        ...

    def judge(self, steps: Sequence[Step], news: Sequence[StepDifference]) -> None:
        """Raise where a step has shown something new."""
        ...

    def end(self, play: Play) -> None:
        """Clear the stage."""
        ...


@st.composite
def _next(draw: st.DrawFn, machine: QueueMachine) -> list[Step]:
    return next_steps(draw, machine.scene, machine.mood)


def _aims(machine: QueueMachine) -> st.SearchStrategy[Pair | None]:
    """A pair that the run has not tried: every state with the same chance."""
    by_state: dict[tuple[bool, str], Pair] = {
        (op in JOB_OPS, state): (op, state) for op, state in machine.scene.untried
    }
    return st.sampled_from(list(by_state.values())) if by_state else st.none()


class QueueMachine(RuleBasedStateMachine):
    """One sequence. A subclass names its conductor.

    There is one rule, which chooses among the families of steps by itself: Hypothesis would switch off most rules in
    each sequence, and few jobs would ever get through all of their states.
    """

    conductor: ClassVar[Conductor]

    def __init__(self) -> None:
        super().__init__()
        self.play, self.scene, self.foresight = self.conductor.begin()
        self.scene.now_ms = FROZEN_START_MS
        self.mood = "all"
        self.taken: list[Step] = []
        self.covered = 0
        self.foreseeable = True

    @initialize(mood=st.sampled_from(tuple(MOODS)), favourites=favourites(), aim=st.runner().flatmap(_aims))
    def choose(self, mood: str, favourites: tuple[dict[str, Any], ...], aim: Pair | None) -> None:
        """What the sequence is mostly about."""
        self.mood, self.scene.favourites, self.scene.aim = mood, favourites, aim

    @rule(steps=st.runner().flatmap(_next))
    def go_on(self, steps: list[Step]) -> None:
        """The next step."""
        self.take(steps)

    def take(self, steps: Sequence[Step]) -> None:
        """Take steps one by one. Once the two sides have gone apart, the model goes on alone."""
        for step in steps:
            self.conductor.about_to()
            self.taken.append(step)
            covers = list(combinations(step, self.scene.queue(queue_of(step))))
            foreseen = self.foresight.follow(step, self.scene.now_ms)
            if foreseen is None:
                self.foreseeable = False
                self.play.end("nobody can know what comes of this step")
            found = self.play.perform(step)
            self._cover(covers, compared=self.play.live or bool(found))
            self._follow(step, foreseen)
            self.conductor.judge(self.taken, self.play.news(found))

    def teardown(self) -> None:
        """Clear the stage, and tell Hypothesis how much of this was new."""
        self.conductor.end(self.play)
        target(float(self.covered), label="new combinations of operation, state and option")

    def _cover(self, covers: Collection[Combination], *, compared: bool) -> None:
        """What comes after a step that nobody could foresee counts for nothing: it is not played."""
        if self.foreseeable:
            self.covered += self.conductor.cover(covers, compared=compared)
            self.scene.tried.update(one.pair for one in covers)

    def _follow(self, step: Step, foreseen: Answer | None) -> None:
        """What the generator has to know of a step."""
        if isinstance(step, ClockStep):
            self.scene.now_ms += step.ms
        elif isinstance(step, CallStep) and isinstance(step.op, lifecycle.Open):
            self.scene.opened[step.handle] = step.op.options
        elif isinstance(step, CallStep) and step.handle.startswith("worker") and foreseen is not None:
            claimed = (foreseen.value or {}).get("job")
            self.scene.holders |= {claimed["id"]: (step.by, step.handle)} if claimed else {}
        self.scene.world = self.foresight.world()


def queue_of(step: Step) -> str:
    """The queue that a step is about."""
    if isinstance(step, FaultStep):
        return step.queue or MAIN
    return QUEUE_OF.get(step.handle, MAIN) or MAIN if isinstance(step, CallStep) else MAIN


def machine_for(conductor: Conductor) -> Any:
    """The machine's class for one run."""
    return type("QueueMachine", (QueueMachine,), {"conductor": conductor})
