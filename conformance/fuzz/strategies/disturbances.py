"""Disturbances: time that passes, locks that expire, workers that wake up, and connections that break."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from conformance.fuzz.steps import CallStep, ClockStep, FaultStep, Step, may_be_cut
from conformance.fuzz.strategies import job_steps, queue_steps
from conformance.fuzz.strategies.context import MAIN, NO_SUCH_JOB, OTHER, GenerationContext
from conformance.observe.tap.rules import PHASES

_JUMPS = st.sampled_from((20_000, 30_000, 10_000, 1000, 1, 60_000))
"""How far the clock goes (ms). What Redis itself lets expire is set to multiples of 10 s, so that the moments which
really pass meanwhile never decide."""

_FORTY = st.sampled_from(range(40))
_PHASES = st.sampled_from(PHASES)
_BY_ANYBODY = st.sampled_from((queue_steps.adding, job_steps.changing, job_steps.changing, queue_steps.controlling))
_BY_WORKERS = st.sampled_from((job_steps.completing, job_steps.putting_back, job_steps.renewing))


@st.composite
def passing_time(draw: st.DrawFn, _context: GenerationContext) -> list[Step]:
    """A step of the clock."""
    return [ClockStep(draw(_JUMPS))]


@st.composite
def waking(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """An idle worker takes the markers; from now on, whoever adds work has to leave a new one."""
    return [FaultStep("wake", context.any_queue(draw))]


@st.composite
def disturbing(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """A fault: a lock that expires, forgotten scripts, or, because it takes a second, rarely a cut connection.

    Where a flow producer is open, scripts are not forgotten: Node's then loses flows without a word (protocol, 8).
    """
    number = draw(_FORTY)
    locked = list(context.queue(MAIN).tokens) or [NO_SUCH_JOB]
    if context.breaks_redis and number == 39:
        return [FaultStep("disconnect")]
    if context.breaks_redis and number > 29 and "flow" not in context.opened:
        return [FaultStep("script-flush")]
    return [FaultStep("delete-lock", MAIN, locked[draw(st.integers(0, len(locked) - 1))])]


@st.composite
def cutting_a_call(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """A change whose call is cut off, where it is known what may come of that; else the same change, whole."""
    active = any(context.queue(name).in_states({"active"}) for name in (MAIN, OTHER))
    make = draw(_BY_WORKERS if active and draw(st.booleans()) else _BY_ANYBODY)
    *before, last = draw(make(context))
    if isinstance(last, CallStep) and may_be_cut(last):
        last = replace(last, cut=draw(_PHASES))
    return [*before, last]
