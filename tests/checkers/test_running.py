"""Runs, tokens and counters: what is good, what is bad."""

from __future__ import annotations

import pytest

from tests.checkers.history_builders import (
    END,
    added,
    completed_life,
    end_state,
    event,
    fault,
    judged,
    ran,
    script,
)


def test_a_second_run_needs_a_reason() -> None:
    retried = [
        *added(10),
        event(10, "waiting", order=1),
        event(20, "active"),
        *ran(21, 25, "fail"),
        event(26, "waiting", prev="active"),
        event(30, "active"),
        *ran(31, 35),
        event(36, "completed"),
    ]
    unreasonable = [line for line in retried if getattr(line, "outcome", "") != "fail"]
    assert judged("duplicate-runs", retried).verdict == "ok"
    assert "neither failed nor stalled" in judged("duplicate-runs", unreasonable).findings[0].message


def test_a_stall_needs_a_fault() -> None:
    stalled = [
        *added(10),
        event(10, "waiting", order=1),
        event(20, "active"),
        event(3000, "waiting", prev="active"),
        event(3000, "stalled", order=1),
        event(3010, "active"),
    ]
    assert "no fault" in judged("duplicate-runs", stalled).findings[0].message
    assert judged("duplicate-runs", [*stalled, *fault(100, 200)]).verdict == "ok"
    assert judged("duplicate-runs", [*stalled, *fault(3100, 3200)]).verdict == "fail"


def test_more_runs_than_claims() -> None:
    lines = [*completed_life(), *ran(40, 50)]
    assert "2 runs began" in judged("duplicate-runs", lines).findings[0].message


def test_a_stale_token_changes_nothing() -> None:
    claims = [script(20, "moveToActive", "t1"), script(40, "moveToActive", "t2")]
    late = script(50, "moveToFinished", "t1")
    refused = script(50, "moveToFinished", "t1", code=-2)
    crossing = script(50, "moveToFinished", "t1", sent_ms=39)
    own = script(60, "moveToFinished", "t2")
    life = added(10)
    assert judged("tokens", [*life, *claims, refused, own]).verdict == "ok"
    assert "of t1 was accepted" in judged("tokens", [*life, *claims, late, own]).findings[0].message
    assert judged("tokens", [*life, *claims, crossing]).verdict == "ok"


def test_an_end_without_a_call() -> None:
    lines = [*added(10), script(20, "moveToActive", "t1"), event(30, "completed", returnvalue='{"token": "t1"}')]
    refused = script(29, "moveToFinished", "t1", code=-2)
    unanswered = script(29, "moveToFinished", "t1", fate="lost")
    foreign = script(29, "moveToFinished", "t2")
    assert "0 calls" in judged("tokens", [*lines, refused]).findings[0].message
    assert judged("tokens", [*lines, unanswered]).verdict == "ok"
    assert "the value is that of t1" in judged("tokens", [*lines, foreign]).findings[-1].message


@pytest.mark.parametrize("field", ["ats", "atm", "stc"])
def test_counters(field: str) -> None:
    assert judged("counters", completed_life(), END).verdict == "ok"
    found = judged("counters", completed_life(), end_state("1=a", **{field: "7"}))
    assert found.findings[0].message.startswith(f"{field} is 7")
