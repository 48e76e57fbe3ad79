"""A run that must end early starts no further scenario."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from conformance.gate.options import RunConfig
from conformance.gate.stop_rule import BUDGET_USED, SOMETHING_FAILED, StopRule
from conformance.problems import UsageProblem


def elsewhere(stopping: StopRule) -> StopRule:
    """The same in another process."""
    return msgspec.json.decode(msgspec.json.encode(stopping), type=StopRule)


def test_without_budget_and_fail_fast_nothing_ends_it(tmp_path: Path) -> None:
    stopping = StopRule.after(None, started_ms=0, fail_fast=False, folder=tmp_path)
    stopping.note_failure()
    assert stopping.reason == ""
    assert list(tmp_path.iterdir()) == []


def test_a_budget_that_is_used_up_ends_it(tmp_path: Path) -> None:
    assert (
        elsewhere(StopRule.after(60_000, started_ms=time.time() * 1000, fail_fast=False, folder=tmp_path)).reason == ""
    )
    assert elsewhere(StopRule(time.time() * 1000 - 1)).reason == BUDGET_USED


def test_a_failure_in_one_process_is_one_in_all(tmp_path: Path) -> None:
    stopping = StopRule.after(None, started_ms=0, fail_fast=True, folder=tmp_path)
    other = elsewhere(stopping)
    assert other.reason == ""
    stopping.note_failure()
    assert other.reason == SOMETHING_FAILED


@pytest.mark.parametrize(("text", "ms"), [("", None), ("90s", 90_000.0), ("5m", 300_000.0), ("2", 2000.0)])
def test_a_budget_is_a_time(text: str, ms: float | None) -> None:
    assert RunConfig(budget=text).budget_ms == ms


@pytest.mark.parametrize("text", ["soon", "0s", "-1s"])
def test_an_invalid_time_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageProblem, match="--budget"):
        _ = RunConfig(budget=text).budget_ms
