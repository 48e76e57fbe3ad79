"""A run of the fuzzer: rounds of sequences until the time is up, each round until it meets something new."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.errors import Flaky, FlakyFailure
from hypothesis.stateful import run_state_machine_as_test

from conformance.fuzz.coverage import Combination, Coverage
from conformance.fuzz.effort import Allowance
from conformance.fuzz.findings import DifferenceClass, Known, StepDifference
from conformance.fuzz.foresight import Foresight
from conformance.fuzz.machine import machine_for
from conformance.fuzz.play import Play
from conformance.fuzz.reducing import Reducer
from conformance.fuzz.scene import Scene
from conformance.fuzz.stage import Stage
from conformance.fuzz.steps import Step, calls_of

SEQUENCES_PER_ROUND = 29
"""Hypothesis makes a tenth of a round as plain as it can, which finds little: rounds are short, and there are many."""
AIMING_ROUNDS = 4
"""In every fourth round, Hypothesis spends the second half on variants of the sequence that brought the most that was
new; in the others, every sequence is another one."""
STEPS_PER_SEQUENCE = 50
SHRINK_SECONDS = 10.0
"""How long Hypothesis may work at one finding (see `Allowance`); then the shortest sequence so far is taken."""


@dataclass(frozen=True)
class Finding:
    """A class of differences, with the shortest sequence that shows it in its last step.

    `together`: classes that the same last step shows beside the first one. `beside`: classes that were known already
    and that the sequence shows on its way. `reproduced`: whether it showed again when it was played again.
    """

    group: DifferenceClass
    steps: tuple[Step, ...]
    differences: tuple[StepDifference, ...]
    together: tuple[DifferenceClass, ...] = ()
    beside: tuple[DifferenceClass, ...] = ()
    seed: int = 0
    reproduced: bool = True
    seconds: float = 0.0
    """From the beginning of the run until the finding was first met."""

    @property
    def calls(self) -> int:
        """How many calls it takes."""
        return calls_of(list(self.steps))


class Watcher(Protocol):
    """Is told how a run goes; called often, so it has to be quick."""

    def stepped(self, campaign: Campaign) -> None:
        """A step is about to be taken."""
        ...

    def found(self, finding: Finding) -> None:
        """A finding has been shrunk."""
        ...


class Difference(Exception):
    """A step has shown a class of differences that is new.

    Each class has an exception type of its own: Hypothesis takes two failures for the same if their types and places in
    the code are.
    """


class TimeIsUp(BaseException):
    """Ends a round from within; not an Exception, so that Hypothesis lets it through."""


@dataclass
class Sample:
    """The shortest sequence seen so far that shows a class."""

    steps: tuple[Step, ...]
    differences: tuple[StepDifference, ...]
    met_at: float


@dataclass
class Campaign:
    """One run. `database`: folder of Hypothesis's examples, None for none."""

    stage: Stage
    budget_s: float
    seed: int
    watcher: Watcher
    database: Path | None = None
    sequences_per_round: int = SEQUENCES_PER_ROUND
    steps_per_sequence: int = STEPS_PER_SEQUENCE
    left_out: tuple[str, ...] = ()
    """Operations (glob) that are not called."""
    most_findings: int = 1000
    most_rounds: int = 1_000_000
    known: Known = field(default_factory=Known)
    findings: list[Finding] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    sequences: int = 0
    steps: int = 0
    rounds: int = 0
    phase: str = "searching"
    operations: frozenset[str] = frozenset()
    """What both clients declare."""
    started: float = 0.0
    """When the run began (time.monotonic)."""

    def run(self) -> list[Finding]:
        """Play until the time is up or so many findings are made. Raises a Problem where the set-up is broken."""
        self.operations = frozenset(name for name in self.stage.operations if not self._left_out(name))
        self.started = time.monotonic()  # not before both drivers have been started, which takes its time
        self._deadline = self.started + self.budget_s
        last = self.rounds + self.most_rounds
        while time.monotonic() < self._deadline and len(self.findings) < self.most_findings and self.rounds < last:
            self._round()
            self.rounds += 1
        self.phase = "done"
        return self.findings

    def _left_out(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.left_out)

    # What the machine asks for.

    def begin(self) -> tuple[Play, Scene, Foresight]:
        """Set the stage for a sequence."""
        play = self.stage.begin(self.known)
        stage = self.stage
        scene = Scene(
            operations=self.operations,
            frozen=stage.frozen,
            exact_data=stage.exact_data,
            takes_turns=stage.mode == "interop",
            breaks_redis=stage.breaks_redis,
            cuts=stage.cuts,
            untried=self._untried,
        )
        self.sequences += 1
        return play, scene, Foresight()

    def about_to(self) -> None:
        """Count a step. Raises TimeIsUp."""
        if self._shrinking.over if self._shrinking else time.monotonic() > self._deadline:
            raise TimeIsUp
        self.steps += 1
        self.watcher.stepped(self)

    def cover(self, found: Collection[Combination], *, compared: bool) -> int:
        """Count what a step has covered; returns how many combinations are new."""
        if compared:
            self.coverage.compare(found)
        return self.coverage.draw(found)

    def judge(self, steps: Sequence[Step], news: Sequence[StepDifference]) -> None:
        """Raise where a step has shown something new: always for the same class while that is being shrunk."""
        groups = {one.group for one in news}
        if not groups or (self._target is not None and self._target not in groups):
            return
        if self._target is None:
            self._aim(news[0].group)
        self._keep(Sample(tuple(steps), tuple(news), time.monotonic()))
        raise self._exception(news)

    def end(self, play: Play) -> None:
        """Clear the stage."""
        self.stage.end(play)

    # One round.

    def _round(self) -> None:
        self._target: DifferenceClass | None = None
        self._untried = self.coverage.worth_trying(self.operations)
        self._sample: Sample | None = None
        self._shrinking: Allowance | None = None
        self.phase = "searching"
        machine = seed(self._round_seed())(machine_for(self))
        with contextlib.suppress(Difference, TimeIsUp, Flaky, FlakyFailure):
            run_state_machine_as_test(machine, settings=self._settings())
        if self._sample is not None:
            self._conclude(self._sample)

    def _round_seed(self) -> int:
        """Another one for each round, and the same ones for the same seed of the run."""
        return random.Random(f"{self.seed}/{self.rounds}").getrandbits(64)

    def _settings(self) -> settings:
        phases = [Phase.generate, Phase.shrink]
        if self.rounds % AIMING_ROUNDS == AIMING_ROUNDS - 1:
            phases.append(Phase.target)
        folder = self.database
        return settings(
            max_examples=self.sequences_per_round,
            stateful_step_count=self.steps_per_sequence,
            phases=[Phase.reuse, *phases] if folder and not self.sequences else phases,
            database=DirectoryBasedExampleDatabase(str(folder)) if folder else None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
            verbosity=Verbosity.quiet,
        )

    def _aim(self, group: DifferenceClass) -> None:
        """From now on, the round is about this class: its sequence is made shorter, for a while."""
        self._target = group
        self.phase = "shrinking"
        self._shrinking = Allowance(SHRINK_SECONDS)

    def _keep(self, sample: Sample) -> None:
        best = self._sample
        if best is None:
            self._sample = sample
        elif _size(sample.steps) < _size(best.steps):
            self._sample = Sample(sample.steps, sample.differences, best.met_at)

    def _exception(self, news: Sequence[StepDifference]) -> Difference:
        kind: type[Difference] = type(f"Difference<{self._target}>", (Difference,), {})
        kind = self._kinds.setdefault(str(self._target), kind)
        return kind("\n".join(map(str, news)))

    @property
    def _kinds(self) -> dict[str, type[Difference]]:
        return _KINDS

    def _conclude(self, sample: Sample) -> None:
        """Take out what is left over in the shortest sequence, play it once more, and note the finding."""
        assert self._target is not None
        self.phase = "reducing"
        reducer = Reducer(self.stage, self.known, self._target)
        outcome = reducer.reduce(sample.steps)
        together = tuple(dict.fromkeys(one.group for one in outcome.differences)) or (self._target,)
        self.known.groups |= {self._target, *together}
        finding = Finding(
            group=self._target,
            steps=outcome.steps,
            differences=outcome.differences or sample.differences,
            together=tuple(group for group in together if group != self._target),
            beside=outcome.beside,
            seed=self.seed,
            reproduced=outcome.reproduced,
            seconds=sample.met_at - self.started,
        )
        self.findings.append(finding)
        self.watcher.found(finding)


_KINDS: dict[str, type[Difference]] = {}


def _size(steps: Sequence[Step]) -> tuple[int, int]:
    return len(steps), sum(len(repr(step)) for step in steps)
