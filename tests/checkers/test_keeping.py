"""What is kept: conservation, durability and calls of unknown outcome, good and bad."""

from __future__ import annotations

import pytest

from conformance.checkers.histories.history import History, in_order
from conformance.checkers.histories.history_checks import check_history
from conformance.checkers.histories.lines import Header
from conformance.observe import handmade
from conformance.observe.handmade import Zset
from tests.checkers.history_builders import (
    END,
    added,
    completed_life,
    end_state,
    event,
    fault,
    info,
    judged,
    quiescent,
)


def test_conservation() -> None:
    twice = handmade.snapshot({"q:1": handmade.job(name="a"), "q:wait": ["1"], "q:completed": Zset({"1": 1.0})})
    nowhere = handmade.snapshot({"q:1": handmade.job(name="a")})
    assert judged("conservation", completed_life(), END).verdict == "ok"
    assert "wait and completed" in judged("conservation", completed_life(), twice).findings[0].message
    assert "in no state" in judged("conservation", completed_life(), nowhere).findings[0].message


def test_durability() -> None:
    nothing = handmade.snapshot({})
    gone = judged("durability", completed_life(), nothing)
    assert gone.findings[0].message == "acknowledged by queue.add, and gone"
    assert judged("durability", completed_life(kept=False), nothing).verdict == "ok"


@pytest.mark.parametrize(("since", "verdict"), [(0, "ok"), (29, "ok"), (31, "fail")])
def test_durability_allows_what_the_fault_may_lose(since: float, verdict: str) -> None:
    """The last that is known of the job is at 30 ms."""
    lines = [*completed_life(), *fault(40, 50, "redis.kill", lost_since_ms=since)]
    found = judged("durability", lines, handmade.snapshot({}))
    assert found.verdict == verdict
    assert found.facts["lost"] == (verdict == "ok")


def test_indeterminate() -> None:
    once = [*info(10), event(10, "added", name="a")]
    twice = [*once, event(11, "added", "2", name="a")]
    assert judged("indeterminate", info(10)).verdict == "ok"
    assert judged("indeterminate", once).verdict == "ok"
    assert "there are 2 such jobs" in judged("indeterminate", twice).findings[0].message
    assert judged("indeterminate", completed_life(), end_state("1=a", "2=a")).verdict == "fail"


def test_after_eviction_key_by_key_only_progress_is_judged() -> None:
    """The counter of ids is gone, and job 1 is still there: a new job gets its id and runs in its place."""
    both = handmade.snapshot(
        {"q:1": handmade.job(name="a"), "q:failed": Zset({"1": 1.0}), "q:completed": Zset({"1": 2.0})}
    )
    lines = [*completed_life(), *fault(40, 50, "redis.evict", lost_since_ms=0, torn=True)]
    lines += [*added(60, name="b"), event(61, "waiting"), quiescent()]
    verdicts = {each.check: each.verdict for each in check_history(History(Header(), in_order(lines)), both)}
    assert verdicts.pop("progress") == "ok"
    assert set(verdicts.values()) == {"unknown"}
    stands_still = [*added(30), event(31, "waiting"), *fault(40, 50, "redis.evict", lost_since_ms=0, torn=True)]
    assert judged("progress", [*stands_still, quiescent()], both).verdict == "fail"
