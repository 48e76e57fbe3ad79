"""Findings as a function of looks: what is one, and the nearest thing that is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conformance.checkers.live_queues import WatchLimits
from conformance.checkers.queue_looks import EventCounts, QueueLook, WorkerConnection
from reports.watch.connections import workers_by_queue
from reports.watch.judgement import CAUSES, KINDS, judge

LIMITS = WatchLimits(deaf_ms=20_000, growth_ms=60_000, growth_jobs=100, stalls=2, settle_ms=10_000)
STEP_MS = 5_000


def worker(number: int = 1, **changes: Any) -> WorkerConnection:
    facts = {"place": f"n {number}", "address": f"a:{number}", "name": "", "age_s": 99, "idle_s": 60}
    return WorkerConnection(**{**facts, "is_blocked": False, **changes})


def look(**changes: Any) -> QueueLook:
    return QueueLook(at_ms=0, sizes={"wait": 3}, workers=(worker(),), has_marker=True, **changes)


def timed(*looks: QueueLook) -> list[QueueLook]:
    return [replace(each, at_ms=number * STEP_MS) for number, each in enumerate(looks)]


def kinds(*looks: QueueLook) -> list[str]:
    return [finding.kind for finding in judge("q", timed(*looks), LIMITS)]


CLAIMED = EventCounts(active=1)
HELD = frozenset({"one"})
TRIMMED = EventCounts(complete=False)


def test_an_option_names_every_cause_of_the_table() -> None:
    assert set(KINDS) == CAUSES.keys()


def test_jobs_that_wait_long_enough_make_a_worker_deaf() -> None:
    assert kinds(*[look()] * 5) == ["deaf"]
    assert kinds(*[look()] * 4) == []


@pytest.mark.parametrize(
    "excuse",
    [
        {"events": CLAIMED},
        {"is_held": True},
        {"sizes": {"wait": 0}},
        {"sizes": {"paused": 5}},
        {"events": TRIMMED, "next_jobs": ("9",)},
    ],
)
def test_one_look_in_between_excuses_it(excuse: dict[str, Any]) -> None:
    assert kinds(look(), look(), replace(look(), **excuse), look(), look()) == []


def test_trimmed_events_leave_it_to_the_next_jobs() -> None:
    assert kinds(*[replace(look(), events=TRIMMED, next_jobs=("1",))] * 5) == ["deaf"]


def test_workers_whose_jobs_take_all_of_their_time_are_not_deaf() -> None:
    busy = replace(look(), workers=(worker(1), worker(2)), sizes={"wait": 3, "active": 2})
    assert kinds(*[replace(busy, holders=frozenset({"one", "two"}))] * 5) == []
    (finding,) = judge("q", timed(*[replace(busy, holders=frozenset({"one"}))] * 5), LIMITS)
    assert (finding.kind, finding.number) == ("deaf", 1)
    assert kinds(*[replace(busy, holders=None)] * 5) == []


def test_a_worker_that_polls_and_takes_nothing_is_deaf() -> None:
    polls = worker(is_blocked=True, idle_s=1)
    busy = replace(look(), workers=(polls,), holders=frozenset({"another"}))
    assert kinds(*[busy] * 5) == ["deaf"]


def test_workers_that_come_and_go_without_a_claim_are_deaf() -> None:
    assert kinds(*[replace(look(), workers=(worker(number),)) for number in range(5)]) == ["deaf"]
    assert kinds(*[replace(look(), workers=())] * 5) == ["no-worker"]


def test_a_silent_worker_next_to_one_that_works() -> None:
    busy = worker(1, idle_s=200)
    moving = replace(look(), events=CLAIMED, holders=frozenset({"one"}))
    assert kinds(*[replace(moving, workers=(busy, worker(2, idle_s=200)))] * 8) == ["deaf"]
    assert kinds(*[replace(moving, workers=(busy, worker(2, idle_s=200)))] * 7) == []
    assert kinds(*[replace(moving, workers=(busy, worker(2, idle_s=3)))] * 8) == []
    assert kinds(*[replace(moving, workers=(busy,))] * 8) == []


def backlogs(*sizes: int) -> list[str]:
    return kinds(*[replace(look(), sizes={"wait": size}, events=CLAIMED, holders=HELD) for size in sizes])


def test_a_backlog_grows_if_its_floor_rises() -> None:
    assert backlogs(*range(0, 130, 10)) == ["growing"]
    assert backlogs(*range(0, 120, 10)) == []  # too short
    assert backlogs(*range(0, 26, 2)) == []  # too few jobs
    assert backlogs(*[0, 500] * 6, 600) == []  # comes in waves that are worked off
    assert backlogs(0, *range(5000, 3800, -100)) == []  # one large batch


def test_stalls_of_the_last_minute_count() -> None:
    stalled = replace(look(), events=EventCounts(active=1, stalled=1), holders=HELD)
    calm = replace(look(), events=CLAIMED, holders=HELD)
    assert kinds(stalled, calm, stalled) == ["stalls"]
    assert kinds(stalled, calm) == []
    assert kinds(stalled, stalled, *[calm] * 12) == []


def test_a_schedule_settles_before_it_has_ended() -> None:
    ended = replace(look(), events=CLAIMED, dead_schedules=frozenset({("s", 5)}))
    moved = replace(ended, dead_schedules=frozenset({("s", 6)}))
    assert kinds(ended, ended, ended) == ["schedule"]
    assert kinds(ended, ended) == []
    assert kinds(ended, moved, ended) == []


def test_workers_are_those_that_get_workers_finds() -> None:
    def connection(name: str) -> dict[str, str]:
        return {"id": "7", "addr": "127.0.0.1:1", "name": name, "age": "9", "idle": "3", "flags": "b"}

    names = ["b:bWFpbA==", "b:bWFpbA==:w:one", "b:bWFpbA==:qe", "c:bWFpbA==", "b:%%%", "b:c:bWFpbA==", ""]
    found = workers_by_queue("b", {"n": [connection(name) for name in names]})
    assert {queue: [each.name for each in workers] for queue, workers in found.items()} == {"mail": ["", "one"]}
    assert found["mail"][0] == WorkerConnection(
        place="n 7", address="127.0.0.1:1", name="", age_s=9, idle_s=3, is_blocked=True
    )
