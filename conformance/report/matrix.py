"""A matrix as a page and as JSON, computed from the run files of its cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from conformance.gate.conclusion import ConclusionState
from conformance.gate.profile_status import ProfileState
from conformance.gate.separate_run import RUN_FILE
from conformance.ledger.profiles import load_profiles
from conformance.matrix.cell_store import StoredCell, cell_folder, load_cell
from conformance.matrix.cells import Cell, Entrant
from conformance.pages.compact_json import compact_json
from conformance.pages.page import html_page
from conformance.pages.text import visible
from conformance.report.causes import Cause
from conformance.report.output import load_summary, write_text
from conformance.report.steps import step_lines
from conformance.report.summary import Summary

PAGE, DOCUMENT = "index.html", "matrix.json"
MATRIX_FORMAT = 1
"""Within a format, fields are added but never renamed, removed or given another meaning."""
CAUSES_OF_CELL = 6
STEPS_OF_CAUSE = 24
"""The page stays below 2 MB for nine clients that fail everything: causes and steps of a cell are bounded."""

CellState = ConclusionState | Literal["broken", "time-out", "not-run"]

SYMBOLS: Mapping[str, str] = {
    "conformant": "✔",
    "holds": "✔",
    "not-conformant": "✘",
    "undecided": "?",
    "broken": "⚠",
    "time-out": "⚠",
    "not-run": "·",
}
MEANING: Mapping[str, str] = {
    "conformant": "at least one whole profile holds, and nothing fails",
    "holds": "every hand-over that was decided holds",
    "not-conformant": "something fails",
    "undecided": "nothing fails, but too little was decided",
    "broken": "the cell could not be run",
    "time-out": "the cell did not finish in time",
    "not-run": "the cell has not been run yet",
}
PROFILE_SYMBOLS: Mapping[ProfileState, str] = {
    "conformant": "✔",
    "known-failures": "✔",
    "not-conformant": "✘",
    "undecided": "?",
    "partly-declared": "◐",
    "not-declared": "-",
    "not-checked": "·",
}


@dataclass(frozen=True, kw_only=True)
class MatrixCell:
    """One cell: how it was run, and the summary of its run; None if missing."""

    cell: Cell
    kept: StoredCell | None
    summary: Summary | None

    @property
    def state(self) -> CellState:
        """The conclusion of its run, or why it has none."""
        if self.summary is not None:
            return self.summary.conclusion.state
        return "not-run" if self.kept is None or self.kept.ended == "run" else self.kept.ended

    @property
    def failures(self) -> tuple[Cause, ...]:
        """Failing causes, in their order."""
        return tuple(cause for cause in self.summary.causes if cause.verdict == "fail") if self.summary else ()

    @property
    def lost(self) -> bool:
        """Whether jobs were lost."""
        return any(cause.finding.severity == "lost-jobs" for cause in self.failures)

    @property
    def sentence(self) -> str:
        """The conclusion as text, or why it has none."""
        if self.summary is not None:
            return self.summary.conclusion.sentence
        return self.kept.problem if self.kept and self.kept.problem else MEANING[self.state]

    @property
    def oracle(self) -> str:
        """The BullMQ version that the client was compared with; empty if unknown."""
        return self.kept.versions.get("oracle", "") if self.kept else ""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """All cells of a matrix, in the order of its clients."""

    entrants: tuple[Entrant, ...]
    alone: tuple[MatrixCell, ...]
    pairs: tuple[MatrixCell, ...]

    @property
    def cells(self) -> tuple[MatrixCell, ...]:
        """Clients alone, then pairs."""
        return (*self.alone, *self.pairs)


def read_matrix(out: Path, entrants: Sequence[Entrant], cells: Sequence[Cell]) -> Matrix:
    """Read the stored cells of a folder. Raises UsageProblem for an invalid run file."""
    read = [_read(out, cell) for cell in cells]
    return Matrix(
        entrants=tuple(entrants),
        alone=tuple(cell for cell in read if cell.cell.partner is None),
        pairs=tuple(cell for cell in read if cell.cell.partner is not None),
    )


def _read(out: Path, cell: Cell) -> MatrixCell:
    what = load_cell(out, cell)
    summary = load_summary(cell_folder(out, cell) / RUN_FILE) if what is not None and what.is_whole else None
    return MatrixCell(cell=cell, kept=what, summary=summary)


def write_matrix(matrix: Matrix, out: Path) -> list[Path]:
    """Write the page and the document next to the cells. Raises EnvironmentProblem for an unwritable folder."""
    texts = {PAGE: render_page(matrix), DOCUMENT: render_document(matrix)}
    return [write_text(out / name, text) for name, text in texts.items()]


# The page.


class CausePart(msgspec.Struct, frozen=True, kw_only=True):
    """One cause as the page shows it, with the last steps of the scenario that meets it."""

    line: str
    requirement: str
    message: str
    expected: str
    actual: str
    scenario: str
    steps: str
    reproduce: str


class ProfilePart(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a client in one profile; `remark` is the tooltip of its symbol."""

    name: str
    state: ProfileState
    remark: str


class CellPart(msgspec.Struct, frozen=True, kw_only=True):
    """One cell as the page shows it. `failures`: number of causes that fail; `causes`: the first few of them.

    `partner` is None for a client alone; only such a cell has `profiles`.
    """

    client: str
    partner: str | None
    oracle: str
    state: CellState
    sentence: str
    lost: bool
    failures: int
    versions: dict[str, str]
    profiles: list[ProfilePart]
    causes: list[CausePart]

    @property
    def folder(self) -> str:
        """Name of its folder, which is also its anchor on the page."""
        return Cell(Entrant(self.client), Entrant(self.partner) if self.partner else None).folder

    @property
    def by_profile(self) -> dict[str, ProfilePart]:
        """Its profiles by name."""
        return {profile.name: profile for profile in self.profiles}


class MatrixParts(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a matrix page, which can be stored and rendered without run files (`website/samples/`)."""

    clients: list[str]
    cells: list[CellPart]

    @property
    def alone(self) -> dict[str, CellPart]:
        """The cells of clients alone, by client."""
        return {cell.client: cell for cell in self.cells if cell.partner is None}

    @property
    def pairs(self) -> dict[tuple[str, str | None], CellPart]:
        """The cells of pairs, by client and partner."""
        return {(cell.client, cell.partner): cell for cell in self.cells if cell.partner is not None}


def render_page(matrix: Matrix) -> str:
    """Render the page: self-contained, without a script, and all foreign text escaped."""
    return render_parts(parts_of(matrix))


def parts_of(matrix: Matrix) -> MatrixParts:
    """Return what the page shows of a matrix."""
    clients = [entrant.client for entrant in matrix.entrants]
    return MatrixParts(clients=clients, cells=[_cell_part(cell) for cell in matrix.cells])


def render_parts(matrix: MatrixParts) -> str:
    """Render the page from what it shows."""
    return html_page(
        "conformance.report",
        "matrix.html",
        matrix=matrix,
        profiles=[profile for profile in load_profiles().values() if not profile.is_common],
        symbols=SYMBOLS,
        profile_symbols=PROFILE_SYMBOLS,
        meaning=MEANING,
    )


def _cell_part(cell: MatrixCell) -> CellPart:
    alone = cell.cell.partner is None
    return CellPart(
        client=cell.cell.client.client,
        partner=cell.cell.partner.client if cell.cell.partner else None,
        oracle=cell.oracle,
        state=cell.state,
        sentence=cell.sentence,
        lost=cell.lost,
        failures=len(cell.failures),
        versions=cell.kept.versions if cell.kept else {},
        profiles=[
            ProfilePart(name=status.name, state=status.state, remark=status.remark)
            for status in (cell.summary.conclusion.profiles if cell.summary and alone else ())
        ],
        causes=[_cause_part(cause) for cause in cell.failures[:CAUSES_OF_CELL]],
    )


def _cause_part(cause: Cause) -> CausePart:
    return CausePart(
        line=cause.line,
        requirement=cause.finding.requirement,
        message=cause.finding.message,
        expected=cause.finding.expected,
        actual=cause.finding.actual,
        scenario=cause.example.id,
        steps=_steps_of(cause),
        reproduce=cause.example.reproduce,
    )


def _steps_of(cause: Cause) -> str:
    lines = step_lines(cause.example)
    return "\n".join([*(["…"] if len(lines) > STEPS_OF_CAUSE else []), *lines[-STEPS_OF_CAUSE:]])


# The document.


class JsonFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One cause in one cell. `scenarios`: ids of those that show it. `reproduce`: command that runs the example."""

    title: str
    requirement: str
    severity: str
    message: str
    scenarios: list[str]
    steps: list[str]
    reproduce: str


class JsonCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell; `partner` is null for a client alone. `profiles`: their states, of a client alone.

    `versions`: of the client, its partner, the oracle, and the hash of the kit. `ended_ms`: Unix ms, null if the
    cell was not run.
    """

    client: str
    partner: str | None
    state: CellState
    sentence: str
    lost_jobs: bool
    versions: dict[str, str]
    settings: dict[str, str]
    ended_ms: int | None
    took_ms: int | None
    profiles: dict[str, ProfileState]
    failures: list[JsonFailure]


class JsonMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """The document: all clients, in the order of the command line, and all cells."""

    kind: Literal["bullmq-conformance-matrix"] = "bullmq-conformance-matrix"
    format: int
    clients: list[str]
    cells: list[JsonCell]


def render_document(matrix: Matrix) -> str:
    """Render the JSON document, indented, in ASCII."""
    return json.dumps(msgspec.to_builtins(_document(matrix)), indent=2) + "\n"


def matrix_schema() -> dict[str, Any]:
    """Build the JSON Schema of the document, as published in `schema/matrix.schema.json`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(JsonMatrix)}


def _document(matrix: Matrix) -> JsonMatrix:
    return JsonMatrix(
        format=MATRIX_FORMAT,
        clients=[entrant.client for entrant in matrix.entrants],
        cells=[_json_cell(cell) for cell in matrix.cells],
    )


def _json_cell(each: MatrixCell) -> JsonCell:
    profiles = each.summary.conclusion.profiles if each.summary and each.cell.partner is None else ()
    return JsonCell(
        client=each.cell.client.client,
        partner=each.cell.partner.client if each.cell.partner else None,
        state=each.state,
        sentence=visible(each.sentence, keep_newlines=False),
        lost_jobs=each.lost,
        versions=each.kept.versions if each.kept else {},
        settings=each.kept.settings if each.kept else {},
        ended_ms=each.kept.ended_ms if each.kept else None,
        took_ms=each.kept.took_ms if each.kept else None,
        profiles={status.name: status.state for status in profiles},
        failures=[_json_failure(cause) for cause in each.failures],
    )


def _json_failure(cause: Cause) -> JsonFailure:
    return JsonFailure(
        title=visible(cause.title, keep_newlines=False),
        requirement=cause.finding.requirement,
        severity=cause.finding.severity,
        message=visible(cause.finding.message),
        scenarios=list(cause.scenarios),
        steps=_steps_of(cause).splitlines(),
        reproduce=cause.example.reproduce,
    )


if __name__ == "__main__":  # prints the schema, to be published next to this module
    print(compact_json(matrix_schema()), end="")
