"""Differences of newer versions of BullMQ are really checked: an older or broken Node fails it, the newer does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import pytest

from conformance.gate.records import RunHeader, ScenarioRecord, decode
from tests.mutants.newer_node import NEWEST as NEWER

CHANGED = (
    "pause.moves-wait",
    "pause.parked-by-older",
    "paused.counted",
    "add.priority.limit",
    "dedup.former-name-refused",
    "retention.limit",
    "scheduler.legacy-repeat",
    "script.refused-call",
    "dedup.child-refused",
    "dedup.keep-last",
    "dedup.keep-last.no-expiry",
    "dedup.reschedule",
    "dedup.stale-owner",
    "lock.renewal.reported",
    "ratelimit.longest-pause",
    "retry.manual.counters",
    "retry.manual.prioritized",
)
"""Rows that say something else of this version than of the pinned one."""

LAST_WITHOUT: Mapping[str, tuple[str, ...]] = {
    "5.63.1": ("lock.renewal.reported",),
    "5.64.0": ("ratelimit.longest-pause",),
    "5.65.1": ("retry.manual.counters",),
    "5.70.3": ("dedup.child-refused",),
    "5.71.1": ("dedup.keep-last", "dedup.keep-last.no-expiry"),
    "5.72.1": ("add.custom-id", "dedup.keep-last"),
    "6.3.6": ("dedup.stale-owner", "dedup.replace"),
    "6.3.11": ("retry.manual.prioritized",),
    "6.5.4": ("dedup.reschedule",),
}
"""The last release before that of each feature, and its rows. 5.72.1: kept jobs lost their ids until 5.77.4."""

DEFECTS: Mapping[str, str] = {
    "cancel.answers-only": "cancel.signal",
    "cancel.without-reason": "cancel.signal",
    "cancel.never-retried": "cancel.ends-like-others",
    "cancel.knows-every-job": "cancel.elsewhere",
    "cancel.all-but-one": "cancel.all",
    "meta.without-limit": "getters.meta",
    "orphans.kept": "lifecycle.remove.orphans",
    "orphans.without-limit": "lifecycle.remove.orphans",
    "dedup.frees-foreign-id": "dedup.key-removal.job",
    "dedup.last-of-a-failure-lost": "dedup.keep-last",
    "retry.resets-both": "retry.manual.counters",
    "locks.lost-in-silence": "lock.renewal.reported",
    "relay.delivers-twice": "relay.delivers",
    "relay.star-without-end": "relay.patterns",
    "relay.repairs-topics": "relay.refused",
    "relay.one-namespace": "relay.namespaces",
    "relay.any-layout": "relay.layout",
    "relay.endless-inbox": "relay.inbox",
    "relay.behind-in-silence": "relay.lag",
    "relay.endless-keys": "relay.lease",
    "relay.recovers-alone": "relay.recovers",
    "relay.sweeps-no-index": "relay.sweeps",
    "relay.retained-unmarked": "relay.retained",
    "relay.never-unsubscribes": "relay.ends",
    "relay.counts-patterns": "relay.getters",
    "meter.only-ends": "telemetry.counters",
    "meter.without-state": "telemetry.counters",
    "meter.seconds": "telemetry.durations",
}
"""Planted defects of the newer Node (`newer_node.mjs`), and the rows that fail with them."""


NOTICED = {"fail", "warn"}
"""Verdicts on a broken client."""
UNDECIDED = 4
"""The exit code of a run all of whose rows are inconclusive."""
ATTEMPTS = 3
"""Runs, while the machine is too busy to judge a row of which the kit waits in vain."""


def verdicts(client: str, folder: Path, rows: Iterable[str] = CHANGED, command: str = "") -> dict[str, set[str]]:
    """The verdicts of a run on each row, over its scenarios. `command`: of a driver, instead of a client by name."""
    chosen = list(rows)
    for attempt in range(ATTEMPTS):
        found = _verdicts_once(client, folder / str(attempt), chosen, command)
        if not any("inconclusive" in found[row] for row in chosen):
            break
    return found


def _verdicts_once(client: str, folder: Path, rows: Iterable[str], command: str) -> dict[str, set[str]]:
    words = ["run", "--oracle", NEWER, "--tier", "full", "--jobs", "1", "--out", str(folder)]
    words += [word for row in rows for word in ("--select", row)]
    words += ["--", *command.split()] if command else ["--client", client]
    done = subprocess.run([sys.executable, "-m", "conformance", *words], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, UNDECIDED), done.stdout + done.stderr
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


@pytest.mark.slow  # one run decides all rows
@pytest.mark.parametrize("row", CHANGED)
def test_an_older_version_fails_what_has_changed(of_the_older: dict[str, set[str]], row: str) -> None:
    assert of_the_older[row] & NOTICED, of_the_older


@pytest.mark.slow
def test_the_newer_version_itself_passes(tmp_path: Path) -> None:
    found = verdicts(f"node@{NEWER}", tmp_path)
    assert {row: found[row] for row in CHANGED} == {row: {"pass"} for row in CHANGED}


@pytest.mark.slow
@pytest.mark.parametrize("release", LAST_WITHOUT)
def test_the_last_release_without_a_feature_fails_it(tmp_path: Path, release: str) -> None:
    found = verdicts(f"node@{release}", tmp_path, LAST_WITHOUT[release])
    assert {row for row in LAST_WITHOUT[release] if found[row] & NOTICED} == set(LAST_WITHOUT[release]), found


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_in_a_newer_feature_is_noticed(tmp_path: Path, defect: str) -> None:
    row = DEFECTS[defect]
    found = verdicts("", tmp_path, [row], f"{sys.executable} -m tests.mutants.newer_node {defect}")
    assert found[row] & NOTICED, found
