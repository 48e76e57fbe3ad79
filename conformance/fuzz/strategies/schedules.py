"""A scheduler that exists: its jobs come due, run, end and are lost, while it is changed, removed and made again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from conformance.driver.ops import Op, flow, job, queue, worker
from conformance.fuzz.strategies.context import MAIN, TOKENS, GenerationContext
from conformance.fuzz.strategies.queue_steps import scheduling
from conformance.steps.shapes import CallStep, ClockStep, Step

_MEANWHILE = st.sampled_from(("due", "due", "due", "change", "promote", "edit", "remake", "remove", "pass", "clean"))
_AFTER_CLAIM = st.sampled_from(("complete", "complete", "fail", "change", "remove", "stall", "orphan", "hold"))
_LATE = st.sampled_from((0, 0, 5000, 20_000, 130_000))
_CLEANED: st.SearchStrategy[Any] = st.sampled_from(("completed", "failed", "delayed", "wait"))
_LOCKS_END_MS = 60_000


def jobs_of(context: GenerationContext, scheduler: str) -> list[str]:
    """The jobs of a scheduler, the latest last."""
    own = f"repeat:{scheduler}:"
    return sorted((job for job in context.queue(MAIN).jobs if job.startswith(own)), key=_due_ms)


@st.composite
def rescheduling(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """A scheduler is changed, removed or made again, or its newest job comes due, is edited or is cleaned."""
    scheduler = draw(st.sampled_from(context.queue(MAIN).schedulers))
    jobs = jobs_of(context, scheduler)
    held = [job for job in jobs if job in context.queue(MAIN).tokens]
    if held:
        return _held(draw, context, scheduler, held[0])
    match draw(_MEANWHILE):
        case "due" if jobs and context.frozen:
            return _due(draw, context, scheduler, jobs[-1])
        case "change":
            return draw(scheduling(context, scheduler))
        case "promote" if jobs:
            return context.producer(draw, MAIN, job.Promote(job=jobs[-1]))
        case "remake":
            return [*_removed(draw, context, scheduler), *_made_again(draw, context, scheduler)]
        case "edit" if jobs:
            return context.producer(draw, MAIN, _edit(draw, jobs[-1]))
        case "remove":
            return _removed(draw, context, scheduler)
        case "clean":
            return context.producer(draw, MAIN, queue.Clean(grace_ms=0, limit=0, type=draw(_CLEANED)))
    if context.frozen:
        return [ClockStep(draw(st.sampled_from(context.words.periods)))]
    return _made_again(draw, context, scheduler)


def _due(draw: st.DrawFn, context: GenerationContext, scheduler: str, job_id: str) -> list[Step]:
    """The newest job comes due, or is late, and a worker takes it."""
    *opened, claim = context.worker(draw, MAIN, worker.GetNextJob(token=TOKENS[0]))
    assert isinstance(claim, CallStep)
    wait_ms = max(_due_ms(job_id) - context.now_ms, 0) + draw(_LATE)
    taken = [*([ClockStep(wait_ms)] if wait_ms else []), *opened, claim]
    return [*taken, *_with(draw, context, scheduler, job_id, claim)]


def _held(draw: st.DrawFn, context: GenerationContext, scheduler: str, job_id: str) -> list[Step]:
    *opened, check = context.worker(draw, MAIN, worker.CheckStalled())
    assert isinstance(check, CallStep)
    return [*opened, *_with(draw, context, scheduler, job_id, check)]


def _with(draw: st.DrawFn, context: GenerationContext, scheduler: str, job_id: str, by: CallStep) -> list[Step]:
    """A worker ends or loses a job of a scheduler, or the scheduler changes meanwhile. `by`: a call of the worker."""
    token = context.queue(MAIN).tokens.get(job_id, TOKENS[0])
    match draw(_AFTER_CLAIM):
        case "complete":
            return [replace(by, op=worker.MoveToCompleted(job=job_id, token=token, value_raw="1"))]
        case "fail":
            return [replace(by, op=worker.MoveToFailed(job=job_id, token=token, message="boom"))]
        case "change":
            return draw(scheduling(context, scheduler))
        case "remove":
            return _removed(draw, context, scheduler)
        case "stall" if context.frozen:
            return _lost(by)
        case "orphan" if context.frozen:
            claim, later = replace(by, op=worker.GetNextJob(token=TOKENS[0])), ClockStep(_LOCKS_END_MS)
            return [*_removed(draw, context, scheduler), *_lost(by), claim, later, *_lost(by)]
    return []


def _lost(by: CallStep) -> list[Step]:
    """The lock of a job expires, and a check finds the job."""
    check = replace(by, op=worker.CheckStalled())
    return [check, ClockStep(_LOCKS_END_MS), check]


def _removed(draw: st.DrawFn, context: GenerationContext, scheduler: str) -> list[Step]:
    return context.producer(draw, MAIN, flow.RemoveJobScheduler(id=scheduler))


def _made_again(draw: st.DrawFn, context: GenerationContext, scheduler: str) -> list[Step]:
    every = draw(st.sampled_from(context.words.periods))
    return context.producer(draw, MAIN, flow.UpsertJobScheduler(id=scheduler, repeat={"every": every}, name="tick"))


def _edit(draw: st.DrawFn, job_id: str) -> Op[Any]:
    edits: tuple[Op[Any], ...] = (
        job.ChangePriority(job=job_id, priority=1),
        job.ChangeDelay(job=job_id, delay_ms=20_000),
        job.Log(job=job_id, row="row"),
        job.Retry(job=job_id, state="failed"),
        job.RemoveJob(job=job_id),
    )
    return draw(st.sampled_from(edits))


def _due_ms(job_id: str) -> int:
    due = job_id.rpartition(":")[2]
    return int(due) if due.isdecimal() else 0
