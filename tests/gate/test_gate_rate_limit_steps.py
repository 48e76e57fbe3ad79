"""The windows of a rate limit, as scenarios measure them: what must not pass for a window that was kept."""

from __future__ import annotations

from typing import Any, cast

import pytest

from conformance.participants.expect import Mismatch
from conformance.participants.redis_view import Fields, RedisView
from conformance.scenarios.support.steps import started_in_windows


class RecordedQueue:
    """The needed part of a queue in Redis: starts at these times (ms), and each job's `processedOn`."""

    def __init__(self, starts: list[int], processed_on: dict[int, int]) -> None:
        self._starts, self._processed_on = starts, processed_on

    def stamped_events(self) -> list[tuple[int, dict[str, str]]]:
        return [(at, {"event": "active", "jobId": str(number)}) for number, at in enumerate(self._starts, 1)]

    def hash(self, name: str) -> dict[str, str]:
        found = self._processed_on.get(int(name))
        return Fields({} if found is None else {"processedOn": str(found)})

    def delete(self, name: str) -> None:
        assert name == "limiter"


def _judge(starts: list[int], processed_on: dict[int, int]) -> None:
    redis: Any = RecordedQueue(starts, processed_on)
    started_in_windows(cast("RedisView", redis), most=2, duration_ms=200)


def test_windows_that_were_kept_pass() -> None:
    _judge([1000, 1001, 1199, 1203, 1400], {1: 999, 3: 1199})


@pytest.mark.parametrize(
    ("starts", "processed_on"),
    [
        ([1000, 1001, 1198, 1203, 1400], {1: 999, 3: 1198}),
        ([1000, 1001], {1: 1000}),
        ([], {}),
    ],
    ids=["too early", "one window only", "no starts"],
)
def test_everything_else_fails(starts: list[int], processed_on: dict[int, int]) -> None:
    with pytest.raises(Mismatch, match="at most 2 jobs are started per 200 ms"):
        _judge(starts, processed_on)


def test_a_start_without_a_time_is_a_missing_field() -> None:
    with pytest.raises(Mismatch) as missing:
        _judge([1000, 1001, 1200, 1203, 1500], {1: 1000})
    assert missing.value.where == "job.processedOn"
