"""Events of a possible life, and parents that wait for their children."""

from __future__ import annotations

from conformance.checkers.histories.lines import Line
from tests.checkers.history_builders import (
    END,
    added,
    completed_life,
    end_state,
    event,
    fault,
    judged,
)


def test_events_tell_a_possible_life() -> None:
    assert judged("events", completed_life(), END).verdict == "ok"
    again = [*completed_life(), event(50, "active", prev="waiting")]
    assert "`active` of a job that is completed" in judged("events", again).findings[0].message
    lone = [*added(10), event(10, "waiting", order=1), event(11, "stalled")]
    assert "without a return" in judged("events", lone).findings[0].message
    wrong = [*added(10), event(10, "waiting", order=1, prev="failed")]
    assert "from failed, and the job was added" in judged("events", wrong).findings[0].message


def test_events_agree_with_the_end() -> None:
    elsewhere = end_state("1=a", container="failed", failedReason="x")
    assert "and the job is in failed" in judged("events", completed_life(), elsewhere).findings[0].message


def _family(*lines: Line) -> list[Line]:
    return [
        *added(10, "1", "mother"),
        event(10, "waiting-children", order=1),
        *added(11, "2", "child", parent="mother"),
        event(11, "waiting", "2", order=1),
        event(20, "active", "2"),
        *lines,
    ]


def test_parents_wait_for_their_children() -> None:
    ended = event(30, "completed", "2")
    release = event(30, "waiting", prev="waiting-children", order=1)
    assert judged("parents", _family(ended, release)).verdict == "ok"
    early = event(25, "waiting", prev="waiting-children")
    assert "before its 1 children" in judged("parents", _family(early, ended)).findings[0].message
    again = event(40, "waiting", prev="waiting-children")
    assert "2 times" in judged("parents", _family(ended, release, again)).findings[0].message
    assert "still waits" in judged("parents", _family(ended)).findings[0].message
    lossy = [*_family(ended), *fault(25, 35, "redis.kill", lost_since_ms=20)]
    assert judged("parents", lossy).examined == 0
