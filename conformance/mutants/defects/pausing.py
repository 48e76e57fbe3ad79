"""Pausing and resuming wrongly, and overlooking that a queue is paused."""

from __future__ import annotations

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.queue import Queue


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
