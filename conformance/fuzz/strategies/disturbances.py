"""Disturbances: time that passes, counters that are high, locks that expire, workers that wake up, cut connections."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from conformance.driver.ops import queue, worker
from conformance.fuzz.strategies import job_steps, queue_steps
from conformance.fuzz.strategies.context import MAIN, NO_SUCH_JOB, OTHER, TOKENS, GenerationContext
from conformance.fuzz.strategies.vocabulary import Vocabulary
from conformance.observe.tap.rules import PHASES
from conformance.steps.shapes import CallStep, ClockStep, CounterName, CounterStep, FaultStep, Step

CUTTABLE = frozenset(
    {
        "queue.add",
        "queue.pause",
        "queue.resume",
        "job.updateData",
        "job.updateProgress",
        "job.promote",
        "job.changeDelay",
        "job.changePriority",
        "job.retry",
        "worker.moveToCompleted",
        "worker.moveToDelayed",
        "worker.moveToWait",
        "worker.extendLock",
    }
)
"""Operations of a single script. Calls that claim (`worker.getNextJob`, `fetch_next`) are left to scenarios and chaos,
because no worker holds the job of a lost reply."""

_FORTY = st.sampled_from(range(40))
_PHASES = st.sampled_from(PHASES)
_BY_ANYBODY = st.sampled_from((queue_steps.adding, job_steps.changing, job_steps.changing, queue_steps.controlling))
_BY_WORKERS = st.sampled_from((job_steps.completing, job_steps.putting_back, job_steps.renewing))


@st.composite
def passing_time(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """A step of the clock."""
    return [ClockStep(draw(st.sampled_from(context.words.jumps)))]


def counters(words: Vocabulary) -> list[Step]:
    """Counters of both queues, as high as after years of use."""
    named: tuple[tuple[CounterName, int], ...] = (("id", words.id_counter), ("pc", words.priority_counter))
    return [CounterStep(counter, name, value) for counter, value in named if value for name in (MAIN, OTHER)]


@st.composite
def coming_back(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """A job that has been tried for a long time, and fails again."""
    known = context.queue(MAIN).jobs
    name = next(name for number in range(len(known) + 1) if (name := f"tried-{number}") not in known)
    opts = {"jobId": name, "lifo": True, "attempts": 100, "backoff": draw(st.sampled_from(context.words.backoffs))}
    added = context.producer(draw, MAIN, queue.Add(name="job", opts=opts))
    *opened, claim = context.worker(draw, MAIN, worker.GetNextJob(token=TOKENS[0]))
    assert isinstance(claim, CallStep)
    failed = replace(claim, op=worker.MoveToFailed(job=name, token=TOKENS[0], message="boom"))
    return [*added, CounterStep("atm", MAIN, context.words.attempts_made, name), *opened, claim, failed]


@st.composite
def waking(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """An idle worker takes the markers, so the next client that adds work has to set a new one."""
    return [FaultStep("wake", context.any_queue(draw))]


@st.composite
def disturbing(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """A fault: a lock that expires, forgotten scripts, or, because it takes a second, rarely a cut connection.

    Scripts are not forgotten while a flow producer is open: Node's then loses flows without an error (protocol, 8).
    """
    number = draw(_FORTY)
    locked = list(context.queue(MAIN).tokens) or [NO_SUCH_JOB]
    if context.breaks_redis and number == 39:
        return [FaultStep("disconnect")]
    if context.breaks_redis and number > 29 and "flow" not in context.opened:
        return [FaultStep("script-flush")]
    return [FaultStep("delete-lock", MAIN, locked[draw(st.integers(0, len(locked) - 1))])]


def may_be_cut(step: CallStep) -> bool:
    """Whether all outcomes of this call are known if its connection breaks."""
    return step.by == "client" and step.name in CUTTABLE and not getattr(step.op, "fetch_next", False)


@st.composite
def cutting_a_call(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """A change whose call is cut off, if its possible outcomes are known; else the same change, whole."""
    active = any(context.queue(name).in_states({"active"}) for name in (MAIN, OTHER))
    make = draw(_BY_WORKERS if active and draw(st.booleans()) else _BY_ANYBODY)
    *before, last = draw(make(context))
    if isinstance(last, CallStep) and may_be_cut(last):
        last = replace(last, cut=draw(_PHASES))
    return [*before, last]
