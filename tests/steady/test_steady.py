"""The program behind `make steady` really disturbs, leaves nothing disturbed behind, and can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from conformance.gate.records import ScenarioRecord, Verdict
from conformance.servers.connection import wait_until

from .disturbances import BUSY_LOOP, BUSY_PROCESSES, busy_cores, drivers_of, stopped_drivers
from .outcome import Outcome, outcome_of


@pytest.fixture
def driver() -> Iterator[psutil.Process]:
    """A process that looks like a driver, started by this one."""
    program = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)", "path/driver.mjs"]
    with subprocess.Popen(program) as process:
        yield psutil.Process(process.pid)
        process.kill()


def test_only_drivers_are_found(driver: psutil.Process) -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as other:
        found = [process.pid for process in drivers_of(os.getpid())]
        assert driver.pid in found
        assert other.pid not in found
        other.kill()
    assert drivers_of(2**22 + 1) == []


def test_drivers_stand_still_and_go_on(driver: psutil.Process) -> None:
    def is_stopped() -> bool:
        return bool(driver.status() == psutil.STATUS_STOPPED)

    with stopped_drivers(os.getpid()):
        assert wait_until(is_stopped, deadline_s=30, step_s=0.01)
        assert wait_until(lambda: not is_stopped(), deadline_s=30, step_s=0.01)
        assert wait_until(is_stopped, deadline_s=30, step_s=0.01)
    assert wait_until(lambda: not is_stopped(), deadline_s=30, step_s=0.01)


@pytest.mark.slow
def test_busy_processes_are_there_only_inside_the_block() -> None:
    def loops() -> list[psutil.Process]:
        children = psutil.Process().children()
        return [child for child in children if child.is_running() and BUSY_LOOP[-1] in child.cmdline()]

    with busy_cores(os.getpid()):
        assert wait_until(lambda: len(loops()) == BUSY_PROCESSES, deadline_s=30)
    assert loops() == []


def _ended(verdict: Verdict, *, repeated: tuple[str, ...] = ()) -> Outcome:
    scenario = ScenarioRecord(
        id="a/one",
        title="One.",
        area="a",
        tier="core",
        verdict=verdict,
        requirements={"a.must": verdict},
        repeated=list(repeated),
    )
    return Outcome([scenario], "", 1.0)


@pytest.mark.parametrize(
    ("verdict", "steady"),
    [("pass", True), ("unsupported", True), ("inconclusive", True), ("fail", False), ("error", False)],
)
def test_a_run_that_blames_a_client_is_not_steady(verdict: Verdict, steady: bool) -> None:
    assert _ended(verdict).steady is steady
    assert ("a/one" in str(_ended(verdict))) is (verdict not in ("pass", "unsupported"))


def test_repeated_scenarios_are_shown() -> None:
    assert "1 repeated\n    pass  a/one  it starved" in str(_ended("pass", repeated=("it starved",)))


def test_a_run_without_a_run_file_is_not_steady(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path / "run.jsonl", "no Redis here", seconds=1.0)
    assert not outcome.steady
    assert "no Redis here" in str(outcome)
    assert not Outcome((), "", 1.0).steady


def _program(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.steady", *words], check=False, capture_output=True, text=True, timeout=600
    )


@pytest.mark.slow
def test_the_program_says_how_each_run_ended() -> None:
    done = _program(
        "--clients", "reference", "--disturb", "stopped-drivers", "--tier", "smoke", "--select", "liveness.pickup"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("reference, stopped-drivers: 1 scenarios in ")


@pytest.mark.slow
def test_the_program_fails_where_a_run_does() -> None:
    done = _program("--clients", "no-such-client", "--disturb", "stopped-drivers", "--tier", "smoke")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "unknown client 'no-such-client'" in done.stdout
