"""Crossings: calls that change the same jobs in different ways, one right after the other.

Each of them is right alone. Together they meet what only the other has left: jobs that are parked, priorities in a
paused queue, families whose jobs are cleaned, a deduplication that is extended, a schedule that is changed. In interop
each call is made by either client, so that every assignment of the roles comes up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from conformance.driver.ops import Op, flow, job, queue, worker
from conformance.fuzz.strategies import job_steps
from conformance.fuzz.strategies.arguments import deduplicated
from conformance.fuzz.strategies.context import MAIN, NO_SUCH_JOB, TOKENS, GenerationContext
from conformance.fuzz.strategies.queue_steps import adding_parent, scheduling
from conformance.protocol.keys import DELAYED
from conformance.protocol.states import WAITING_CONTAINERS
from conformance.steps.shapes import CallStep, Step

CrossingMaker = Callable[[st.DrawFn, GenerationContext], list[Op[Any]]]

_FINISHED: st.SearchStrategy[Any] = st.sampled_from(("failed", "completed"))
_PARKED = st.sampled_from(("paused", "wait", "prioritized", "delayed"))
_PRIORITIES = st.sampled_from((1, 0, 5))
_OF_THE_LAST: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    ({}, {"jobId": "last"}, {"delay": 20_000}, {"priority": 1}, {"lifo": True})
)
_ODD = st.sampled_from(("job", "scheduler", "deduplication"))
_PLACES = frozenset({*WAITING_CONTAINERS, DELAYED})


def _while_paused(*inner: CrossingMaker) -> CrossingMaker:
    """A job is added, the queue is paused, this happens, and the queue is resumed."""

    def make(draw: st.DrawFn, context: GenerationContext) -> list[Op[Any]]:
        happens = [op for each in inner for op in each(draw, context)]
        return [queue.Add(name="job"), queue.Pause(), *happens, queue.Resume()]

    return make


def _drain(draw: st.DrawFn, _: GenerationContext) -> list[Op[Any]]:
    return [queue.Drain(delayed=draw(st.booleans()))]


def _clean(draw: st.DrawFn, _: GenerationContext) -> list[Op[Any]]:
    kind: Any = draw(_PARKED)
    return [queue.Clean(grace_ms=0, limit=draw(st.sampled_from((0, 1))), type=kind)]


def _retry_jobs(draw: st.DrawFn, _: GenerationContext) -> list[Op[Any]]:
    return [queue.RetryJobs(count=1000, state=draw(_FINISHED))]


def _change_priority(draw: st.DrawFn, context: GenerationContext) -> list[Op[Any]]:
    known = context.queue(MAIN).in_states(_PLACES) or [NO_SUCH_JOB]
    return [job.ChangePriority(job=draw(st.sampled_from(known)), priority=draw(_PRIORITIES), lifo=draw(st.booleans()))]


def _add(_draw: st.DrawFn, _: GenerationContext) -> list[Op[Any]]:
    return [queue.Add(name="job")]


def _limit(draw: st.DrawFn, _: GenerationContext) -> list[Op[Any]]:
    return [queue.SetGlobalRateLimit(max=draw(st.sampled_from((1, 2))), duration_ms=20_000)]


def _extend(draw: st.DrawFn, context: GenerationContext) -> list[Op[Any]]:
    """Repeated adds with one deduplication id, and a call between them that may end it."""
    between = draw(st.sampled_from((_drain, _clean, _change_priority)))(draw, context)
    extended = {"id": context.words.deduplications[0], "ttl": context.words.lives[-1], "extend": True}
    again = queue.Add(name="job", opts={"deduplication": extended})
    return [again, again, *between, again]


def _change_owner(draw: st.DrawFn, context: GenerationContext) -> list[Op[Any]]:
    """A deduplication id gets another owner; then its former owner is removed."""
    name = context.words.deduplications[0]
    shared = {"deduplication": {"id": name, "ttl": context.words.lives[-1]}}
    former = _free_id("owner", context)
    gone: tuple[Op[Any], ...] = (job.RemoveJob(job=former), queue.Clean(grace_ms=0, limit=1, type="wait"))
    first = queue.Add(name="job", opts={**shared, "jobId": former})
    return [
        first,
        queue.RemoveDeduplicationKey(id=name),
        queue.Add(name="job", opts=shared),
        draw(st.sampled_from(gone)),
    ]


def _free_id(start: str, context: GenerationContext) -> str:
    known = context.queue(MAIN).jobs
    return next(name for number in range(len(known) + 1) if (name := f"{start}-{number}") not in known)


def _reschedule(draw: st.DrawFn, context: GenerationContext) -> list[Op[Any]]:
    scheduler, every = context.words.schedulers[0], draw(st.sampled_from(context.words.periods))
    before, after = (
        flow.UpsertJobScheduler(id=scheduler, repeat={"every": length}, name="tick") for length in (20_000, every)
    )
    return [before, after]


CROSSINGS: dict[str, tuple[tuple[str, ...], CrossingMaker]] = {
    "add while paused": ((), _while_paused(_add)),
    "drain while paused": (("queue.drain",), _while_paused(_add, _drain)),
    "clean while paused": (("queue.clean",), _while_paused(_add, _clean)),
    "retry all while paused": (("queue.retryJobs",), _while_paused(_retry_jobs)),
    "change priority while paused": (("job.changePriority",), _while_paused(_change_priority)),
    "limit while paused": (("queue.setGlobalRateLimit",), _while_paused(_limit, _add)),
    "extend a deduplication": (("queue.drain", "queue.clean", "job.changePriority"), _extend),
    "change an owner": (("queue.removeDeduplicationKey", "queue.clean", "job.remove"), _change_owner),
    "change a schedule": (("queue.upsertJobScheduler",), _reschedule),
}
"""By name: the operations that it needs besides add, pause and resume, and its calls."""

OF_FLOWS: dict[str, tuple[str, CrossingMaker]] = {
    "drain a flow": ("queue.drain", _drain),
    "clean a flow": ("queue.clean", _clean),
    "change priority in a flow": ("job.changePriority", _change_priority),
}
"""The same for calls that meet a flow that was just added."""


@st.composite
def keeping_the_last(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """Jobs are added while the owner of their deduplication id is active; then it ends."""
    owner = _free_id("owner", context)
    shared = {"deduplication": {"id": draw(st.sampled_from(context.words.deduplications)), "keepLastIfActive": True}}
    options: list[dict[str, Any]] = [{"jobId": owner, "lifo": True}, {}, draw(_OF_THE_LAST)]
    first, *later = (
        context.producer(draw, MAIN, queue.Add(name="job", data_raw=f'"{number}"', opts={**shared, **opts}))
        for number, opts in enumerate(options)
    )
    *opened, claim = context.worker(draw, MAIN, worker.GetNextJob(token=TOKENS[0]))
    assert isinstance(claim, CallStep)
    if draw(st.booleans()):
        end: Op[Any] = worker.MoveToCompleted(job=owner, token=TOKENS[0], value_raw="1")
    else:
        end = worker.MoveToFailed(job=owner, token=TOKENS[0], message="boom", unrecoverable=True)
    return joined(first, [*opened, claim], *later, [replace(claim, op=end)])


@st.composite
def odd_texts(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """Ids that look like syntax: of jobs, of a scheduler, of a deduplication."""
    kind = draw(_ODD)
    if kind == "scheduler" and context.can("queue.upsertJobScheduler"):
        return draw(scheduling(context))
    if kind == "job" and context.free_ids():
        return _odd_jobs(draw, context)
    opts = draw(deduplicated(context.words))
    return joined(*(context.producer(draw, MAIN, queue.Add(name="job", opts=opts)) for _ in range(2)))


def _odd_jobs(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """Jobs and a change of one of them, which must leave the others alone."""
    ids = draw(st.permutations(context.free_ids()))[:2]
    name = draw(st.sampled_from([name for name in job_steps.JOB_CHANGES if context.can(name)]))
    added = (context.producer(draw, MAIN, queue.Add(name="job", opts={"jobId": job})) for job in ids)
    changed = job_steps.JOB_CHANGES[name](draw, context, ids[0])
    return joined(*added, context.producer(draw, MAIN, changed))


def joined(*parts: list[Step]) -> list[Step]:
    """All steps; each handle is opened once."""
    steps: list[Step] = []
    for part in parts:
        opened = {step.handle for step in steps if isinstance(step, CallStep)}
        steps += [step for step in part if not (isinstance(step, CallStep) and step.opens and step.handle in opened)]
    return steps


@st.composite
def crossing(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """One crossing on the main queue."""
    possible = [make for needs, make in CROSSINGS.values() if context.can(*needs)]
    families = [make for op, make in OF_FLOWS.values() if context.can("flow.add", op)]
    chosen = draw(st.sampled_from([*possible, *families]))
    steps: list[Step] = draw(adding_parent(context)) if chosen in families else []
    return joined(steps, *(context.producer(draw, MAIN, op) for op in chosen(draw, context)))
