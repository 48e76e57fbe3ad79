"""The windows of a rate limit, as scenarios measure them: what must not pass for a window that was kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.participants.expect import Mismatch
from conformance.participants.redis_view import Fields
from conformance.scenarios.support.steps import started_in_windows


def _judge(starts: list[int], processed_on: dict[int, int]) -> None:
    """Starts at these times (ms), with each job's `processedOn`."""
    redis: Any = SimpleNamespace(
        stamped_events=lambda: [(at, {"event": "active", "jobId": number}) for number, at in enumerate(starts, 1)],
        hash=lambda job: Fields({"processedOn": str(processed_on[job])} if job in processed_on else {}),
        delete=lambda _: None,
    )
    started_in_windows(redis, most=2, duration_ms=200, where="row.ratelimit.queue-wide")


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
    with pytest.raises(Mismatch, match="at most 2 jobs are started per 200 ms") as failed:
        _judge(starts, processed_on)
    assert failed.value.where == "row.ratelimit.queue-wide"


def test_a_start_without_a_time_is_a_missing_field() -> None:
    with pytest.raises(Mismatch) as missing:
        _judge([1000, 1001, 1200, 1203, 1500], {1: 1000})
    assert missing.value.where == "job.processedOn"
