"""The checks of stores: the rows of `conformance/ledger/store_checks.yaml`, each with the function of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, TypeVar

import msgspec

from conformance.checkers.base import InvariantCheck, ViolationDetail
from conformance.findings import Severity
from conformance.ledger.loader import STORE_CHECKS_FILE
from conformance.ledger.yaml_files import read_yaml
from conformance.registry import Registry

Scope = Literal["job", "children", "deduplication", "few-jobs", "key", "odd-key", "events", "queue", "server", "looks"]
"""The part of a store that a check must see at once: a section of the table, which explains it."""

Level = Literal["damage", "warning"]
"""`damage`: a user is or will be hurt. `warning`: a risk, or something odd."""

Predicate = TypeVar("Predicate", bound=Callable[[Any], Iterator[ViolationDetail]])


class DamageCause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named cause of findings: what is wrong, why it happens, and calls or commands that repair it."""

    what: str
    why: str
    repair: tuple[str, ...]
    level: Level = "damage"


class CheckRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A check as it is written down."""

    source: str
    severity: Severity = "breaks-others"
    bullmq: str = ""
    in_use: bool = False
    doubt: dict[str, str] = {}
    damages: dict[str, DamageCause] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck(InvariantCheck[Any]):
    """A check of a snapshot. `in_use`: it does not hold in the middle of a scenario, only in a store in use.

    `doubt`: fields of jobs, and a regular expression of the values that it must see.
    """

    scope: Scope
    in_use: bool
    doubt: Mapping[str, str]
    damages: Mapping[str, DamageCause]

    def damage_of(self, detail: ViolationDetail) -> str:
        """The name of a violation's cause. Raises ValueError if the check has several and the violation names none."""
        (name,) = (detail.damage,) if detail.damage else self.damages
        return name


ROWS = {
    name: (scope, row)
    for scope, rows in read_yaml(
        files("conformance.ledger") / STORE_CHECKS_FILE, dict[Scope, dict[str, CheckRow]]
    ).items()
    for name, row in rows.items()
}
"""The scope and the row of each check, in the order in which checks are run."""

CHECKS: Registry[StoreCheck] = Registry("check")


def check(name: str) -> Callable[[Predicate], Predicate]:
    """Declare the function that finds the violations of a row. Raises KeyError for a name without a row."""
    scope, row = ROWS[name]
    fields = msgspec.structs.asdict(row) | {"in_use": row.in_use or scope in ("queue", "server", "looks")}

    def declare(predicate: Predicate) -> Predicate:
        CHECKS.add(name, StoreCheck(name=name, scope=scope, predicate=predicate, **fields))
        return predicate

    return declare
