"""Clients that hurt the run itself: each gets a finding or a clear exit code, and nothing is blamed on the oracle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.gate.records import ScenarioRecord
from conformance.report.run_file import read_run

pytestmark = [pytest.mark.long(2), pytest.mark.slow]

SECONDS = 300
"""Ten times what each takes on a quiet machine."""
SELECTED = ("add/*", "lifecycle/*", "liveness/an_idle_worker_*", "getters/counts*")
"""Scenarios with and without the operations that hang."""


def gated(client: str, out: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "conformance", "run", "--jobs", "3", "--out", str(out)]
    words += [word for pattern in SELECTED for word in ("--select", pattern)]
    words += ["--", sys.executable, "-m", "tests.gate.hostile_clients", client]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS, env=environment)


@pytest.mark.parametrize(
    ("client", "said"),
    [("ends", "it ended (exit code 1) during the handshake"), ("mute", "did not answer queue.add within")],
)
def test_a_client_that_does_nothing_is_a_broken_driver(client: str, said: str, tmp_path: Path) -> None:
    done = gated(client, tmp_path / "out")
    assert (done.returncode, said in done.stderr) == (3, True), done.stderr[-3000:]
    assert "oracle" not in done.stderr


@pytest.mark.parametrize(
    ("client", "kind", "rows"),
    [
        ("endless-add", "endless-script", {"add.plain.waits"}),
        ("endless-finish", "endless-script", {"lifecycle.complete.moves", "lifecycle.fail.moves", "liveness.pickup"}),
        ("endless-write", "endless-script", {"lifecycle.complete.moves", "lifecycle.fail.moves", "liveness.pickup"}),
        ("floods", "flood", {"liveness.idle-traffic"}),
    ],
)
def test_the_harm_to_the_run_is_the_only_failure(client: str, kind: str, rows: set[str], tmp_path: Path) -> None:
    done = gated(client, tmp_path / "out")
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    records = read_run(tmp_path / "out" / "run.jsonl").scenarios
    assert [(record.id, record.reason) for record in records if record.verdict in ("error", "inconclusive")] == []
    found = [finding for record in records for finding in record.findings if finding.kind == kind]
    assert found
    assert {finding.requirement for finding in found} <= rows
    assert kind != "flood" or {finding.actual.split(" (")[0] for finding in found} == {"EVAL"}
    assert _other_failures(records, kind) == []
    assert any(record.verdict == "pass" for record in records)
    refused = [record for record in records if "did not end before" in record.reason]
    assert all("observe" not in record.timings_ms for record in refused), "what was refused is not compared"
    assert bool(refused) == (kind == "endless-script")


def _other_failures(records: tuple[ScenarioRecord, ...], kind: str) -> list[tuple[str, str]]:
    """The findings of other kinds that fail a scenario. A flood is also traffic, of which other rows warn."""
    findings = ((record, finding) for record in records for finding in record.findings if finding.kind != kind)
    return [
        (record.id, finding.message)
        for record, finding in findings
        if record.requirements.get(finding.requirement) == "fail" and finding.kind != "assertion"
    ]
