"""The page and the document of a matrix: computed from kept cells, bounded, escaped, and described by a schema."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Literal

import jsonschema
import pytest

from conformance.gate.separate_run import RUN_FILE
from conformance.matrix.cell_store import StoredCell, cell_folder, store_cell
from conformance.matrix.cells import Cell, Entrant, cells_of
from conformance.report.matrix import Matrix, matrix_schema, read_matrix, render_document, render_page, write_matrix
from tests.report.sample_runs import sample_run_files

A, B, HOSTILE = Entrant("a"), Entrant("b", "6.7.0"), Entrant("<script>alert(1)</script>")
ENTRANTS = (A, B, HOSTILE)


def _keep(
    out: Path,
    cell: Cell,
    run: bytes | None,
    ended: Literal["run", "broken", "time-out"] = "run",
    problem: str = "",
) -> None:
    folder = cell_folder(out, cell)
    folder.mkdir(parents=True)
    if run is not None:
        (folder / RUN_FILE).write_bytes(run)
    what = StoredCell(
        client=cell.client.client,
        partner=cell.partner.client if cell.partner else None,
        versions={"client": f"{cell.client.client} 1", "oracle": "6.7.0", "kit": "0" * 64},
        settings={},
        ended=ended,
        problem=problem,
        ended_ms=1_700_000_000_000,
        took_ms=1500,
    )
    store_cell(out, cell, what)


@pytest.fixture
def matrix(tmp_path: Path) -> Matrix:
    """One cell of each kind: fails, undecided, broke, hostile; the others were not run."""
    runs = sample_run_files()
    _keep(tmp_path, Cell(A), runs["full"])
    _keep(tmp_path, Cell(B), runs["conformant"])
    _keep(tmp_path, Cell(A, B), None, ended="broken", problem="error: <b>no Redis</b>")
    _keep(tmp_path, Cell(HOSTILE), runs["hostile"])
    return read_matrix(tmp_path, ENTRANTS, cells_of(ENTRANTS))


def test_the_states_of_cells(matrix: Matrix) -> None:
    assert [cell.state for cell in matrix.alone][:2] == ["not-conformant", "undecided"]
    assert {cell.cell.name: cell.state for cell in matrix.pairs}["a,b"] == "broken"
    assert [cell.state for cell in matrix.pairs].count("not-run") == 5


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            if name == "href":
                self.links.add(value or "")


def test_the_page_links_every_cell_to_its_place_and_runs_nothing(matrix: Matrix) -> None:
    page = _Page()
    text = render_page(matrix)
    page.feed(text)
    assert {link.removeprefix("#") for link in page.links} <= page.ids
    assert {cell.cell.folder for cell in matrix.cells} <= page.ids
    assert "script" not in page.tags
    assert "<b>no Redis</b>" not in text
    assert "default-src 'none'" in text


def test_the_page_shows_the_steps_of_a_failure(matrix: Matrix) -> None:
    text = render_page(matrix)
    failing = matrix.alone[0]
    assert failing.failures
    for cause in failing.failures[:2]:
        assert cause.finding.requirement in text
    assert "queue.add(" in text


def test_the_document_fits_the_published_schema(matrix: Matrix) -> None:
    document = json.loads(render_document(matrix))
    published = json.loads(files("conformance.report").joinpath("schema", "matrix.schema.json").read_text("utf-8"))
    assert published == matrix_schema(), "run `make generate`"
    jsonschema.validate(document, published)
    assert document["clients"] == ["a", "b", HOSTILE.client]
    states = {(cell["client"], cell["partner"]): cell["state"] for cell in document["cells"]}
    assert (states["a", None], states["a", "b"], states["b", "a"]) == ("not-conformant", "broken", "not-run")


def test_both_are_written_next_to_the_cells(matrix: Matrix, tmp_path: Path) -> None:
    assert [path.name for path in write_matrix(matrix, tmp_path)] == ["index.html", "matrix.json"]
    assert (tmp_path / "index.html").read_text("utf-8") == render_page(matrix)
