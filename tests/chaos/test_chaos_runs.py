"""A small selection of real runs; `pytest chaos/` has all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.conftest import complaint
from chaos.crash_attempt import crash
from chaos.crash_points import CrashBench, CrashPoint
from chaos.equipment import Equipment, prepare
from chaos.faults.registry import all_faults
from chaos.mutants.registry import all_mutants
from chaos.report.results import result_of
from chaos.runner import Spec, run_chaos
from chaos.workload import Mix

REPEATED = CrashPoint(segment="add", script="addStandardJob", point="after-execute", hurt="cut")


@pytest.fixture(scope="module")
def equipment() -> Equipment:
    return prepare(print)


@pytest.mark.parametrize("name", ["worker.kill-finishing", "redis.kill-aof-always", "network.outage-all"])
def test_the_reference_survives(name: str, equipment: Equipment) -> None:
    fault = all_faults()[name]
    spec = Spec(client=equipment.launch("reference"), faults=[fault], seed=2, rounds=1, texts=equipment.texts)
    outcome = run_chaos(spec)
    result = result_of(outcome, seconds=0)
    assert not complaint(result), complaint(result)
    examined = {name for name, cell in result.cells.items() if cell.examined}
    assert examined >= {"conservation", "durability", "indeterminate", "duplicate-runs", "tokens", "order", "progress"}
    assert outcome.history.complete


def test_a_run_with_a_folder_keeps_its_history_there(equipment: Equipment, tmp_path: Path) -> None:
    """Lines are in the file alone, and calls of scripts are taken from the taps meanwhile: a soak needs no memory."""
    spec = Spec(client=equipment.launch("reference"), faults=[], duration_ms=4000, texts=equipment.texts, out=tmp_path)
    outcome = run_chaos(spec)
    assert not outcome.failed
    assert outcome.history.complete
    rows = (tmp_path / "history.jsonl").read_bytes().splitlines()
    assert len(rows) == len(outcome.history.lines) + 2
    early = next(at for at, row in enumerate(rows) if b'"type":"script"' in row)
    assert early < next(at for at, row in enumerate(rows) if b'"name":"drain"' in row)
    tokens = next(each for each in outcome.judgements if each.check == "tokens")
    assert tokens.examined > 20


def test_a_planted_defect_is_caught_by_its_invariant(equipment: Equipment) -> None:
    mutant = all_mutants()["rate.ignored"]
    mix = Mix(weights={"limited": 5, "plain": 1})
    outcome = run_chaos(Spec(client=mutant.launch, faults=[], duration_ms=1500, texts=equipment.texts, mix=mix))
    assert [judgement.check for judgement in outcome.failed] == ["rate"]


@pytest.mark.parametrize(("client", "caught"), [("reference", False), ("add.repeated", True)])
def test_a_lost_reply_to_an_add(client: str, caught: bool, equipment: Equipment) -> None:
    launch = all_mutants()[client].launch if caught else equipment.launch(client)
    with CrashBench(launch, equipment.binary, equipment.texts) as bench:
        result = crash(bench, REPEATED)
    assert result.reached
    assert [judgement.check for judgement in result.failed] == (["indeterminate"] if caught else [])
