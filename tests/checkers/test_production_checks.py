"""Checks of stores in use: what a client breaks on purpose is found, and its lawful neighbours are not."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.checkers.production import (
    ListedConnection,
    StoreFacts,
    StoreView,
    named_queue,
)
from conformance.checkers.snapshot_checks import TABLE, broken
from conformance.checkers.table import CHECKS
from tests.observe.snapshot_builders import ADDED, NOW, Zset, job, snapshot

HOUR_MS = 3_600_000
DUE = ADDED - HOUR_MS
"""An hour before the snapshots are taken, and a little more."""

ACTIVE = {"q:1": job(processedOn=str(ADDED), ats="1"), "q:active": ["1"]}
OVERDUE = {"q:1": job(), "q:delayed": Zset({"1": DUE * 4096.0})}
EVERY = {"name": "s", "every": str(HOUR_MS), "ic": "3"}
REPEATABLE = "411b7cd28815e564063c9e525cf67592"
"""A repeatable job of an older version: its record does not have its limit."""
ITERATION = job(rjk="s", delay=str(HOUR_MS))
SCHEDULE = {
    "q:repeat": Zset({"s": float(NOW)}),
    "q:repeat:s": EVERY,
    f"q:repeat:s:{NOW}": ITERATION,
    "q:delayed": Zset({f"repeat:s:{NOW}": NOW * 4096.0}),
}
STOPPED = {("next-iterations", "q:repeat:s")}
FAMILY = {"q:p": job(), "q:waiting-children": Zset({"p": float(ADDED)}), "q:p:dependencies": {"p:q:c"}}
ENDED = {"finishedOn": str(NOW), "failedReason": "no"}


def found_in(keys: dict[str, Any], facts: StoreFacts | None = None, prefix: str = "p") -> set[tuple[str, str]]:
    """Names of the broken checks, and the keys."""
    view = StoreView(snapshot(keys, prefix), facts or StoreFacts())
    in_use = [check for check in TABLE if check.in_use and check.scope != "looks"]
    return {(check.name, found.key) for check, found in broken(view, in_use, "5.62.0")}


def without(keys: dict[str, Any], *names: str, **changes: Any) -> dict[str, Any]:
    return {name: value for name, value in keys.items() if name not in names} | changes


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (ACTIVE, {("active-locks", "q:1")}),
        ({**ACTIVE, "q:1:lock": "t"}, set()),
        ({**ACTIVE, "q:stalled-check": "1"}, set()),
        (OVERDUE, {("overdue", "q:1")}),
        ({**OVERDUE, "q:meta": {"paused": "1"}}, set()),
        ({**OVERDUE, "q:limiter": "3"}, set()),
        ({**OVERDUE, "q:delayed": Zset({"1": float(DUE)})}, set()),
        ({**OVERDUE, "q:delayed": Zset({"1": (NOW - 59_000) * 4096.0})}, set()),
        ({**OVERDUE, "q:2": job(processedOn=str(DUE - 1)), "q:active": ["2"], "q:2:lock": "t"}, set()),
        ({**OVERDUE, "q:2": job(processedOn=str(NOW)), "q:active": ["2"], "q:2:lock": "t"}, {("overdue", "q:1")}),
        (SCHEDULE, set()),
        (without(SCHEDULE, f"q:repeat:s:{NOW}", "q:delayed"), STOPPED),
        (without(SCHEDULE, "q:delayed") | {"q:completed": Zset({f"repeat:s:{NOW}": 1.0})}, STOPPED),
        (without(SCHEDULE, "q:delayed") | {"q:active": [f"repeat:s:{NOW}"], "q:stalled-check": "1"}, set()),
        ({"q:repeat": Zset({"s": float(NOW)}), "q:repeat:s": {**EVERY, "limit": "3"}}, set()),
        ({"q:repeat": Zset({"s": float(NOW)}), "q:repeat:s": {**EVERY, "limit": "4"}}, STOPPED),
        ({"q:repeat": Zset({"s": float(NOW)}), "q:repeat:s": {**EVERY, "endDate": str(NOW + 5)}}, set()),
        ({"q:repeat": Zset({REPEATABLE: float(NOW)}), f"q:repeat:{REPEATABLE}": EVERY}, set()),
        (without(SCHEDULE, "q:repeat", "q:repeat:s"), {("schedules-of-iterations", f"q:repeat:s:{NOW}")}),
        (without(SCHEDULE, "q:repeat", "q:repeat:s") | {f"q:repeat:s:{NOW}": {**ITERATION, "ats": "1"}}, set()),
        (without(FAMILY) | {"q:c": job(**ENDED), "q:failed": Zset({"c": 1.0})}, set()),
        (
            {**FAMILY, "q:c": job(**ENDED, opts='{"fpof":true}'), "q:failed": Zset({"c": 1.0})},
            {("ended-children", "q:p")},
        ),
        ({"q:meta": {"concurrency": "0"}}, {("settings", "q:meta")}),
        ({"q:meta": {"concurrency": "1", "max": "5", "duration": "1000", "opts.maxLenEvents": "0"}}, set()),
        *(({"q:meta": {name: "0"}}, {("settings", "q:meta")}) for name in ("max", "duration")),
        ({"q:meta": {"concurrency": "1", "max": "1", "duration": "1"}}, set()),
        ({"q:meta": {"opts.maxLenEvents": "-1"}}, {("settings", "q:meta")}),
        ({"q:id": "1.5"}, {("settings", "q:id")}),
        ({"q:meta": {"version": "bullmq:5.62.0"}, "r:meta": {"version": "bullmq:5.62.0"}}, set()),
        ({"q:meta": {"version": "bullmq:5.62.0"}, "r:meta": {"version": "bullmq:6.7.0"}}, {("versions", "version")}),
    ],
)  # fmt: skip
def test_a_queue_in_use(keys: dict[str, Any], expected: set[tuple[str, str]]) -> None:
    assert found_in(keys) == expected


def test_at_most_three_queues_of_a_version_are_named() -> None:
    def shown(queues: int) -> str:
        names = {f"q{number}:meta": {"version": "bullmq:5.62.0"} for number in range(queues)}
        view = StoreView(snapshot({**names, "r:meta": {"version": "bullmq:6.7.0"}}), StoreFacts())
        [found] = CHECKS["versions"].run(view)
        return found.message

    assert "5.62.0: q0, q1, q2; " in shown(3)
    assert "5.62.0: q0, q1, q2, …; " in shown(4)


NODE = ListedConnection(name="p:cQ==", command="bzpopmin")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (StoreFacts(policy="allkeys-lru"), set()),
        (StoreFacts(policy="allkeys-lru", most_bytes=100), {("eviction", "maxmemory-policy")}),
        (StoreFacts(policy="noeviction", most_bytes=100, used_bytes=89), set()),
        (StoreFacts(policy="noeviction", most_bytes=100, used_bytes=91), {("memory", "maxmemory")}),
        (StoreFacts(events={"q": 2999}), set()),
        (StoreFacts(events={"q": 3001}), {("event-streams", "q:events")}),
        (StoreFacts(is_cluster=True), {("hash-tags", "q:meta")}),
        (StoreFacts(connections=(NODE, ListedConnection(name="", command="get"))), set()),
        (
            StoreFacts(connections=(ListedConnection(name="", command="bzpopmin"),)),
            {("connection-names", "(no name)")},
        ),
        (StoreFacts(connections=(ListedConnection(name="p:q", command="get"),)), {("connection-names", "p:q")}),
        (StoreFacts(connections=(ListedConnection(name="other:q", command="get"),)), set()),
    ],
)
def test_a_server_in_use(facts: StoreFacts, expected: set[tuple[str, str]]) -> None:
    assert found_in({"q:meta": {"opts.maxLenEvents": "1500"}}, facts) == expected


def test_a_hash_tag_in_the_prefix_or_the_name_is_enough() -> None:
    assert found_in({"q:meta": {}}, StoreFacts(is_cluster=True), "{p}") == set()
    assert found_in({"{q}:meta": {}}, StoreFacts(is_cluster=True)) == set()


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("p:cQ==", True),
        ("p:cQ==:w:mine", True),
        ("p:cQ==:qe", True),
        ("p:q", False),
        ("p:cQ", False),
        ("p:mail", False),
    ],
)
def test_connection_names_are_those_that_node_filters_by(name: str, readable: bool) -> None:
    assert bool(named_queue(name, "p")) == readable
