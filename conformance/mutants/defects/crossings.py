"""Features that work alone and not together, and scripts whose copy of a shared helper differs from all the others."""

from __future__ import annotations

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.clock import AdjustableClock

_KEY = 'string.find(command[2], ":de:", 1, true)'
"""Lua condition: the command is about a deduplication key."""
_UNLIMITED = (
    'if command[1] == "HMGET" and on(command, "meta") then '
    "local reply = send(unpack(command)) reply[2] = false return reply end"
)
"""Lua: the script ignores the concurrency of the queue."""
_UNPAUSED = (
    'if command[1] == "HMGET" and on(command, "meta") then '
    "local reply = send(unpack(command)) reply[1] = false return reply end"
)
"""Lua: the script ignores that the queue is paused."""


# Jobs that start to wait.


@mutant(
    "crossing.full-and-promoted",
    kills=("concurrency.no-marker",),
    by=("waiting/a_full_queue_wakes_nobody_for_a_job[promoted]",),
)
def full_and_promoted(damage: Damage) -> None:
    """A job that is promoted by hand wakes workers of a full queue."""
    damage.commands("promote", _UNLIMITED)


@mutant(
    "crossing.full-and-released",
    kills=("concurrency.no-marker",),
    by=("waiting/a_full_queue_wakes_nobody_for_a_job[child-is-removed]",),
)
def full_and_released(damage: Damage) -> None:
    """A parent that is released because its last child is removed wakes workers of a full queue."""
    damage.commands("removeJob", _UNLIMITED)


@mutant(
    "crossing.paused-and-unlinked",
    kills=("paused.everything-parks",),
    by=("waiting/a_paused_queue_parks_a_job[child-is-unlinked]",),
)
def paused_and_unlinked(damage: Damage) -> None:
    """A parent that is released because its last child is unlinked is not parked."""
    damage.commands("removeChildDependency", _UNPAUSED)


@mutant(
    "crossing.no-meta-and-retried",
    kills=("order.meta",),
    by=("waiting/a_queue_without_meta_takes_a_job[retried-by-hand]",),
)
def no_meta_and_retried(damage: Damage) -> None:
    """A retry by hand does not bring back the limit of events of a queue without `meta`."""
    damage.commands("reprocessJob", 'if command[1] == "HSET" and on(command, "meta") then return 0 end')


# Deduplication.


@mutant(
    "crossing.deduplicated-parent",
    kills=("dedup.simple",),
    by=("deduplication-crossings/every_member_of_a_flow_meets_every_owner[parent]",),
)
def deduplicated_parent(damage: Damage) -> None:
    """The parent of a flow is stored although its deduplication id is taken."""
    damage.commands(
        "addParentJob", f'if command[1] == "SET" and {_KEY} then send(unpack(command)) return {{ok = "OK"}} end'
    )


@mutant(
    "crossing.plain-job-replaces-none",
    kills=("dedup.replace",),
    by=("deduplication-crossings/every_kind_of_job_replaces_a_delayed_owner[replace]",),
)
def plain_job_replaces_none(damage: Damage) -> None:
    """A job that is not delayed itself does not replace the delayed owner."""
    damage.commands("addStandardJob", 'if command[1] == "ZREM" and on(command, "delayed") then return 0 end')


@mutant("crossing.cleaning-keeps-ids", kills=("dedup.removal",), by=("removing/an_owner_is_removed[cleaned-wait]",))
def cleaning_keeps_ids(damage: Damage) -> None:
    """An id stays taken when its owner is cleaned away."""
    damage.commands("cleanJobsInSet", f'if command[1] == "DEL" and {_KEY} then return 0 end')


# Families.


@mutant(
    "crossing.delayed-child-is-done",
    kills=("flow.child.done",),
    by=("flow-crossings/a_child_is_done_before_its_parent_is_added[delayed]",),
)
def delayed_child_is_done(damage: Damage) -> None:
    """A parent waits for a child that has completed before, if that child is added with a delay."""
    damage.commands("addDelayedJob", 'if command[1] == "ZSCORE" and on(command, "completed") then return false end')


@mutant(
    "crossing.drained-child",
    kills=("flow.swept",),
    by=("removing/the_last_child_of_a_parent_in_the_same_queue[drained-wait]",),
)
def drained_child(damage: Damage) -> None:
    """A child that is drained is still among the dependencies of its parent."""
    damage.commands(
        "drain", 'if command[1] == "SREM" and string.sub(command[2], -13) == ":dependencies" then return 0 end'
    )


@mutant(
    "crossing.failed-children-stay",
    kills=("flow.remove.parent",),
    by=("removing/a_parent_with_children_in_all_states[plain]",),
)
def failed_children_stay(damage: Damage) -> None:
    """Children whose failure was ignored are left when their parent is removed."""
    damage.commands(
        "removeJob", 'if command[1] == "HGETALL" and string.sub(command[2], -7) == ":failed" then return {} end'
    )


@mutant(
    "crossing.delayed-parent-of-a-failure",
    kills=("flow.fail.parent",),
    by=("flow-crossings/a_child_fails_wherever_its_parent_is[delayed]",),
)
def delayed_parent_of_a_failure(damage: Damage) -> None:
    """A parent that is delayed when its child fails stays delayed."""
    damage.commands("moveToFinished", 'if command[1] == "ZSCORE" and on(command, "delayed") then return false end')


@mutant(
    "crossing.retried-child",
    kills=("retry.manual.child",),
    by=("flow-crossings/a_finished_child_is_retried[completed]",),
)
def retried_child(damage: Damage) -> None:
    """A child that is retried by hand is waited for no more."""
    damage.commands("reprocessJob", 'if command[1] == "SADD" then return 0 end')


# Bulk moves, priorities and schedulers.


@mutant("crossing.results-stay", kills=("retry.manual",), by=("moving/finished_jobs_are_retried_together[completed]",))
def results_stay(damage: Damage) -> None:
    """Completed jobs that are retried together keep their results."""
    damage.commands("moveJobsToWait", 'if command[1] == "HDEL" and command[5] == "returnvalue" then return 0 end')


@mutant("crossing.priority-and-lifo", kills=("getters.change-priority",))
def priority_and_lifo(damage: Damage) -> None:
    """A priority changed with `lifo` still puts the job behind the others."""
    damage.argument("changePriority", 3, lambda _lifo: "0")


@mutant(
    "crossing.paused-and-scheduled",
    kills=("paused.everything-parks",),
    by=("waiting/a_paused_queue_parks_a_job[scheduled]",),
)
def paused_and_scheduled(damage: Damage) -> None:
    """The job of a scheduler is not parked when the queue is paused."""
    damage.commands("addJobScheduler", _UNPAUSED)


@mutant(
    "crossing.made-while-paused",
    kills=("scheduler.next",),
    by=("scheduler-crossings/the_next_job_is_made_while_the_queue_changes[paused]",),
)
def made_while_paused(damage: Damage) -> None:
    """A next job that is due at once is not parked, when the queue was paused after the claim."""
    damage.commands("updateJobScheduler", _UNPAUSED)


@mutant(
    "crossing.obliterated-schedulers",
    kills=("getters.obliterate",),
    by=("sweeping/obliterating_in_small_steps[100]",),
)
def obliterated_schedulers(damage: Damage) -> None:
    """The records of schedulers are left when their queue is obliterated."""
    damage.commands(
        "obliterate", 'if command[1] == "DEL" and string.find(command[2], ":repeat:", 1, true) then return 0 end'
    )


@mutant(
    "crossing.clock-set-back",
    kills=("order.delayed.score",),
    by=("clocks/the_clock_is_changed[change-delay]",),
)
def clock_set_back(damage: Damage) -> None:
    """A clock that is set back is not followed: time goes on from its latest value."""
    latest = 0

    def broken(stop_at: Function) -> Function:
        def stop(clock: AdjustableClock, now_ms: int | None) -> None:
            nonlocal latest
            latest = max(latest, now_ms or 0)
            stop_at(clock, latest if now_ms else now_ms)

        return stop

    damage.around(AdjustableClock, "stop_at", broken)


@mutant("crossing.orphan-is-adopted", kills=("flow.child.done",), by=("flow-crossings/an_orphan_is_not_adopted",))
def orphan_is_adopted(damage: Damage) -> None:
    """A child that exists is taken over by each parent that adds it again, even from another parent."""
    damage.commands("add*Job", 'if command[1] == "HGET" and command[3] == "parentKey" then return false end')
