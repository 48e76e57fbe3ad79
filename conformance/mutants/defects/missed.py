"""Holes of the gate: defects that violate a row, and that its scenarios do not notice.

A hole that is closed fails the kill matrix, until the row moves to `kills` and the mutant to the module of its area.
"""

from __future__ import annotations

from conformance.mutants.damage import Damage
from conformance.mutants.registry import mutant


@mutant(
    "missed.unprioritized-runs-next",
    kills=("lifecycle.claim.oldest-first",),
    missed=("getters.change-priority",),
    by=("getters/changing_a_priority",),
)
def unprioritized_runs_next(damage: Damage) -> None:
    """A job that loses its priority goes before those that wait: noticed, but told of another row."""
    damage.commands("changePriority", 'if command[1] == "LPUSH" then command[1] = "RPUSH" end')


@mutant("missed.renewed-together-suspected", missed=("stalled.forgotten",))
def renewed_together_suspected(damage: Damage) -> None:
    """Jobs whose locks are renewed in one call stay marked as possibly stalled."""
    damage.commands("extendLocks", 'if command[1] == "SREM" then return 0 end')
