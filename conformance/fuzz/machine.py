"""The state machine: its rule draws the next steps from the model's state, takes them, and compares."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from hypothesis import strategies as st
from hypothesis import target
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from conformance.driver.ops import lifecycle
from conformance.fuzz.comparison import Completion, StepDifference
from conformance.fuzz.execution import SequenceRunner
from conformance.fuzz.prediction import SequenceModel
from conformance.fuzz.strategies.arguments import Options, favourites
from conformance.fuzz.strategies.context import MAIN, QUEUE_OF, GenerationContext, OperationAndState
from conformance.fuzz.strategies.disturbances import counters
from conformance.fuzz.strategies.exploring import JOB_OPS, CallCombination, combinations
from conformance.fuzz.strategies.families import THEMES, next_steps
from conformance.fuzz.strategies.vocabulary import Vocabulary, vocabularies
from conformance.participants.clock import FROZEN_START_MS
from conformance.steps.shapes import CallStep, ClockStep, CounterStep, FaultStep, Step

Taste: TypeAlias = tuple[Vocabulary, tuple[Options, ...]]
"""The texts and numbers of a sequence, and the job options that it repeats."""


class MachineCallbacks(Protocol):
    """The callbacks of the campaign that runs a machine."""

    def start_sequence(self) -> tuple[SequenceRunner, GenerationContext]:
        """Start a sequence."""
        ...

    def before_step(self) -> None:
        """Called before each step. May end the round."""
        ...

    def cover(self, found: Collection[CallCombination], *, compared: bool) -> int:
        """Count the combinations that a step has covered; returns how many are new to the campaign."""
        ...

    def judge(self, steps: Sequence[Step], news: Sequence[StepDifference]) -> None:
        """Raise if a step showed a new difference."""
        ...

    def end_sequence(self, runner: SequenceRunner) -> None:
        """Remove what the sequence left."""
        ...


@st.composite
def _next(draw: st.DrawFn, machine: QueueMachine) -> list[Step]:
    return next_steps(draw, machine.context, machine.theme)


def _aims(machine: QueueMachine) -> st.SearchStrategy[OperationAndState | None]:
    """A pair that the campaign has not tried: every state with the same chance."""
    # One pair for each state, or states with many untried operations would be chosen most of the time.
    by_state: dict[tuple[bool, str], OperationAndState] = {
        (op in JOB_OPS, state): (op, state) for op, state in machine.context.untried
    }
    return st.sampled_from(list(by_state.values())) if by_state else st.none()


@st.composite
def _tastes(draw: st.DrawFn, machine: QueueMachine) -> Taste:
    words = draw(vocabularies(keeps_last=machine.context.keeps_last))
    return words, draw(favourites(words))


class QueueMachine(RuleBasedStateMachine):
    """One sequence. A subclass names its callbacks.

    There is one rule, which chooses among the families of steps by itself: Hypothesis would switch off most rules in
    each sequence, and few jobs would ever get through all of their states.
    """

    callbacks: ClassVar[MachineCallbacks]

    def __init__(self) -> None:
        super().__init__()
        self.runner, self.context = self.callbacks.start_sequence()
        self.context.now_ms = FROZEN_START_MS
        self.model = SequenceModel()
        self.theme = "all"
        self.taken: list[Step] = []
        self.newly_covered = 0
        self.predictable = True

    @initialize(
        theme=st.sampled_from(tuple(THEMES)), taste=st.runner().flatmap(_tastes), aim=st.runner().flatmap(_aims)
    )
    def choose(self, theme: str, taste: Taste, aim: OperationAndState | None) -> None:
        """Choose what the sequence is mostly about, and set the counters of its queues."""
        self.theme, self.context.aim = theme, aim
        self.context.words, self.context.favourites = taste
        self.take(counters(self.context.words))

    @rule(steps=st.runner().flatmap(_next))
    def go_on(self, steps: list[Step]) -> None:
        """Take the next steps."""
        self.take(steps)

    def take(self, steps: Sequence[Step]) -> None:
        """Take steps one by one. After the two systems have diverged, the model goes on alone."""
        for step in steps:
            self.callbacks.before_step()
            self.taken.append(step)
            covered = list(combinations(step, self.context.queue(queue_of(step))))
            # Before the step runs: its outcome decides whether the step can be compared.
            predicted = self.model.follow(step, self.context.now_ms)
            if predicted is None:
                self.predictable = False
                self.runner.end("the outcome of this step is unpredictable")
            found = self.runner.perform(step)
            self._cover(covered, compared=self.runner.live or bool(found))
            self._update_context(step, predicted)
            self.callbacks.judge(self.taken, self.runner.news(found))

    def teardown(self) -> None:
        """Remove what the sequence left, and report to Hypothesis how many new combinations it covered."""
        self.callbacks.end_sequence(self.runner)
        target(float(self.newly_covered), label="new combinations of operation, state and option")

    def _cover(self, covered: Collection[CallCombination], *, compared: bool) -> None:
        """Steps after an unpredictable step are not run and do not count."""
        if self.predictable:
            self.newly_covered += self.callbacks.cover(covered, compared=compared)
            self.context.tried.update(combination.pair for combination in covered)

    def _update_context(self, step: Step, predicted: Completion | None) -> None:
        """Record the parts of a step that the generator needs."""
        if isinstance(step, ClockStep):
            self.context.now_ms += step.clock_ms
        elif isinstance(step, CallStep) and isinstance(step.op, lifecycle.Open):
            self.context.opened[step.handle] = step.op.options
        elif isinstance(step, CallStep) and step.handle.startswith("worker") and predicted is not None:
            claimed = (predicted.value or {}).get("job")
            self.context.holders |= {claimed["id"]: (step.by, step.handle)} if claimed else {}
        self.context.state = self.model.state()


def queue_of(step: Step) -> str:
    """The queue that a step is about."""
    if isinstance(step, FaultStep | CounterStep):
        return step.queue or MAIN
    return QUEUE_OF.get(step.handle, MAIN) or MAIN if isinstance(step, CallStep) else MAIN


def machine_for(callbacks: MachineCallbacks) -> Any:
    """The machine's class for one campaign."""
    return type("QueueMachine", (QueueMachine,), {"callbacks": callbacks})
