"""The wheel holds everything that a run needs, a run from it works far away from the sources, and so do its types."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.packaging.stranger import PACKAGES, ROOT, lend_dependencies, run, type_errors

NEEDED = (
    "conformance/conftest.py",
    "conformance/py.typed",
    "conformance/node_harness/driver.mjs",
    "conformance/node_harness/operations/registry.mjs",
    "conformance/node_harness/package.json",
    "conformance/node_harness/package-lock.json",
    "conformance/node_harness/scripts.manifest.json",
    "conformance/ledger/add.yaml",
    "conformance/ledger/stalled.yaml",
    "conformance/driver/schema/driver-v1.json",
    "conformance/driver/templates/node/driver.mjs.tmpl",
    "conformance/driver/templates/python/driver.py.tmpl",
    "conformance/driver/templates/go/main.go.tmpl",
    "conformance/driver/templates/go/go.mod.tmpl",
    "conformance/report/templates/report.html",
    "conformance/pages/templates/page.css",
    "conformance/report/templates/report.js",
    "conformance/clients/python_official/client.toml",
    "conformance/clients/python_official/driver.py",
    "conformance/clients/python_official/requirements.txt",
    "conformance/scenarios/test_add.py",
)
"""Files that are opened at run time, and so are easily forgotten."""


def sources(root: Path) -> set[str]:
    """Every file of the packages, by its path."""
    return {
        path.relative_to(root).as_posix()
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def missing(wheel: Path, wanted: Iterable[str]) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return set(wanted) - set(opened.namelist())


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_packages(wheel: Path, tree: Path) -> None:
    assert missing(wheel, sources(tree)) == set()


def test_the_wheel_holds_what_is_opened_at_run_time(wheel: Path) -> None:
    assert missing(wheel, NEEDED) == set()


def test_the_wheel_holds_nothing_but_the_packages(wheel: Path, tree: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        strangers = {name for name in opened.namelist() if ".dist-info/" not in name} - sources(tree)
    assert strangers == set()


def test_a_file_that_is_left_out_would_be_noticed(tree: Path, wheel: Path, tmp_path: Path) -> None:
    smaller = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(smaller, "w") as part:
        for name in whole.namelist():
            if not name.endswith(".mjs"):
                part.writestr(name, whole.read(name))
    assert missing(smaller, NEEDED) == {name for name in NEEDED if name.endswith(".mjs")}
    assert "conformance/node_harness/extract.mjs" in missing(smaller, sources(tree))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment of its own into which the wheel is installed, and nothing else."""
    elsewhere = tmp_path_factory.mktemp("installed")
    python = elsewhere / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", elsewhere / "venv", cwd=elsewhere)
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel, cwd=elsewhere)
    lend_dependencies(python, elsewhere)
    return python


@pytest.mark.slow
def test_a_run_from_the_wheel_in_an_environment_of_its_own(python: Path, tmp_path: Path) -> None:
    venv, elsewhere = python.parents[1], tmp_path

    where = run(python, "-c", "import conformance, redis; print(conformance.__file__, redis.__file__)", cwd=elsewhere)
    ours, dependency = where.split()
    assert Path(ours).is_relative_to(venv)
    assert not Path(dependency).is_relative_to(venv), "only the kit itself is installed here"

    program = venv / "bin" / "bullmq-conformance"
    few = ("--tier", "smoke", "--select", "add")  # docs/tutorial/first-gate.md runs all of smoke from the wheel
    said = run(program, "run", "--client", "reference", *few, "--jobs", "1", "--out", "out", cwd=elsewhere)
    assert "SELECTION HOLDS" in said
    assert str(venv) in (elsewhere / "out" / "run.jsonl").read_text("utf-8"), "the drivers came from there too"
    assert str(ROOT / "conformance") not in (elsewhere / "out" / "run.jsonl").read_text("utf-8")


@pytest.mark.slow
def test_a_program_against_the_wheel_is_strictly_typed(python: Path, tmp_path: Path) -> None:
    program = (Path(__file__).parent / "typed_program.py").read_text("utf-8")
    assert type_errors(python, program, tmp_path) == []


@pytest.mark.slow
def test_mistakes_in_a_program_against_the_wheel_are_type_errors(python: Path, tmp_path: Path) -> None:
    program = """
from conformance.reference_impl import Job, Queue, Worker

async def wrong(queue: Queue, job: Job) -> str:
    Worker(7)
    await queue.getJob(7)
    job.updateProgres(50)
    queue.on("error")
    return await queue.count()
"""
    codes = ["5: [arg-type]", "6: [arg-type]", "7: [attr-defined]", "8: [call-arg]", "9: [return-value]"]
    assert type_errors(python, program, tmp_path) == codes
