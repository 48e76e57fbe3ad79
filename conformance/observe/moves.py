"""The comparison of two queues whose jobs may be in different places, because one side stopped half-way. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.observe.differences import Difference

MOVES = frozenset({"missing-job", "extra-job", "no-state", "two-states", "wrong-state"})
"""Kinds of difference that say that a job is somewhere else."""

WRITTEN_BY_ADDING = (
    "job.name",
    "job.opts",
    "job.timestamp",
    "job.parent",
    "job.parentKey",
    "job.deid",
    "job.rjk",
    "meta",
)
"""Locators of what no worker changes any more."""


def apart_from_moves(found: Sequence[Difference], *, moving: bool) -> list[Difference]:
    """Those of the differences that do not follow from a job's being somewhere else.

    A job that took another way has other fields, events, locks and results for that reason alone, and so has its queue.
    Values written when it was added stay comparable. `moving`: any job may be on its way, as if all had moved.
    """
    moved = {difference.key for difference in found if difference.kind in MOVES}
    queues = {key.partition(":")[0] for key in moved}
    # An event too many, or a lost beginning, may only show that a stream was trimmed less, or more.
    trimmed = {
        difference.key.partition(":")[0]
        for difference in found
        if difference.kind == "extra-event" or (difference.kind, difference.where) == ("missing-event", "event.added")
    }

    def follows(difference: Difference) -> bool:
        # An upsert makes the iteration of a scheduler again, with everything in it.
        if ":repeat:" in difference.key:
            return True
        if any(difference.where == place or difference.where.startswith(f"{place}.") for place in WRITTEN_BY_ADDING):
            return False
        if difference.kind in {"missing-event", "extra-event"} and difference.key.partition(":")[0] in trimmed:
            return True
        is_about_job = difference.where.partition(".")[0] in {"job", "membership", "lock", "log", "event"}
        if is_about_job and difference.where != "event.order" and not difference.key.endswith(":events"):
            return moving or difference.key in moved
        # Parents are in other queues than their children, so any move may be the reason.
        is_of_family = difference.where.startswith("dependency.")
        return moving or bool(moved if is_of_family else difference.key.partition(":")[0] in queues)

    return [difference for difference in found if not follows(difference)]
