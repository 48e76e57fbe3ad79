"""Which finished jobs are kept: none, all, so many, or for so long. The job's own option counts before the worker's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conformance.model.calls import Handle, HeldJob, NotModelled
from conformance.model.containers import SortedSet
from conformance.model.options import is_number
from conformance.model.removing import remove_in_bulk
from conformance.model.state import Queue, World

OPTION_OF_STATE = {"completed": "removeOnComplete", "failed": "removeOnFail"}
KEEP_ALL = -1


@dataclass(frozen=True, slots=True)
class Keep:
    """How many jobs are kept (None: not limited), and how old they may be (seconds)."""

    count: float | None = KEEP_ALL
    age_s: float | None = None


def keep_rule(worker: Handle, job: HeldJob, state: str) -> Keep:
    """The rule for a job that ends in this state: `true` keeps none, `false` all, a number so many."""
    option = OPTION_OF_STATE[state]
    asked: Any = job.opts[option] if option in job.opts else worker.options.get(option)
    if asked is None:
        return Keep()
    if isinstance(asked, dict):
        return Keep(asked.get("count"), asked.get("age"))
    if option not in job.opts:
        raise NotModelled(f"the worker's option {option} is no object")
    if is_number(asked):
        return Keep(asked)
    return Keep(0 if asked else KEEP_ALL)


def drop_superfluous(world: World, queue: Queue, finished: SortedSet, rule: Keep, now_ms: int) -> None:
    """Remove the finished jobs that are too old, then those that are too many, the oldest first to go. No events."""
    if rule.age_s is not None:
        _drop(world, queue, finished, finished.between(high=now_ms - rule.age_s * 1000))
    if rule.count is not None and rule.count > 0:
        members = finished.members()
        _drop(world, queue, finished, members[: max(len(members) - int(rule.count), 0)])


def _drop(world: World, queue: Queue, finished: SortedSet, jobs: list[str]) -> None:
    """Newest first: the order matters to parents that are released by it. Deduplication ids stay taken."""
    for job in reversed(jobs):
        remove_in_bulk(world, queue, job, hard=False, free_deduplication=False)
    for job in jobs:
        finished.remove(job)
