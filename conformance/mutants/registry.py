"""The mutants by name, and the decorator that declares one.

    @mutant("add.long-names", kills=("add.options.short-names",))
    def long_names(damage: Damage) -> None:
        \"\"\"Options are stored under their long names.\"\"\"
        damage.replace(options, "encode", dict)

Those that only change the commands of scripts are rows of `defects/commands.toml`. The function inflicts the damage;
the first line of its docstring says what is broken. `kills` are ledger rows that the gate must find violated; if the
finding comes from a scenario that does not name the row, or only from one of very many cases, `by` names it
(`area/name`, `area/name[ARGUMENT]`). `warns` are rows that the gate only warns about.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from conformance.mutants.damage import Damage
from conformance.participants.marks import Need
from conformance.registry import Registry

Inflict = Callable[[Damage], None]


@dataclass(frozen=True)
class Mutant:
    """A way to break the reference client.

    `kills`: rows that must fail, or warn if they are not MUST. `warns`: MUST rows that only warn, because what others
    see differs merely in its looks. `by`: scenarios (`area/name`, one case as `area/name[ARGUMENT]`) that are asked
    first, and that need not name the rows. `needs`: what Redis has to be for the scenarios that notice.
    """

    name: str
    what: str
    kills: tuple[str, ...]
    inflict: Inflict
    warns: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    needs: Need = ""

    @property
    def rows(self) -> tuple[str, ...]:
        """Every row that the mutant violates."""
        return self.kills + self.warns


MUTANTS: Registry[Mutant] = Registry("mutant", package="conformance.mutants.defects")
"""Every mutant by name, in the order of the modules."""


def mutant(
    name: str,
    *,
    kills: tuple[str, ...] = (),
    warns: tuple[str, ...] = (),
    by: tuple[str, ...] = (),
    needs: Need = "",
) -> Callable[[Inflict], Inflict]:
    """Declare a mutant. Raises ValueError for a name that is taken, or without rows or docstring."""

    def declare(inflict: Inflict) -> Inflict:
        what = (inspect.getdoc(inflict) or "").partition("\n")[0]
        if not kills + warns or not what:
            raise ValueError(f"mutant {name}: it needs rows to kill and a docstring")
        MUTANTS.add(name, Mutant(name, what, kills, inflict, warns, by, needs))
        return inflict

    return declare


def killed_rows() -> dict[str, list[str]]:
    """Ledger rows that mutants kill, each with the names of those mutants."""
    rows: dict[str, list[str]] = {}
    for sick in MUTANTS.values():
        for row in sick.kills + sick.warns:
            rows.setdefault(row, []).append(sick.name)
    return rows
