"""The order of events of independent processes is not a difference; every other order is one."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from conformance.observe.diff import diff
from conformance.observe.event_order import sort_independent, with_independent_events_sorted
from conformance.observe.tables import Snapshot

from .snapshot_builders import Stream, event, snapshot

ADDING = [event(kind, jobId=job) for job in ("1", "2", "3") for kind in ("added", "waiting")]
"""Events of a caller who adds three jobs."""
WORKING = [event(kind, jobId=job) for job in ("1", "2", "3") for kind in ("active", "completed")] + [event("drained")]
"""Events of a loop that runs them one by one."""


def stream(*events: dict[str, str]) -> Snapshot:
    return snapshot({"q:meta": {"opts.maxLenEvents": "10000"}, "q:events": Stream(events)})


def _named(sorted_snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(found.name, found.job) for found in sorted_snapshot.events]


@st.composite
def runs(draw: st.DrawFn) -> list[dict[str, str]]:
    """An order in which adding and working can happen: a job is claimed after it was added."""
    adding, working = list(ADDING), list(WORKING)
    written: list[dict[str, str]] = []
    while adding or working:
        claimable = not adding or (working and int(working[0].get("jobId", "9")) < int(adding[0]["jobId"]))
        source = working if working and claimable and (not adding or draw(st.booleans())) else adding
        written.append(source.pop(0))
    return written


@given(runs(), runs())
@example(ADDING + WORKING, ADDING[:2] + WORKING[:1] + ADDING[2:] + WORKING[1:])
def test_two_orders_of_adding_and_working_are_equal(first: list[dict[str, str]], second: list[dict[str, str]]) -> None:
    left, right = (with_independent_events_sorted(stream(*run)) for run in (first, second))
    assert _named(left) == _named(right)
    assert _named(with_independent_events_sorted(left)) == _named(left)
    assert sorted(_named(left)) == sorted(_named(stream(*first)))


def _differ(expected: list[dict[str, str]], actual: list[dict[str, str]]) -> list[str]:
    left, right = (with_independent_events_sorted(stream(*events)) for events in (expected, actual))
    return [difference.kind for difference in diff(left, right) if difference.where == "event.order"]


@given(runs())
def test_another_order_of_the_events_of_one_process_is_a_difference(run: list[dict[str, str]]) -> None:
    other = {"1": "2", "2": "1"}
    for process in (["added", "waiting"], ["active", "completed"]):
        swapped = [
            {**entry, "jobId": other.get(entry["jobId"], entry["jobId"])} if entry["event"] in process else entry
            for entry in run
        ]
        assert _differ(run, swapped) == ["wrong-event-order"]


def test_another_order_of_the_events_of_one_job_is_a_difference() -> None:
    run = ADDING + WORKING
    assert _differ(run, [run[1], run[0], *run[2:]]) == ["wrong-event-order"]
    assert _differ(run, [*run[:6], run[7], run[6], *run[8:]]) == ["wrong-event-order"]


def test_events_of_the_whole_queue_keep_their_place() -> None:
    run = [*ADDING[:2], event("paused"), *ADDING[2:], *WORKING]
    assert _differ(run, [event("paused"), *ADDING, *WORKING]) == ["wrong-event-order"]
    assert _differ(run, run) == []


def test_a_long_stream_is_sorted_in_time() -> None:
    events = stream(*(event(kind, jobId=str(job)) for kind in ("added", "active") for job in range(20_000))).events
    assert [found.job for found in sort_independent(events)][:4] == ["0", "0", "1", "1"]
