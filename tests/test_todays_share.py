"""Every part of a test that takes turns by day has its turn."""

from __future__ import annotations

import pytest

from tests.todays_share import ALL_DAYS, DAY, todays_share


@pytest.mark.parametrize("days", [1, 2, 5, 7])
def test_every_item_has_its_day(days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALL_DAYS, raising=False)
    seen = list[int]()
    for day in range(700_000, 700_000 + days):
        monkeypatch.setenv(DAY, str(day))
        seen += todays_share(range(5), days=days)
    assert sorted(seen) == [0, 1, 2, 3, 4]


def test_all_of_them_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALL_DAYS, "1")
    assert todays_share("abc", days=3) == ["a", "b", "c"]
