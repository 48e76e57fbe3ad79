"""Clients broken on purpose, each with the invariant that gives it away: how one is declared, and all of them by name.

`@chaos_mutant("pop.two-steps", kills="conservation", under="worker.kill")` stands before a function that inflicts the
damage, and whose docstring says what is broken.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from chaos.crash_points import CrashPoint
from conformance.checkers.histories.history_checks import ALL_CHECKS
from conformance.environment.clients import Launch
from conformance.mutants.damage import Damage
from conformance.problems import UsageProblem

Inflict = Callable[[Damage], None]

_MUTANTS: dict[str, ChaosMutant] = {}


@dataclass(frozen=True)
class ChaosMutant:
    """A broken client. `kills`: the invariant that must be found violated.

    `under`: the fault that brings the defect to light (empty: the workload alone does), or the crash point. Whoever
    hunts for it need not know: all of them are part of the default campaign.
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


def chaos_mutant(name: str, *, kills: str, under: str | CrashPoint = "") -> Callable[[Inflict], Inflict]:
    """Declare a mutant. Raises ValueError for a name that is taken, an unknown invariant, or without docstring."""

    def declare(inflict: Inflict) -> Inflict:
        what = inspect.getdoc(inflict) or ""
        if name in _MUTANTS or not what or kills not in {check.name for check in ALL_CHECKS}:
            raise ValueError(f"mutant {name}: the name must be new, the invariant known, and it needs a docstring")
        _MUTANTS[name] = ChaosMutant(name, what, kills, inflict, under)
        return inflict

    return declare


@cache
def all_mutants() -> Mapping[str, ChaosMutant]:
    """Every mutant by name."""
    package = importlib.import_module("chaos.mutants.defects")
    for module in sorted(entry.name for entry in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"{package.__name__}.{module}")
    return dict(_MUTANTS)


def find_mutant(name: str) -> ChaosMutant:
    """One mutant. Raises UsageProblem for an unknown name."""
    found = all_mutants().get(name)
    if found is None:
        raise UsageProblem(f"there is no mutant {name!r}", hint=f"use one of {', '.join(sorted(all_mutants()))}")
    return found
