"""Rate and concurrency in every window."""

from __future__ import annotations

from conformance.checkers.histories.lines import Limit, Line
from tests.checkers.history_builders import (
    event,
    fault,
    judged,
)


def _starts(*times: float) -> list[Line]:
    return [event(at, "active", str(number)) for number, at in enumerate(times)]


def test_rate_in_every_window() -> None:
    limits = {"q": Limit(most=2, duration_ms=100)}
    assert judged("rate", _starts(0, 50, 100, 150), limits=limits).verdict == "ok"
    assert "3 starts within 99 ms" in judged("rate", _starts(0, 50, 99), limits=limits).findings[0].message
    assert judged("rate", [*_starts(0, 50, 99), *fault(60, 70, "redis.kill")], limits=limits).verdict == "ok"
    assert judged("rate", _starts(0, 1, 2)).examined == 0


def test_concurrency_at_every_moment() -> None:
    two = [*_starts(0, 1), event(2, "completed", "0"), event(3, "active", "5")]
    found = judged("concurrency", two, concurrency={"q": 2})
    assert found.verdict == "ok"
    assert found.facts["most at a time"] == 2
    assert "3 jobs are active" in judged("concurrency", _starts(0, 1, 2), concurrency={"q": 2}).findings[0].message
    lossy = [*fault(1.5, 50, "redis.flushall", lost_since_ms=0), *_starts(0, 1, 2)]
    assert judged("concurrency", lossy, concurrency={"q": 2}).verdict == "unknown"
