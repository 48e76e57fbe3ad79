"""Executors that have nothing installed but Java and Spark get all else in an archive, Node and bullmq as well."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner

from conformance.cli.verbs import cli
from conformance.environment.clients import Launch
from conformance.problems import UsageProblem
from conformance.servers import RedisInstance
from reports import packed
from reports.load.result import LoadResult
from reports.options import ARCHIVES, UNPACKED
from reports.session import SparkSettings, spark_session
from reports.snapshot.format import read_manifest
from reports.standalone import standalone_cluster

pytestmark = pytest.mark.xdist_group("spark")

NOT_THERE = ("python", "pip", "node", "npm")
"""How the names of programs begin that the executors' machine has not."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "environment.tar.gz"
    packed.pack(path)
    return path


@pytest.fixture
def bare_machine(tmp_path: Path) -> dict[str, str]:
    """The variables of a worker whose PATH has neither Python nor Node, and whose user has an empty home."""
    programs, home = tmp_path / "programs", tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for path in Path(folder).iterdir():
            place = programs / path.name
            if not path.name.startswith(NOT_THERE) and not place.exists():
                place.symlink_to(path)
    java = Path(shutil.which("java") or "").resolve()
    return {"PATH": str(programs), "HOME": str(home), "JAVA_HOME": str(java.parent.parent)}


def places_of_executors(settings: SparkSettings) -> set[str]:
    """Where an executor has its Python from, the kit, a package, and the folder for what is installed."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np

        from conformance.upstream.package import cache_folder
        from reports.snapshot.digests import library

        assert library.fingerprint_here() != "", "the compiled part is there without a compiler"
        found = [sys.executable, library.__file__, np.__file__, str(cache_folder().absolute())]
        yield from (pa.RecordBatch.from_pydict({"place": found}) for _ in batches)

    with spark_session(settings) as session:
        return {row["place"] for row in session.range(2).mapInArrow(look, "place string").collect()}


@pytest.mark.skipif(
    "BULLMQ_SPARK_CLUSTER" not in os.environ,
    reason="packing for a cluster of its own takes minutes: set BULLMQ_SPARK_CLUSTER=1, and run it alone",
)
def test_executors_with_nothing_installed_load_and_read(
    archive: Path, bare_machine: dict[str, str], server: RedisInstance, tmp_path: Path
) -> None:
    with standalone_cluster(1, environment=bare_machine) as master:
        properties = {ARCHIVES: f"{archive}#{UNPACKED}"}
        places = places_of_executors(SparkSettings(master=master, memory="1g", properties=properties))
        own = str(Path(packed.__file__).resolve().parent.parent)
        assert all("/work-0/" in place and f"/{UNPACKED}/" in place for place in places), places
        assert not any(place.startswith((own, sys.prefix)) for place in places)
        words = ["load", "--jobs", "200", "--producer", "node", "--partitions", "1", "--redis", server.url]
        words += ["--master", master, "--archives", str(archive), "--out", str(tmp_path / "out")]
        done = subprocess.run(
            [sys.executable, "-m", "conformance", *words], capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
    result = msgspec.json.decode((tmp_path / "out" / "load.json").read_bytes(), type=LoadResult)
    manifest = read_manifest(tmp_path / "out" / "snapshot")
    assert result.produced.jobs == manifest.jobs == 200
    assert manifest.digests != ""


def test_without_the_archive_such_an_executor_can_do_nothing(bare_machine: dict[str, str]) -> None:
    """So the machine is really bare: a Python by its name alone is not found there."""
    found = subprocess.run(["sh", "-c", "command -v python3 node"], env=bare_machine, check=False, capture_output=True)
    assert found.stdout == b""


def test_a_command_is_found_where_it_was_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch("node", ["/opt/node", "/kit/driver.mjs", "--x"], {"MODULES": "/cache/npm-1", "LEVEL": "/kitchen"})
    assert packed.found_here(launch) == launch
    places = {"/opt/node": "node/bin/node", "/cache/npm-1": "cache/npm-1", "/kit": "kit"}
    (tmp_path / "places.json").write_bytes(msgspec.json.encode(places))
    monkeypatch.setenv(packed.PACKED_VARIABLE, str(tmp_path))
    moved = packed.found_here(launch)
    assert moved.command == [f"{tmp_path}/node/bin/node", f"{tmp_path}/kit/driver.mjs", "--x"]
    assert moved.environment == {"MODULES": f"{tmp_path}/cache/npm-1", "LEVEL": "/kitchen"}


def test_an_archive_is_for_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is refused before any JVM begins; the one of this process belongs to other tests.
    monkeypatch.setattr("reports.session._end_the_jvm", lambda: None)
    archived: dict[str, Any] = {ARCHIVES: f"{tmp_path}/a.tar.gz#{UNPACKED}"}
    with (
        pytest.raises(UsageProblem, match="for executors of a cluster"),
        spark_session(SparkSettings(properties=archived)),
    ):
        pass


def test_an_archive_has_to_be_there(tmp_path: Path) -> None:
    words = ["check", str(tmp_path), "--archives", str(tmp_path / "nothing.tar.gz")]
    assert CliRunner().invoke(cli, words, env=dict(os.environ)).exit_code == 2
