"""Pausing and resuming wrongly."""

from __future__ import annotations

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.queues.queue import Queue


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
    """`meta` does not tell that the queue is paused."""
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
def resume_wakes_nobody(damage: Damage) -> None:
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


@mutant("pause.repeats-are-silent", kills=("event.paused",), by=("pause/pausing_twice_and_resuming_twice",))
def repeats_are_silent(damage: Damage) -> None:
    """Pausing a paused queue leaves no event."""

    def broken(pause: Function) -> Function:
        async def pause_once(queue: Queue) -> None:
            if not await queue.isPaused():
                await pause(queue)

        return pause_once

    damage.around(Queue, "pause", broken)
