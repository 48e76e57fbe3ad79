"""Each profile can be claimed by a client that has exactly what the profile asks for, and nothing else.

A client that cannot decide a requirement of its profile stays UNDECIDED; the requirement then belongs to another one.
Behind the driver is the reference, so that nothing fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.driver.ops import REGISTRY
from conformance.gate.repetition import TOO_BUSY
from conformance.ledger.loader import examined_rows
from conformance.ledger.profiles import WORKER_EVENTS, load_profiles
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.report.run_file import read_run
from tests.gate.limited_driver import ALWAYS

DECIDED = load_profiles().rows_by_profile(examined_rows(BULLMQ_VERSION))
PROFILES = [
    name
    for name, profile in load_profiles().items()
    # Every run decides `wire`, and no single Redis `cluster`; some profiles are about newer versions only.
    if DECIDED[name] and not profile.is_common and not profile.needs
]

pytestmark = [pytest.mark.long(1), pytest.mark.slow]


def limits_of(name: str) -> list[str]:
    """The words for `tests.gate.limited_driver`: what the profile and its base ask for, and the objects for that."""
    asking = [load_profiles()[part] for part in load_profiles().with_bases([name])]
    operations = {operation for profile in asking for operation in profile.operations} - ALWAYS
    capabilities = {capability for profile in asking for capability in profile.capabilities}
    roles = {REGISTRY[operation].on for operation in operations}
    if capabilities & {"managed-worker", "manual-worker"}:
        roles.add("worker")
    if "library" in capabilities:  # its log lines are about every object
        roles.add("events")
    words = ["--only", ",".join(sorted(operations)), "--roles", ",".join(sorted(roles) or ["events"])]
    words += ["--capabilities", ",".join(sorted(capabilities - {WORKER_EVENTS}))]
    return words if WORKER_EVENTS in capabilities else [*words, "--no-worker-events"]


@pytest.mark.parametrize("name", PROFILES)
def test_the_operations_of_a_profile_are_enough(name: str, tmp_path: Path) -> None:
    driver = [sys.executable, "-m", "tests.gate.limited_driver", *limits_of(name)]
    # Its base has a day of its own.
    rows = [word for row in DECIDED[name] for word in ("--select", row)]
    command = [sys.executable, "-m", "conformance", "run", *rows, "--jobs", "2", "--out", str(tmp_path)]
    # The run has a pytest of its own, which must not take itself for a worker of this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run([*command, "--", *driver], capture_output=True, text=True, check=False, env=environment)
    scenarios = read_run(tmp_path / "run.jsonl").scenarios
    decided = {row for scenario in scenarios for row, verdict in scenario.requirements.items() if verdict == "pass"}
    # A machine that was too busy for a row leaves it open, and says so.
    open_for_now = {
        row for scenario in scenarios if scenario.reason.startswith(TOO_BUSY) for row in scenario.requirements
    }
    assert set(DECIDED[name]) - decided - open_for_now == set(), done.stdout + done.stderr
    assert done.returncode in ((0, 4) if open_for_now else (0,)), done.stdout + done.stderr
