"""Which operations were tried in which states, and steps towards the pairs that were not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from conformance.driver.ops import Op, flow, lifecycle, queue, worker
from conformance.fuzz.prediction import JOB_STATES, MISSING, PredictedQueue
from conformance.fuzz.strategies import job_steps, queue_steps
from conformance.fuzz.strategies.context import MAIN, NO_SUCH_JOB, TOKENS, GenerationContext, OperationAndState
from conformance.protocol.states import FETCHED_CONTAINERS
from conformance.steps.shapes import CallStep, ClockStep, CounterStep, FaultStep, Step

NO_OPTION = "-"
"""The option of a call without options."""

JOB_MAKERS = {**job_steps.JOB_CHANGES, **job_steps.JOB_QUESTIONS}
QUEUE_MAKERS = {**queue_steps.QUEUE_CONTROLS, **queue_steps.QUEUE_MAINTENANCE, **queue_steps.QUEUE_QUESTIONS}

JOB_OPS: tuple[str, ...] = (*JOB_MAKERS, *job_steps.HELD_JOB_CALLS)
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
    *QUEUE_MAKERS,
)
"""Operations on a queue as a whole."""

OFTEN_ENOUGH = 2
"""A pair that was generated this often is no longer a goal. Not once, because a generated sequence may end early: on
a busy machine, or if the client diverges."""

QUEUE_STRATEGIES: dict[str, Callable[[GenerationContext], st.SearchStrategy[list[Step]]]] = {
    "queue.add": queue_steps.adding,
    "queue.addBulk": queue_steps.adding_bulk,
    "queue.upsertJobScheduler": queue_steps.scheduling,
    "flow.add": queue_steps.adding_flow,
    "flow.addBulk": queue_steps.adding_flows,
    "flow.getFlow": queue_steps.asking_about_a_flow,
    "worker.getNextJob": job_steps.claiming,
    "worker.checkStalled": job_steps.checking_stalled,
    "worker.extendLocks": job_steps.renewing_all,
    "worker.rateLimit": queue_steps.limiting,
}
"""Operations on a queue as a whole that have a strategy of their own."""

StepsTowards = Callable[[st.DrawFn, GenerationContext], list[Step]]

LONG_MS = 60_000
"""Longer than any rate limit: afterwards a worker gets a job again."""

_FIVE = st.sampled_from(range(5))


class CallCombination(msgspec.Struct, frozen=True, order=True):
    """An operation, the state of what it is called on, and one option or argument of the call."""

    op: str
    state: str
    option: str = NO_OPTION

    @property
    def pair(self) -> OperationAndState:
        """Operation and state."""
        return self.op, self.state


@dataclass
class PairCoverage:
    """Counts of the combinations tried so far. `compared`: those that were not only generated, but run and compared.

    Only `generated` decides the next goals, because generation must not depend on clients.
    """

    compared: Counter[CallCombination] = field(default_factory=Counter)
    generated: Counter[CallCombination] = field(default_factory=Counter)
    generated_pairs: Counter[OperationAndState] = field(default_factory=Counter)

    def count_generated(self, found: Collection[CallCombination]) -> int:
        """Count the combinations of a step that was generated; returns how many of them are new."""
        new = sum(combination not in self.generated for combination in found)
        self.generated.update(found)
        self.generated_pairs.update({combination.pair for combination in found})
        return new

    def count_compared(self, found: Collection[CallCombination]) -> None:
        """Count the combinations of a step after which both systems were compared."""
        self.compared.update(found)

    @property
    def pairs(self) -> set[OperationAndState]:
        """Operations with states that were compared."""
        return {combination.pair for combination in self.compared}

    def never_tried(self, operations: Collection[str]) -> list[OperationAndState]:
        """Legal pairs of operation and state that did not occur. `operations`: what all clients declare."""
        tried = self.pairs
        return [pair for pair in legal_pairs(operations) if pair not in tried]

    def worth_trying(self, operations: Collection[str]) -> tuple[OperationAndState, ...]:
        """Legal pairs that were seldom or never generated."""
        return tuple(pair for pair in legal_pairs(operations) if self.generated_pairs[pair] < OFTEN_ENOUGH)


def legal_pairs(operations: Collection[str]) -> list[OperationAndState]:
    """Every pair of operation and state: a call in the wrong state is legal, too, and has to be refused alike."""
    about_jobs = [(op, state) for op in JOB_OPS if op in operations for state in JOB_STATES]
    return about_jobs + [(op, state) for op in QUEUE_OPS if op in operations for state in QUEUE_STATES]


def combinations(step: Step, queue_state: PredictedQueue) -> Iterator[CallCombination]:
    """The combinations that a step covers. `queue_state`: the state of its queue before it."""
    state = _state(step, queue_state)
    options = sorted(set(_options(step.op))) if isinstance(step, CallStep) else []
    if isinstance(step, CallStep) and step.cut:
        options.append(f"cut={step.cut}")
    for option in options or [NO_OPTION]:
        yield CallCombination(step.name, state, option)


def _state(step: Step, queue_state: PredictedQueue) -> str:
    if isinstance(step, FaultStep | CounterStep) and step.job:
        return queue_state.state_of(step.job)
    if isinstance(step, CallStep) and step.name in JOB_OPS:
        return queue_state.state_of(getattr(step.op, "job", ""))
    return QUEUE_STATES[queue_state.paused]


def _options(op: Op[Any]) -> Iterator[str]:
    match op:
        case queue.Add():
            yield from _named(op.opts)
        case queue.AddBulk():
            yield from (name for job in op.jobs for name in _named(job.opts))
        case flow.AddFlow():
            yield from _in_flow(op.flow)
        case flow.AddFlows():
            yield from (name for tree in op.flows for name in _in_flow(tree))
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
    """Names of options; of nested options with the names of their members."""
    for name, value in options.items():
        inner = sorted(value) if isinstance(value, dict) and name in {"deduplication", "removeOnComplete"} else []
        yield ".".join([name, "+".join(inner)]) if inner else name


def _arguments(op: Op[Any]) -> Iterable[str]:
    """Arguments with few values, each with its value: it selects a branch of the call."""
    for field_info in msgspec.structs.fields(op):
        value = getattr(op, field_info.name)
        if isinstance(value, bool) or field_info.name in {"type", "state"}:
            yield f"{field_info.name}={value}".lower()


@st.composite
def exploring(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """The call of an untried pair if a job (or the queue) is in its state, else a step towards that state.

    Each step starts from the current state of the sequence, which other steps may have changed meanwhile.

    Before the call, idle workers sometimes take the markers: if it adds work, it has to set a new one.
    """
    goals = context.goals()
    aimed = [pair for pair in goals if context.aim and _same_state(pair, context.aim)] or goals
    at_hand = [pair for pair in aimed if _at_hand(context, pair)]
    pair: OperationAndState = draw(st.sampled_from(at_hand or aimed))
    if not at_hand:
        return _towards(draw, context, pair)
    idle: list[Step] = [FaultStep("wake", MAIN)] if draw(_FIVE) > 2 else []
    return [*idle, *_call_of_pair(draw, context, pair)]


def _same_state(pair: OperationAndState, other: OperationAndState) -> bool:
    return pair[1] == other[1] and (pair[0] in JOB_OPS) == (other[0] in JOB_OPS)


def _at_hand(context: GenerationContext, pair: OperationAndState) -> bool:
    """Whether a job, or the queue, is in the state of the pair now."""
    op, state = pair
    main = context.queue(MAIN)
    if op not in JOB_OPS:
        return main.paused != (state == RUNNING)
    return state == MISSING or bool(main.in_states({state}))


def _call_of_pair(draw: st.DrawFn, context: GenerationContext, pair: OperationAndState) -> list[Step]:
    """The call of the pair, on a job in its state or on the queue."""
    op, state = pair
    if op in QUEUE_STRATEGIES:
        steps: list[Step] = draw(QUEUE_STRATEGIES[op](context))
        return steps
    if op in QUEUE_MAKERS:
        return context.producer(draw, MAIN, QUEUE_MAKERS[op](draw, context))
    job = context.one_of(draw, context.queue(MAIN).in_states({state}) or [NO_SUCH_JOB])
    if op in job_steps.HELD_JOB_CALLS:
        token = context.queue(MAIN).tokens.get(job, TOKENS[0])
        return context.worker(draw, MAIN, job_steps.HELD_JOB_CALLS[op](draw, context, job, token))
    return context.producer(draw, MAIN, JOB_MAKERS[op](draw, context, job))


def _towards(draw: st.DrawFn, context: GenerationContext, pair: OperationAndState) -> list[Step]:
    """Steps that lead a job, or the queue, towards the state; another job if they need a call that is left out."""
    op, state = pair
    towards_queue_state = _running if state == RUNNING else _paused
    steps = (TOWARDS[state] if op in JOB_OPS else towards_queue_state)(draw, context)
    possible = all(step.opens or context.can(step.name) for step in steps if isinstance(step, CallStep))
    return steps if possible else _added(draw, context)


def _on_main(draw: st.DrawFn, context: GenerationContext, op: Op[Any]) -> list[Step]:
    return context.producer(draw, MAIN, op)


def _added(draw: st.DrawFn, context: GenerationContext, **opts: Any) -> list[Step]:
    return _on_main(draw, context, queue.Add(name="job", opts=queue_steps.with_free_id(draw, context, opts)))


def _running(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    return _on_main(draw, context, queue.Resume())


def _paused(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    return _on_main(draw, context, queue.Pause())


def _waiting(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    return _running(draw, context) if context.queue(MAIN).paused else _added(draw, context)


def _waiting_paused(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    return _added(draw, context) if context.queue(MAIN).paused else _paused(draw, context)


def _active(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """A claim, or a step that makes it possible: a limit holds until time passes or it is removed."""
    main = context.queue(MAIN)
    if main.paused or not main.in_states(FETCHED_CONTAINERS):
        return _waiting(draw, context)
    hindrance = draw(_FIVE)
    if hindrance == 4 and context.frozen:
        return [ClockStep(LONG_MS)]
    if hindrance == 3 and context.can("queue.removeGlobalConcurrency"):
        return _on_main(draw, context, queue.RemoveGlobalConcurrency())
    return context.worker(draw, MAIN, worker.GetNextJob(token=TOKENS[0]))


def _finished(op: type[Op[Any]], **arguments: Any) -> StepsTowards:
    """Steps towards a state into which a worker moves its active jobs."""

    def towards(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
        main = context.queue(MAIN)
        held = [job for job in main.in_states({"active"}) if job in main.tokens]
        if not held:
            return _active(draw, context)
        return context.worker(draw, MAIN, op(job=held[0], token=main.tokens[held[0]], **arguments))

    return towards


TOWARDS: dict[str, StepsTowards] = {
    "wait": _waiting,
    "paused": _waiting_paused,
    "prioritized": lambda draw, context: _added(draw, context, priority=1),
    "delayed": lambda draw, context: _added(draw, context, delay=LONG_MS),
    "active": _active,
    "completed": _finished(worker.MoveToCompleted),
    "failed": _finished(worker.MoveToFailed, message="boom", unrecoverable=True),
    "waiting-children": lambda draw, context: draw(queue_steps.adding_parent(context)),
}
"""The next step towards a job in each state. A job that does not exist needs none."""
