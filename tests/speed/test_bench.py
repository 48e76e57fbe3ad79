"""`bench -- ./driver` with small counts: the numbers say nothing, what is said of them does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.ledger.loader import load_ledger
from conformance.speed.gates import bounded_measures, specified_bounds
from conformance.speed.measures import MEASURE_NAMES, MEASURES
from tests.steady.disturbances import busy_cores

SECONDS = 600
"""The time that a bench with tiny counts may take on a very busy machine."""

LIMITED = ("--", sys.executable, "-m", "tests.gate.limited_driver")


def bench(out: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """Run the verb as a user does; returns the exit code, the document and what was printed."""
    command = [sys.executable, "-m", "conformance", "bench", "--out", str(out), "--jobs", "20", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (out / "bench.json").exists(), done.stderr
    return done.returncode, json.loads((out / "bench.json").read_text("utf-8")), done.stdout


@pytest.mark.slow
def test_a_slow_client_fails_its_gate_and_what_it_lacks_is_not_declared(tmp_path: Path) -> None:
    measures = ("--rounds", "5", "--measure", "log", "--measure", "finish")
    slow = ("--slow", "job.log", "--slow-ms", "100", "--without", "worker.getNextJob")
    code, document, said = bench(tmp_path, *measures, "--at-least", "log=0.9", *LIMITED, *slow)
    finish, log = document["ratios"]
    assert (log["measure"], log["state"]) == ("log", "measured"), log
    assert len(log["ratios"]) >= 3, log
    assert len(log["ratios"]) == 5 or log["reason"], "a round that came to no number is not left out in silence"
    assert log["client"] > 80, "the driver's own part is taken out, and nothing of the client's"
    assert log["client"] > log["oracle"]
    assert (finish["state"], finish["reason"]) == ("not-declared", "the driver does not declare worker.getNextJob")
    assert [gate["outcome"] for gate in document["gates"]] == ["fails"], document
    assert code == document["exit_code"] == 1
    assert "fails: log at least 0.9" in said
    assert document["client"].startswith("limited ")


@pytest.mark.slow
def test_a_client_with_a_planted_20_ms_misses_the_limit_of_10_ms(tmp_path: Path) -> None:
    slow = ("--slow", "worker.getNextJob", "--slow-ms", "20")
    measures = ("--rounds", "3", "--measure", "claim", "--measure", "overhead", "--measure", "stalled-check")
    code, document, said = bench(tmp_path, *measures, "--at-most", "claim=10ms", *LIMITED, *slow)
    (gate,) = document["gates"]
    (claim,) = [ratio for ratio in document["ratios"] if ratio["measure"] == "claim"]
    assert min(claim["clients"]) > 15, claim
    # On a machine that is too busy for a limit, the gate must say that, and not blame the client.
    assert (gate["outcome"], code) == ("fails", 1) or "this machine cannot decide it" in gate["reason"], (gate, code)
    assert f"{gate['outcome']}: claim at most 10 ms" in said
    others = [ratio for ratio in document["ratios"] if ratio["measure"] != "claim"]
    assert [ratio["state"] for ratio in others] == ["measured", "measured"], others


def limits_of(document: dict[str, Any]) -> dict[str, str]:
    return {gate["measure"]: gate["outcome"] for gate in document["gates"]}


@pytest.mark.slow
def test_a_client_with_20_ms_in_every_script_misses_the_limits_of_the_specification(tmp_path: Path) -> None:
    slow = ("--script-ms", "20", "--slow", "worker.checkStalled", "--slow-ms", "150")
    measures = [word for name in (*MISSED, "log") for word in ("--measure", name)]
    code, document, said = bench(
        tmp_path, "--specification", "--rounds", "3", "--jobs", "200", *measures, *LIMITED, *slow
    )
    assert set(limits_of(document)) == {*MISSED, "log"}
    for gate in document["gates"]:
        # On a machine that is too busy for a limit, the gate must say that, and not blame the client.
        assert gate["outcome"] == "fails" or "this machine cannot decide it" in gate["reason"], gate
        assert gate["outcome"] == "undecided" or f"fails: {gate['measure']} at " in said
    assert code == (1 if "fails" in limits_of(document).values() else 4)


MISSED = ("worker", "overhead", "pickup", "claim", "finish", "extend", "stalled-check", "progress")


@pytest.mark.slow
def test_a_client_that_leaks_misses_the_limit_of_its_growth(tmp_path: Path) -> None:
    leaking = ("--specification", "--rounds", "3", "--measure", "growth", *LIMITED, "--leak-bytes", "4000")
    code, document, _ = bench(tmp_path, *leaking)
    # Memory does not depend on the load of the machine, so this is certain anywhere.
    assert (limits_of(document), code) == ({"growth": "fails"}, 1), document


@pytest.mark.slow
def test_under_16_busy_processes_no_client_fails_a_limit(tmp_path: Path) -> None:
    late = ("--specification", "--rounds", "3", "--measure", "pickup", "--measure", "claim", "--jobs", "100")
    with busy_cores(os.getpid()):
        code, document, said = bench(tmp_path, *late, *LIMITED, "--script-ms", "20")
    # The driver waits for a processor most of the time: its 20 ms may be those of the machine.
    assert set(limits_of(document).values()) == {"undecided"}, document
    assert "this machine cannot decide it" in said or "on both sides of" in said
    assert code == 4


@pytest.mark.slow
def test_every_measure_comes_to_a_number_or_says_why_not(tmp_path: Path) -> None:
    code, document, _ = bench(tmp_path, "--rounds", "1", "--jobs", "1000", *LIMITED)
    assert code == 0
    states = {ratio["measure"]: ratio["state"] for ratio in document["ratios"]}
    assert tuple(states) == MEASURE_NAMES
    assert "not-declared" not in states.values()
    assert states["memory"] == states["worker"] == "measured", document
    assert all(ratio["reason"] for ratio in document["ratios"] if ratio["state"] == "not-measured")


def test_every_limit_of_the_ledger_is_one_of_a_measure() -> None:
    rows = [row.bench for row in load_ledger().values() if row.bench]
    bounds = specified_bounds(rows, {measure.name: measure.unit for measure in MEASURES})
    assert {bound.measure for bound in bounds} == set().union(*map(bounded_measures, rows))
    assert all(bound.unit and bound.optional for bound in bounds)
