"""Clients broken on purpose, each with the invariant that detects it, and the decorator that declares one.

`@chaos_mutant("pop.two-steps", kills="conservation", under="worker.kill")` decorates a function that inflicts the
damage. Its docstring describes the defect.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass

from chaos.crash_points import CrashPoint
from conformance.checkers.histories.history_checks import ALL_CHECKS
from conformance.environment.clients import Launch
from conformance.mutants.damage import Damage
from conformance.registry import Registry

Inflict = Callable[[Damage], None]


@dataclass(frozen=True)
class ChaosMutant:
    """A broken client. `kills`: the invariant that must be found violated.

    `under`: the fault that reveals the defect (empty: the workload alone does), or the crash point. Users of the
    default campaign need not know it, because that campaign runs all faults.
    """

    name: str
    what: str
    kills: str
    inflict: Inflict
    under: str | CrashPoint = ""

    @property
    def launch(self) -> Launch:
        """The command of its driver."""
        return Launch(f"mutant {self.name}", [sys.executable, "-m", "chaos.mutants.driver", self.name])


CHAOS_MUTANTS: Registry[ChaosMutant] = Registry("mutant", package="chaos.mutants.defects")
"""Every mutant by name, in the order of the modules."""


def chaos_mutant(name: str, *, kills: str, under: str | CrashPoint = "") -> Callable[[Inflict], Inflict]:
    """Declare a mutant. Raises ValueError if the name is taken, the invariant unknown, or the docstring missing."""

    def declare(inflict: Inflict) -> Inflict:
        what = inspect.getdoc(inflict) or ""
        if not what or kills not in {check.name for check in ALL_CHECKS}:
            raise ValueError(f"mutant {name}: it needs a known invariant and a docstring")
        CHAOS_MUTANTS.add(name, ChaosMutant(name, what, kills, inflict, under))
        return inflict

    return declare
