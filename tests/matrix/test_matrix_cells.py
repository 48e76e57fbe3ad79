"""Which cells a matrix has, what they are called, and when a kept one is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.gate.separate_run import kit_hash
from conformance.matrix.cell_store import CELL_FILE, StoredCell, cell_folder, load_cell, store_cell
from conformance.matrix.cells import Cell, Entrant, cells_of, chosen_cells, parse_clients
from conformance.problems import UsageProblem

A, B, C = (Entrant(name) for name in "abc")


def test_every_client_alone_and_every_ordered_pair() -> None:
    assert [cell.name for cell in cells_of((A, B, C))] == [
        *("a", "b", "c"),
        *("a,b", "a,c", "b,a", "b,c", "c,a", "c,b"),
    ]


@pytest.mark.parametrize(
    ("text", "entrant"),
    [
        ("reference", Entrant("reference")),
        ("node@6.7.0", Entrant("node@6.7.0", "6.7.0")),
        ("node", Entrant("node")),
        ("python-official@2.16.2=newest-5", Entrant("python-official@2.16.2", "newest-5")),
        ("node@6.7.0=5.62.0", Entrant("node@6.7.0", "5.62.0")),
        (" bin/driver -v ", Entrant("bin/driver -v")),
    ],
)
def test_a_client_chooses_its_oracle(text: str, entrant: Entrant) -> None:
    assert Entrant.parse(text) == entrant
    assert parse_clients(f"{text},other") == (entrant, Entrant("other"))


@pytest.mark.parametrize(("text", "why"), [("", "no clients"), (" , ", "no clients"), ("a,b,a", "'a' is named twice")])
def test_a_list_without_clients_or_with_one_twice_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageProblem, match=why):
        parse_clients(text)


def test_cells_are_chosen_by_name() -> None:
    cells = cells_of((A, B))
    assert chosen_cells(cells, ()) == cells
    assert chosen_cells(cells, ("b,a", "a")) == (Cell(B, A), Cell(A))
    with pytest.raises(UsageProblem, match="no cell 'a,a'") as caught:
        chosen_cells(cells, ("a,a",))
    assert "a; b; a,b; b,a" in caught.value.hint


def test_a_folder_is_a_plain_name() -> None:
    cell = Cell(Entrant("node@6.7.0"), Entrant("/opt/my driver --fast"))
    assert cell.folder == "node@6.7.0--with---opt-my-driver---fast"
    assert Cell(A, B).folder != Cell(B, A).folder


def _kept(**changes: str) -> StoredCell:
    return StoredCell(
        client="a",
        partner="b",
        versions={"client": "a 1", **changes},
        settings={"tier": "core"},
        ended="run",
        problem="",
        ended_ms=1,
        took_ms=2,
    )


def test_a_stored_cell_is_read_back(tmp_path: Path) -> None:
    cell = Cell(A, B)
    assert load_cell(tmp_path, cell) is None
    cell_folder(tmp_path, cell).mkdir(parents=True)
    store_cell(tmp_path, cell, _kept())
    assert load_cell(tmp_path, cell) == _kept()
    assert load_cell(tmp_path, Cell(B, A)) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"client": 1}'])
def test_an_unreadable_cell_is_not_kept(tmp_path: Path, text: str) -> None:
    cell_folder(tmp_path, Cell(A)).mkdir(parents=True)
    (cell_folder(tmp_path, Cell(A)) / CELL_FILE).write_text(text)
    assert load_cell(tmp_path, Cell(A)) is None


def test_the_kit_has_one_hash() -> None:
    assert len(kit_hash()) == 64
    assert kit_hash() == kit_hash()
