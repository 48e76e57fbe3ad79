"""Real BullMQ and the reference client: same answers, same commands, same bytes in Redis, case by case."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
    listening,
    parents,
    refusals,
    retrying,
    running,
    schedules,
    values,
)
from .steps import Case

AREAS = {
    "add": adding.CASES,
    "value": values.CASES,
    "refused": refusals.CASES,
    "bulk": bulk.CASES,
    "deduplication": deduplication.CASES,
    "parent": parents.CASES,
    "finish": finishing.CASES,
    "retry": retrying.CASES,
    "hold": holding.CASES,
    "control": control.CASES,
    "edit": editing.CASES,
    "get": getters.CASES,
    "listen": listening.CASES,
    "run": running.CASES,
    "flow": families.CASES,
    "schedule": schedules.CASES,
}
CASES = {f"{area}-{case.name}": case for area, cases in AREAS.items() for case in cases}


@pytest.mark.parametrize("name", CASES)
def test_reference_is_indistinguishable(name: str, differences: Callable[[Case], list[str]]) -> None:
    found = differences(CASES[name])
    assert not found, "\n".join(found)
