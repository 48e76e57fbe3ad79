"""A small selection of real runs (pytest chaos/ has all of them), and that nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos import crash_points
from chaos.conftest import complaint
from chaos.crash_points import CrashBench, CrashPoint, crash
from chaos.faults.base import FAULTS
from chaos.mutants.catalogue import CHAOS_MUTANTS
from chaos.options import ChaosOptions
from chaos.recorder import HistoryRecorder
from chaos.results import result_row
from chaos.runner import run_chaos
from chaos.workload import WorkloadMix
from conformance.checkers.histories.history import ResourceSample
from conformance.environment.clients import Launch
from conformance.environment.prepare import Environment, EnvironmentOptions, prepare
from conformance.servers.connection import wait_until

pytestmark = [pytest.mark.long(7), pytest.mark.slow]

REPEATED = CrashPoint(segment="add", script="addStandardJob", point="after-execute", hurt="cut")
MARK = "BULLMQ_CHAOS_TEST_MARK"
DEADLINE_S = 180.0
FAILING = """
import sys
from contextlib import contextmanager
from conformance.environment.prepare import EnvironmentOptions, prepare
from chaos import recovery_phase
from chaos.faults.base import Fault
from chaos.options import ChaosOptions
from chaos.runner import run_chaos

@contextmanager
def broken(system):
    with system.window():
        system.workers[1].process.freeze()
        raise AssertionError("the nemesis itself fails")
        yield

recovery_phase.ENOUGH_S = 1  # the frozen worker reports nothing more
with prepare(EnvironmentOptions(), redis="program") as environment:
    fault = Fault("broken", "x", broken, "workers", times=1)
    options = ChaosOptions(client=environment.launch("reference"), faults=[fault])
    found = [trouble.message for trouble in run_chaos(options, environment).troubles]
sys.exit("AssertionError: the nemesis itself fails" in found)
"""


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    with prepare(EnvironmentOptions(), redis="program") as prepared:
        yield prepared


@pytest.mark.parametrize("name", ["worker.kill-finishing", "redis.kill-aof-always", "network.outage-all"])
def test_the_reference_survives(name: str, environment: Environment) -> None:
    fault = FAULTS[name]
    options = ChaosOptions(client=environment.launch("reference"), faults=[fault], seed=2, rounds=1)
    result = run_chaos(options, environment)
    row = result_row(result, seconds=0)
    assert not complaint(row), complaint(row)
    examined = {name for name, cell in row.cells.items() if cell.examined}
    assert examined >= {"conservation", "durability", "indeterminate", "duplicate-runs", "tokens", "order", "progress"}
    assert result.history.complete


def test_a_run_with_a_folder_keeps_its_history_there(environment: Environment, tmp_path: Path) -> None:
    """Lines are in the file alone, and calls of scripts are taken from the taps meanwhile: a soak needs no memory."""
    options = ChaosOptions(client=environment.launch("reference"), faults=[], duration_ms=4000, out=tmp_path)
    result = run_chaos(options, environment)
    assert not result.failed
    assert result.history.complete
    rows = (tmp_path / "history.jsonl").read_bytes().splitlines()
    assert len(rows) == len(result.history.lines) + 2
    early = next(at for at, row in enumerate(rows) if b'"type":"script"' in row)
    assert early < next(at for at, row in enumerate(rows) if b'"name":"drain"' in row)
    tokens = next(judgement for judgement in result.judgements if judgement.check == "tokens")
    assert tokens.examined > 20


def test_a_planted_defect_is_caught_by_its_invariant(environment: Environment) -> None:
    mutant = CHAOS_MUTANTS["rate.ignored"]
    mix = WorkloadMix(weights={"limited": 5, "plain": 1})
    result = run_chaos(ChaosOptions(client=mutant.launch, faults=[], duration_ms=1500, mix=mix), environment)
    assert [judgement.check for judgement in result.failed] == ["rate"]


@pytest.mark.parametrize(("client", "caught"), [("reference", False), ("add.repeated", True)])
def test_a_lost_reply_to_an_add(client: str, caught: bool, environment: Environment) -> None:
    launch = CHAOS_MUTANTS[client].launch if caught else environment.launch(client)
    with CrashBench(launch, environment) as bench:
        result = crash(bench, REPEATED)
    assert result.reached
    assert [judgement.check for judgement in result.failed] == (["indeterminate"] if caught else [])


def without(*ops: str) -> list[str]:
    """The reference's driver, which does not declare some operations."""
    code = """
import sys
from conformance.reference_impl.driver.main import make_server
from conformance.reference_impl.scripts.runner import official_scripts
scripts = official_scripts()
server = make_server(lambda: scripts)
for op in sys.argv[1:]:
    del server.ops[op]
server.run()
"""
    return [sys.executable, "-c", code, *ops]


def test_scripts_that_a_client_lacks_are_not_crash_points(
    environment: Environment, capfd: pytest.CaptureFixture[str]
) -> None:
    """Entries for another script only are left out, and the crash point is tested."""
    launch = Launch("mine", without("job.changeDelay", "queue.getMetrics", "job.getDependenciesCount"))
    cut: dict[str, Any] = {"point": "after-execute", "hurt": "cut"}
    with CrashBench(launch, environment) as bench:
        delay = crash(bench, CrashPoint(segment="change-delay", script="changeDelay", **cut))
        metrics = crash(bench, CrashPoint(segment="read", script="getMetrics", **cut))
        counts = crash(bench, CrashPoint(segment="read", script="getCounts", **cut))
    assert [(coverage.reached, coverage.lacks) for coverage in (delay, metrics, counts)] == [
        (False, "job.changeDelay"),
        (False, "queue.getMetrics"),
        (True, ""),
    ]
    assert not counts.failed
    assert "Traceback" not in capfd.readouterr().err


def test_whether_a_client_starved_at_a_crash_point_is_noted(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a run: otherwise a job that stalled for lack of a processor counts against the client."""
    recorder = HistoryRecorder()
    monkeypatch.setattr(crash_points, "HistoryRecorder", lambda: recorder)
    with CrashBench(environment.launch("reference"), environment) as bench:
        result = crash(bench, CrashPoint(segment="slow", script="extendLocks", point="mid-reply", hurt="cut"))
    assert result.reached
    waited = [line.waited_ms for line in recorder.finish().lines if isinstance(line, ResourceSample)]
    assert any({"client", "kit"} <= names.keys() for names in waited)


def _marked(mark: str) -> list[str]:
    """Command lines of all processes that inherited the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["ctrl-c", "failure"])
def test_nothing_stays(how: str, tmp_path: Path) -> None:
    mark, scratch = uuid.uuid4().hex, tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, MARK: mark, "TMPDIR": str(scratch)}
    program = ["-m", "conformance", "chaos", "--client", "reference", "--faults", "none", "--duration", "60s"]
    arguments = program if how == "ctrl-c" else ["-c", FAILING]
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        if how == "ctrl-c":
            busy = wait_until(
                lambda: sum("reference_impl.driver" in line for line in _marked(mark)) >= 3, deadline_s=DEADLINE_S
            )
            assert busy, f"the run did not start: {_marked(mark)}"
            process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == (130 if how == "ctrl-c" else 1), said
    assert ("interrupted" in said) == (how == "ctrl-c"), said
    assert wait_until(lambda: not _marked(mark), deadline_s=10), f"still there: {_marked(mark)}"
    assert list(scratch.iterdir()) == []
