"""Which kinds of steps there are, how often each comes, and when it makes sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from conformance.fuzz.scene import MAIN, OTHER, Scene
from conformance.fuzz.steps import Step
from conformance.fuzz.strategies import breaking, controlling, editing, exploring, producing, working

WAITING = frozenset({"wait", "paused", "prioritized", "delayed"})
"""States out of which a worker may get a job, now or when the queue is resumed or the time has come."""

ENOUGH_JOBS = 6

Steps = st.SearchStrategy[list[Step]]


def always(_: Scene) -> bool:
    """It can come at any time."""
    return True


def has_jobs(scene: Scene) -> bool:
    """There is a job."""
    return any(scene.queue(name).jobs for name in (MAIN, OTHER))


def has_work(scene: Scene) -> bool:
    """A worker that asks may get something."""
    return any(scene.queue(name).in_states(WAITING) for name in (MAIN, OTHER))


def has_room(scene: Scene) -> bool:
    """Few jobs wait: in short queues, each job gets through more of its states, and every look is quicker."""
    return sum(len(scene.queue(name).in_states(WAITING)) for name in (MAIN, OTHER)) < ENOUGH_JOBS


def has_active(scene: Scene) -> bool:
    """A worker is at a job."""
    return any(scene.queue(name).in_states({"active"}) for name in (MAIN, OTHER))


def has_goals(scene: Scene) -> bool:
    """Something has not been tried yet."""
    return bool(scene.goals())


@dataclass(frozen=True)
class Family:
    """Steps of one kind. `weight`: how often it comes, compared with others. `ops`: one of them must be declared."""

    name: str
    make: Callable[[Scene], Steps]
    weight: int
    fits: Callable[[Scene], bool]
    ops: tuple[str, ...] = ()

    def possible(self, scene: Scene) -> bool:
        """Whether it can come now."""
        return (not self.ops or any(map(scene.can, self.ops))) and self.fits(scene)


FAMILIES: tuple[Family, ...] = (
    Family("add", producing.adding, 5, has_room, ("queue.add",)),
    Family("claim", working.claiming, 7, has_work, ("worker.getNextJob",)),
    Family("complete", working.completing, 5, has_active, ("worker.moveToCompleted",)),
    Family("fail", working.failing, 6, has_active, ("worker.moveToFailed",)),
    Family("change", editing.changing, 6, has_jobs, tuple(editing.CHANGES)),
    Family("control", controlling.controlling, 3, always, tuple(controlling.CONTROLS)),
    Family("add-bulk", producing.adding_bulk, 2, has_room, ("queue.addBulk",)),
    Family("add-flow", producing.adding_flow, 2, has_room, ("flow.add",)),
    Family("schedule", producing.scheduling, 1, always, ("queue.upsertJobScheduler",)),
    Family("put-back", working.putting_back, 2, has_active, ("worker.moveToWaitingChildren",)),
    Family("renew", working.renewing, 1, has_active, ("worker.extendLock",)),
    Family("check-stalled", working.checking_stalled, 3, has_active, ("worker.checkStalled",)),
    Family("maintain", controlling.maintaining, 2, has_jobs, tuple(controlling.MAINTENANCE)),
    Family("ask-about-job", editing.asking_about_a_job, 3, has_jobs, tuple(editing.QUESTIONS)),
    Family("ask-about-queue", controlling.asking_about_a_queue, 2, always, tuple(controlling.QUESTIONS)),
    Family("limit", controlling.limiting, 1, has_jobs, ("worker.rateLimit",)),
    Family("pass-time", controlling.passing_time, 2, lambda scene: scene.frozen),
    Family("wake", controlling.waking, 2, always),
    Family("disturb", controlling.disturbing, 1, has_active),
    Family("cut", breaking.breaking, 1, lambda scene: scene.cuts and has_jobs(scene)),
    Family("explore", exploring.exploring, 40, has_goals, ("queue.add",)),
)
"""The simplest first, because shrinking goes that way."""

BY_NAME = {family.name: family for family in FAMILIES}

MOODS: dict[str, tuple[str, ...]] = {
    "all": (),
    "pauses": ("control", "add", "add-bulk", "change", "maintain"),
    "delays": ("add", "change", "wake", "pass-time", "claim", "put-back"),
    "work": ("add", "claim", "complete", "fail", "put-back", "pass-time"),
    "families": ("add-flow", "claim", "complete", "fail", "put-back", "change"),
    "schedules": ("schedule", "claim", "complete", "fail", "pass-time", "control"),
    "losses": ("add", "claim", "disturb", "cut", "check-stalled", "renew", "pass-time", "fail"),
    "repairs": ("add-bulk", "claim", "fail", "complete", "maintain", "change", "ask-about-job"),
}
"""What a sequence is mostly about: these families come more often in it."""
EMPHASIS = 3


def families_for(scene: Scene, mood: str) -> tuple[Family, ...]:
    """What may come next; a family stands there as often as it should come."""
    often = MOODS[mood]
    return tuple(
        family
        for family in FAMILIES
        if family.possible(scene)
        for _ in range(family.weight * (EMPHASIS if family.name in often else 1))
    )


def next_steps(draw: st.DrawFn, scene: Scene, mood: str) -> list[Step]:
    """The next steps: a call, and before it the making of the client object if there is none yet."""
    family: Family = draw(st.sampled_from(families_for(scene, mood)))
    steps: list[Step] = draw(family.make(scene))
    return steps
