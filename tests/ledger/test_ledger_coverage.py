"""The coverage of the ledger: what it counts, and that nothing that is missing stays unmentioned."""

from __future__ import annotations

from conformance.ledger.coverage import MISSING_CLAIM, MISSING_MUTANT, MISSING_SCENARIO, Gap, coverage_of
from conformance.ledger.loader import Ledger, Requirement, Status


def requirement(name: str, status: Status = "tested", reason: str = "", claims: tuple[str, ...] = ()) -> Requirement:
    return Requirement(
        id=name,
        area=name.partition(".")[0],
        level="MUST",
        statement="It holds.",
        source="x.lua",
        oracle="",
        claims=claims,
        owns=(),
        status=status,
        reason=reason,
    )


LEDGER = Ledger(
    [
        requirement("a.complete", claims=("C-1",)),
        requirement("a.without-mutant"),
        requirement("a.without-scenario"),
        requirement("a.disputed", "disputed"),
        requirement("b.planned", "untestable", "scenario missing: kill something"),
        requirement("b.never", "untestable", "a text for readers"),
        requirement("b.library", "client-only", "nobody else sees it"),
        requirement("b.fact", "disputed", "a fact about upstream"),
    ],
    {"a": "Area A", "b": "Area B"},
)
SCENARIOS = {"a.complete": ["a/one"], "a.without-mutant": ["a/one"], "a.disputed": ["a/two"]}
MUTANTS = {"a.complete": ["broken"], "a.disputed": ["broken"]}


def test_areas_are_counted() -> None:
    first, second = coverage_of(LEDGER, ["C-1"], SCENARIOS, MUTANTS).areas
    assert (first.area, first.rows, first.with_scenario, first.with_mutant, first.missing_scenarios) == (
        "a",
        4,
        3,
        2,
        1,
    )
    assert first.by_status == {"tested": 3, "disputed": 1, "client-only": 0, "untestable": 0}
    assert second.by_status == {"tested": 0, "disputed": 1, "client-only": 1, "untestable": 2}
    assert (second.rows, second.with_scenario, second.missing_scenarios) == (4, 0, 1)


def test_everything_that_is_missing_is_listed() -> None:
    assert coverage_of(LEDGER, ["C-1", "C-2"], SCENARIOS, MUTANTS).gaps == (
        Gap(MISSING_CLAIM, "C-2"),
        Gap(MISSING_MUTANT, "a.without-mutant"),
        Gap(MISSING_SCENARIO, "a.without-scenario"),
        Gap(MISSING_SCENARIO, "b.planned", "scenario missing: kill something"),
    )


def test_nothing_is_missing_from_a_complete_ledger() -> None:
    ledger = Ledger([LEDGER.row("a.complete"), LEDGER.row("b.never")], LEDGER.areas)
    assert coverage_of(ledger, ["C-1"], SCENARIOS, MUTANTS).gaps == ()
