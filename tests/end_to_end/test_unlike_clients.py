"""Two clients that no other resembles, with the command of their authors: a run ends by itself and stays readable.

The selection is the smallest that has every oddity; a whole run of either takes a few minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from conformance.gate.records import RunFooter
from conformance.report.output import FORMATS
from conformance.report.run_file import Run, read_run

pytestmark = [pytest.mark.long(2), pytest.mark.slow]

SECONDS = 900
"""Ten times what either takes on a quiet machine."""
LARGEST_REPORT = 2_000_000
LARGEST_RUN = 5_000_000
AREAS = ("edge-bytes", "events", "getters", "lifecycle", "interop/plain_jobs_are_completed_by_the_other")


# A group each: pytest-xdist would run the client once in every process that has one of the tests.
@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in ("nothing", "odd")]
)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run of one of the clients in two processes, as xdist serializes every record and explanation."""
    out = tmp_path_factory.mktemp(request.param) / "out"
    words = [sys.executable, "-m", "conformance", "run", "--jobs", "2", "--out", str(out)]
    words += [word for area in AREAS for word in ("--select", area)]
    words += ["--", sys.executable, "-m", "tests.gate.unlike_clients", request.param]
    # The run has a pytest of its own, which must not take itself for a worker of this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS, env=environment)
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    return out


@pytest.fixture
def run(folder: Path) -> Run:
    return read_run(folder / "run.jsonl")


def test_the_run_is_whole_and_nothing_is_blamed_on_the_kit(run: Run) -> None:
    assert isinstance(run.footer, RunFooter)
    assert (len(run.scenarios), run.footer.stopped, run.footer.broke) == (run.header.planned, "", "")
    assert [(record.id, record.reason) for record in run.scenarios if record.verdict == "error"] == []


def test_each_undecided_scenario_has_a_reason(run: Run) -> None:
    silent = [record for record in run.scenarios if record.verdict != "pass" and not record.findings]
    assert [record.id for record in silent if not record.reason] == []


def test_files_stay_readable(folder: Path) -> None:
    assert (folder / "run.jsonl").stat().st_size < LARGEST_RUN
    for report in FORMATS.values():
        text = (folder / report.file_name).read_text("utf-8")
        assert len(text.encode()) < LARGEST_REPORT, report.name
    ET.parse(folder / "junit.xml")  # noqa: S314 - the kit's own output is what is being checked


def test_mistakes_are_few_however_many_scenarios_show_them(folder: Path, run: Run) -> None:
    causes = json.loads((folder / "summary.json").read_text("utf-8"))["causes"]
    assert len(causes) < len(run.scenarios), "each scenario has several findings"


def test_a_client_that_writes_nothing_has_damaged_nothing(run: Run) -> None:
    sources = {finding.source for record in run.scenarios for finding in record.findings}
    assert "assertion" in sources
    if run.header.client.name == "nothing":
        assert not sources & {"invariant", "oracle-health", "traffic"}
    else:
        assert {"invariant", "traffic"} <= sources
