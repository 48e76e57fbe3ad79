"""Whole runs of the program, as users start them: each client, on each kind of Redis that needs nothing installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from conformance.gate.known_failures import load_known
from conformance.ledger.loader import load_ledger
from conformance.protocol.versions import SUPPORTED_ORACLES
from conformance.report.run_file import read_run
from conformance.upstream.node import bundled_node
from tests.clients.tightness import doubled_in
from tests.parts import WHOLE_RUNS

pytestmark = pytest.mark.long(6)

KNOWN = Path(str(files("conformance.clients"))) / "python_official" / "known.toml"
KNOWN_TO_DIFFER_FROM = {"5.62.0": KNOWN, "6.7.0": KNOWN.with_name("known-6.7.0.toml")}
"""The lists of the official Python client, by oracle."""
ROOT = Path(__file__).parents[2]
DEADLINE_S = 600

WITHOUT_CLOCK = "tests.gate.clockless_node"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "conformance", "run", *arguments]
    # The run has a pytest of its own, which must not take itself for a worker of this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("oracle", KNOWN_TO_DIFFER_FROM)
def test_the_official_python_client_fails_as_listed(oracle: str, tmp_path: Path) -> None:
    path = KNOWN_TO_DIFFER_FROM[oracle]
    _is_conformant(["--client", "python-official", "--oracle", oracle, "--known", str(path)], tmp_path)
    ledger = load_ledger(oracle)
    assert doubled_in(read_run(tmp_path / "out" / "run.jsonl"), load_known(path, load_ledger()), ledger) == []


def test_every_list_of_the_official_python_client_is_run() -> None:
    assert set(KNOWN.parent.glob("known*.toml")) == set(KNOWN_TO_DIFFER_FROM.values())


def _is_conformant(arguments: list[str], tmp_path: Path) -> None:
    done = run("--jobs", "3", "--out", str(tmp_path / "out"), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    said = (tmp_path / "out" / "summary.md").read_text("utf-8")
    narrowed = {"smoke", "--select"} & set(arguments)
    assert ("SELECTION HOLDS" if narrowed else "CONFORMANT ") in said


PRODUCER = [sys.executable, "-m", "tests.gate.limited_driver", "--only", "queue.add", "--roles", "queue"]
"""Adds jobs, and nothing else."""


@pytest.mark.slow
def test_a_profile_that_the_driver_lacks_is_reported_before_anything_runs(tmp_path: Path) -> None:
    done = run("--profile", "worker", "--out", str(tmp_path / "out"), "--", *PRODUCER, "--capabilities", "clock")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "does not declare the profile worker: resolve, managed-worker missing" in done.stderr
    assert "running" not in done.stderr


@pytest.mark.slow
def test_the_official_python_client_is_not_conformant_without_the_list() -> None:
    done = run("--client", "python-official", "--no-known", "--select", "add.priority.limit", "--jobs", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "add.priority.limit" in done.stdout


@pytest.mark.slow
def test_the_bundled_node_and_the_bundled_redis_are_enough(tmp_path: Path) -> None:
    node = bundled_node()
    assert node is not None, "the package nodejs-bin is not installed"
    _is_conformant(["--client", "reference", "--node", str(node), "--redis", "bundled", "--tier", "smoke"], tmp_path)
    header = read_run(tmp_path / "out" / "run.jsonl").header
    assert header.oracle.command[0] == str(node)
    assert "from the package" in header.redis.source, header.redis


def test_everything_has_every_scenario_on_both_clients_both_kinds_of_redis_and_each_oracle() -> None:
    planned = subprocess.run(["make", "--dry-run", *WHOLE_RUNS], capture_output=True, text=True, check=True, cwd=ROOT)
    runs = [
        line.partition("run ")[2].split() for line in planned.stdout.splitlines() if "bullmq-conformance run" in line
    ]
    assert all(words[:2] == ["--tier", "full"] and "--select" not in words for words in runs)
    newer = [["--oracle", version, "--client", f"node@{version}"] for version in SUPPORTED_ORACLES[1:]]
    assert [words[2:] for words in runs if WITHOUT_CLOCK not in words] == [
        ["--client", "reference"],
        ["--client", "node"],
        ["--client", "reference", "--redis", "cluster:3"],
        ["--client", "node", "--redis", "cluster:3"],
        *newer,
    ]
    assert sum(WITHOUT_CLOCK in words for words in runs) == 1
