"""A campaign of the fuzzer: rounds of sequences until the time is up. Each round ends with a new difference."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.errors import Flaky, FlakyFailure
from hypothesis.stateful import run_state_machine_as_test

from conformance.fuzz.comparison import DifferenceClass, KnownDifferences, StepDifference
from conformance.fuzz.execution import SequenceRunner
from conformance.fuzz.machine import machine_for
from conformance.fuzz.shrinking import SequenceShrinker, TimeAllowance
from conformance.fuzz.strategies.context import GenerationContext, OperationAndState
from conformance.fuzz.strategies.exploring import CallCombination, PairCoverage, legal_pairs
from conformance.fuzz.target import FuzzTarget
from conformance.steps.shapes import Step, calls_of

SEQUENCES_PER_ROUND = 29
"""Hypothesis makes a tenth of a round as simple as possible, which finds little, so rounds are short and many."""

AIMING_ROUNDS = 4
"""In every fourth round, Hypothesis spends the second half on variants of the sequence that covered most new
combinations; in the others, it varies none."""

LEAST_STEPS = 1000
"""A campaign with fewer steps decides nothing: it is less than one round."""

LEAST_PAIRS = 0.5
"""Share of the pairs of operation and state that a campaign must have compared; the rest needs three to five rounds."""

# Long enough for a job to pass several states, and short enough to be shrunk.
STEPS_PER_SEQUENCE = 50

SHRINK_SECONDS = 10.0
"""How long Hypothesis may work at one finding (see `TimeAllowance`); then the shortest sequence so far is taken."""


@dataclass(frozen=True)
class FuzzFinding:
    """A class of differences, with the shortest sequence that shows it in its last step.

    `together`: further classes that the last step shows. `beside`: known classes that the sequence shows before.
    `reproduced`: whether a second run showed it again.
    """

    group: DifferenceClass
    steps: tuple[Step, ...]
    differences: tuple[StepDifference, ...]
    together: tuple[DifferenceClass, ...] = ()
    beside: tuple[DifferenceClass, ...] = ()
    seed: int = 0
    reproduced: bool = True
    seconds: float = 0.0
    """From the start of the campaign until the finding first occurred."""

    @property
    def calls(self) -> int:
        """Its number of calls."""
        return calls_of(self.steps)


class CampaignListener:
    """Receives the progress of a campaign. It is called often, so it must be quick. This one does nothing."""

    def before_step(self, campaign: Campaign) -> None:
        """A step is about to be taken."""

    def found(self, finding: FuzzFinding) -> None:
        """A finding has been shrunk."""


@dataclass(frozen=True)
class CampaignOptions:
    """Options of a campaign. `seed` chooses the sequences."""

    budget_s: float
    seed: int
    left_out: tuple[str, ...] = ()
    """Operations (glob) that are not called."""
    database: Path | None = None
    """Folder of Hypothesis's examples; None for none."""
    sequences_per_round: int = SEQUENCES_PER_ROUND
    steps_per_sequence: int = STEPS_PER_SEQUENCE
    most_findings: int = 1000
    most_rounds: int = 1_000_000

    def leaves_out(self, operation: str) -> bool:
        """Whether an operation is left out."""
        return any(fnmatchcase(operation, pattern) for pattern in self.left_out)


@dataclass
class CampaignProgress:
    """Progress of a campaign. `rounds` may continue an earlier run with the same seed."""

    rounds: int = 0
    sequences: int = 0
    steps: int = 0
    phase: str = "searching"
    operations: frozenset[str] = frozenset()
    """Operations that all clients declare and the options do not leave out."""
    coverage: PairCoverage = field(default_factory=PairCoverage)
    started: float = 0.0
    """Start of the campaign (time.monotonic)."""

    @property
    def elapsed_s(self) -> float:
        """How long it has been going on; never 0."""
        return max(time.monotonic() - self.started, 0.001)

    @property
    def shortage(self) -> str:
        """Why it is too little to say that there are no differences; empty if it is enough."""
        legal = legal_pairs(self.operations)
        compared = len(self.coverage.pairs.intersection(legal))
        if self.steps < LEAST_STEPS:
            return f"{self.steps} steps are too few, {LEAST_STEPS} are needed"
        if compared < LEAST_PAIRS * len(legal):
            return f"{compared} of {len(legal)} pairs of operation and state were compared, half of them are needed"
        return ""


class NewDifference(Exception):
    """A step showed a new class of differences.

    Each class has its own exception type: Hypothesis takes two failures for the same one if their types and places in
    the code are equal.
    """


@cache
def _new_difference_type(group: str) -> type[NewDifference]:
    return type(f"Difference<{group}>", (NewDifference,), {})


class TimeIsUp(BaseException):
    """Ends a round from within; not an Exception, so that Hypothesis lets it through."""


@dataclass(frozen=True)
class ShortestSequence:
    """The shortest sequence so far that shows a class. `met_at`: when the class first occurred (time.monotonic)."""

    steps: tuple[Step, ...]
    differences: tuple[StepDifference, ...]
    met_at: float

    @property
    def size(self) -> tuple[int, int]:
        """Order of sequences: number of steps, then their size."""
        return len(self.steps), sum(len(repr(step)) for step in self.steps)


@dataclass
class CampaignRound:
    """One round: it ends with the first new class that it meets, and then shortens that sequence for a while.

    `untried`: pairs that were worth trying at the start of the round.
    """

    untried: tuple[OperationAndState, ...]
    group: DifferenceClass | None = None
    shortest: ShortestSequence | None = None
    allowance: TimeAllowance | None = None
    """For the shrinking."""

    def start_shrinking(self, group: DifferenceClass) -> None:
        """Shrink for this class from now on."""
        self.group, self.allowance = group, TimeAllowance(SHRINK_SECONDS)

    def keep_shorter(self, sequence: ShortestSequence) -> None:
        """Take the sequence if it is shorter than the one before; keep the time at which the class first occurred."""
        if self.shortest is None:
            self.shortest = sequence
        elif sequence.size < self.shortest.size:
            self.shortest = ShortestSequence(sequence.steps, sequence.differences, self.shortest.met_at)


@dataclass
class Campaign:
    """Runs sequences on a target and shrinks those that show differences. `known`: those that are not findings."""

    target: FuzzTarget
    options: CampaignOptions
    listener: CampaignListener = field(default_factory=CampaignListener)
    known: KnownDifferences = field(default_factory=KnownDifferences)
    progress: CampaignProgress = field(default_factory=CampaignProgress)
    findings: list[FuzzFinding] = field(default_factory=list)
    _round: CampaignRound = field(init=False, repr=False)

    def run(self) -> list[FuzzFinding]:
        """Run until the time is up or the number of findings is reached. Raises a Problem if the set-up is broken."""
        progress, options = self.progress, self.options
        operations = self.target.drivers.operations
        progress.operations = frozenset(name for name in operations if not options.leaves_out(name))
        progress.started = time.monotonic()  # after the start of both drivers, which is slow
        last = progress.rounds + options.most_rounds
        while not self._out_of_time() and len(self.findings) < options.most_findings and progress.rounds < last:
            self._run_round()
            progress.rounds += 1
        progress.phase = "done"
        return self.findings

    def start_sequence(self) -> tuple[SequenceRunner, GenerationContext]:
        """Start a sequence on the target."""
        runner, drivers = self.target.start(self.known), self.target.drivers
        context = GenerationContext(
            operations=self.progress.operations,
            frozen=drivers.frozen,
            exact_data=drivers.exact_data,
            takes_turns=self.target.mode == "interop",
            breaks_redis=drivers.breaks_redis,
            cuts=drivers.cuts,
            keeps_last=drivers.keeps_last,
            untried=self._round.untried,
        )
        self.progress.sequences += 1
        return runner, context

    def before_step(self) -> None:
        """Count a step. Raises TimeIsUp."""
        # While shrinking, its own allowance counts: a finding near the end of the budget is still shrunk.
        if self._round.allowance.over if self._round.allowance else self._out_of_time():
            raise TimeIsUp
        self.progress.steps += 1
        self.listener.before_step(self)

    def cover(self, found: Collection[CallCombination], *, compared: bool) -> int:
        """Count what a step has covered; returns how many combinations are new."""
        if compared:
            self.progress.coverage.count_compared(found)
        return self.progress.coverage.count_generated(found)

    def judge(self, steps: Sequence[Step], news: Sequence[StepDifference]) -> None:
        """Raise if a step showed a new difference; while a class is being shrunk, only for that class."""
        groups = {difference.group for difference in news}
        if not groups or (self._round.group is not None and self._round.group not in groups):
            return
        if self._round.group is None:
            # Only the first new class: the others are found in later rounds, when this one is known.
            self._round.start_shrinking(news[0].group)
            self.progress.phase = "shrinking"
        self._round.keep_shorter(ShortestSequence(tuple(steps), tuple(news), time.monotonic()))
        raise _new_difference_type(str(self._round.group))("\n".join(map(str, news)))

    def end_sequence(self, runner: SequenceRunner) -> None:
        """Remove what a sequence left."""
        self.target.end(runner)

    def _out_of_time(self) -> bool:
        return time.monotonic() >= self.progress.started + self.options.budget_s

    def _run_round(self) -> None:
        self._round = CampaignRound(self.progress.coverage.worth_trying(self.progress.operations))
        self.progress.phase = "searching"
        machine = seed(self._round_seed())(machine_for(self))
        # These end a round as intended: a finding, the time limit, or a finding that does not show again.
        with contextlib.suppress(NewDifference, TimeIsUp, Flaky, FlakyFailure):
            run_state_machine_as_test(machine, settings=self._settings())
        if self._round.group is not None and self._round.shortest is not None:
            self._conclude(self._round.group, self._round.shortest)

    def _round_seed(self) -> int:
        """The seed of a round: different for each round, and determined by the seed of the campaign."""
        return random.Random(f"{self.options.seed}/{self.progress.rounds}").getrandbits(64)

    def _settings(self) -> settings:
        phases = [Phase.generate, Phase.shrink]
        if self.progress.rounds % AIMING_ROUNDS == AIMING_ROUNDS - 1:
            phases.append(Phase.target)
        folder = self.options.database
        return settings(
            max_examples=self.options.sequences_per_round,
            stateful_step_count=self.options.steps_per_sequence,
            # Examples of earlier runs are tried once, at the start of the campaign.
            phases=[Phase.reuse, *phases] if folder and not self.progress.sequences else phases,
            database=DirectoryBasedExampleDatabase(str(folder)) if folder else None,
            # No deadline: a call on a busy machine may take long without being wrong.
            deadline=None,
            # The checks are about slow or large data, which is normal for whole sequences.
            suppress_health_check=list(HealthCheck),
            # One class per round, because each is shrunk on its own.
            report_multiple_bugs=False,
            print_blob=False,
            verbosity=Verbosity.quiet,
        )

    def _conclude(self, group: DifferenceClass, shortest: ShortestSequence) -> None:
        """Simplify the shortest sequence further, run it again, and record the finding."""
        self.progress.phase = "reducing"
        outcome = SequenceShrinker(self.target, self.known, group).shrink(shortest.steps)
        together = tuple(dict.fromkeys(difference.group for difference in outcome.differences)) or (group,)
        # Known from now on, also if it did not reproduce: else every round would end with it.
        self.known.groups |= {group, *together}
        finding = FuzzFinding(
            group=group,
            steps=outcome.steps,
            differences=outcome.differences or shortest.differences,
            together=tuple(other for other in together if other != group),
            beside=outcome.beside,
            seed=self.options.seed,
            reproduced=outcome.reproduced,
            seconds=shortest.met_at - self.progress.started,
        )
        self.findings.append(finding)
        self.listener.found(finding)
