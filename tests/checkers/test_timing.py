"""Nothing early, lateness bounded, and work that goes on after a fault."""

from __future__ import annotations

import pytest

from conformance.checkers.histories.lines import Line, Phase
from tests.checkers.history_builders import (
    added,
    completed_life,
    event,
    fault,
    judged,
    quiescent,
)


def _delayed(promoted: float, due: float = 1010, **options: float) -> list[Line]:
    return [
        *added(10, delay_ms=1000),
        event(10, "delayed", order=1, delay=str(due + options.get("offset", 0))),
        event(promoted, "waiting", prev="delayed"),
    ]


@pytest.mark.parametrize(("promoted", "verdict"), [(1010, "ok"), (1005, "fail"), (1500, "ok"), (7000, "fail")])
def test_nothing_early_and_lateness_bounded(promoted: float, verdict: str) -> None:
    assert judged("timing", _delayed(promoted)).verdict == verdict


def test_due_before_the_delay_has_passed() -> None:
    assert "before its delay" in judged("timing", _delayed(1010, due=500)).findings[0].message


def test_a_fault_excuses_lateness_and_a_skewed_clock_both() -> None:
    assert judged("timing", [*_delayed(9000), *fault(900, 8000)]).verdict == "ok"
    assert judged("timing", [*_delayed(900), *fault(5, 2000, "clock.skew", skew_ms=-500)]).verdict == "ok"
    assert judged("timing", [*_delayed(400), *fault(5, 2000, "clock.skew", skew_ms=-500)]).verdict == "fail"


def test_work_goes_on_after_a_fault() -> None:
    waiting = [*added(10), event(10, "waiting", order=1), *fault(100, 2000, "redis.stop")]
    soon = [event(2500, "active"), event(2600, "completed"), quiescent()]
    late = [event(7500, "active"), event(7600, "completed"), quiescent(8000)]
    found = judged("progress", [*waiting, *soon])
    assert found.verdict == "ok"
    assert found.facts["resumed after (ms)"] == 500
    assert "work went on after: 5500 ms" in judged("progress", [*waiting, *late]).findings[0].message
    assert judged("progress", [*waiting, *late], resume_ms=6000).verdict == "ok"
    assert judged("progress", waiting).verdict == "fail"


def test_work_that_is_left_undone() -> None:
    stuck = Phase(at_ms=9000, name="stuck", seen="wait 3")
    assert judged("progress", [*completed_life(), stuck]).findings[0].message == "work was left undone: wait 3"
