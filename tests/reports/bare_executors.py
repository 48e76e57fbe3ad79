"""A load on an executor with nothing installed, in a process of its own, because a Spark of another process has to go.

    python -m tests.reports.bare_executors FOLDER

packs what the executor gets, starts a cluster of one worker on a bare machine, and in one session looks where the
executor has its things from, and loads. It prints what came of it as JSON; what must come of it the test says.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from conformance.cli.verbs import cli
from conformance.servers import open_server
from reports import executor_archive
from reports.load.result import LoadResult
from reports.options import ARCHIVES, UNPACKED
from reports.session import SparkSettings, spark_session
from reports.snapshot.folders import folder_at
from reports.snapshot.format import read_manifest
from reports.standalone import standalone_cluster
from tests.reports.conftest import FEW_ROWS

NOT_THERE = ("python", "pip", "node", "npm")
"""Programs whose names start so are missing on the executors' machine."""

JOBS = 50


class BareLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a load.

    `places`: where the executor has its Python from, the kit, a package, and the folder for what is installed.
    `digests`: of which kind the snapshot has them, empty without the compiled part.
    """

    places: list[str]
    added: int
    kept: int
    digests: str


def bare_machine(folder: Path) -> dict[str, str]:
    """The variables of a worker whose PATH has neither Python nor Node, and whose user has an empty home."""
    programs, home = folder / "programs", folder / "home"
    programs.mkdir(parents=True)
    home.mkdir()
    for shared in ("/bin", "/usr/bin"):
        for path in Path(shared).iterdir():
            place = programs / path.name
            if not path.name.startswith(NOT_THERE) and not place.exists():
                place.symlink_to(path)
    java = Path(shutil.which("java") or "").resolve()
    return {"PATH": str(programs), "HOME": str(home), "JAVA_HOME": str(java.parent.parent)}


def _places_of_executors(session: SparkSession) -> list[str]:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np

        from conformance.upstream.package import cache_folder
        from reports.snapshot.digests import library

        assert library.fingerprint_here() != "", "the compiled part is there without a compiler"
        found = [sys.executable, library.__file__, np.__file__, str(cache_folder().absolute())]
        yield from (pa.RecordBatch.from_pydict({"place": found}) for _ in batches)

    return sorted({row["place"] for row in session.range(1).mapInArrow(look, "place string").collect()})


def _load(session: SparkSession, redis: str, out: Path) -> None:
    """The verb, on this session: another application would have the archive unpacked once more."""

    @contextmanager
    def this_session(_: SparkSettings) -> Iterator[SparkSession]:
        yield session

    words = ["load", "--jobs", str(JOBS), "--producer", "node", "--partitions", "1", "--redis", redis]
    with patch("reports.verbs.load.spark_session", this_session):
        ended = cli.main([*words, "--out", str(out)], standalone_mode=False)
    assert not ended, ended


def play(folder: Path) -> BareLoad:
    """Pack, start, inspect and load; all files are in the folder. Raises Problems."""
    archive = folder / "environment.tar.gz"
    executor_archive.pack(archive, level=0)
    settings = SparkSettings(memory="1g", properties={**FEW_ROWS, ARCHIVES: f"{archive}#{UNPACKED}"})
    with (
        open_server(None, announce=print) as server,
        standalone_cluster(1, environment=bare_machine(folder)) as master,
        spark_session(replace(settings, master=master)) as session,
    ):
        places = _places_of_executors(session)
        _load(session, server.url, folder / "out")
    result = msgspec.json.decode((folder / "out" / "load.json").read_bytes(), type=LoadResult)
    manifest = read_manifest(folder_at(folder / "out" / "snapshot"))
    return BareLoad(places=places, added=result.produced.jobs, kept=manifest.jobs, digests=manifest.digests)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(play(Path(sys.argv[1]))) + b"\n")
