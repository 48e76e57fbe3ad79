"""Steps of manual workers: claiming, finishing, putting back, renewing locks, looking for stalled jobs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from conformance.driver.ops import Op, worker
from conformance.fuzz.scene import TOKENS, Scene
from conformance.fuzz.steps import Step
from conformance.fuzz.strategies.json_texts import json_texts

_TOKENS = st.sampled_from(TOKENS)
_RARELY = st.sampled_from(range(12))
_FETCH = st.sampled_from((False, False, True))
_MESSAGES = st.sampled_from(("boom", "", 'é\U0001f389 "quoted"\n', "x" * 300))
_DURATIONS = st.sampled_from((30_000, 60_000, 20_000))
_LATER = st.sampled_from((20_000, 0, 1, -1000))
_PUT_BACK = st.sampled_from(("delay", "wait", "children"))


@st.composite
def claiming(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """Worker.getNextJob."""
    ready = [name for name in ("q", "r") if scene.queue(name).in_states({"wait", "prioritized"})]
    where = draw(st.sampled_from(ready)) if ready else scene.any_queue(draw)
    return scene.worker(draw, where, worker.GetNextJob(token=draw(_TOKENS)))


@st.composite
def completing(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """Job.moveToCompleted, mostly by the owner of the lock."""
    where, job, token = _held(draw, scene)
    value = draw(json_texts(exact=scene.exact_data))
    op = worker.MoveToCompleted(job=job, token=token, value_raw=value, fetch_next=draw(_FETCH))
    return scene.worker(draw, where, op)


@st.composite
def failing(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """Job.moveToFailed: retried at once, delayed, or failed for good, as its options say."""
    where, job, token = _held(draw, scene)
    op = worker.MoveToFailed(
        job=job,
        token=token,
        message=draw(_MESSAGES),
        unrecoverable=draw(_RARELY) > 9,
        fetch_next=draw(_FETCH),
    )
    return scene.worker(draw, where, op)


@st.composite
def putting_back(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """moveToDelayed, moveToWait, moveToWaitingChildren."""
    where, job, token = _held(draw, scene)
    choices: dict[str, Op[Any]] = {
        "delay": worker.MoveToDelayed(job=job, token=token, timestamp=scene.now_ms + draw(_LATER)),
        "wait": worker.MoveToWait(job=job, token=token),
        "children": worker.MoveToWaitingChildren(job=job, token=token),
    }
    op = choices[draw(_PUT_BACK)]
    return scene.worker(draw, where, op if scene.can(type(op).op) else choices["children"])


@st.composite
def renewing(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """extendLock, extendLocks."""
    where, job, token = _held(draw, scene)
    duration = draw(_DURATIONS)
    if draw(st.booleans()):
        return scene.worker(draw, where, worker.ExtendLock(job=job, token=token, duration_ms=duration))
    tokens = scene.queue(where).tokens
    jobs = [other for other in scene.queue(where).in_states({"active"}) if other != job]
    renewed = [(job, token), *((other, tokens.get(other, TOKENS[0])) for other in jobs)]
    op = worker.ExtendLocks(
        jobs=[each for each, _ in renewed], tokens=[each for _, each in renewed], duration_ms=duration
    )
    return scene.worker(draw, where, op)


@st.composite
def checking_stalled(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """The stalled check; it does nothing while the one before still throttles it."""
    return scene.worker(draw, scene.any_queue(draw), worker.CheckStalled())


def _held(draw: st.DrawFn, scene: Scene) -> tuple[str, str, str]:
    """A queue, a job and a token: mostly an active job and the token of its lock, now and then something wrong."""
    odd = draw(_RARELY)
    where = next((name for name in ("q", "r") if scene.queue(name).in_states({"active"})), "q")
    queue = scene.queue(where)
    candidates = queue.in_states({"active"})
    if odd == 11 or not candidates:
        candidates = list(queue.jobs) or ["no-such-job"]
    job = candidates[draw(st.integers(0, len(candidates) - 1))]
    token = queue.tokens.get(job, TOKENS[0])
    return where, job, draw(_TOKENS) if odd == 10 else token
