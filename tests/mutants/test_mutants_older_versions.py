"""Differences of newer versions of BullMQ are really checked: an older Node fails it, the newer one does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from conformance.gate.records import RunHeader, ScenarioRecord, decode

NEWER = "6.7.0"
CHANGED = (
    "pause.moves-wait",
    "pause.parked-by-older",
    "paused.counted",
    "add.priority.limit",
    "dedup.former-name-refused",
    "retention.limit",
    "scheduler.legacy-repeat",
    "script.refused-call",
)
"""Rows that say something else of this version than of the pinned one."""


def verdicts(client: str, folder: Path) -> dict[str, set[str]]:
    """The verdict of a run on each row, over its scenarios."""
    words = ["run", "--oracle", NEWER, "--client", client, "--tier", "full", "--jobs", "1", "--out", str(folder)]
    words += [word for row in CHANGED for word in ("--select", row)]
    done = subprocess.run([sys.executable, "-m", "conformance", *words], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, set[str]] = {}
    for line in (folder / "run.jsonl").read_bytes().splitlines():
        record = decode(line)
        if isinstance(record, RunHeader):
            assert (record.oracle.version, record.requirement_set) == (NEWER, NEWER), msgspec.to_builtins(record)
        if isinstance(record, ScenarioRecord):
            for row, verdict in record.requirements.items():
                found.setdefault(row, set()).add(verdict)
    return found


@pytest.fixture(scope="module")
def of_the_older(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    return verdicts("node@5.62.0", tmp_path_factory.mktemp("older"))


@pytest.mark.parametrize("row", CHANGED)
def test_an_older_version_fails_what_has_changed(of_the_older: dict[str, set[str]], row: str) -> None:
    assert of_the_older[row] & {"fail", "warn"}, of_the_older


def test_the_newer_version_itself_passes(tmp_path: Path) -> None:
    found = verdicts(f"node@{NEWER}", tmp_path)
    assert {row: found[row] for row in CHANGED} == {row: {"pass"} for row in CHANGED}
