"""What holds when all work is done: markers, orphans, and what waits for good."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.checkers.histories.lines import Event, Ok
from conformance.checkers.histories.resting import waiting_for_good
from conformance.observe import handmade
from conformance.observe.handmade import ADDED, Zset
from conformance.observe.tables import Snapshot
from tests.checkers.history_builders import (
    END,
    added,
    completed_life,
    end_state,
    fault,
    judged,
    quiescent,
    ran,
)


def test_markers_at_rest() -> None:
    waiting = handmade.snapshot({"q:1": handmade.job(name="a"), "q:wait": ["1"], "q:id": "1"})
    assert "base-marker" in judged("markers", [], waiting).findings[0].message
    assert judged("markers", [], END).verdict == "ok"


def test_orphans_at_rest() -> None:
    locked = handmade.snapshot({"q:1:lock": "t1"}, ttls={"q:1:lock": 100})
    active = end_state("1=a", container="active")
    assert "no such job" in judged("orphans", [], locked).findings[0].message
    still = [quiescent()]
    assert judged("orphans", still, active).findings[-1].message == "still in active"
    assert all(found.message != "still in active" for found in judged("orphans", [], active).findings)
    assert judged("orphans", still, END).verdict == "ok"


def family(container: str, **more: Any) -> Snapshot:
    """A parent that waits for the child 2, which is in this container."""
    child = handmade.job(name="b", parentKey="p:q:1", processedOn=str(ADDED), finishedOn=str(ADDED), ats="1", atm="1")
    finished: Any = Zset({"2": float(ADDED)}) if container != "active" else ["2"]
    keys = {"q:1": handmade.job(name="a"), "q:2": child, "q:1:dependencies": {"p:q:2"}, "q:id": "9"}
    return handmade.snapshot(
        {**keys, "q:waiting-children": Zset({"1": float(ADDED)}), f"q:{container}": finished, **more}
    )


def test_a_parent_of_a_failed_child_waits_for_good() -> None:
    assert waiting_for_good(family("failed")) == {("q", "1")}
    for not_so in (family("active"), family("failed", **{"q:1:dependencies": {"p:q:2", "p:q:3"}})):
        assert waiting_for_good(not_so) == frozenset()
    said = {found.message for found in judged("orphans", [quiescent()], family("failed")).findings}
    assert "still in waiting-children" not in said
    said = {found.message for found in judged("orphans", [quiescent()], family("active")).findings}
    assert "still in waiting-children" in said


@pytest.mark.parametrize(("ended", "verdict"), [(9000, "ok"), (4000, "fail")])
def test_a_claim_that_a_fault_has_held_up_may_carry_an_older_time(ended: float, verdict: str) -> None:
    """The job is of 10 s, its claim began at 5 s."""
    early = end_state("1=a", timestamp=str(ADDED), processedOn=str(ADDED - 5000), finishedOn=str(ADDED))
    lines = [*completed_life(), *fault(3000, ended, "cluster.kill-primary"), quiescent(11_000)]
    assert judged("orphans", lines, early, offset=ADDED - 10_000).verdict == verdict


@pytest.mark.parametrize(("began", "verdict"), [(12_000, "ok"), (7000, "fail")])
def test_a_fault_at_another_time_of_a_job_excuses_no_times_out_of_order(began: float, verdict: str) -> None:
    """The job was added at 6 s, finished at 10 s, and activated at 15 s."""
    odd = end_state("1=a", timestamp=str(ADDED - 4000), processedOn=str(ADDED + 5000), finishedOn=str(ADDED))
    lines = [*completed_life(), *fault(began, began + 1000, "cluster.kill-primary"), quiescent(16_000)]
    assert judged("orphans", lines, odd, offset=ADDED - 10_000).verdict == verdict


def test_a_worker_that_ends_a_job_of_before_a_loss_does_not_mix_up_the_job_with_its_id() -> None:
    """Seen under FLUSHALL: ids begin anew, and the old run with the same id ends while the new job is active."""
    before = [*added(10, name="old"), *ran(11, 135, name="old")]
    life = [line for line in completed_life(120, name="new") if not isinstance(line, Ok)]
    lines = [*before, *fault(50, 60, "redis.flushall", lost_since_ms=0), *life, quiescent()]
    judgement = judged("events", lines, end_state("1=new"))
    assert (judgement.verdict, judgement.examined) == ("ok", 1)
    unfinished = [line for line in lines if not (isinstance(line, Event) and line.name == "completed")]
    assert "last event is `active`" in judged("events", unfinished, end_state("1=new")).findings[0].message
