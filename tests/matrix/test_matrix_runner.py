"""Running cells: kept results are not run again, a broken cell yields a one-line reason, and a hanging one is ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from conformance.environment.clients import Launch, Toolchain
from conformance.gate import separate_run
from conformance.gate.records import encode
from conformance.gate.separate_run import RUN_FILE
from conformance.matrix import runner
from conformance.matrix.cell_store import cell_folder, load_cell
from conformance.matrix.cells import Cell, Entrant, cells_of
from conformance.matrix.runner import MatrixConfig, MatrixRunner
from conformance.upstream.node import NodeBinary
from conformance.upstream.package import BullMQPackage
from tests.report.sample_runs import footer, header

A, B = Entrant("a"), Entrant("b", "6.7.0")
WHOLE = encode(header()) + encode(footer(finished_ms=1, exit_code=1))


class Stage:
    """A player whose cells are small programs. `programs`: by name of the cell; `runs`: the words of each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[list[str]] = []
        self.said: list[str] = []
        self.versions = {"a": "a 1", "b": "b 1"}
        self.programs: dict[str, str] = {}
        self.folder = folder
        monkeypatch.setattr(runner, "introduced", lambda launch: self.versions[launch.name])
        monkeypatch.setattr(Toolchain, "partner", lambda _self, text: Launch(text, ["driver", text], named=text == "a"))
        monkeypatch.setattr(runner, "oracle_version", lambda _node, text: text)
        monkeypatch.setattr(separate_run, "_ended", self._ended(separate_run._ended))

    def run(self, *cells: Cell, **options: object) -> None:
        toolchain = Toolchain(
            NodeBinary(Path("node"), "20", "system"), BullMQPackage(Path(), "5.62.0", ""), self.said.append
        )
        asked = MatrixConfig(clients="", out=self.folder, **options)  # type: ignore[arg-type]
        MatrixRunner(asked, toolchain, self.said.append).run(cells)

    def _ended(self, real: Callable[..., int | None]) -> Callable[..., int | None]:
        def ended(words: Sequence[str], log: Path, *, within_s: float) -> int | None:
            self.runs.append(list(words[4:]))
            program = self.programs.get(log.parent.name, f"open({RUN_FILE!r}, 'wb').write({WHOLE!r})")
            script = f"import os; os.chdir({str(log.parent)!r}); {program}"
            return real([sys.executable, "-c", script], log, within_s=within_s)

        return ended


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_a_cell_is_a_run_of_its_own(stage: Stage) -> None:
    stage.run(Cell(A), Cell(B, A), jobs=2)
    alone, pair = stage.runs
    out = str(cell_folder(stage.folder, Cell(A)))
    assert alone == ["--out", out, "--no-known", "--tier", "core", "--format", "html", "--jobs", "2", "--client", "a"]
    assert pair[7:] == ["--handovers", "--oracle", "6.7.0", "--jobs", "2", "--partner", "a", "--", "driver", "b"]
    found = load_cell(stage.folder, Cell(B, A))
    assert found is not None
    assert (found.ended, found.problem) == ("run", "")
    assert {name: found.versions[name] for name in ("client", "partner", "oracle")} == {
        "client": "b 1",
        "partner": "a 1",
        "oracle": "6.7.0",
    }


def test_a_kept_cell_is_not_run_again_until_a_version_changes(stage: Stage) -> None:
    cells = cells_of((A, B))
    stage.run(*cells)
    stage.run(*cells)
    assert len(stage.runs) == 4
    assert stage.said[-4:] == [f"cell {number} of 4: {cell.name}: kept" for number, cell in enumerate(cells, start=1)]
    stage.versions["b"] = "b 2"
    stage.run(*cells)
    assert len(stage.runs) == 4 + 3
    stage.run(Cell(A), tier="full")
    stage.run(Cell(A), tier="full", rerun=True)
    assert len(stage.runs) == 4 + 3 + 2


def test_a_cell_that_breaks_is_reported_in_one_line_and_run_again(stage: Stage) -> None:
    stage.programs[Cell(A).folder] = "import sys; sys.exit('error: no Redis here\\n')"
    stage.run(Cell(A), Cell(B))
    found = load_cell(stage.folder, Cell(A))
    assert found is not None
    assert (found.ended, found.problem) == ("broken", "error: no Redis here")
    assert stage.said[0].startswith("cell 1 of 2: a: error: no Redis here")
    stage.run(Cell(A), Cell(B))
    assert len(stage.runs) == 3


def test_a_run_that_was_cut_is_broken(stage: Stage) -> None:
    cut = encode(header())
    stage.programs[Cell(A).folder] = f"open({RUN_FILE!r}, 'wb').write({cut!r}); exit(3)"
    stage.run(Cell(A))
    found = load_cell(stage.folder, Cell(A))
    assert found is not None
    assert (found.ended, found.problem) == ("broken", "it ended with exit code 3")


def test_a_cell_that_hangs_is_ended(stage: Stage) -> None:
    stage.programs[Cell(A).folder] = "import time; time.sleep(600)"
    started = time.monotonic()
    stage.run(Cell(A), cell_limit=500)
    found = load_cell(stage.folder, Cell(A))
    assert found is not None
    assert (found.ended, found.problem) == ("time-out", "it did not finish in time")
    assert time.monotonic() - started < 120


def test_a_kept_cell_is_plain_json(stage: Stage) -> None:
    stage.run(Cell(A))
    written = msgspec.json.decode((cell_folder(stage.folder, Cell(A)) / "cell.json").read_bytes())
    assert written["settings"] == {"tier": "core", "redis": "", "node": ""}
