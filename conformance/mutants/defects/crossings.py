"""Features that work alone and not together, and scripts whose copy of a shared helper differs from all the others."""

from __future__ import annotations

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.clock import AdjustableClock

# Jobs that start to wait.


# Deduplication.


# Families.


# Bulk moves, priorities and schedulers.


@mutant("crossing.priority-and-lifo", kills=("getters.change-priority",))
def priority_and_lifo(damage: Damage) -> None:
    """A priority changed with `lifo` still puts the job behind the others."""
    damage.argument("changePriority", 3, lambda _lifo: "0")


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
