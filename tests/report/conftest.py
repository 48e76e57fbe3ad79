"""A small ledger that does not change with the kit's own, and the hand-written runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.gate.records import Level
from conformance.report.rows import Rows
from conformance.report.run_file import read_run
from conformance.report.summary import Summary, summarise

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Row:
    level: Level
    area: str
    statement: str
    source: str


ROWS: Rows = {
    "add.plain.waits": Row("MUST", "add", "A job without options is put at the end of wait.", "addStandardJob-9.lua"),
    "add.id.counter": Row("MUST", "add", "Ids count up from 1.", "addStandardJob-9.lua"),
    "add.options.encoding": Row("MUST", "add", "opts is the JSON that JSON.stringify writes.", "src/classes/job.ts"),
    "add.timestamp": Row("MUST", "add", "timestamp is the client's time when the job was made.", "storeJob.lua"),
    "lock.stale-token-refused": Row("MUST", "lock", "Who does not own the lock is refused.", "removeLock.lua"),
    "lock.renewed": Row("MUST", "lock", "A worker extends its lock before it runs out.", "extendLocks-1.lua"),
    "events.waiting": Row("SHOULD", "events", "A job that enters wait is announced.", "addJobInTargetList.lua"),
    "events.metrics": Row("MAY", "events", "Finished jobs are counted per minute.", "collectMetrics.lua"),
    "flow.parent-waits": Row("MUST", "flow", "A parent waits for all its children.", "addParentJob-6.lua"),
    "flow.fail-parent": Row("MUST", "flow", "failParentOnFailure fails the parent.", "moveToFinished-14.lua"),
    "retry.fixed-backoff": Row("MUST", "retry", "A fixed back-off waits the same time.", "src/classes/backoffs.ts"),
    "retry.jitter": Row("SHOULD", "retry", "Jitter stays within its bounds.", "src/classes/backoffs.ts"),
    "rate.limit": Row("MUST", "rate", "No more than max jobs start per duration.", "moveToActive-11.lua"),
}


@pytest.fixture
def rows() -> Rows:
    return ROWS


@pytest.fixture
def run_path() -> Callable[[str], Path]:
    return lambda name: HERE / "runs" / f"{name}.jsonl"


@pytest.fixture
def summary_of(run_path: Callable[[str], Path]) -> Callable[[str], Summary]:
    return lambda name: summarise(read_run(run_path(name)), ROWS)
