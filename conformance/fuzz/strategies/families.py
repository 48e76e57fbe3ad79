"""Which kinds of steps there are, how often each comes, and when it makes sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from conformance.fuzz.strategies import crossings, disturbances, exploring, job_steps, parents, queue_steps, schedules
from conformance.fuzz.strategies.context import MAIN, OTHER, GenerationContext
from conformance.protocol.keys import DELAYED
from conformance.protocol.states import WAITING_CONTAINERS
from conformance.steps.shapes import Step

Steps = st.SearchStrategy[list[Step]]

WAITING = frozenset({*WAITING_CONTAINERS, DELAYED})
"""States from which a worker may get a job, now or after a resume or a delay."""

ENOUGH_JOBS = 6


def always(_: GenerationContext) -> bool:
    """It can come at any time."""
    return True


def has_jobs(context: GenerationContext) -> bool:
    """There is a job."""
    return any(context.queue(name).jobs for name in (MAIN, OTHER))


def has_work(context: GenerationContext) -> bool:
    """A worker that asks may get something."""
    return any(context.queue(name).in_states(WAITING) for name in (MAIN, OTHER))


def has_room(context: GenerationContext) -> bool:
    """Few jobs wait: in short queues, each job gets through more of its states, and comparisons are quicker."""
    return sum(len(context.queue(name).in_states(WAITING)) for name in (MAIN, OTHER)) < ENOUGH_JOBS


def has_active(context: GenerationContext) -> bool:
    """A job is active."""
    return any(context.queue(name).in_states({"active"}) for name in (MAIN, OTHER))


def is_old(context: GenerationContext) -> bool:
    """The queues have been used for years."""
    return context.words.attempts_made > 0


def keeps_last(context: GenerationContext) -> bool:
    """The oracle knows `keepLastIfActive`."""
    return context.keeps_last


def is_odd(context: GenerationContext) -> bool:
    """The texts of the sequence look like syntax."""
    return context.words.named


def has_schedulers(context: GenerationContext) -> bool:
    """There is a scheduler."""
    return bool(context.queue(MAIN).schedulers)


def has_refused_none(context: GenerationContext) -> bool:
    """No queue or worker was refused yet in this sequence."""
    return queue_steps.REFUSED not in context.opened


def has_goals(context: GenerationContext) -> bool:
    """Something has not been tried yet."""
    return bool(context.goals())


@dataclass(frozen=True)
class StepFamily:
    """Steps of one kind. `weight`: how often it comes, compared with others. `ops`: one of them must be declared."""

    name: str
    make: Callable[[GenerationContext], Steps]
    weight: int
    fits: Callable[[GenerationContext], bool]
    ops: tuple[str, ...] = ()

    def possible(self, context: GenerationContext) -> bool:
        """Whether it can come now."""
        return (not self.ops or any(map(context.can, self.ops))) and self.fits(context)


FAMILIES: tuple[StepFamily, ...] = (
    StepFamily("add", queue_steps.adding, 5, has_room, ("queue.add",)),
    StepFamily("claim", job_steps.claiming, 7, has_work, ("worker.getNextJob",)),
    StepFamily("complete", job_steps.completing, 5, has_active, ("worker.moveToCompleted",)),
    StepFamily("fail", job_steps.failing, 6, has_active, ("worker.moveToFailed",)),
    StepFamily("change", job_steps.changing, 6, has_jobs, tuple(job_steps.JOB_CHANGES)),
    StepFamily("control", queue_steps.controlling, 3, always, tuple(queue_steps.QUEUE_CONTROLS)),
    StepFamily("add-bulk", queue_steps.adding_bulk, 2, has_room, ("queue.addBulk",)),
    StepFamily("add-flow", queue_steps.adding_flow, 2, has_room, ("flow.add",)),
    StepFamily("schedule", queue_steps.scheduling, 3, always, ("queue.upsertJobScheduler",)),
    StepFamily("reschedule", schedules.rescheduling, 12, has_schedulers, ("worker.getNextJob",)),
    StepFamily("put-back", job_steps.putting_back, 2, has_active, ("worker.moveToWaitingChildren",)),
    StepFamily("renew", job_steps.renewing, 1, has_active, ("worker.extendLock",)),
    StepFamily("check-stalled", job_steps.checking_stalled, 3, has_active, ("worker.checkStalled",)),
    StepFamily("maintain", queue_steps.maintaining, 2, has_jobs, tuple(queue_steps.QUEUE_MAINTENANCE)),
    StepFamily("ask-about-job", job_steps.asking_about_a_job, 3, has_jobs, tuple(job_steps.JOB_QUESTIONS)),
    StepFamily("ask-about-queue", queue_steps.asking_about_a_queue, 2, always, tuple(queue_steps.QUEUE_QUESTIONS)),
    StepFamily("limit", queue_steps.limiting, 1, has_jobs, ("worker.rateLimit",)),
    StepFamily("cross", crossings.crossing, 4, has_room, ("queue.pause",)),
    StepFamily("refused-object", queue_steps.refused_object, 1, has_refused_none),
    StepFamily("end-child", parents.ending_a_child, 14, has_room, ("worker.moveToFailed",)),
    StepFamily("pass-time", disturbances.passing_time, 2, lambda context: context.frozen),
    StepFamily("wake", disturbances.waking, 2, always),
    StepFamily("disturb", disturbances.disturbing, 1, has_active),
    StepFamily("cut", disturbances.cutting_a_call, 1, lambda context: context.cuts and has_jobs(context)),
    StepFamily("come-back", disturbances.coming_back, 4, is_old, ("worker.moveToFailed",)),
    StepFamily("keep-last", crossings.keeping_the_last, 3, keeps_last, ("worker.moveToCompleted",)),
    StepFamily("odd-texts", crossings.odd_texts, 6, is_odd, tuple(job_steps.JOB_CHANGES)),
    StepFamily("explore", exploring.exploring, 40, has_goals, ("queue.add",)),
)
"""The simplest first, because shrinking goes that way."""

THEMES: dict[str, tuple[str, ...]] = {
    "all": (),
    "pauses": ("control", "add", "add-bulk", "change", "maintain"),
    "delays": ("add", "change", "wake", "pass-time", "claim", "put-back"),
    "work": ("add", "claim", "complete", "fail", "put-back", "pass-time"),
    "families": ("add-flow", "end-child", "claim", "complete", "fail", "put-back", "change"),
    "schedules": ("schedule", "reschedule", "claim", "complete", "fail", "pass-time", "control"),
    "losses": ("add", "claim", "disturb", "cut", "check-stalled", "renew", "pass-time", "fail"),
    "crossings": ("cross", "claim", "fail", "complete", "change", "maintain", "check-stalled", "disturb"),
    "repairs": ("add-bulk", "claim", "fail", "complete", "maintain", "change", "ask-about-job"),
}
"""By theme of a sequence: the families that come more often in it."""

EMPHASIS = 3


def families_for(context: GenerationContext, theme: str) -> tuple[StepFamily, ...]:
    """The families that may come next, each as often as its weight in the theme."""
    often = THEMES[theme]
    return tuple(
        family
        for family in FAMILIES
        if family.possible(context)
        for _ in range(family.weight * (EMPHASIS if family.name in often else 1))
    )


def next_steps(draw: st.DrawFn, context: GenerationContext, theme: str) -> list[Step]:
    """The next steps: a call, after the opening of its client object if there is none yet."""
    family: StepFamily = draw(st.sampled_from(families_for(context, theme)))
    steps: list[Step] = draw(family.make(context))
    return steps
