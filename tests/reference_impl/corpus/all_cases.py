"""All rows of the corpus, by area."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.reference_impl.corpus import adding, control, editing, families, finishing, parents, running, schedules
from tests.reference_impl.corpus.steps import CorpusCase, DriverCall

AREAS: Mapping[str, tuple[CorpusCase, ...]] = {
    "add": adding.ADD_CASES,
    "value": adding.VALUE_CASES,
    "refused": adding.REFUSED_CASES,
    "bulk": adding.BULK_CASES,
    "deduplication": adding.DEDUPLICATION_CASES,
    "parent": parents.PARENT_CASES,
    "finish": finishing.FINISH_CASES,
    "retry": finishing.RETRY_CASES,
    "hold": finishing.HOLD_CASES,
    "limit": running.LIMIT_CASES,
    "control": control.CONTROL_CASES,
    "edit": editing.EDIT_CASES,
    "get": control.GET_CASES,
    "listen": control.LISTEN_CASES,
    "run": running.RUN_CASES,
    "flow": families.FLOW_CASES,
    "schedule": schedules.SCHEDULE_CASES,
}
CASES: Mapping[str, CorpusCase] = {f"{area}-{case.name}": case for area, cases in AREAS.items() for case in cases}


def operations(case: CorpusCase) -> set[str]:
    """Names of the operations of a case."""
    return {step.op for step in case.steps if isinstance(step, DriverCall)}


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
