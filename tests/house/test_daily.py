"""Every long test has its day, and CI plays all of them."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.daily import WHOLE, share_of, todays

ROOT = Path(__file__).parents[2]
CASES = ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("days", [1, 2, 3, 8])
def test_every_case_has_its_day(days: int) -> None:
    first = date(2026, 1, 1)
    played = [case for day in range(days) for case in share_of(first + timedelta(days=day), CASES, days)]
    assert sorted(played) == CASES


def test_ci_plays_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHOLE, "1")
    assert todays(CASES, 3) == CASES
    monkeypatch.delenv(WHOLE)
    assert len(todays(CASES, 3)) < len(CASES)
    assert f" {WHOLE}=1" in (ROOT / ".ci" / "run").read_text("utf-8")
