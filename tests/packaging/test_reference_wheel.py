"""The reference client is a distribution by itself, which needs nothing but what it declares; its program runs."""

from __future__ import annotations

import ast
import json
import re
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest

from conformance.servers import open_server
from tests.conftest import Missing
from tests.docs.blocks import blocks_of
from tests.packaging.stranger import ROOT, ended, run, type_errors
from tests.reference_impl.secure_redis import secure_redis, why_no_tls

README = ROOT / ".ci" / "reference" / "README.md"
PAGE = ROOT / "docs" / "tutorial" / "first-job-to-production.md"
SHOP = ROOT / "examples" / "python" / "shop.py"
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
    return installed(wheel, declared(wheel), tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def equipped(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the extras for metrics and traces too."""
    names = [*declared(wheel), "prometheus-client", "opentelemetry-api", "typing-extensions"]
    return installed(wheel, names, tmp_path_factory.mktemp("equipped"))


def installed(wheel: Path, names: list[str], elsewhere: Path) -> Path:
    """Return the interpreter of a new environment with the wheel and these distributions."""
    python = elsewhere / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", elsewhere / "venv", cwd=elsewhere)
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel, cwd=elsewhere)
    library = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=elsewhere).strip())
    for name in names:
        # With its metadata: OpenTelemetry finds its parts by their entry points.
        for package in (*packages_of(name), Path(str(distribution(name).locate_file("")), metadata_folder(name))):
            (library / package.name).symlink_to(package)
    return python


def metadata_folder(name: str) -> str:
    """The name of an installed distribution's folder of metadata."""
    files = distribution(name).files or []
    return next(file.parts[0] for file in files if file.parts[0].endswith(".dist-info"))


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


@pytest.mark.slow
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


@pytest.mark.slow
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


# --- the program of the page about the first job -------------------------------------------------------------------

PRINTED = {
    "sent to ada@example.org",
    "failed: flaky the mail server is away",
    "sent to bob@example.org",
    "failed: wrong not an address: nowhere",
    "deduplicated: digest-eve",
    "same job: True",
    "Custom Id cannot be integers",
    "bill: 24",
    "schedules: ['nightly', 'ticker']",
    "limit: {'max': 1000, 'duration': 60000}",
    "wrong not an address: nowhere 1 failed",
    "logs: ['sending to ada@example.org']",
    "healthy: True",
    "True",
    "closed",
}

MISSPELLINGS = {
    '"concurrency": 10': ('"concurency": 10', "option of a Worker 'concurency'; did you mean 'concurrency'?"),
    '"attempts": 5': ('"attemps": 5', "job option 'attemps'; did you mean 'attempts'?"),
    '"deduplication": {': ('"dedupliction": {', "job option 'dedupliction'; did you mean 'deduplication'?"),
    '"every": 60_000': ('"evry": 60_000', "repeat option 'evry'; did you mean 'every'?"),
    'mailer.on("failed"': ('mailer.on("faild"', "event 'faild'; did you mean 'failed'?"),
}


@contextmanager
def started(kind: str, folder: Path, missing: Missing) -> Iterator[Any]:
    """Start servers of a kind, and give the option `connection`."""
    if kind == "tls":
        if reason := why_no_tls():
            missing("redis-tls", reason)
        with secure_redis(folder) as secure:
            direct = secure.direct
            place = f"{direct['username']}:{direct['password']}@127.0.0.1:{direct['port']}"
            yield {"url": f"rediss://{place}", "tls": direct["tls"]}
        return
    with open_server("cluster" if kind == "cluster" else None, announce=print) as server:
        is_cluster = kind == "cluster"
        yield {"mode": "cluster", "nodes": list(server.nodes)} if is_cluster else f"redis://{server.nodes[0]}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["single", "cluster", "tls"])
def test_the_program_of_the_page_about_the_first_job_runs(
    kind: str, equipped: Path, tmp_path: Path, missing: Missing
) -> None:
    with started(kind, tmp_path, missing) as connection:
        done = ended(equipped, SHOP, cwd=tmp_path, REDIS=json.dumps(connection))
    assert (done.returncode, PRINTED - set(done.stdout.splitlines())) == (0, set()), done.stdout


@pytest.mark.slow
def test_the_program_is_strictly_typed(equipped: Path, tmp_path: Path) -> None:
    assert type_errors(equipped, SHOP.read_text("utf-8"), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("right", MISSPELLINGS)
def test_a_misspelling_is_an_error_for_mypy_and_at_run_time(right: str, equipped: Path, tmp_path: Path) -> None:
    text = SHOP.read_text("utf-8")
    wrong, said = MISSPELLINGS[right]
    assert text.count(right) == 1
    [line] = [number for number, row in enumerate(text.splitlines(), 1) if right in row]
    errors = type_errors(equipped, text.replace(right, wrong), tmp_path)
    assert [error.partition(":")[0] for error in errors] == [str(line)]
    with open_server(None, announce=print) as server:
        redis = json.dumps(f"redis://{server.nodes[0]}")
        done = ended(equipped, tmp_path / "program.py", cwd=tmp_path, REDIS=redis)
    assert done.returncode == 1
    assert f"InvalidArgument: unknown {said}" in done.stdout


def test_the_page_shows_the_program() -> None:
    # Without their indentation: the page shows parts of functions.
    lines = [line.strip() for line in SHOP.read_text("utf-8").splitlines()]
    assert len(lines) <= 150
    shown = [
        [line.strip() for line in block.text.splitlines()] for block in blocks_of(PAGE) if block.language == "python"
    ]
    assert len(shown) > 10
    for block in shown:
        rest = iter(lines)
        assert [line for line in block if line not in rest] == [], "its lines are not in the program, in this order"
    imported = {
        name.name
        for node in ast.parse(SHOP.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module == "conformance.reference_impl"
        for name in node.names
    }
    assert {name for name in imported if not re.search(rf"\b{name}\b", PAGE.read_text("utf-8"))} == set()
