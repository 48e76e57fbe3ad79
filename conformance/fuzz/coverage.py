"""Which combinations of operation, state and option a run has tried, and which it never did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from conformance.driver.ops import Op, flow, lifecycle, queue
from conformance.fuzz.steps import CallStep, FaultStep, Step
from conformance.fuzz.strategies import controlling, editing
from conformance.fuzz.world import JOB_STATES, QueueWorld

PLAIN = "-"
"""Stands for a call without any option."""

WORKER_OPS = (
    "worker.moveToCompleted",
    "worker.moveToFailed",
    "worker.moveToDelayed",
    "worker.moveToWait",
    "worker.moveToWaitingChildren",
    "worker.extendLock",
)
JOB_OPS: tuple[str, ...] = (*editing.CHANGES, *editing.QUESTIONS, *WORKER_OPS)
"""Operations that name one job."""

QUEUE_STATES = ("running", "paused")
QUEUE_OPS: tuple[str, ...] = (
    "queue.add",
    "queue.addBulk",
    "queue.upsertJobScheduler",
    "worker.getNextJob",
    "worker.checkStalled",
    *controlling.CONTROLS,
    *controlling.MAINTENANCE,
    *controlling.QUESTIONS,
)
"""Operations on a queue as a whole."""


class Combination(msgspec.Struct, frozen=True, order=True):
    """An operation, the state of what it is called on, and one option or argument of the call."""

    op: str
    state: str
    option: str = PLAIN


@dataclass
class Coverage:
    """What was tried so far, with numbers. Fed by what is generated, never by what a client does with it."""

    seen: Counter[Combination] = field(default_factory=Counter)

    def note(self, step: Step, world: QueueWorld) -> int:
        """Count the combinations of a step about to be taken; returns how many of them are new."""
        found = list(combinations(step, world))
        new = sum(one not in self.seen for one in found)
        self.seen.update(found)
        return new

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Operations with states."""
        return {(one.op, one.state) for one in self.seen}

    def never_tried(self, operations: Collection[str]) -> list[tuple[str, str]]:
        """Legal pairs of operation and state that did not occur. `operations`: what both clients declare."""
        return [pair for pair in legal_pairs(operations) if pair not in self.pairs]


def legal_pairs(operations: Collection[str]) -> list[tuple[str, str]]:
    """Every pair of operation and state: a call in the wrong state is legal, too, and has to be refused alike."""
    about_jobs = [(op, state) for op in JOB_OPS if op in operations for state in JOB_STATES]
    return about_jobs + [(op, state) for op in QUEUE_OPS if op in operations for state in QUEUE_STATES]


def combinations(step: Step, world: QueueWorld) -> Iterator[Combination]:
    """The combinations that a step stands for. `world`: the state of its queue before it."""
    state = _state(step, world)
    options = sorted(set(_options(step.op))) if isinstance(step, CallStep) else []
    for option in options or [PLAIN]:
        yield Combination(step.name, state, option)


def _state(step: Step, world: QueueWorld) -> str:
    if isinstance(step, FaultStep) and step.job:
        return world.state_of(step.job)
    if isinstance(step, CallStep) and step.name in JOB_OPS:
        return world.state_of(getattr(step.op, "job", ""))
    return QUEUE_STATES[world.paused]


def _options(op: Op[Any]) -> Iterator[str]:
    match op:
        case queue.Add():
            yield from _named(op.opts)
        case queue.AddBulk():
            yield from (name for job in op.jobs for name in _named(job.opts))
        case flow.AddFlow():
            yield from _in_flow(op.flow)
        case flow.AddFlows():
            yield from (name for one in op.flows for name in _in_flow(one))
        case flow.UpsertJobScheduler():
            yield from (*_named(op.repeat), *(f"template.{name}" for name in op.opts or {}))
        case lifecycle.Open():
            yield from (f"{op.role}.{name}" for name in op.options)
        case _:
            yield from _arguments(op)


def _in_flow(node: flow.FlowJob) -> Iterator[str]:
    yield from _named(node.opts)
    for child in node.children:
        yield from (f"child.{name}" for name in _in_flow(child))


def _named(options: dict[str, Any]) -> Iterator[str]:
    """Names of options; those that hold options themselves by what is in them."""
    for name, value in options.items():
        inner = sorted(value) if isinstance(value, dict) and name in {"deduplication", "removeOnComplete"} else []
        yield ".".join([name, "+".join(inner)]) if inner else name


def _arguments(op: Op[Any]) -> Iterable[str]:
    """Arguments of few values, with the value: these are the ways in which a call can go."""
    for field_info in msgspec.structs.fields(op):
        value = getattr(op, field_info.name)
        if isinstance(value, bool) or field_info.name in {"type", "state"}:
            yield f"{field_info.name}={value}".lower()
