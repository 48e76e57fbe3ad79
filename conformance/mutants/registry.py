"""The mutants by name, and the decorator that declares one.

    @mutant("marker.missing", kills=("order.marker.base",))
    def marker_missing(damage: Damage) -> None:
        \"\"\"Nothing wakes an idle worker.\"\"\"
        damage.commands("add*Job", 'if command[1] == "ZADD" and on(command, "marker") then return 0 end')

The function inflicts the damage; the first line of its docstring says what is broken. `kills` are ledger rows that the
gate must find violated; where the finding comes from a scenario that does not name the row, or only from one of very
many cases, `by` names it (`area/name`, `area/name[ARGUMENT]`). `warns` are rows that the gate only warns about,
`missed` rows that it should find violated and does not yet.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from conformance.mutants.damage import Damage
from conformance.participants.marks import Need
from conformance.problems import UsageProblem

DEFECTS = "conformance.mutants.defects"

Inflict = Callable[[Damage], None]

_MUTANTS: dict[str, Mutant] = {}


@dataclass(frozen=True)
class Mutant:
    """A way to break the reference client.

    `kills`: rows that must fail, or warn where they are no MUST. `warns`: MUST rows that only warn, because what others
    see differs merely in its looks. `missed`: rows whose scenarios do not notice: holes of the gate, kept until it has
    closed them. `by`: scenarios (`area/name`, one case as `area/name[ARGUMENT]`) that are asked first, and that need
    not name the rows. `needs`: what Redis has to be for the scenarios that notice.
    """

    name: str
    what: str
    kills: tuple[str, ...]
    warns: tuple[str, ...]
    missed: tuple[str, ...]
    by: tuple[str, ...]
    inflict: Inflict
    needs: Need = ""

    @property
    def rows(self) -> tuple[str, ...]:
        """Every row that the mutant violates."""
        return self.kills + self.warns + self.missed


def mutant(
    name: str,
    *,
    kills: tuple[str, ...] = (),
    warns: tuple[str, ...] = (),
    missed: tuple[str, ...] = (),
    by: tuple[str, ...] = (),
    needs: Need = "",
) -> Callable[[Inflict], Inflict]:
    """Declare a mutant. Raises ValueError for a name that is taken, or without rows or docstring."""

    def declare(inflict: Inflict) -> Inflict:
        what = (inspect.getdoc(inflict) or "").partition("\n")[0]
        if name in _MUTANTS or not kills + warns + missed or not what:
            raise ValueError(f"mutant {name}: the name must be new, and it needs rows to kill and a docstring")
        _MUTANTS[name] = Mutant(name, what, kills, warns, missed, by, inflict, needs)
        return inflict

    return declare


@cache
def all_mutants() -> Mapping[str, Mutant]:
    """Every mutant by name, in the order of the modules."""
    package = importlib.import_module(DEFECTS)
    for module in sorted(entry.name for entry in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"{DEFECTS}.{module}")
    return dict(_MUTANTS)


def find_mutant(name: str) -> Mutant:
    """One mutant. Raises UsageProblem for an unknown name."""
    found = all_mutants().get(name)
    if found is None:
        raise UsageProblem(f"there is no mutant {name!r}", hint=f"use one of {', '.join(sorted(all_mutants()))}")
    return found


def killed_rows() -> dict[str, list[str]]:
    """Ledger rows that mutants kill, each with the names of those mutants."""
    rows: dict[str, list[str]] = {}
    for found in all_mutants().values():
        for row in found.kills + found.warns:
            rows.setdefault(row, []).append(found.name)
    return rows
