"""After its last fault a run waits until there is enough for the invariants to judge."""

from __future__ import annotations

import pytest

from chaos.recovery_phase import RecoveryProgress
from chaos.workload import LONG, LONG_MS
from conformance.checkers.histories.history import HistoryLine, RunEnded, RunStarted, ScriptLine


def started(at_ms: float, token: str, name: str = "p1-7") -> RunStarted:
    return RunStarted(at_ms=at_ms, process="worker-1", queue=LONG, job="7", name=name, token=token)


def ended(at_ms: float, token: str, name: str = "p1-7") -> RunEnded:
    return RunEnded(at_ms=at_ms, process="worker-1", queue=LONG, job="7", name=name, token=token, outcome="complete")


def renewal(at_ms: float, jobs: list[str], refused: list[str], process: str = "worker-1") -> ScriptLine:
    return ScriptLine(at_ms=at_ms, process=process, script="extendLocks", queue=LONG, jobs=jobs, refused=refused)


RENEWED = [renewal(at_ms, ["7"], []) for at_ms in (1000, 2000, 3000)]
REFUSED = [renewal(at_ms, ["9"], ["7"]) for at_ms in (1000, 2000, 3000)]
OF_ANOTHER = [renewal(at_ms, ["7"], [], "worker-2") for at_ms in (1000, 2000, 3000)]
WHOLE = ended(LONG_MS, "t:1")


@pytest.mark.parametrize(
    ("lines", "runs"),
    [
        ([started(0, "t:1"), *RENEWED, WHOLE], 1),
        ([started(0, "t:1"), WHOLE], 1),  # without a tap
        ([started(0, "t:1"), *RENEWED[:2], WHOLE], 0),
        ([started(0, "t:1"), *REFUSED, WHOLE], 0),
        ([started(0, "t:1"), *OF_ANOTHER, WHOLE], 0),
        ([*RENEWED, started(4000, "t:1"), ended(4000 + LONG_MS, "t:1")], 0),
        ([started(0, "t:1"), *RENEWED, ended(LONG_MS - 100, "t:1")], 0),
        ([started(0, "t:1"), *RENEWED, started(3500, "t:2"), WHOLE, ended(3500 + LONG_MS, "t:2")], 0),
        ([started(0, "t:1"), *RENEWED, WHOLE, started(5000, "t:2", "p1-8"), ended(5010, "t:2", "p1-8")], 1),
        ([WHOLE], 0),
    ],
)
def test_a_long_job_counts_that_held_its_lock(lines: list[HistoryLine], runs: int) -> None:
    """Otherwise a run ends without one that the invariant `renewals` can judge: a fault has taken all of them away."""
    watch = RecoveryProgress()
    for line in lines:
        watch(line)
    assert watch.long_runs == runs
