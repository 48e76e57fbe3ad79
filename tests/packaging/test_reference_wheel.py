"""The reference client is a distribution by itself, which needs nothing but what it declares."""

from __future__ import annotations

import re
import sys
import sysconfig
import tomllib
import zipfile
from email import message_from_string
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest

from conformance.servers import open_server
from tests.docs.blocks import blocks_of
from tests.packaging.stranger import ROOT, run

README = ROOT / ".ci" / "reference" / "README.md"
LARGEST = 500_000
"""Bytes of the wheel; that of the kit is ten times as large."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    run(sys.executable, ROOT / ".ci" / "reference" / "build", folder, cwd=folder)
    [built] = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and the dependencies that it declares, and nothing else."""
    elsewhere = tmp_path_factory.mktemp("installed")
    python = elsewhere / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", elsewhere / "venv", cwd=elsewhere)
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel, cwd=elsewhere)
    library = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=elsewhere).strip())
    for name in declared(wheel):
        for package in packages_of(name):
            (library / package.name).symlink_to(package)
    return python


def declared(wheel: Path) -> list[str]:
    """The names of the distributions that the wheel needs, without those of its extras."""
    with zipfile.ZipFile(wheel) as opened:
        [metadata] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        needs = message_from_string(opened.read(metadata).decode()).get_all("Requires-Dist") or []
    return [re.split(r"[^\w-]", need)[0] for need in needs if "extra ==" not in need]


def packages_of(name: str) -> list[Path]:
    """The packages and modules of an installed distribution in this environment."""
    tops = [top for top, owners in packages_distributions().items() if distribution(name).name in owners]
    folder = Path(sysconfig.get_path("purelib"))
    found = [path for top in tops for path in folder.glob(f"{top}*") if path.stem.split(".")[0] == top]
    assert found, f"{name} is not installed here"
    return found


def test_every_module_of_it_can_be_imported(python: Path, tmp_path: Path) -> None:
    program = """
import importlib, pkgutil, conformance
missing = {"opentelemetry", "prometheus_client"}  # extras
for module in pkgutil.walk_packages(conformance.__path__, "conformance."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        assert error.name in missing, error
    print(module.name)
"""
    modules = run(python, "-c", program, cwd=tmp_path).split()
    assert {"conformance.reference_impl.queue", "conformance.upstream.lua_download"} <= set(modules)
    assert not [name for name in modules if name.startswith(("conformance.gate", "conformance.reference_impl.driver"))]


def test_the_program_of_its_page_runs(python: Path, tmp_path: Path) -> None:
    [block] = [block for block in blocks_of(README) if block.language == "python"]
    assert block.text.count("127.0.0.1:6379") == 1
    with open_server(None, announce=print) as server:
        program = block.text.replace("127.0.0.1:6379", server.nodes[0])
        assert run(python, "-c", program, cwd=tmp_path).strip() == "6"


def test_it_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < LARGEST


def test_a_dependency_that_is_not_declared_would_be_noticed(python: Path, tmp_path: Path) -> None:
    assert run(python, "-c", "import importlib.util as u; print(u.find_spec('click'))", cwd=tmp_path).strip() == "None"


def test_its_files_are_those_of_the_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        ours = [name for name in opened.namelist() if ".dist-info/" not in name]
        assert ours
        assert [name for name in ours if opened.read(name) != (ROOT / name).read_bytes()] == []


def test_it_declares_what_the_kit_declares() -> None:
    ours, kit = (
        tomllib.loads(path.read_text("utf-8"))["project"]
        for path in (ROOT / ".ci" / "reference" / "pyproject.toml", ROOT / "pyproject.toml")
    )
    same = ("version", "requires-python", "license")
    assert {name: ours[name] for name in same} == {name: kit[name] for name in same}
    assert set(ours["dependencies"]) <= set(kit["dependencies"])
    assert ours["optional-dependencies"].items() <= kit["optional-dependencies"].items()
