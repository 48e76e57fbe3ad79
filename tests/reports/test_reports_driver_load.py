"""`load -- ./driver`: a client that the kit knows by its command only adds the jobs and works them off."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conformance.servers import RedisInstance
from reports.load.result import read_result
from tests.reports.test_reports_spark import RunVerb, in_this_process

__all__ = ["in_this_process"]

JOBS = 100


@pytest.mark.xdist_group("spark")
def test_a_driver_given_by_its_command_adds_the_jobs_and_works_them_off(
    in_this_process: RunVerb, server: RedisInstance, tmp_path: Path
) -> None:
    words = ["--jobs", str(JOBS), "--redis", server.url, "--prefix", "driven", "--partitions", "1"]
    driver = ["--", sys.executable, "-m", "tests.gate.limited_driver"]
    in_this_process("load", *words, "--out", str(tmp_path / "out"), *driver)
    server.remove_prefix("driven")
    result = read_result(tmp_path / "out")
    assert (result.produced.jobs, result.finished.jobs, result.final["completed"]) == (JOBS, JOBS, JOBS)
    assert all("limited" in client for client in result.clients), result.clients
    for wanted in ("load.json", "load.html"):
        assert (tmp_path / "out" / wanted).exists(), sorted(path.name for path in (tmp_path / "out").iterdir())
