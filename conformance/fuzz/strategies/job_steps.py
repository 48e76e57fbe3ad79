"""Steps about jobs: changing one, asking about one, and what manual workers do with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from conformance.driver.ops import Op, job, queue, worker
from conformance.fuzz.strategies.arguments import json_texts
from conformance.fuzz.strategies.context import MAIN, NO_SUCH_JOB, OTHER, TOKENS, GenerationContext
from conformance.protocol.states import FETCHED_CONTAINERS
from conformance.steps.shapes import ClockStep, Step

JobOpMaker = Callable[[st.DrawFn, GenerationContext, str], Op[Any]]
HeldJobOpMaker = Callable[[st.DrawFn, GenerationContext, str, str], Op[Any]]
ROWS = ("row", "", "é\U0001f389")
_ROWS = st.sampled_from(ROWS)
_KEEP = st.sampled_from((None, None, 1, 2, 0))
_PRIORITIES = st.sampled_from((1, 0, 2, 5, 2_097_152))
_FINISHED = st.sampled_from(("failed", "completed"))
_STARTS, _ENDS = st.sampled_from((0, 1, -2)), st.sampled_from((-1, 0, 1, 5))
_TEN = st.sampled_from(range(10))
_TWELVE = st.sampled_from(range(12))
_TOKENS = st.sampled_from(TOKENS)
_FETCH = st.sampled_from((False, False, True))
_MESSAGES = st.sampled_from(("boom", "", 'é\U0001f389 "quoted"\n', "x" * 300))
_DURATIONS = st.sampled_from((30_000, 60_000, 20_000))
_PAST = (1, -1000)
_PUT_BACK = st.sampled_from(("worker.moveToDelayed", "worker.moveToWait", "worker.moveToWaitingChildren"))

_LOCKS_END_MS = 60_000
"""As long as the longest lock, and the longest time between two stalled checks."""


def _json(draw: st.DrawFn, context: GenerationContext) -> str:
    return draw(json_texts(exact=context.exact_data))


def _retry(draw: st.DrawFn, context: GenerationContext, job_id: str) -> Op[Any]:
    """A retry, mostly from the state that the job is in."""
    state = next((queue.state_of(job_id) for queue in map(context.queue, (MAIN, OTHER)) if job_id in queue.jobs), "")
    chosen = state if state in {"failed", "completed"} and draw(_TEN) < 9 else draw(_FINISHED)
    return job.Retry(job=job_id, state=chosen)  # type: ignore[arg-type]


JOB_CHANGES: dict[str, JobOpMaker] = {
    "job.updateData": lambda draw, context, job_id: job.UpdateData(job=job_id, data_raw=_json(draw, context)),
    "job.updateProgress": lambda draw, context, job_id: job.UpdateProgress(job=job_id, value_raw=_json(draw, context)),
    "job.log": lambda draw, _, job_id: job.Log(job=job_id, row=draw(_ROWS), keep_logs=draw(_KEEP)),
    "job.clearLogs": lambda draw, _, job_id: job.ClearLogs(job=job_id, keep_logs=draw(_KEEP)),
    "job.promote": lambda _draw, _, job_id: job.Promote(job=job_id),
    "job.changeDelay": lambda draw, context, job_id: job.ChangeDelay(
        job=job_id, delay_ms=draw(st.sampled_from(context.words.later))
    ),
    "job.changePriority": lambda draw, _, job_id: job.ChangePriority(
        job=job_id, priority=draw(_PRIORITIES), lifo=draw(st.booleans())
    ),
    "job.retry": _retry,
    "job.remove": lambda draw, _, job_id: job.RemoveJob(job=job_id, remove_children=draw(_TEN) < 7),
    "queue.remove": lambda draw, _, job_id: queue.Remove(job=job_id, remove_children=draw(_TEN) < 7),
    "job.removeChildDependency": lambda _draw, _, job_id: job.RemoveChildDependency(job=job_id),
    "job.removeUnprocessedChildren": lambda _draw, _, job_id: job.RemoveUnprocessedChildren(job=job_id),
}
"""Calls that may change a job, by operation."""

JOB_QUESTIONS: dict[str, JobOpMaker] = {
    "queue.getJob": lambda _draw, _, job_id: queue.GetJob(job=job_id),
    "job.getState": lambda _draw, _, job_id: job.GetState(job=job_id),
    "queue.getJobState": lambda _draw, _, job_id: queue.GetJobState(job=job_id),
    "job.isFinished": lambda _draw, _, job_id: job.IsFinished(job=job_id),
    "queue.getJobLogs": lambda draw, _, job_id: queue.GetJobLogs(
        job=job_id, start=draw(_STARTS), end=draw(_ENDS), asc=draw(st.booleans())
    ),
    "job.getDependencies": lambda _draw, _, job_id: job.GetDependencies(job=job_id),
    "job.getDependenciesCount": lambda _draw, _, job_id: job.GetDependenciesCount(job=job_id),
    "job.getChildrenValues": lambda _draw, _, job_id: job.GetChildrenValues(job=job_id),
    "job.getIgnoredChildrenFailures": lambda _draw, _, job_id: job.GetIgnoredChildrenFailures(job=job_id),
}
"""Calls that only ask about a job, by operation."""

HELD_JOB_CALLS: dict[str, HeldJobOpMaker] = {
    "worker.moveToCompleted": lambda draw, context, job, token: worker.MoveToCompleted(
        job=job, token=token, value_raw=_json(draw, context), fetch_next=draw(_FETCH)
    ),
    "worker.moveToFailed": lambda draw, _, job, token: worker.MoveToFailed(
        job=job,
        token=token,
        message=draw(_MESSAGES),
        unrecoverable=draw(_TWELVE) > 9,
        fetch_next=draw(_FETCH),
    ),
    "worker.moveToDelayed": lambda draw, context, job, token: worker.MoveToDelayed(
        job=job, token=token, timestamp=context.now_ms + draw(st.sampled_from((*context.words.later, *_PAST)))
    ),
    "worker.moveToWait": lambda _draw, _, job, token: worker.MoveToWait(job=job, token=token),
    "worker.moveToWaitingChildren": lambda _draw, _, job, token: worker.MoveToWaitingChildren(job=job, token=token),
    "worker.extendLock": lambda draw, _, job, token: worker.ExtendLock(
        job=job, token=token, duration_ms=draw(_DURATIONS)
    ),
}
"""Calls of a manual worker about one job, by operation: with the job and a lock token."""

JOB_OP_WEIGHTS = {"job.promote": 4, "job.retry": 4, "job.changePriority": 3, "job.changeDelay": 3, "job.remove": 2}
"""How often an operation is chosen, in relation to the others of its kind."""

FITTING_STATES: dict[str, tuple[str, ...]] = {
    "job.promote": ("delayed",),
    "job.changeDelay": ("delayed",),
    "job.changePriority": ("prioritized", "wait", "paused"),
    "job.retry": ("failed", "completed"),
    "job.removeChildDependency": ("wait", "delayed", "prioritized"),
    "job.removeUnprocessedChildren": ("waiting-children", "active"),
}
"""States in which an operation does something; it is mostly tried there, and now and then elsewhere."""


@st.composite
def changing(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """One change of one job."""
    return _about_a_job(draw, context, JOB_CHANGES)


@st.composite
def asking_about_a_job(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """One question about one job."""
    return _about_a_job(draw, context, JOB_QUESTIONS)


def _about_a_job(draw: st.DrawFn, context: GenerationContext, makers: dict[str, JobOpMaker]) -> list[Step]:
    declared = [name for name in makers if context.can(name)]
    if draw(_TEN) < 8:
        declared = [name for name in declared if _fits_somewhere(context, FITTING_STATES.get(name, ()))] or declared
    name = draw(st.sampled_from([name for name in declared for _ in range(JOB_OP_WEIGHTS.get(name, 1))]))
    where, job_id = _some_job(draw, context, FITTING_STATES.get(name, ()))
    return context.producer(draw, where, makers[name](draw, context, job_id))


def _fits_somewhere(context: GenerationContext, fitting: tuple[str, ...]) -> bool:
    return not fitting or any(context.queue(name).in_states(fitting) for name in (MAIN, OTHER))


def _some_job(draw: st.DrawFn, context: GenerationContext, fitting: tuple[str, ...]) -> tuple[str, str]:
    """A queue and a job: mostly one in a fitting state, rarely one that does not exist."""
    odd = draw(_TEN)
    for where in (MAIN, OTHER) if odd % 2 == 0 else (OTHER, MAIN):
        state = context.queue(where)
        jobs = (state.in_states(fitting) if odd < 8 else []) or list(state.jobs)
        if jobs and odd != 9:
            return where, context.one_of(draw, jobs)
    return MAIN, NO_SUCH_JOB


@st.composite
def claiming(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """Worker.getNextJob."""
    ready = [name for name in (MAIN, OTHER) if context.queue(name).in_states(FETCHED_CONTAINERS)]
    where = draw(st.sampled_from(ready)) if ready else context.any_queue(draw)
    return context.worker(draw, where, worker.GetNextJob(token=draw(_TOKENS)))


@st.composite
def completing(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """Job.moveToCompleted, mostly by the owner of the lock."""
    return _on_held(draw, context, "worker.moveToCompleted")


@st.composite
def failing(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """Job.moveToFailed: retried at once, delayed, or failed permanently, as its options say."""
    return _on_held(draw, context, "worker.moveToFailed")


@st.composite
def putting_back(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """moveToDelayed, moveToWait, moveToWaitingChildren."""
    name = draw(_PUT_BACK)
    return _on_held(draw, context, name if context.can(name) else "worker.moveToWaitingChildren")


@st.composite
def renewing(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """extendLock, extendLocks."""
    return _on_held(draw, context, "worker.extendLock") if draw(st.booleans()) else draw(renewing_all(context))


@st.composite
def renewing_all(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """Worker.extendLocks, of every active job of a queue."""
    where, job, token = _held(draw, context)
    tokens = context.queue(where).tokens
    jobs = [other for other in context.queue(where).in_states({"active"}) if other != job]
    renewed = [(job, token), *((other, tokens.get(other, TOKENS[0])) for other in jobs)]
    op = worker.ExtendLocks(
        jobs=[job for job, _ in renewed], tokens=[token for _, token in renewed], duration_ms=draw(_DURATIONS)
    )
    return context.worker(draw, where, op)


@st.composite
def checking_stalled(draw: st.DrawFn, context: GenerationContext) -> list[Step]:
    """The stalled check, alone or as a job is recovered: one check marks it, its lock expires, the next check finds it.

    The time between them also ends the throttle that the first check sets.
    """
    busy = [name for name in (MAIN, OTHER) if context.queue(name).in_states({"active"})]
    where = draw(st.sampled_from(busy)) if busy else context.any_queue(draw)
    first = context.worker(draw, where, worker.CheckStalled())
    if not context.frozen or draw(st.booleans()):
        return first
    return [*first, ClockStep(_LOCKS_END_MS), first[-1]]


def _on_held(draw: st.DrawFn, context: GenerationContext, name: str) -> list[Step]:
    where, job, token = _held(draw, context)
    return context.worker(draw, where, HELD_JOB_CALLS[name](draw, context, job, token))


def _held(draw: st.DrawFn, context: GenerationContext) -> tuple[str, str, str]:
    """A queue, a job and a token: mostly an active job and the token of its lock, now and then something wrong."""
    odd = draw(_TWELVE)
    where = next((name for name in (MAIN, OTHER) if context.queue(name).in_states({"active"})), MAIN)
    queue = context.queue(where)
    candidates = queue.in_states({"active"})
    if odd == 11 or not candidates:
        candidates = list(queue.jobs) or [NO_SUCH_JOB]
    job = candidates[draw(st.integers(0, len(candidates) - 1))]
    token = queue.tokens.get(job, TOKENS[0])
    return where, job, draw(_TOKENS) if odd == 10 else token
