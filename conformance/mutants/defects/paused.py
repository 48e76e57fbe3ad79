"""Overlooking that a queue is paused: jobs that wait where the resume loses them, and workers woken for nothing."""

from __future__ import annotations

from conformance.mutants.damage import Damage
from conformance.mutants.registry import mutant

_UNSEEN_IF = (
    'if command[1] == "HMGET" and on(command, "meta") and (%s) then '
    "local found = send(unpack(command)) found[1] = false return found end"
)
"""Lua: under a condition, the script takes a paused queue for a running one."""
_UNSEEN = _UNSEEN_IF % "true"


@mutant("paused.recovered-wait", kills=("paused.everything-parks",))
def recovered_wait(damage: Damage) -> None:
    """A stalled job of a paused queue is put back into `wait`."""
    damage.commands("moveStalledJobsToWait", _UNSEEN)


@mutant("paused.retried-wait", kills=("paused.everything-parks",))
def retried_wait(damage: Damage) -> None:
    """A failed attempt of a paused queue is put back into `wait`."""
    damage.commands("retryJob", _UNSEEN)


@mutant("paused.manual-retry-waits", kills=("paused.everything-parks",))
def manual_retry_waits(damage: Damage) -> None:
    """A job of a paused queue that is retried by hand enters `wait`."""
    damage.commands("reprocessJob", _UNSEEN)


@mutant("paused.retry-of-all-waits", kills=("paused.everything-parks",))
def retry_of_all_waits(damage: Damage) -> None:
    """The jobs of a paused queue that are retried together enter `wait`."""
    damage.commands("moveJobsToWait", _UNSEEN_IF % 'ARGV[3] ~= "delayed"')


@mutant("paused.promoted-waits", kills=("paused.everything-parks",))
def promoted_waits(damage: Damage) -> None:
    """A job of a paused queue that is promoted enters `wait`."""
    damage.commands("promote", _UNSEEN)


@mutant("paused.promotion-of-all-waits", kills=("paused.everything-parks",))
def promotion_of_all_waits(damage: Damage) -> None:
    """The jobs of a paused queue that are promoted together enter `wait`."""
    damage.commands("moveJobsToWait", _UNSEEN_IF % 'ARGV[3] == "delayed"')


@mutant("paused.unprioritized-waits", kills=("paused.everything-parks",))
def unprioritized_waits(damage: Damage) -> None:
    """A job of a paused queue that loses its priority enters `wait`."""
    damage.commands("changePriority", _UNSEEN)


@mutant("paused.woken-for-priority", kills=("paused.prioritized-no-marker",))
def woken_for_priority(damage: Damage) -> None:
    """Adding a prioritized job to a paused queue wakes a worker."""
    damage.commands("addPrioritizedJob", _UNSEEN)


@mutant("paused.resume-forgets-priority", kills=("paused.resume-prioritized",))
def resume_forgets_priority(damage: Damage) -> None:
    """Resuming a queue that has only prioritized jobs wakes nobody."""
    damage.commands("pause", 'if command[1] == "ZCARD" then return 0 end')


@mutant("paused.uncounted", kills=("paused.counted",))
def uncounted(damage: Damage) -> None:
    """Parked jobs are not counted."""
    damage.commands("getCounts", 'if command[1] == "LLEN" and on(command, "paused") then return 0 end')


@mutant("paused.unlisted", kills=("paused.counted",))
def unlisted(damage: Damage) -> None:
    """Parked jobs are not listed."""
    damage.commands("getRanges", 'if command[1] == "LRANGE" and on(command, "paused") then return {} end')


@mutant("paused.stateless", kills=("paused.counted",))
def stateless(damage: Damage) -> None:
    """A parked job has no state."""
    damage.commands("getStateV2", 'if command[1] == "LPOS" and on(command, "paused") then return false end')


@mutant("paused.uncounted-by-priority", kills=("paused.counted",))
def uncounted_by_priority(damage: Damage) -> None:
    """Counts per priority leave out parked jobs."""
    damage.commands("getCountsPerPriority", 'if command[1] == "HEXISTS" then return 0 end')


@mutant("paused.undrained", kills=("paused.drained",))
def undrained(damage: Damage) -> None:
    """Draining leaves parked jobs."""
    damage.commands("drain", 'if command[1] == "LRANGE" and on(command, "paused") then return {} end')
