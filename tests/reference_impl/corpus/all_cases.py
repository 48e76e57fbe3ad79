"""All rows of the corpus, by area."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import (
    adding,
    bulk,
    control,
    deduplication,
    editing,
    families,
    finishing,
    getters,
    holding,
    limiting,
    listening,
    parents,
    refusals,
    retrying,
    running,
    schedules,
    values,
)
from .steps import Case, Do

AREAS: Mapping[str, tuple[Case, ...]] = {
    "add": adding.CASES,
    "value": values.CASES,
    "refused": refusals.CASES,
    "bulk": bulk.CASES,
    "deduplication": deduplication.CASES,
    "parent": parents.CASES,
    "finish": finishing.CASES,
    "retry": retrying.CASES,
    "hold": holding.CASES,
    "limit": limiting.CASES,
    "control": control.CASES,
    "edit": editing.CASES,
    "get": getters.CASES,
    "listen": listening.CASES,
    "run": running.CASES,
    "flow": families.CASES,
    "schedule": schedules.CASES,
}
CASES: Mapping[str, Case] = {f"{area}-{case.name}": case for area, cases in AREAS.items() for case in cases}


def operations(case: Case) -> set[str]:
    """Names of the operations of a case."""
    return {step.op for step in case.steps if isinstance(step, Do)}


def cases_for_every_operation(names: Iterable[str] = CASES) -> list[str]:
    """A few cases that together have every operation; the first of each area is among them."""
    chosen, seen = [], set[str]()
    areas = set[str]()
    for name in names:
        area, ops = name.partition("-")[0], operations(CASES[name])
        if not ops <= seen or area not in areas:
            chosen.append(name)
            seen |= ops
            areas.add(area)
    return chosen
