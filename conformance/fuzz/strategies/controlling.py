"""Steps about a whole queue: control, maintenance, limits, deduplication keys, schedulers, questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from conformance.driver.ops import Op, flow, queue, worker
from conformance.fuzz.scene import MAIN, Scene
from conformance.fuzz.steps import ClockStep, FaultStep, Step
from conformance.fuzz.strategies.options import DEDUPLICATION_IDS

Maker = Callable[[st.DrawFn], Op[Any]]

_COUNTS = st.sampled_from((1000, 1, 2))
_DEDUP_IDS = st.sampled_from(DEDUPLICATION_IDS)
_SCHEDULER_IDS = st.sampled_from(("s1", "s2", "no-such"))
_LIMITS = st.sampled_from((20_000, 60_000))
_TYPES = ("waiting", "active", "delayed", "prioritized", "completed", "failed", "waiting-children", "paused", "wait")
_TYPE_LISTS = st.sampled_from((*((one,) for one in _TYPES), ("waiting", "delayed"), ("completed", "failed"), _TYPES))
_CLEANED: st.SearchStrategy[Any] = st.sampled_from(
    ("completed", "failed", "delayed", "wait", "active", "paused", "prioritized")
)
_STARTS, _ENDS = st.sampled_from((0, 1, -2)), st.sampled_from((-1, 0, 1, 5))
_FLAGS = st.booleans()
_DEPTHS = st.sampled_from((10, 1, 2))

CONTROLS: dict[str, Maker] = {
    "queue.pause": lambda _: queue.Pause(),
    "queue.resume": lambda _: queue.Resume(),
    "queue.setGlobalConcurrency": lambda draw: queue.SetGlobalConcurrency(concurrency=draw(st.sampled_from((1, 2)))),
    "queue.removeGlobalConcurrency": lambda _: queue.RemoveGlobalConcurrency(),
    "queue.setGlobalRateLimit": lambda draw: queue.SetGlobalRateLimit(
        max=draw(st.sampled_from((1, 2))), duration_ms=draw(_LIMITS)
    ),
    "queue.removeGlobalRateLimit": lambda _: queue.RemoveGlobalRateLimit(),
    "queue.rateLimit": lambda draw: queue.SetRateLimit(expire_ms=draw(_LIMITS)),
    "queue.removeRateLimitKey": lambda _: queue.RemoveRateLimitKey(),
    "queue.removeDeduplicationKey": lambda draw: queue.RemoveDeduplicationKey(id=draw(_DEDUP_IDS)),
    "queue.removeJobScheduler": lambda draw: flow.RemoveJobScheduler(id=draw(_SCHEDULER_IDS)),
}
"""Calls that change how a queue works, by operation."""

MAINTENANCE: dict[str, Maker] = {
    "queue.drain": lambda draw: queue.Drain(delayed=draw(_FLAGS)),
    "queue.clean": lambda draw: queue.Clean(
        grace_ms=draw(st.sampled_from((0, 20_000, 1))), limit=draw(st.sampled_from((0, 1, 2))), type=draw(_CLEANED)
    ),
    "queue.retryJobs": lambda draw: queue.RetryJobs(
        count=draw(_COUNTS),
        state=draw(st.sampled_from(("failed", "completed"))),
        timestamp=draw(st.sampled_from((None, None, 1_700_000_010_000))),
    ),
    "queue.promoteJobs": lambda draw: queue.PromoteJobs(count=draw(_COUNTS)),
    "queue.trimEvents": lambda draw: queue.TrimEvents(max_length=draw(st.sampled_from((0, 1, 5)))),
    "queue.obliterate": lambda draw: queue.Obliterate(force=draw(_FLAGS)),
}
"""Calls that change many jobs at once, by operation."""

QUESTIONS: dict[str, Maker] = {
    "queue.getJobs": lambda draw: queue.GetJobs(
        types=list(draw(_TYPE_LISTS)), start=draw(_STARTS), end=draw(_ENDS), asc=draw(_FLAGS)
    ),
    "queue.getJobCounts": lambda draw: queue.GetJobCounts(types=list(draw(_TYPE_LISTS))),
    "queue.getJobCountByTypes": lambda draw: queue.GetJobCountByTypes(types=list(draw(_TYPE_LISTS))),
    "queue.count": lambda _: queue.CountPending(),
    "queue.getCountsPerPriority": lambda _: queue.GetCountsPerPriority(priorities=[0, 1, 2]),
    "queue.isPaused": lambda _: queue.IsPaused(),
    "queue.isMaxed": lambda _: queue.IsMaxed(),
    "queue.getGlobalConcurrency": lambda _: queue.GetGlobalConcurrency(),
    "queue.getGlobalRateLimit": lambda _: queue.GetGlobalRateLimit(),
    "queue.getRateLimitTtl": lambda draw: queue.GetRateLimitTtl(max_jobs=draw(st.sampled_from((None, 1, 2)))),
    "queue.getMetrics": lambda draw: queue.GetMetrics(type=draw(st.sampled_from(("completed", "failed")))),
    "queue.getDeduplicationJobId": lambda draw: queue.GetDeduplicationJobId(id=draw(_DEDUP_IDS)),
    "queue.getJobScheduler": lambda draw: flow.GetJobScheduler(id=draw(_SCHEDULER_IDS)),
    "queue.getJobSchedulers": lambda draw: flow.GetJobSchedulers(asc=draw(_FLAGS)),
    "queue.getJobSchedulersCount": lambda _: flow.GetJobSchedulersCount(),
    "queue.getVersion": lambda _: queue.GetVersion(),
}
"""Calls that only ask about a queue, by operation."""

OFTEN = {"queue.pause": 4, "queue.resume": 3, "queue.getJobs": 3, "queue.clean": 2, "queue.retryJobs": 2}
"""How often an operation is chosen, in relation to the others of its kind."""

_JUMPS = st.sampled_from((20_000, 30_000, 10_000, 1000, 1, 60_000))
"""How far the clock goes (ms). What Redis itself lets expire is set to multiples of 10 s, so that the moments which
really pass meanwhile never decide."""
_FAULTS = st.sampled_from(range(40))


@st.composite
def controlling(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """One change of how a queue works."""
    return _on_a_queue(draw, scene, CONTROLS)


@st.composite
def maintaining(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """One change of many jobs."""
    return _on_a_queue(draw, scene, MAINTENANCE)


@st.composite
def asking_about_a_queue(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """One question about a queue, or about a flow."""
    parents = scene.queue(MAIN).parents
    if parents and scene.can("flow.getFlow") and draw(st.sampled_from(range(8))) == 7:
        return draw(asking_about_a_flow(scene))
    return _on_a_queue(draw, scene, QUESTIONS)


@st.composite
def asking_about_a_flow(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """FlowProducer.getFlow."""
    parent = next(iter(scene.queue(MAIN).parents), "no-such-job")
    return scene.flow(draw, flow.GetFlow(job=parent, queue=MAIN, depth=draw(_DEPTHS)))


@st.composite
def limiting(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """Worker.rateLimit."""
    return scene.worker(draw, MAIN, worker.WorkerRateLimit(expire_ms=draw(_LIMITS)))


@st.composite
def passing_time(draw: st.DrawFn, _scene: Scene) -> list[Step]:
    """A step of the clock."""
    return [ClockStep(draw(_JUMPS))]


@st.composite
def disturbing(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """A fault: a lock that expires, forgotten scripts, or, because it takes a second, rarely a cut connection.

    Where a flow producer is open, scripts are not forgotten: Node's then loses flows without a word (protocol, 8).
    """
    number = draw(_FAULTS)
    locked = list(scene.queue(MAIN).tokens) or ["no-such-job"]
    if scene.breaks_redis and number == 39:
        return [FaultStep("disconnect")]
    if scene.breaks_redis and number > 29 and "flow" not in scene.opened:
        return [FaultStep("script-flush")]
    return [FaultStep("delete-lock", MAIN, locked[draw(st.integers(0, len(locked) - 1))])]


@st.composite
def waking(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """An idle worker takes the markers; from now on, whoever brings work has to leave a new one."""
    return [FaultStep("wake", scene.any_queue(draw))]


def _on_a_queue(draw: st.DrawFn, scene: Scene, makers: dict[str, Maker]) -> list[Step]:
    declared = [name for name in makers if scene.can(name)]
    op = makers[draw(st.sampled_from([name for name in declared for _ in range(OFTEN.get(name, 1))]))](draw)
    return scene.producer(draw, scene.any_queue(draw), op)
