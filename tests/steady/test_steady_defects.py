"""A client with one defect fails the same requirements on a quiet machine and while all cores are busy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.report.run_file import read_run
from conformance.servers.connection import wait_until

from .disturbances import busy_cores

pytestmark = pytest.mark.long(12)

DEFECTS = {
    "a snapshot": ("job.delay-missing", "job.hash.delay"),
    "an answer": ("getters.counts-shifted", "getters.counts"),
    "the traffic": ("script.looks-at-all-keys", "script.harmless"),
    "an acceptance": ("add.custom-id-colons", "add.custom-id.colon-refused"),
}
"""By the place that shows a defect: the mutant that has it, and the requirement that it breaks."""

# One process, because those of xdist would start new drivers under the load, which takes longer than the scenarios.
RUN = [sys.executable, "-m", "conformance", "run", "--jobs", "1", "--format", "json"]


def _failed(mutant: str, requirement: str, folder: Path, at_start: Callable[[], object]) -> tuple[int, set[str]]:
    """The exit code of a run, and the requirements that failed. `at_start` is called before the first scenario ends."""
    client = ["--", sys.executable, "-m", "tests.steady.defective_driver", mutant]
    # A run has a pytest of its own, which must not take itself for a worker of another.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [*RUN, "--select", requirement, "--out", str(folder), *client]
    file = folder / "run.jsonl"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        # The header is written when Redis and both drivers are ready.
        assert wait_until(lambda: file.exists() and file.stat().st_size > 0, deadline_s=300)
        at_start()
        run.communicate(timeout=600)
    verdicts = [item for scenario in read_run(file).scenarios for item in scenario.requirements.items()]
    return run.returncode, {name for name, verdict in verdicts if verdict == "fail"}


# Busy cores keep all other tests from running.
@pytest.mark.slow
@pytest.mark.parametrize("place", DEFECTS)
def test_a_defect_is_found_on_a_busy_machine(place: str, tmp_path: Path) -> None:
    mutant, requirement = DEFECTS[place]
    code, failed = _failed(mutant, requirement, tmp_path / "quiet", lambda: None)
    assert (code, requirement in failed) == (1, True)
    with busy_cores(os.getpid()) as loops:
        for loop in loops:
            loop.suspend()
        busy = _failed(mutant, requirement, tmp_path / "busy", lambda: [loop.resume() for loop in loops])
    assert busy == (1, failed)
