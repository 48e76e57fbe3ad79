"""Clients with fewer abilities than Node, with the command that their authors type: correct findings, and no others.

Behind each driver is the reference, so that a requirement fails only where the limit itself breaks it. The selections
are the smallest that still show it; whole runs of all of them take minutes each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.gate.repetition import TOO_BUSY
from conformance.ledger.loader import load_ledger
from conformance.protocol.scripts import BULLMQ_VERSION

pytestmark = [pytest.mark.long(1), pytest.mark.slow]

EXAMINED = sum(row.examined for row in load_ledger(BULLMQ_VERSION).values())
"""A share of that many requirements is decided."""
SECONDS = 600
"""Ten times what the longest of them takes on a quiet machine."""
ATTEMPTS = 4
"""Whether a call hangs can only be judged by time: on a machine that is too busy for that, the run is repeated."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A limited client, and what has to be said of it.

    `sentence`: the start of the verdict. `failing`: the requirements that the limit breaks. `least`, `most`: bounds of
    the requirements that are decided. `badge`: the start of its message, and its colour.
    """

    limits: tuple[str, ...]
    asked: tuple[str, ...]
    exit_code: int
    sentence: str
    failing: frozenset[str] = frozenset()
    badge: tuple[str, str] | None = None
    least: int
    most: int = EXAMINED


CASES = {
    "adds only": Case(
        limits=("--only", "queue.add", "--roles", "queue", "--capabilities", "clock,raw-data"),
        asked=("--profile", "producer"),
        exit_code=0,
        sentence="CONFORMANT as producer. ",
        badge=("producer · ", "green"),
        least=39,
        most=150,
    ),
    "works only, by its own loop and without a clock": Case(
        limits=("--only", "resolve", "--roles", "worker", "--capabilities", "managed-worker"),
        asked=("--select", "retention", "--select", "eviction-of-relatives", "--select", "getters"),
        exit_code=0,
        sentence="SELECTION HOLDS: ",
        least=11,
        most=40,
    ),
    "uuids": Case(
        limits=("--ids", "uuid"),
        asked=("--profile", "producer"),
        exit_code=1,
        sentence="NOT CONFORMANT as producer (1 of ",
        failing=frozenset({"add.id.counter"}),
        least=39,
    ),
    "names for ids": Case(
        limits=("--ids", "named"),
        asked=("--select", "add", "--select", "order"),
        exit_code=1,
        sentence="NOT CONFORMANT in this selection",
        failing=frozenset({"add.id.counter"}),
        least=25,
    ),
    "silent workers": Case(
        limits=("--no-worker-events",),
        asked=("--profile", "limits"),
        exit_code=0,
        sentence="CONFORMANT as limits. ",
        least=23,
    ),
    "silent workers that are judged as workers": Case(
        limits=("--no-worker-events",),
        asked=("--profile", "worker"),
        exit_code=0,
        sentence="CONFORMANT as worker. ",
        least=120,
    ),
    "a fixed prefix": Case(
        limits=("--fixed-prefix", "fixed"),
        asked=("--select", "order", "--select", "pause"),
        exit_code=1,
        sentence="NOT CONFORMANT in this selection",
        failing=frozenset({"key.plain"}),
        least=15,
    ),
    "claiming hangs": Case(
        limits=("--hang", "worker.getNextJob"),
        asked=("--select", "lock", "--select", "metrics"),
        exit_code=1,
        sentence="NOT CONFORMANT in this selection",
        failing=frozenset({"lifecycle.claim.oldest-first"}),
        least=1,
    ),
    "pausing hangs": Case(
        limits=("--hang", "queue.pause"),
        asked=("--profile", "pause"),
        exit_code=1,
        sentence="NOT CONFORMANT as pause (1 of 15 fails)",
        failing=frozenset({"pause.moves-wait"}),
        least=1,
    ),
    "pausing crashes": Case(
        limits=("--crash", "queue.pause"),
        asked=("--profile", "pause"),
        exit_code=1,
        sentence="NOT CONFORMANT as pause (1 of 15 fails)",
        failing=frozenset({"pause.moves-wait"}),
        least=1,
    ),
    "pausing loses the connection": Case(
        limits=("--lose", "queue.pause"),
        asked=("--select", "pause"),
        exit_code=1,
        sentence="NOT CONFORMANT in this selection",
        failing=frozenset({"pause.moves-wait"}),
        least=1,
    ),
    "completing crashes": Case(
        limits=("--crash", "worker.moveToCompleted"),
        asked=("--select", "eviction", "--select", "metrics"),
        exit_code=1,
        sentence="NOT CONFORMANT in this selection",
        failing=frozenset({"lifecycle.complete.moves"}),
        least=1,
    ),
    "nothing": Case(
        limits=("--only", "", "--capabilities", "", "--roles", ""),
        asked=("--select", "add", "--select", "lock"),
        exit_code=4,
        sentence=f"UNDECIDED: no profile is whole; no requirement was decided. 0 of {EXAMINED} ",
        least=0,
        most=0,
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_statements_about_a_limited_client_are_true(case: Case, tmp_path: Path) -> None:
    for attempt in range(ATTEMPTS):
        out = tmp_path / f"out-{attempt}"
        done = _run(case, out)
        records = _records(out / "run.jsonl")
        if done.returncode == case.exit_code or not any(record["reason"].startswith(TOO_BUSY) for record in records):
            break
    said = done.stdout + done.stderr
    found = {finding["requirement"]: finding["message"] for record in records for finding in record["findings"]}
    assert set(found) == case.failing, found
    assert not [record["id"] for record in records if record["verdict"] == "error"], said
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert summary["conclusion"]["sentence"].startswith(case.sentence), summary["conclusion"]["sentence"]
    assert case.least <= summary["conclusion"]["decided"] <= case.most, summary["conclusion"]
    assert done.returncode == case.exit_code, said
    if case.badge:
        badge = json.loads((out / "badge.json").read_text("utf-8"))
        assert (badge["message"][: len(case.badge[0])], badge["color"]) == case.badge


def _run(case: Case, out: Path) -> subprocess.CompletedProcess[str]:
    driver = [sys.executable, "-m", "tests.gate.limited_driver", *case.limits]
    command = [sys.executable, "-m", "conformance", "run", *case.asked, "--jobs", "1", "--out", str(out)]
    # The run has a pytest of its own, which must not take itself for a worker of this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*command, "--", *driver], capture_output=True, text=True, check=False, timeout=SECONDS, env=environment
    )


def _records(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [line for line in lines if line["type"] == "scenario"]
