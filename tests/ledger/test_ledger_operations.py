"""Which requirements speak about which operations: complete, and without mistakes."""

from __future__ import annotations

import pytest

from conformance.driver.ops import REGISTRY
from conformance.ledger.loader import load_ledger
from conformance.ledger.operations import EVENTS_READ, WORKER_RUN, OperationEntry, load_operations, table_of

ROWS = ("a.one", "a.two", "b.three")


def entry(row: str, *about: str | list[str]) -> OperationEntry:
    return OperationEntry(row=row, about=list(about))


def test_every_operation_is_there_and_no_other() -> None:
    assert set(load_operations().rows) == {*REGISTRY, WORKER_RUN, EVENTS_READ}


@pytest.mark.parametrize("op", [*REGISTRY, WORKER_RUN, EVENTS_READ])
def test_the_row_of_an_operation_is_one_that_a_scenario_checks(op: str) -> None:
    assert load_ledger().row(load_operations().row_of(op)).examined


def test_a_row_may_be_about_several_operations_or_none() -> None:
    table = load_operations()
    assert table.about("pause.meta") == {"queue.pause", "queue.resume"}
    assert table.about("interop.plain") == frozenset()
    assert {"queue.add", "queue.addBulk"} <= table.about("add.lifo")
    assert WORKER_RUN in table.about("liveness.pickup")


def test_patterns_and_lists_that_are_shared() -> None:
    table = table_of({"x": entry("a.one", "a.*", ["b.three"]), "y": entry("b.three", "b.*")}, ROWS)
    assert table.rows_about == {"x": frozenset(ROWS), "y": frozenset({"b.three"})}
    assert table.about("b.three") == {"x", "y"}
    assert table.about("a.two") == {"x"}


@pytest.mark.parametrize(
    ("mistaken", "what"),
    [
        (entry("a.one", "a.one", "c.*"), r"'c\.\*' of x matches no row"),
        (entry("a.one", "a.two"), r"the row 'a\.one' of x has to be among those about it"),
        (entry("c.none", "a.*"), r"the row 'c\.none' of x"),
    ],
)
def test_a_mistake_is_reported(mistaken: OperationEntry, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        table_of({"x": mistaken}, ROWS)


def test_an_unknown_operation_has_no_row() -> None:
    with pytest.raises(KeyError):
        load_operations().row_of("queue.invented")
