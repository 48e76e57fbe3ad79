"""`load -- ./driver`: a client that the kit knows by its command only adds the jobs and works them off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conformance.servers import RedisInstance
from reports.load.result import read_result

JOBS = 100
SECONDS = 900
"""What Spark may take on a very busy machine, its start included."""


def load(server: RedisInstance, out: Path, *limits: str) -> subprocess.CompletedProcess[str]:
    spark = ["--master", "local[1]", "--memory", "1g", "--partitions", "1"]
    words = ["load", "--jobs", str(JOBS), "--redis", server.url, *spark, "--out", str(out)]
    driver = ["--", sys.executable, "-m", "tests.gate.limited_driver", *limits]
    command = [sys.executable, "-m", "conformance", *words, *driver]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_driver_given_by_its_command_adds_the_jobs_and_works_them_off(server: RedisInstance, tmp_path: Path) -> None:
    done = load(server, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    result = read_result(tmp_path / "out")
    assert (result.produced.jobs, result.finished.jobs, result.final["completed"]) == (JOBS, JOBS, JOBS)
    assert all("limited" in client for client in result.clients), result.clients
    for wanted in ("load.json", "load.html"):
        assert (tmp_path / "out" / wanted).exists(), sorted(path.name for path in (tmp_path / "out").iterdir())
