"""A campaign injects every fault, even if one of them fails, and attributes each finding to a client."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos import clients, processes, recovery_phase
from chaos.faults.base import FAULTS, ChaosSystem, Fault
from chaos.options import ChaosOptions
from chaos.recorder import HistoryRecorder
from chaos.results import FILE, ResultRow, read_results
from chaos.run_errors import CannotRecord
from chaos.runner import run_suite
from conformance.checkers.histories.history import RunPhase
from conformance.driver.errors import DriverBroken
from conformance.environment.clients import Launch
from conformance.environment.prepare import Environment, EnvironmentOptions, prepare
from conformance.problems import EnvironmentProblem

pytestmark = [pytest.mark.long(2), pytest.mark.slow]

HANGING = """
import asyncio
from conformance.reference_impl.driver.main import make_server
from conformance.reference_impl.scripts.runner import official_scripts

scripts = official_scripts()
server = make_server(lambda: scripts)

async def never_ends(handle, args):
    await asyncio.Event().wait()

server.ops["close"] = never_ends
server.run()
"""


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    with prepare(EnvironmentOptions(), redis="program") as prepared:
        yield prepared


@contextmanager
def breaks(_system: ChaosSystem) -> Iterator[None]:
    """Redis refuses what healing needs."""
    yield
    raise EnvironmentProblem("Redis does not know the command DEBUG")


def results_of(options: ChaosOptions, environment: Environment) -> list[ResultRow]:
    return run_suite(options, environment, lambda _result: None)


def test_a_close_that_does_not_end_is_the_clients_finding_with_its_stack(
    tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "CALL_DEADLINE_MS", 2000)
    monkeypatch.setattr(clients, "CLOSE_DEADLINE_MS", 2000)
    monkeypatch.setattr(recovery_phase, "ENOUGH_S", 2)  # who has left does not come back, and is missed until then
    (tmp_path / "hanging.py").write_text(HANGING)
    client = Launch("hanging", [sys.executable, str(tmp_path / "hanging.py")])
    faults = [FAULTS["clock.worker-ahead"], FAULTS["network.reset"]]
    first, second = results_of(ChaosOptions(client=client, faults=faults, rounds=1, out=tmp_path / "out"), environment)
    assert "calls" in first.failed
    trouble = first.troubles[0]
    assert (trouble.during, trouble.culprit) == ("clock.worker-ahead", "client")
    assert "did not answer close" in trouble.message
    assert any("never_ends" in line for line in trouble.stack), trouble.stack
    assert first.cells, "the recorded history is judged nevertheless"
    assert second.name == "network.reset"
    assert not second.troubles
    _, kept, complete = read_results(tmp_path / "out" / FILE)
    assert complete
    assert [row.name for row in kept] == [first.name, second.name]


def test_a_fault_that_breaks_says_nothing_about_the_client(environment: Environment) -> None:
    faults = [Fault("test.breaks", "", breaks, "redis", times=1)]
    (result,) = results_of(ChaosOptions(client=environment.launch("reference"), faults=faults), environment)
    assert not result.failed
    assert [trouble.culprit for trouble in result.kit_troubles] == ["kit"]
    assert "DEBUG" in result.kit_troubles[0].message


def test_a_client_that_cannot_be_started_at_all_is_not_a_finding(environment: Environment) -> None:
    with pytest.raises(DriverBroken, match="cannot start 'nowhere'"):
        results_of(ChaosOptions(client=Launch("none", ["nowhere"]), faults=[FAULTS["worker.kill"]]), environment)


def test_a_disk_that_is_full_ends_the_campaign(tmp_path: Path) -> None:
    """Threads record lines on their own: the run notices it at its next check."""
    (tmp_path / "history.jsonl").symlink_to("/dev/full")
    recorder = HistoryRecorder(tmp_path / "history.jsonl")
    recorder.put(RunPhase(at_ms=0, name="workload"))
    with pytest.raises(CannotRecord, match=r"cannot write the history .*history.jsonl: No space left on device"):
        recorder.insist()
    with pytest.raises(CannotRecord):
        recorder.finish()
    recorder.close()
