"""`bench -- ./driver` with small counts: the numbers say nothing, what is said of them does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.speed.measures import MEASURE_NAMES

SECONDS = 600
"""The time that a bench with tiny counts may take on a very busy machine."""

LIMITED = ("--", sys.executable, "-m", "tests.gate.limited_driver")


def bench(out: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """Run the verb as a user does; returns the exit code, the document and what was printed."""
    command = [sys.executable, "-m", "conformance", "bench", "--out", str(out), "--jobs", "20", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (out / "bench.json").exists(), done.stderr
    return done.returncode, json.loads((out / "bench.json").read_text("utf-8")), done.stdout


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


@pytest.mark.turns(days=3)
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


@pytest.mark.turns(days=2)
def test_every_measure_comes_to_a_number_or_says_why_not(tmp_path: Path) -> None:
    code, document, _ = bench(tmp_path, "--rounds", "1", "--jobs", "1000", *LIMITED)
    assert code == 0
    states = {ratio["measure"]: ratio["state"] for ratio in document["ratios"]}
    assert tuple(states) == MEASURE_NAMES
    assert "not-declared" not in states.values()
    assert states["memory"] == states["worker"] == "measured", document
    assert all(ratio["reason"] for ratio in document["ratios"] if ratio["state"] == "not-measured")
