"""Which combinations of operation, state and option a run has tried, and which it never did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from conformance.driver.ops import Op, flow, lifecycle, queue
from conformance.fuzz.scene import Pair
from conformance.fuzz.steps import CallStep, FaultStep, Step
from conformance.fuzz.strategies import controlling, editing, working
from conformance.fuzz.world import JOB_STATES, QueueWorld

PLAIN = "-"
"""Stands for a call without any option."""

JOB_OPS: tuple[str, ...] = (*editing.CHANGES, *editing.QUESTIONS, *working.ON_A_HELD_JOB)
"""Operations that name one job."""

RUNNING = "running"
QUEUE_STATES = (RUNNING, "paused")
QUEUE_OPS: tuple[str, ...] = (
    "queue.add",
    "queue.addBulk",
    "queue.upsertJobScheduler",
    "worker.getNextJob",
    "worker.checkStalled",
    "worker.extendLocks",
    "worker.rateLimit",
    "flow.add",
    "flow.addBulk",
    "flow.getFlow",
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

    @property
    def pair(self) -> Pair:
        """Operation and state."""
        return self.op, self.state


OFTEN_ENOUGH = 2
"""How often a pair has to be generated before it is no longer aimed at: what is generated may not be played to its end,
on a machine that is too busy, or with a client that has gone another way."""


@dataclass
class Coverage:
    """What was tried so far, with numbers. `drawn` is what was generated, `seen` what was played and compared, too.

    Only the first says where to go next: what is generated must not depend on what clients do.
    """

    seen: Counter[Combination] = field(default_factory=Counter)
    drawn: Counter[Combination] = field(default_factory=Counter)
    drawn_pairs: Counter[Pair] = field(default_factory=Counter)

    def draw(self, found: Collection[Combination]) -> int:
        """Count the combinations of a step that was generated; returns how many of them are new."""
        new = sum(one not in self.drawn for one in found)
        self.drawn.update(found)
        self.drawn_pairs.update({one.pair for one in found})
        return new

    def compare(self, found: Collection[Combination]) -> None:
        """Count the combinations of a step after which both sides were compared."""
        self.seen.update(found)

    @property
    def pairs(self) -> set[Pair]:
        """Operations with states that were compared."""
        return {one.pair for one in self.seen}

    def never_tried(self, operations: Collection[str]) -> list[Pair]:
        """Legal pairs of operation and state that did not occur. `operations`: what both clients declare."""
        tried = self.pairs
        return [pair for pair in legal_pairs(operations) if pair not in tried]

    def worth_trying(self, operations: Collection[str]) -> tuple[Pair, ...]:
        """Legal pairs that were seldom or never generated."""
        return tuple(pair for pair in legal_pairs(operations) if self.drawn_pairs[pair] < OFTEN_ENOUGH)


def legal_pairs(operations: Collection[str]) -> list[Pair]:
    """Every pair of operation and state: a call in the wrong state is legal, too, and has to be refused alike."""
    about_jobs = [(op, state) for op in JOB_OPS if op in operations for state in JOB_STATES]
    return about_jobs + [(op, state) for op in QUEUE_OPS if op in operations for state in QUEUE_STATES]


def combinations(step: Step, world: QueueWorld) -> Iterator[Combination]:
    """The combinations that a step stands for. `world`: the state of its queue before it."""
    state = _state(step, world)
    options = sorted(set(_options(step.op))) if isinstance(step, CallStep) else []
    if isinstance(step, CallStep) and step.cut:
        options.append(f"cut={step.cut}")
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
