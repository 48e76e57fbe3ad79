"""Jobs that two clients passed to each other: what is lost, what ran twice, and what is neither."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.checkers.handovers import LOST, TWICE, check_handover
from tests.observe.snapshot_builders import Stream, Zset, event, job, snapshot

WHO = "the client adds, its partner works"
ADDED, WAITING, ACTIVE = (event(name, jobId="1") for name in ("added", "waiting", "active"))
COMPLETED, STALLED, DELAYED = (event(name, jobId="1") for name in ("completed", "stalled", "delayed"))


def _found(events: list[dict[str, str]] | None = None, *, removals: bool = False, **keys: Any) -> list[tuple[str, str]]:
    made = {f"q:{name.lstrip('_')}": value for name, value in keys.items()}
    stream = {"q:events": Stream(events)} if events else {}
    found = check_handover(snapshot({**made, **stream}), removals=removals, who=WHO)
    assert all(finding.message.endswith(WHO) for finding in found)
    return [(finding.where, finding.actual) for finding in found]


def test_a_job_in_no_container_is_lost() -> None:
    assert _found(_1=job()) == [(LOST, "job 1 is lost: it is in no list and in no set from which a worker takes jobs")]


def test_a_job_that_stays_parked_in_a_running_queue_is_lost() -> None:
    assert _found(_1=job(), paused=["1"], meta={}) == [
        (LOST, "job 1 is lost: it is left in `paused` although the queue runs")
    ]
    assert _found(_1=job(), paused=["1"], meta={"paused": "1"}) == []


def test_a_job_that_is_kept_back_for_nothing_is_lost() -> None:
    kept: dict[str, Any] = {"dn:d": {"name": "n", "data": "{}", "opts": "{}", "jid": "3"}}
    lost = "job 3 is lost: it is kept back in `dn:d` and never stored"
    assert _found(**kept) == [(LOST, lost)]
    assert _found(_1=job(deid="d"), active=["1"], **kept) == []


def test_a_missing_job_is_lost_unless_it_was_removed_or_it_ended() -> None:
    gone = [(LOST, "job 1 is lost: it was added, never ended, and there is nothing left of it")]
    assert _found([ADDED, WAITING, ACTIVE]) == gone
    assert _found([ADDED, WAITING], removals=True) == []
    for ending in ("completed", "failed", "removed", "cleaned"):
        assert _found([ADDED, WAITING, event(ending, jobId="1")]) == []


def test_a_job_whose_stream_starts_later_is_not_missed() -> None:
    assert _found([ACTIVE, COMPLETED]) == []


def test_a_job_that_is_started_twice_for_one_reason_ran_twice() -> None:
    twice = [(TWICE, "job 1 ran twice: it was started again, and no event says why")]
    for events in ([ACTIVE, ACTIVE], [ADDED, WAITING, ACTIVE, COMPLETED, ACTIVE, COMPLETED, ACTIVE]):
        assert _found(events, _1=job(), completed=Zset({"1": 1})) == twice


@pytest.mark.parametrize(
    ("events", "place"),
    [
        ([WAITING, ACTIVE, ACTIVE, COMPLETED], "event.waiting"),
        ([WAITING, ACTIVE, ACTIVE, ACTIVE], "event.active"),
        ([WAITING, ACTIVE, STALLED, ACTIVE, ACTIVE], "event.active"),
    ],
)
def test_one_more_start_may_only_lack_its_event(events: list[dict[str, str]], place: str) -> None:
    left = snapshot({"q:1": job(), "q:completed": Zset({"1": 1}), "q:events": Stream(events)})
    assert [found.place for found in check_handover(left, removals=False, who=WHO)] == [place]


@pytest.mark.parametrize("reason", [WAITING, STALLED, DELAYED, event("waiting-children", jobId="1")])
def test_a_job_that_is_started_again_for_a_reason_is_in_order(reason: dict[str, str]) -> None:
    assert _found([ADDED, WAITING, ACTIVE, reason, ACTIVE, COMPLETED], _1=job(), completed=Zset({"1": 1})) == []


def test_other_jobs_are_other_stories() -> None:
    other = event("active", jobId="2")
    assert _found([ACTIVE, other], _1=job(), _2=job(), active=["1", "2"]) == []
