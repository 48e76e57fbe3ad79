"""Steps towards a pair of operation and state that the run has not tried yet, or that pair itself.

A job is led into the state step by step, as the world stands when each step is drawn: what other steps did meanwhile
helps or hinders, and the next step makes the best of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from conformance.driver.ops import Op, queue, worker
from conformance.fuzz.coverage import JOB_OPS, RUNNING
from conformance.fuzz.scene import MAIN, TOKENS, Pair, Scene
from conformance.fuzz.steps import CallStep, ClockStep, FaultStep, Step
from conformance.fuzz.strategies import controlling, editing, producing, working
from conformance.fuzz.world import MISSING

Towards = Callable[[st.DrawFn, Scene], list[Step]]

NOBODY = "no-such-job"
LONG_MS = 60_000
"""Longer than any rate limit: afterwards a worker gets a job again."""
_RARELY = st.sampled_from(range(5))

WHOLE: dict[str, Callable[[Scene], st.SearchStrategy[list[Step]]]] = {
    "queue.add": producing.adding,
    "queue.addBulk": producing.adding_bulk,
    "queue.upsertJobScheduler": producing.scheduling,
    "flow.add": producing.adding_flow,
    "flow.addBulk": producing.adding_flows,
    "flow.getFlow": controlling.asking_about_a_flow,
    "worker.getNextJob": working.claiming,
    "worker.checkStalled": working.checking_stalled,
    "worker.extendLocks": working.renewing_all,
    "worker.rateLimit": controlling.limiting,
}
"""Operations on a queue as a whole that have a strategy of their own."""


@st.composite
def exploring(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """One step: the pair where its state is there, else what leads to it.

    Before the pair, idle workers now and then take the markers: if the call brings work, it has to leave a new one.
    """
    goals = scene.goals()
    aimed = [pair for pair in goals if scene.aim and _same_state(pair, scene.aim)] or goals
    at_hand = [pair for pair in aimed if _at_hand(scene, pair)]
    pair: Pair = draw(st.sampled_from(at_hand or aimed))
    if not at_hand:
        return _towards(draw, scene, pair)
    asleep: list[Step] = [FaultStep("wake", MAIN)] if draw(_RARELY) > 2 else []
    return [*asleep, *_tried(draw, scene, pair)]


def _same_state(one: Pair, other: Pair) -> bool:
    return one[1] == other[1] and (one[0] in JOB_OPS) == (other[0] in JOB_OPS)


def _at_hand(scene: Scene, pair: Pair) -> bool:
    """Whether a job is in this state now, or the queue."""
    op, state = pair
    main = scene.queue(MAIN)
    if op not in JOB_OPS:
        return main.paused != (state == RUNNING)
    return state == MISSING or bool(main.in_states({state}))


def _tried(draw: st.DrawFn, scene: Scene, pair: Pair) -> list[Step]:
    """The call itself."""
    op, state = pair
    if op in WHOLE:
        steps: list[Step] = draw(WHOLE[op](scene))
        return steps
    whole = {**controlling.CONTROLS, **controlling.MAINTENANCE, **controlling.QUESTIONS}
    if op in whole:
        return scene.producer(draw, MAIN, whole[op](draw))
    job = draw(st.sampled_from(scene.queue(MAIN).in_states({state}) or [NOBODY]))
    if op in working.ON_A_HELD_JOB:
        token = scene.queue(MAIN).tokens.get(job, TOKENS[0])
        return scene.worker(draw, MAIN, working.ON_A_HELD_JOB[op](draw, scene, job, token))
    return scene.producer(draw, MAIN, {**editing.CHANGES, **editing.QUESTIONS}[op](draw, scene, job))


def _towards(draw: st.DrawFn, scene: Scene, pair: Pair) -> list[Step]:
    """What brings a job, or the queue, nearer to the state; another job where that takes a call that is left out."""
    op, state = pair
    whole = _running if state == RUNNING else _paused
    steps = (TOWARDS[state] if op in JOB_OPS else whole)(draw, scene)
    possible = all(step.opens or scene.can(step.name) for step in steps if isinstance(step, CallStep))
    return steps if possible else _added(draw, scene)


def _on_main(draw: st.DrawFn, scene: Scene, op: Op[Any]) -> list[Step]:
    return scene.producer(draw, MAIN, op)


def _added(draw: st.DrawFn, scene: Scene, **opts: Any) -> list[Step]:
    return _on_main(draw, scene, queue.Add(name="job", opts=opts))


def _running(draw: st.DrawFn, scene: Scene) -> list[Step]:
    return _on_main(draw, scene, queue.Resume())


def _paused(draw: st.DrawFn, scene: Scene) -> list[Step]:
    return _on_main(draw, scene, queue.Pause())


def _waiting(draw: st.DrawFn, scene: Scene) -> list[Step]:
    return _running(draw, scene) if scene.queue(MAIN).paused else _added(draw, scene)


def _waiting_paused(draw: st.DrawFn, scene: Scene) -> list[Step]:
    return _added(draw, scene) if scene.queue(MAIN).paused else _paused(draw, scene)


def _active(draw: st.DrawFn, scene: Scene) -> list[Step]:
    """A claim gets nothing while a limit holds: then the clock goes on, or the limit on concurrency goes away."""
    main = scene.queue(MAIN)
    if main.paused or not main.in_states({"wait", "prioritized"}):
        return _waiting(draw, scene)
    hindrance = draw(_RARELY)
    if hindrance == 4 and scene.frozen:
        return [ClockStep(LONG_MS)]
    if hindrance == 3 and scene.can("queue.removeGlobalConcurrency"):
        return _on_main(draw, scene, queue.RemoveGlobalConcurrency())
    return scene.worker(draw, MAIN, worker.GetNextJob(token=TOKENS[0]))


def _finished(op: type[Op[Any]], **arguments: Any) -> Towards:
    """Towards a state that a worker puts the jobs into that it holds."""

    def towards(draw: st.DrawFn, scene: Scene) -> list[Step]:
        main = scene.queue(MAIN)
        held = [job for job in main.in_states({"active"}) if job in main.tokens]
        if not held:
            return _active(draw, scene)
        return scene.worker(draw, MAIN, op(job=held[0], token=main.tokens[held[0]], **arguments))

    return towards


TOWARDS: dict[str, Towards] = {
    "wait": _waiting,
    "paused": _waiting_paused,
    "prioritized": lambda draw, scene: _added(draw, scene, priority=1),
    "delayed": lambda draw, scene: _added(draw, scene, delay=LONG_MS),
    "active": _active,
    "completed": _finished(worker.MoveToCompleted),
    "failed": _finished(worker.MoveToFailed, message="boom", unrecoverable=True),
    "waiting-children": lambda draw, scene: draw(producing.adding_parent(scene)),
}
"""The next step towards a job in each state. A job that does not exist needs none."""
