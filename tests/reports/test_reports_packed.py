"""Executors that have nothing installed but Java and Spark get all else in an archive, Node and bullmq as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from conformance.cli.verbs import cli
from conformance.environment.clients import Launch
from conformance.problems import UsageProblem
from reports import executor_archive
from reports.options import ARCHIVES, UNPACKED
from reports.session import ROOT, SparkSettings, spark_session
from tests.reports.bare_executors import JOBS, BareLoad, bare_machine


@pytest.mark.slow
@pytest.mark.skipif(
    "BULLMQ_BARE_EXECUTORS" not in os.environ,
    reason="a cluster with an archive for it takes a minute of processor time: `.ci/run` sets BULLMQ_BARE_EXECUTORS",
)
def test_executors_with_nothing_installed_load_and_read(tmp_path: Path) -> None:
    """In a process of its own: executors get their settings when Spark starts."""
    words = [sys.executable, "-m", "tests.reports.bare_executors", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    came = msgspec.json.decode(done.stdout.splitlines()[-1], type=BareLoad)
    assert all("/work-0/" in place and f"/{UNPACKED}/" in place for place in came.places), came
    assert not any(place.startswith((str(ROOT), sys.prefix)) for place in came.places)
    assert (came.added, came.kept) == (JOBS, JOBS)
    assert came.digests != ""


def test_without_the_archive_such_an_executor_can_do_nothing(tmp_path: Path) -> None:
    """So the machine is really bare: a Python by its name alone is not found there."""
    words = ["sh", "-c", "command -v python3 node"]
    found = subprocess.run(words, env=bare_machine(tmp_path), check=False, capture_output=True)
    assert found.stdout == b""


def test_a_command_is_found_where_it_was_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch("node", ["/opt/node", "/kit/driver.mjs", "--x"], {"MODULES": "/cache/npm-1", "LEVEL": "/kitchen"})
    assert executor_archive.local_launch(launch) == launch
    places = {"/opt/node": "node/bin/node", "/cache/npm-1": "cache/npm-1", "/kit": "kit"}
    (tmp_path / "places.json").write_bytes(msgspec.json.encode(places))
    monkeypatch.setenv(executor_archive.PACKED_VARIABLE, str(tmp_path))
    moved = executor_archive.local_launch(launch)
    assert moved.command == [f"{tmp_path}/node/bin/node", f"{tmp_path}/kit/driver.mjs", "--x"]
    assert moved.environment == {"MODULES": f"{tmp_path}/cache/npm-1", "LEVEL": "/kitchen"}


@pytest.mark.usefixtures("_java")
@pytest.mark.xdist_group("spark")
def test_an_archive_is_for_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is refused before any JVM starts; the one of this process belongs to other tests.
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
