"""Steps of manual workers: claiming, finishing, putting back, renewing locks, looking for stalled jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from conformance.driver.ops import Op, worker
from conformance.fuzz.scene import MAIN, OTHER, TOKENS, Scene
from conformance.fuzz.steps import ClockStep, Step
from conformance.fuzz.strategies.json_texts import json_texts

_TOKENS = st.sampled_from(TOKENS)
_RARELY = st.sampled_from(range(12))
_FETCH = st.sampled_from((False, False, True))
_MESSAGES = st.sampled_from(("boom", "", 'é\U0001f389 "quoted"\n', "x" * 300))
_DURATIONS = st.sampled_from((30_000, 60_000, 20_000))
_LATER = st.sampled_from((20_000, 0, 1, -1000))
_LOCKS_END_MS = 60_000
"""As long as the longest lock, and the longest time between two stalled checks."""
_PUT_BACK = st.sampled_from(("worker.moveToDelayed", "worker.moveToWait", "worker.moveToWaitingChildren"))

Maker = Callable[[st.DrawFn, Scene, str, str], Op[Any]]


def _value(draw: st.DrawFn, scene: Scene) -> str:
    return draw(json_texts(exact=scene.exact_data))


ON_A_HELD_JOB: dict[str, Maker] = {
    "worker.moveToCompleted": lambda draw, scene, job, token: worker.MoveToCompleted(
        job=job, token=token, value_raw=_value(draw, scene), fetch_next=draw(_FETCH)
    ),
    "worker.moveToFailed": lambda draw, _, job, token: worker.MoveToFailed(
        job=job,
        token=token,
        message=draw(_MESSAGES),
        unrecoverable=draw(_RARELY) > 9,
        fetch_next=draw(_FETCH),
    ),
    "worker.moveToDelayed": lambda draw, scene, job, token: worker.MoveToDelayed(
        job=job, token=token, timestamp=scene.now_ms + draw(_LATER)
    ),
    "worker.moveToWait": lambda _draw, _, job, token: worker.MoveToWait(job=job, token=token),
    "worker.moveToWaitingChildren": lambda _draw, _, job, token: worker.MoveToWaitingChildren(job=job, token=token),
    "worker.extendLock": lambda draw, _, job, token: worker.ExtendLock(
        job=job, token=token, duration_ms=draw(_DURATIONS)
    ),
}
"""Calls of a manual worker about one job, by operation: with the job and a lock token."""


@st.composite
def claiming(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """Worker.getNextJob."""
    ready = [name for name in (MAIN, OTHER) if scene.queue(name).in_states({"wait", "prioritized"})]
    where = draw(st.sampled_from(ready)) if ready else scene.any_queue(draw)
    return scene.worker(draw, where, worker.GetNextJob(token=draw(_TOKENS)))


@st.composite
def completing(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """Job.moveToCompleted, mostly by the owner of the lock."""
    return _on_held(draw, scene, "worker.moveToCompleted")


@st.composite
def failing(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """Job.moveToFailed: retried at once, delayed, or failed for good, as its options say."""
    return _on_held(draw, scene, "worker.moveToFailed")


@st.composite
def putting_back(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """moveToDelayed, moveToWait, moveToWaitingChildren."""
    name = draw(_PUT_BACK)
    return _on_held(draw, scene, name if scene.can(name) else "worker.moveToWaitingChildren")


@st.composite
def renewing(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """extendLock, extendLocks."""
    return _on_held(draw, scene, "worker.extendLock") if draw(st.booleans()) else draw(renewing_all(scene))


@st.composite
def renewing_all(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """Worker.extendLocks, of every active job of a queue."""
    where, job, token = _held(draw, scene)
    tokens = scene.queue(where).tokens
    jobs = [other for other in scene.queue(where).in_states({"active"}) if other != job]
    renewed = [(job, token), *((other, tokens.get(other, TOKENS[0])) for other in jobs)]
    op = worker.ExtendLocks(
        jobs=[each for each, _ in renewed], tokens=[each for _, each in renewed], duration_ms=draw(_DURATIONS)
    )
    return scene.worker(draw, where, op)


@st.composite
def checking_stalled(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """The stalled check, alone or as Redis needs it to recover a job: marked by one, lost by then, found by the next.

    The second check does something only when the first no longer throttles it.
    """
    busy = [name for name in (MAIN, OTHER) if scene.queue(name).in_states({"active"})]
    where = draw(st.sampled_from(busy)) if busy else scene.any_queue(draw)
    first = scene.worker(draw, where, worker.CheckStalled())
    if not scene.frozen or draw(st.booleans()):
        return first
    return [*first, ClockStep(_LOCKS_END_MS), first[-1]]


def _on_held(draw: st.DrawFn, scene: Scene, name: str) -> list[Step]:
    where, job, token = _held(draw, scene)
    return scene.worker(draw, where, ON_A_HELD_JOB[name](draw, scene, job, token))


def _held(draw: st.DrawFn, scene: Scene) -> tuple[str, str, str]:
    """A queue, a job and a token: mostly an active job and the token of its lock, now and then something wrong."""
    odd = draw(_RARELY)
    where = next((name for name in (MAIN, OTHER) if scene.queue(name).in_states({"active"})), MAIN)
    queue = scene.queue(where)
    candidates = queue.in_states({"active"})
    if odd == 11 or not candidates:
        candidates = list(queue.jobs) or ["no-such-job"]
    job = candidates[draw(st.integers(0, len(candidates) - 1))]
    token = queue.tokens.get(job, TOKENS[0])
    return where, job, draw(_TOKENS) if odd == 10 else token
