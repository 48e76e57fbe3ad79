"""Pausing and resuming wrongly, and overlooking that a queue is paused."""

from __future__ import annotations

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.queue import Queue

_UNSEEN_IF = (
    'if command[1] == "HMGET" and on(command, "meta") and (%s) then '
    "local found = send(unpack(command)) found[1] = false return found end"
)
"""Lua: under a condition, the script takes a paused queue for a running one."""
_UNSEEN = _UNSEEN_IF % "true"


@mutant("pause.jobs-stay", kills=("pause.moves-wait",))
def jobs_stay(damage: Damage) -> None:
    """Pausing leaves the waiting jobs in `wait`."""
    damage.commands("pause", 'if command[1] == "RENAME" then return 0 end')


@mutant("pause.order-turned", kills=("pause.moves-wait",))
def order_turned(damage: Damage) -> None:
    """Pausing moves the waiting jobs one by one, so that their order is turned."""
    damage.commands(
        "pause",
        'if command[1] == "RENAME" then '
        'while send("LMOVE", command[2], command[3], "LEFT", "LEFT") do end return 0 end',
    )


@mutant("pause.not-in-meta", kills=("pause.meta",))
def not_in_meta(damage: Damage) -> None:
    """`meta` does not hold that the queue is paused."""
    damage.commands("pause", 'if command[1] == "HSET" then return 0 end')


@mutant("pause.stays-in-meta", kills=("pause.meta",))
def stays_in_meta(damage: Damage) -> None:
    """Resuming sets the field `paused` to 0 instead of removing it."""
    damage.commands("pause", 'if command[1] == "HDEL" then return send("HSET", command[2], "paused", 0) end')


@mutant("pause.marker-stays", kills=("pause.marker",))
def marker_stays(damage: Damage) -> None:
    """Pausing leaves the marker."""
    damage.commands("pause", 'if command[1] == "DEL" then return 0 end')


@mutant("pause.resume-wakes-nobody", kills=("pause.marker",))
def resume_wakes_no_worker(damage: Damage) -> None:
    """Resuming sets no marker."""
    damage.commands("pause", 'if command[1] == "ZADD" then return 0 end')


@mutant("pause.toggles", kills=("pause.again",))
def toggles(damage: Damage) -> None:
    """Pausing a paused queue resumes it."""

    def broken(pause: Function) -> Function:
        async def pause_or_resume(queue: Queue) -> None:
            await (queue.resume() if await queue.isPaused() else pause(queue))

        return pause_or_resume

    damage.around(Queue, "pause", broken)


@mutant("pause.asks-without-prefix", kills=("pause.answer",))
def asks_without_prefix(damage: Damage) -> None:
    """IsPaused reads `meta` under the default prefix, and not under that of the queue."""

    async def ask(queue: Queue) -> bool:
        return bool(await queue.connection.command("HEXISTS", f"bull:{queue.name}:meta", "paused"))

    damage.replace(Queue, "isPaused", ask)


@mutant("pause.repeats-are-silent", kills=("event.paused",), by=("pause/pausing_twice_and_resuming_twice",))
def repeats_are_silent(damage: Damage) -> None:
    """Pausing a paused queue leaves no event."""

    def broken(pause: Function) -> Function:
        async def pause_once(queue: Queue) -> None:
            if not await queue.isPaused():
                await pause(queue)

        return pause_once

    damage.around(Queue, "pause", broken)


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
    """Resuming a queue that has only prioritized jobs wakes no worker."""
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
