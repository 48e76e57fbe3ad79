"""Shrinking: makes a sequence shorter and simpler while it still shows its difference."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from conformance.driver.ops import Op, flow, lifecycle, queue
from conformance.fuzz.comparison import Completion, DifferenceClass, KnownDifferences, StepDifference
from conformance.fuzz.prediction import SequenceModel
from conformance.fuzz.target import FuzzTarget
from conformance.participants.clock import FROZEN_START_MS
from conformance.steps.shapes import Caller, CallStep, ClockStep, CounterStep, FaultStep, Step

PROCESSOR_SHARE = 0.3
"""The share of CPU time that this process must have got before its time counts as used up. On an idle machine it needs
about half of the time of a run; the drivers and Redis need the rest."""

LONGEST_FACTOR = 6
"""By which factor work may take longer on a busy machine."""

REDUCE_SECONDS = 30.0
"""On an idle machine; see `TimeAllowance`."""

SIMPLER_NAMES = {"queue-2": "queue-1", "worker-2": "worker-1", "token-2": "token-1"}


@dataclass(frozen=True)
class TimeAllowance:
    """A time limit (s) on an idle machine, which is extended if other processes keep the CPU busy.

    The extension is bounded by `LONGEST_FACTOR`.
    """

    seconds: float
    _started: float = field(default_factory=time.monotonic)
    _used: float = field(default_factory=time.process_time)

    @property
    def over(self) -> bool:
        """Whether it is used up."""
        passed = time.monotonic() - self._started
        if passed <= self.seconds:
            return False
        return (
            time.process_time() - self._used > self.seconds * PROCESSOR_SHARE or passed > self.seconds * LONGEST_FACTOR
        )


@dataclass(frozen=True)
class SequenceOutcome:
    """The result of a sequence: `differences` are those that are new after its last step.

    `beside`: known classes that occurred before. `reproduced`: whether it showed the wanted class.
    """

    steps: tuple[Step, ...]
    differences: tuple[StepDifference, ...]
    beside: tuple[DifferenceClass, ...]
    reproduced: bool


class SequenceShrinker:
    """Runs sequences again, to check whether they still show the class `group`.

    Hypothesis shrinks first, choice by choice, which is thorough but slow. This class works on steps: it is quick on
    long sequences, and makes changes that a choice-wise shrink cannot, such as a smaller number for every later job.
    """

    def __init__(self, target: FuzzTarget, known: KnownDifferences, group: DifferenceClass) -> None:
        self._target, self._known, self._group = target, known, group

    def shrink(self, steps: Sequence[Step]) -> SequenceOutcome:
        """The shortest sequence found in the time."""
        best = self.run(steps)
        allowance = TimeAllowance(REDUCE_SECONDS)
        # A finding that does not show again cannot be shrunk: every candidate would seem to be too short.
        better: SequenceOutcome | None = best if best.reproduced else None
        while better is not None:
            best = better
            # Shorter first: a simplification then has fewer steps to run.
            better = self._first_that_shows(_shorter(best.steps), allowance)
            better = better or self._first_that_shows(simpler_steps(best.steps), allowance)
        return best

    def run(self, steps: Sequence[Step]) -> SequenceOutcome:
        """Run a sequence until it shows the class, or to its end."""
        runner = self._target.start(self._known)
        taken: list[Step] = []
        beside: list[DifferenceClass] = []
        try:
            for step in steps:
                taken.append(step)
                found = runner.perform(step)
                news = runner.news(found)
                beside += [
                    difference.group
                    for difference in found
                    if difference not in news and difference.severity != "cosmetic"
                ]
                # The class at any step is enough: the sequence ends there, which already makes it shorter.
                if any(difference.group == self._group for difference in news):
                    return SequenceOutcome(tuple(taken), tuple(news), tuple(dict.fromkeys(beside)), reproduced=True)
        finally:
            self._target.end(runner)
        return SequenceOutcome(tuple(steps), (), tuple(dict.fromkeys(beside)), reproduced=False)

    def _first_that_shows(
        self, candidates: Iterator[Sequence[Step]], allowance: TimeAllowance
    ) -> SequenceOutcome | None:
        for candidate in candidates:
            if allowance.over:
                return None
            outcome = self.run(candidate)
            if outcome.reproduced:
                return outcome
        return None


def _shorter(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The sequence without some of its steps, many first. The last step shows the difference, and stays."""
    # Halves first, as in delta debugging: long sequences lose most of their steps in a few runs.
    size = max(1, (len(steps) - 1) // 2)
    while size:
        # From the end, because later steps depend on earlier ones and can be removed without breaking others.
        for start in range(len(steps) - 1 - size, -1, -size):
            yield without(steps, frozenset(range(start, start + size)))
        size //= 2


def without(steps: Sequence[Step], left_out: frozenset[int]) -> list[Step]:
    """The sequence without the steps at these positions.

    Calls on an object that is no longer created are removed, too. The remaining jobs may get other ids than before: the
    model predicts these ids, and later steps are changed to use them.
    """
    kept = [(step, job_ids) for index, (step, job_ids) in enumerate(_with_ids(steps)) if index not in left_out]
    # A call on a handle that is not opened would fail, and show a difference of its own.
    made = {step.handle for step, _ in kept if isinstance(step, CallStep) and step.opens}
    model, new_ids, rest = SequenceModel(), dict[str, str](), list[Step]()
    now_ms = FROZEN_START_MS
    for step, before in kept:
        if isinstance(step, CallStep) and step.handle not in made:
            continue
        renamed = _with_jobs(step, new_ids)
        rest.append(renamed)
        new_ids.update(zip(before, _job_ids(model.follow(renamed, now_ms)), strict=False))
        # The model needs the clock of each step: it decides which jobs are due.
        now_ms += renamed.clock_ms if isinstance(renamed, ClockStep) else 0
    return rest


def _with_ids(steps: Sequence[Step]) -> Iterator[tuple[Step, list[str]]]:
    """Each step with the ids of the jobs that its completion names."""
    model, now_ms = SequenceModel(), FROZEN_START_MS
    for step in steps:
        yield step, _job_ids(model.follow(step, now_ms))
        now_ms += step.clock_ms if isinstance(step, ClockStep) else 0


def _job_ids(completion: Completion | None) -> list[str]:
    """The ids of jobs in a completion: those that were added, or claimed."""
    value = completion.value if completion and isinstance(completion.value, dict) else {}
    job = value.get("job")
    found = [value.get("id"), *value.get("ids", ()), job.get("id") if isinstance(job, dict) else None]
    return [job_id for job_id in found if isinstance(job_id, str)]


def _with_jobs(step: Step, new_ids: dict[str, str]) -> Step:
    if isinstance(step, FaultStep | CounterStep):
        return replace(step, job=new_ids.get(step.job, step.job))
    if not isinstance(step, CallStep):
        return step
    job, jobs = getattr(step.op, "job", None), getattr(step.op, "jobs", None)
    if isinstance(job, str) and job in new_ids:
        return replace(step, op=msgspec.structs.replace(step.op, job=new_ids[job]))
    if isinstance(jobs, list) and all(isinstance(job_id, str) for job_id in jobs):
        renamed = [new_ids.get(job_id, job_id) for job_id in jobs]
        return replace(step, op=msgspec.structs.replace(step.op, jobs=renamed))
    return step


def simpler_steps(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Variants with one simplification, the most effective ones first."""
    for name, plainer in SIMPLER_NAMES.items():
        renamed = [_renamed(step, name, plainer) for step in steps]
        # Opening the same handle twice is an error, so one of the two is left out.
        once = [step for index, step in enumerate(renamed) if step not in renamed[:index] or not _opens(step)]
        if once != list(steps) and not workers_of_two(once):
            yield once
    for index, step in enumerate(steps):
        if isinstance(step, CallStep):
            if step.cut:
                yield [*steps[:index], replace(step, cut=""), *steps[index + 1 :]]
            for op in _plainer(step.op):
                yield [*steps[:index], replace(step, op=op), *steps[index + 1 :]]


def workers_of_two(steps: Sequence[Step]) -> set[str]:
    """The workers that both clients call.

    A worker remembers the limits and delays that it has met, so that calls by the other client would differ by right.
    """
    callers: dict[str, set[Caller]] = defaultdict(set)
    for step in steps:
        if isinstance(step, CallStep) and step.handle.startswith("worker") and not step.opens:
            callers[step.handle].add(step.by)
    return {handle for handle, parties in callers.items() if len(parties) > 1}


def _opens(step: Step) -> bool:
    return isinstance(step, CallStep) and step.opens


def _renamed(step: Step, name: str, plainer: str) -> Step:
    if not isinstance(step, CallStep):
        return step
    op = step.op
    if getattr(op, "token", None) == name:
        op = msgspec.structs.replace(op, token=plainer)
    return replace(step, handle=plainer if step.handle == name else step.handle, op=op)


def _plainer(op: Op[Any]) -> Iterator[Op[Any]]:
    """Simpler variants of the same operation."""
    edit: Callable[..., Op[Any]] = lambda **changes: msgspec.structs.replace(op, **changes)  # noqa: E731
    match op:
        case lifecycle.Open():
            yield from (edit(options=options) for options in _fewer(op.options))
        case queue.Add():
            yield from (edit(opts=opts) for opts in _fewer(op.opts))
            yield from _at_defaults(op, {"name": "job", "data_raw": "{}"})
        case queue.AddBulk():
            yield from (
                edit(jobs=[*op.jobs[:at], *op.jobs[at + 1 :]]) for at in range(len(op.jobs)) if len(op.jobs) > 1
            )
            for at, job in enumerate(op.jobs):
                for opts in _fewer(job.opts):
                    plain = msgspec.structs.replace(job, opts=opts)
                    yield edit(jobs=[*op.jobs[:at], plain, *op.jobs[at + 1 :]])
        case flow.AddFlow():
            yield from (edit(flow=node) for node in _plainer_nodes(op.flow))
        case flow.AddFlows():
            yield from (flow.AddFlow(flow=node) for node in op.flows)
        case flow.UpsertJobScheduler():
            yield from _at_defaults(op, {"opts": None})
        case _:
            yield from _at_defaults(op, {"fetch_next": False, "value_raw": "null", "message": "boom"})


def _fewer(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Variants without one of the options; an id stays, because other steps refer to it."""
    for name in options:
        if name != "jobId":
            yield {other: value for other, value in options.items() if other != name}


def _plainer_nodes(node: flow.FlowJob) -> Iterator[flow.FlowJob]:
    for at, child in enumerate(node.children):
        rest = [*node.children[:at], *node.children[at + 1 :]]
        yield msgspec.structs.replace(node, children=rest)
        for plainer in _plainer_nodes(child):
            yield msgspec.structs.replace(node, children=[*node.children[:at], plainer, *node.children[at + 1 :]])
    for opts in _fewer(node.opts):
        yield msgspec.structs.replace(node, opts=opts)
    if node.queue != "q":
        yield msgspec.structs.replace(node, queue="q")


def _at_defaults(op: Op[Any], plain: dict[str, Any]) -> Iterator[Op[Any]]:
    for name, value in plain.items():
        if name in op.__struct_fields__ and getattr(op, name) != value:
            yield msgspec.structs.replace(op, **{name: value})
