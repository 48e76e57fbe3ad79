"""Whole runs of the program, as users start them: each client, on each kind of Redis that needs nothing installed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import pytest

from conformance.gate.known_failures import load_known
from conformance.ledger.loader import load_ledger
from conformance.protocol.versions import SUPPORTED_ORACLES
from conformance.report.run_file import read_run
from conformance.upstream.node import bundled_node
from tests.clients.tightness import doubled_in

pytestmark = pytest.mark.long(6)

KNOWN = Path(str(files("conformance.clients"))) / "python_official" / "known.toml"
KNOWN_TO_DIFFER_FROM = {"5.62.0": KNOWN, "6.7.0": KNOWN.with_name("known-6.7.0.toml")}
"""The lists of the official Python client, by oracle."""
ROOT = Path(__file__).parents[2]
DEADLINE_S = 600

WITHOUT_CLOCK = "tests.gate.clockless_node"
DAYS = 16
TURNS = 9
"""Days after which a long run has its turn again."""


def areas_of(day: date) -> list[str]:
    """A sixteenth of the ledger's areas, another one every day, as words of the command line."""
    areas = sorted(load_ledger().areas)
    return [word for area in areas[day.toordinal() % DAYS :: DAYS] for word in ("--select", area)]


TODAY = datetime.now(UTC).date()
OTHER_ORACLE = SUPPORTED_ORACLES[1:][TODAY.toordinal() // DAYS % 2]
ON_ANOTHER_ORACLE = ["--oracle", OTHER_ORACLE, "--client", f"node@{OTHER_ORACLE}", "--tier", "full"]

BRIEF_RUNS = {
    "the oracle agrees with itself": ["--client", "node", *areas_of(TODAY)],
    "the reference on a cluster": [
        "--client",
        "reference",
        "--redis",
        "cluster",
        "--select",
        "cluster",
        "--select",
        "lock",
    ],
    "the oracle on a cluster": ["--client", "node", "--redis", "cluster:3", "--select", "cluster", "--tier", "full"],
}
"""What `make full` runs with every scenario; CI does that instead."""

RUNS = {
    # All of them: `make oracles`.
    "a newer Node agrees with itself": [*ON_ANOTHER_ORACLE, *areas_of(TODAY)],
    # All of them: `make full-node-without-clock`; CI runs its tier `core`.
    "Node without a clock": ["--tier", "full", *areas_of(TODAY), "--", sys.executable, "-m", WITHOUT_CLOCK],
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "conformance", "run", *arguments]
    # The run has a pytest of its own, which must not take itself for a worker of this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment)


@pytest.mark.turns(days=TURNS)
@pytest.mark.parametrize("arguments", BRIEF_RUNS.values(), ids=BRIEF_RUNS.keys())
def test_a_brief_run_is_conformant(arguments: list[str], tmp_path: Path) -> None:
    _is_conformant(arguments, tmp_path)


@pytest.mark.turns(days=TURNS)
@pytest.mark.parametrize("arguments", RUNS.values(), ids=RUNS.keys())
def test_a_whole_run_is_conformant(arguments: list[str], tmp_path: Path) -> None:
    _is_conformant(arguments, tmp_path)


# All of it at once takes as long as fifty other tests: `make clients`.
@pytest.mark.turns(days=TURNS)
@pytest.mark.parametrize("oracle", KNOWN_TO_DIFFER_FROM)
def test_the_official_python_client_fails_as_listed(oracle: str, tmp_path: Path) -> None:
    path = KNOWN_TO_DIFFER_FROM[oracle]
    words = ["--client", "python-official", "--oracle", oracle, "--known", str(path), *areas_of(TODAY)]
    _is_conformant(words, tmp_path)
    ledger = load_ledger(oracle)
    assert doubled_in(read_run(tmp_path / "out" / "run.jsonl"), load_known(path, load_ledger()), ledger) == []


def test_every_list_of_the_official_python_client_is_run() -> None:
    assert set(KNOWN.parent.glob("known*.toml")) == set(KNOWN_TO_DIFFER_FROM.values())
    planned = subprocess.run(["make", "--dry-run", "clients"], capture_output=True, text=True, check=True, cwd=ROOT)
    runs = [line for line in planned.stdout.splitlines() if "bullmq-conformance run --client python-official" in line]
    assert [line.partition("--oracle ")[2].split() for line in runs] == [[oracle] for oracle in KNOWN_TO_DIFFER_FROM]


def test_every_area_has_its_day() -> None:
    first = date(2026, 1, 1)
    days = [areas_of(first + timedelta(days=day)) for day in range(DAYS)]
    areas = [word for words in days for word in words if word != "--select"]
    assert sorted(areas) == sorted(load_ledger().areas)
    assert math.gcd(DAYS, TURNS) == 1, "some areas would never come"


def _is_conformant(arguments: list[str], tmp_path: Path) -> None:
    done = run("--jobs", "1", "--out", str(tmp_path / "out"), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    said = (tmp_path / "out" / "summary.md").read_text("utf-8")
    narrowed = {"smoke", "--select"} & set(arguments)
    assert ("SELECTION HOLDS" if narrowed else "CONFORMANT ") in said


PRODUCER = [sys.executable, "-m", "tests.gate.limited_driver", "--only", "queue.add", "--roles", "queue"]
"""Adds jobs, and nothing else."""


def test_a_profile_that_the_driver_lacks_is_said_before_anything_runs(tmp_path: Path) -> None:
    done = run("--profile", "worker", "--out", str(tmp_path / "out"), "--", *PRODUCER, "--capabilities", "clock")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "does not declare the profile worker: resolve, managed-worker missing" in done.stderr
    assert "running" not in done.stderr


@pytest.mark.turns(days=6)
def test_the_official_python_client_is_not_conformant_without_the_list() -> None:
    done = run("--client", "python-official", "--no-known", "--select", "add.priority.limit", "--jobs", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "add.priority.limit" in done.stdout


@pytest.mark.turns(days=6)
def test_the_bundled_node_and_the_bundled_redis_are_enough(tmp_path: Path) -> None:
    node = bundled_node()
    assert node is not None, "the package nodejs-bin is not installed"
    _is_conformant(["--client", "reference", "--node", str(node), "--redis", "bundled", "--tier", "smoke"], tmp_path)
    header = read_run(tmp_path / "out" / "run.jsonl").header
    assert header.oracle.command[0] == str(node)
    assert "from the package" in header.redis.source, header.redis


def test_every_newer_oracle_is_run_with_all_scenarios() -> None:
    planned = subprocess.run(["make", "--dry-run", "oracles"], capture_output=True, text=True, check=True, cwd=ROOT)
    runs = [line for line in planned.stdout.splitlines() if "bullmq-conformance run" in line]
    wanted = [f"--oracle {version} --client node@{version}" for version in SUPPORTED_ORACLES[1:]]
    assert [run[run.index("--oracle") :] for run in runs] == wanted
    assert all("--tier full" in run for run in runs)


def test_every_scenario_is_run_on_both_clients_and_both_kinds_of_redis() -> None:
    planned = subprocess.run(["make", "--dry-run", "full"], capture_output=True, text=True, check=True, cwd=ROOT)
    runs = [
        line.partition("run ")[2].split() for line in planned.stdout.splitlines() if "bullmq-conformance run" in line
    ]
    assert all(words[:2] == ["--tier", "full"] and "--select" not in words for words in runs)
    assert [
        [word for word in words if word in {"reference", "node", "cluster:3", WITHOUT_CLOCK}] for words in runs
    ] == [
        ["reference"],
        ["node"],
        [WITHOUT_CLOCK],
        ["reference", "cluster:3"],
        ["node", "cluster:3"],
    ]
    in_ci = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "\ncore_runs=(node-without-clock reference-cluster)\n" in in_ci
    assert '\ncore_run="${core_runs[today % 2]}"\n' in in_ci
    assert ' make "full-$core_run" ' in in_ci
