"""Steps that change or ask about one job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from conformance.driver.ops import Op, job, queue
from conformance.fuzz.scene import MAIN, OTHER, Scene
from conformance.fuzz.steps import Step
from conformance.fuzz.strategies.json_texts import json_texts

Maker = Callable[[st.DrawFn, Scene, str], Op[Any]]

ROWS = ("row", "", "é\U0001f389")
_ROWS = st.sampled_from(ROWS)
_KEEP = st.sampled_from((None, None, 1, 2, 0))
_DELAYS = st.sampled_from((20_000, 0, 60_000))
_PRIORITIES = st.sampled_from((1, 0, 2, 5, 2_097_152))
_FINISHED = st.sampled_from(("failed", "completed"))
_RARELY = st.sampled_from(range(10))
_STARTS, _ENDS = st.sampled_from((0, 1, -2)), st.sampled_from((-1, 0, 1, 5))


def _data(draw: st.DrawFn, scene: Scene) -> str:
    return draw(json_texts(exact=scene.exact_data))


def _retry(draw: st.DrawFn, scene: Scene, one: str) -> Op[Any]:
    """Mostly from the state that the job is in."""
    state = next((name.state_of(one) for name in map(scene.queue, (MAIN, OTHER)) if one in name.jobs), "")
    chosen = state if state in {"failed", "completed"} and draw(_RARELY) < 9 else draw(_FINISHED)
    return job.Retry(job=one, state=chosen)  # type: ignore[arg-type]


CHANGES: dict[str, Maker] = {
    "job.updateData": lambda draw, scene, one: job.UpdateData(job=one, data_raw=_data(draw, scene)),
    "job.updateProgress": lambda draw, scene, one: job.UpdateProgress(job=one, value_raw=_data(draw, scene)),
    "job.log": lambda draw, _, one: job.Log(job=one, row=draw(_ROWS), keep_logs=draw(_KEEP)),
    "job.clearLogs": lambda draw, _, one: job.ClearLogs(job=one, keep_logs=draw(_KEEP)),
    "job.promote": lambda _draw, _, one: job.Promote(job=one),
    "job.changeDelay": lambda draw, _, one: job.ChangeDelay(job=one, delay_ms=draw(_DELAYS)),
    "job.changePriority": lambda draw, _, one: job.ChangePriority(
        job=one, priority=draw(_PRIORITIES), lifo=draw(st.booleans())
    ),
    "job.retry": _retry,
    "job.remove": lambda draw, _, one: job.RemoveJob(job=one, remove_children=draw(_RARELY) < 7),
    "queue.remove": lambda draw, _, one: queue.Remove(job=one, remove_children=draw(_RARELY) < 7),
    "job.removeChildDependency": lambda _draw, _, one: job.RemoveChildDependency(job=one),
    "job.removeUnprocessedChildren": lambda _draw, _, one: job.RemoveUnprocessedChildren(job=one),
}
"""Calls that may change a job, by operation."""

QUESTIONS: dict[str, Maker] = {
    "queue.getJob": lambda _draw, _, one: queue.GetJob(job=one),
    "job.getState": lambda _draw, _, one: job.GetState(job=one),
    "queue.getJobState": lambda _draw, _, one: queue.GetJobState(job=one),
    "job.isFinished": lambda _draw, _, one: job.IsFinished(job=one),
    "queue.getJobLogs": lambda draw, _, one: queue.GetJobLogs(
        job=one, start=draw(_STARTS), end=draw(_ENDS), asc=draw(st.booleans())
    ),
    "job.getDependencies": lambda _draw, _, one: job.GetDependencies(job=one),
    "job.getDependenciesCount": lambda _draw, _, one: job.GetDependenciesCount(job=one),
    "job.getChildrenValues": lambda _draw, _, one: job.GetChildrenValues(job=one),
    "job.getIgnoredChildrenFailures": lambda _draw, _, one: job.GetIgnoredChildrenFailures(job=one),
}
"""Calls that only ask about a job, by operation."""


OFTEN = {"job.promote": 4, "job.retry": 4, "job.changePriority": 3, "job.changeDelay": 3, "job.remove": 2}
"""How often an operation is chosen, in relation to the others of its kind."""

FITTING: dict[str, tuple[str, ...]] = {
    "job.promote": ("delayed",),
    "job.changeDelay": ("delayed",),
    "job.changePriority": ("prioritized", "wait", "paused"),
    "job.retry": ("failed", "completed"),
    "job.removeChildDependency": ("wait", "delayed", "prioritized"),
    "job.removeUnprocessedChildren": ("waiting-children", "active"),
}
"""States in which an operation does something; it is mostly tried there, and now and then elsewhere."""


@st.composite
def changing(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """One change of one job."""
    return _about_a_job(draw, scene, CHANGES)


@st.composite
def asking_about_a_job(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """One question about one job."""
    return _about_a_job(draw, scene, QUESTIONS)


def _about_a_job(draw: st.DrawFn, scene: Scene, makers: dict[str, Maker]) -> list[Step]:
    declared = [name for name in makers if scene.can(name)]
    if draw(_RARELY) < 8:
        declared = [name for name in declared if _fits_somewhere(scene, FITTING.get(name, ()))] or declared
    name = draw(st.sampled_from([name for name in declared for _ in range(OFTEN.get(name, 1))]))
    where, one = _some_job(draw, scene, FITTING.get(name, ()))
    return scene.producer(draw, where, makers[name](draw, scene, one))


def _fits_somewhere(scene: Scene, fitting: tuple[str, ...]) -> bool:
    return not fitting or any(scene.queue(name).in_states(fitting) for name in (MAIN, OTHER))


def _some_job(draw: st.DrawFn, scene: Scene, fitting: tuple[str, ...]) -> tuple[str, str]:
    """A queue and a job: mostly one in a fitting state, rarely one that does not exist."""
    odd = draw(_RARELY)
    for where in (MAIN, OTHER) if odd % 2 == 0 else (OTHER, MAIN):
        world = scene.queue(where)
        jobs = (world.in_states(fitting) if odd < 8 else []) or list(world.jobs)
        if jobs and odd != 9:
            return where, jobs[draw(st.integers(0, len(jobs) - 1))]
    return MAIN, "no-such-job"
