"""A stall is excused only if its lock can have expired, and if a fault of its own worker explains that."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.checkers.histories.history import HistoryLine, MachineStarved, ResourceSample, RunStarted, ScriptLine
from tests.checkers.history_builders import added, event, fault, judged, script

LOCK_MS = 2000
BOUNDS: dict[str, Any] = {"lock_ms": LOCK_MS}
CLAIMED, STALLED = 20, 3000
FROZEN_W: dict[str, Any] = {"processes": ["w"]}
FROZEN_OTHER: dict[str, Any] = {"processes": ["other"]}


def renewal(at: float, job: str = "1") -> ScriptLine:
    return ScriptLine(at_ms=at + 1, sent_ms=at, process="w", script="extendLocks", queue="q", jobs=[job])


def started(at: float, job: str = "1", name: str = "a") -> RunStarted:
    return RunStarted(at_ms=at, process="w", queue="q", job=job, name=name, token="t")


def stall(stalled: float = STALLED, *, is_run: bool = True) -> list[HistoryLine]:
    """Worker `w` claims a job at 20 ms, runs it unless it drops it, and the job stalls."""
    return [
        *added(10),
        event(10, "waiting", order=1),
        event(CLAIMED, "active"),
        script(CLAIMED + 0.3, "moveToActive", "t"),
        *([started(CLAIMED + 1)] if is_run else []),
        event(stalled, "waiting", prev="active"),
        event(stalled, "stalled", order=1),
        event(stalled + 10, "active"),
    ]


def problems(lines: list[HistoryLine]) -> str:
    return "; ".join(finding.message for finding in judged("duplicate-runs", lines, **BOUNDS).findings)


def test_a_fault_of_another_process_excuses_nothing() -> None:
    assert "no fault has touched its worker, w" in problems(stall())
    assert "no fault has touched its worker, w" in problems([*stall(), *fault(100, 900, **FROZEN_OTHER)])
    assert not problems([*stall(), *fault(100, 900, **FROZEN_W)])
    assert not problems([*stall(), *fault(100, 900, "redis.freeze")])


@pytest.mark.parametrize(("stalled", "renewed"), [(1990, []), (3000, [1100])])
def test_no_fault_of_a_process_makes_a_lock_expire_sooner(stalled: float, renewed: list[float]) -> None:
    lines = [*stall(stalled), *map(renewal, renewed), *fault(100, 4500, **FROZEN_W)]
    waits = ResourceSample(at_ms=stalled, waited_ms={"w": 5000.0})
    assert "its lock lives for 2000 ms" in problems([*lines, waits, MachineStarved(since_ms=50, at_ms=4500)])
    assert not problems([*lines, *fault(1500, 1600, "evict.lock", processes=[], keys=["lock"])])
    assert "its lock lives" in problems([*lines, *fault(1500, 1600, "evict.marker", processes=[], keys=["marker"])])


def test_only_a_confirmed_renewal_of_the_same_worker_counts() -> None:
    lines = [*stall(), *fault(100, 900, **FROZEN_W)]
    lost = ScriptLine(at_ms=1101, sent_ms=1100, process="w", script="extendLocks", queue="q", job="1", fate="lost")
    foreign = ScriptLine(at_ms=1101, sent_ms=1100, process="v", script="extendLocks", queue="q", jobs=["1"])
    assert not problems([*lines, lost, foreign])


def test_a_fault_before_the_last_renewal_explains_nothing() -> None:
    lines = [*stall(5000), renewal(1500), *fault(100, 900, **FROZEN_W)]
    assert "no fault has touched its worker" in problems(lines)
    # A worker whose call to end the job was lost does not renew its lock any more.
    assert not problems([*lines, script(800, "moveToFinished", "t", fate="lost")])


def test_a_worker_does_not_drop_a_job_that_it_received() -> None:
    dropped = stall(is_run=False)
    assert "w received it by moveToActive and never ran it" in problems(dropped)
    for excuse in (
        fault(10, 21, "redis.client-kill"),  # the connection broke before the worker read the reply
        fault(150, 300, "redis.client-kill"),  # or so shortly afterwards that it may not have read it
        fault(1500, 1600, "worker.kill", **FROZEN_W),
    ):
        assert not problems([*dropped, *excuse])
    for nothing in (
        fault(1500, 1600, "redis.client-kill"),  # the job was in the worker's hands for a second
        fault(10, 2900, "worker.freeze", **FROZEN_OTHER),
    ):
        assert "never ran it" in problems([*dropped, *nothing])


def test_a_slow_worker_starts_its_jobs_in_the_order_in_which_it_gets_them() -> None:
    starved = ResourceSample(at_ms=1500, waited_ms={"w": 1000.0})
    later: list[HistoryLine] = [started(700 + number, str(number), f"n{number}") for number in (7, 8, 9)]
    assert not problems([*stall(is_run=False), starved])
    assert "never ran it" in problems([*stall(is_run=False), starved, *later])


def test_a_claim_whose_reply_was_lost_may_stall() -> None:
    """Its worker is unknown, so a fault of any process counts."""
    unseen: list[HistoryLine] = [line for line in stall(is_run=False) if not isinstance(line, ScriptLine)]
    assert "no fault" in problems(unseen)
    assert not problems([*unseen, *fault(15, 25, "network.truncate")])
    assert not problems([*unseen, *fault(15, 25, **FROZEN_OTHER)])
    assert "no fault" in problems([*unseen, *fault(15, 25, "evict.marker", processes=[], keys=["marker"])])


def test_a_run_that_nothing_explains_is_not_excused_by_another_process() -> None:
    again = [*stall()[:7], event(500, "waiting", prev="active"), event(510, "active")]
    message = "neither failed nor stalled"
    assert message in problems(again)
    assert message in problems([*again, *fault(100, 200, **FROZEN_OTHER)])
    assert not problems([*again, *fault(100, 200, **FROZEN_W)])


def test_starvation_of_one_process_excuses_only_that_process() -> None:
    for process, is_excused in (("w", True), ("", True), ("other", False)):
        starved = MachineStarved(since_ms=1000, at_ms=1900, process=process)
        assert bool(problems([*stall(), starved])) != is_excused
