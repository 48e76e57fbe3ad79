"""Each worker by itself: it asks for jobs again after a fault, with locks and tokens of its own, and drops nothing."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.checkers.histories.history import (
    HandleChange,
    HandleChanged,
    HistoryLine,
    MachineStarved,
    ResourceSample,
    RunEnded,
    RunStarted,
    ScriptLine,
)
from tests.checkers.history_builders import fault, judged, quiescent, ran, script

HEALED = 2000
SLEEPER: dict[str, Any] = {"processes": ["sleeper"]}


def handle(at: float, change: HandleChange, process: str = "w") -> HandleChanged:
    return HandleChanged(at_ms=at, process=process, role="worker", queue="q", change=change)


def claim(at: float, process: str, job: str = "1", **fields: Any) -> ScriptLine:
    values = {"sent_ms": at - 0.5, "claimed": job, "token": "t", **fields}
    return ScriptLine(at_ms=at, process=process, script="moveToActive", queue="q", **values)


def start(at: float, process: str, job: str, token: str) -> RunStarted:
    return RunStarted(at_ms=at, process=process, queue="q", job=job, name=f"n{job}", token=token)


def busy_others(jobs: int = 25) -> list[HistoryLine]:
    """Two workers; the one that no fault touches runs jobs all the time."""
    opened = [handle(0, "opened", who) for who in ("sleeper", "other")]
    runs = [start(HEALED + 100 + 100 * number, "other", str(number), f"o{number}") for number in range(jobs)]
    return [*opened, *runs, claim(100, "sleeper"), claim(12_000, "other"), quiescent(13_000)]


def problems(check: str, lines: list[HistoryLine], **bounds: Any) -> str:
    return "; ".join(finding.message for finding in judged(check, lines, **bounds).findings)


def test_a_worker_asks_for_jobs_again_although_others_do_the_work() -> None:
    hurt = fault(1000, HEALED, "network.outage-worker", **SLEEPER)
    message = "sleeper did not ask for a job of q within 5000 ms after network.outage-worker was healed"
    assert message in problems("progress", [*busy_others(), *hurt])
    assert message in problems("progress", [*busy_others(), *hurt, claim(HEALED + 5100, "sleeper")])
    assert not problems("progress", [*busy_others(), *hurt, claim(HEALED + 4900, "sleeper")])


@pytest.mark.parametrize(
    "excuse",
    [
        [start(HEALED - 500, "sleeper", "99", "s1")],  # its places are taken
        fault(4000, 4100, "redis.freeze"),
        fault(4000, 4100, "worker.kill", **SLEEPER),
        [handle(3000, "closing", "sleeper")],
        [MachineStarved(since_ms=3000, at_ms=3500, process="sleeper")],
        [ResourceSample(at_ms=4000, waited_ms={"sleeper": 6000.0})],
    ],
)
def test_a_worker_that_has_a_reason_not_to_ask(excuse: list[HistoryLine]) -> None:
    lines = [*busy_others(), *fault(1000, HEALED, "network.outage-worker", **SLEEPER)]
    assert problems("progress", lines)
    assert not problems("progress", [*lines, *excuse])


def test_the_result_of_a_job_that_was_in_hand_is_not_a_question_for_more() -> None:
    hurt = fault(1000, HEALED, "network.half-open", **SLEEPER)
    ends = RunEnded(at_ms=HEALED + 10, process="sleeper", queue="q", job="9", name="n9", token="s", outcome="complete")
    sent = script(HEALED + 20, "moveToFinished", "s", "9", process="sleeper")
    lines = [*busy_others(45), *hurt, start(HEALED - 50, "sleeper", "9", "s"), ends, sent]
    assert "sleeper did not ask for a job of q" in problems("progress", lines)
    assert not problems("progress", [*lines, claim(HEALED + 3000, "sleeper")])


def test_without_work_a_worker_need_not_ask() -> None:
    hurt = fault(1000, HEALED, "network.outage-worker", **SLEEPER)
    assert not problems("progress", [*busy_others(jobs=5), *hurt])
    assert not problems("progress", [*busy_others(), *fault(1000, HEALED, "worker.kill", processes=["third"])])


def test_locks_have_the_configured_duration() -> None:
    for line in (claim(20, "w", lock_ms=30_000), script(30, "extendLocks", "t", lock_ms=30_000)):
        assert "asked for a lock of 30000 ms, and 2000 ms were configured" in problems("renewals", [line], lock_ms=2000)
    assert not problems("renewals", [claim(20, "w", lock_ms=2000), claim(30, "w")], lock_ms=2000)


def token_runs(second: str, at: float) -> list[HistoryLine]:
    """Job 1 runs from 20 to 40 under token t1."""
    ends = RunEnded(at_ms=40, process="w", queue="q", job="1", name="n1", token="t1", outcome="complete")
    return [handle(1, "opened"), start(20, "w", "1", "t1"), ends, start(at, "w", "2", second)]


def test_two_jobs_at_a_time_have_two_tokens() -> None:
    assert "w has claimed it with the token of job 1, which still runs" in problems("tokens", token_runs("t1", 30))
    assert not problems("tokens", token_runs("t2", 30))
    # The next job may have the token of the one that has ended.
    assert not problems("tokens", token_runs("t1", 41))
    # Runs of a process that died do not count for the next one.
    assert not problems("tokens", [*token_runs("t1", 30), handle(25, "opened")])
    assert problems("tokens", [*token_runs("t1", 30), handle(25, "closing")])


def test_a_closed_worker_has_run_what_it_fetched() -> None:
    close = [handle(1, "opened"), handle(100, "closing"), handle(400, "closed")]
    message = "w on q was closed, and 1 jobs that it had fetched did not run"
    for fetched in (claim(90, "w"), claim(150, "w")):
        lines: list[HistoryLine] = [*close, fetched]
        assert message in problems("closing", lines)
        assert not problems("closing", [*lines, *ran(160, 200)])
        assert not problems("closing", [*lines, *fault(50, 95, "redis.client-kill")])
    assert not problems("closing", [*close, claim(150, "w", fate="lost")])
