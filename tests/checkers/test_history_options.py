"""Every option that the workload asks for is shown by the history or by the snapshot, and its loss is a finding."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.checkers.histories.history import HistoryLine, StreamEventLine
from conformance.checkers.histories.job_options import TABLE
from conformance.observe.tables import Snapshot
from tests.checkers.history_builders import added, completed_life, event, fault, judged, ran
from tests.observe import snapshot_builders
from tests.observe.snapshot_builders import ADDED, Zset


def end(opts: dict[str, Any] | None = None, **fields: str) -> Snapshot:
    """Job 1 at the end, completed."""
    job = snapshot_builders.job(name="a", opts=json.dumps(opts or {}), **fields)
    return snapshot_builders.snapshot({"q:1": job, "q:completed": Zset({"1": float(ADDED)})})


def problems(lines: list[HistoryLine], snapshot: Snapshot | None = None) -> str:
    return "; ".join(finding.message for finding in judged("options", lines, snapshot).findings)


KEPT: dict[str, tuple[dict[str, Any], Snapshot]] = {
    "priority": ({"priority": 3}, end(priority="3")),
    "lifo": ({"lifo": True}, end({"lifo": True})),
    "attempts": ({"attempts": 4}, end({"attempts": 4})),
    "backoff": (
        {"attempts": 4, "backoff_ms": 100},
        end({"attempts": 4, "backoff": {"type": "fixed", "delay": 100, "jitter": None}}),
    ),
    "removeOnComplete": ({"kept": False}, snapshot_builders.snapshot({})),
}


@pytest.mark.parametrize("option", KEPT)
def test_an_option_that_was_not_kept(option: str) -> None:
    asked, kept = KEPT[option]
    lines = completed_life(**asked)
    assert not problems(lines, kept)
    assert not problems(lines)
    found = problems(lines, end({"attempts": 1} if option == "attempts" else {"attempts": 4}, priority="0"))
    assert f"{option} was to be " in found
    # Redis may have lost the newer hash.
    assert not problems([*lines, *fault(5, 50, "redis.kill", lost_since_ms=0)], end())


def delayed_life(delay_ms: float, claimed: float) -> list[HistoryLine]:
    """A job that is added at 10 ms, by a call at 9 ms."""
    return [
        *added(10, delay_ms=delay_ms),
        event(10, "delayed", order=1),
        event(claimed - 1, "waiting", prev="delayed"),
        event(claimed, "active"),
    ]


def test_a_delay_counts_from_the_call_not_from_the_value_in_redis() -> None:
    assert not problems(delayed_life(641, claimed=651))
    assert "it was claimed 104 ms before that had passed" in problems(delayed_life(641, claimed=546))
    assert not problems([*delayed_life(641, claimed=546), *fault(100, 200, "clock.worker-ahead", skew_ms=3000)])
    # Without an event `delayed` it is a finding at once, however late the job is claimed.
    lines = [line for line in delayed_life(641, claimed=900) if getattr(line, "name", "") != "delayed"]
    assert "its first state was waiting" in problems(lines)
    # A stream that starts later than the job does not show its first state.
    assert not problems([line for line in lines if not (isinstance(line, StreamEventLine) and line.name == "added")])


def test_a_job_with_one_attempt_is_not_tried_again() -> None:
    tried = [*added(10), event(20, "active"), *ran(21, 25, "fail"), event(26, "waiting", prev="active")]
    assert "attempts was to be 1, and it was claimed again" in problems([*tried, event(40, "active")])
    assert not problems(tried)
    stalled = [*tried, event(26, "stalled", order=1), event(40, "active")]
    assert not problems(stalled)
    assert not problems([*tried[:-1], event(26, "failed"), event(30, "waiting", prev="failed"), event(40, "active")])


@pytest.mark.parametrize(("key", "is_kept"), [("p:q:1", True), ("p:q:7", False), ("", False)])
def test_a_child_has_its_parent(key: str, is_kept: bool) -> None:
    lines = [*completed_life(10, "1", "a"), *completed_life(100, "2", "child", parent="a")]
    child = snapshot_builders.job(name="child", **({"parentKey": key} if key else {}))
    jobs = {"q:1": snapshot_builders.job(name="a"), "q:2": child}
    snapshot = snapshot_builders.snapshot({**jobs, "q:completed": Zset({"1": float(ADDED), "2": float(ADDED)})})
    assert snapshot.prefix == "p"
    assert bool(problems(lines, snapshot)) != is_kept


def test_the_table_names_every_option_of_a_plan() -> None:
    """A new option of the workload needs a row; `deduplication` has no plan by name."""
    assert {row.name for row in TABLE} == {"delay", "parent", *KEPT}
