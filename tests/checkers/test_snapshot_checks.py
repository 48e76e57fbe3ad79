from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.checkers.base import SnapshotView
from conformance.checkers.snapshot_checks import ALL_CHECKS, check_snapshot, checks_table
from conformance.checkers.table import CHECKS
from conformance.findings import NOBODY_BLAMED, Finding
from conformance.observe.keyspace import RawKey, assemble
from conformance.observe.tables import Snapshot
from conformance.problems import UsageProblem
from tests.observe.snapshot_builders import ADDED, Stream, Zset, event, job, snapshot
from tests.reports.live.damages import DAMAGES

RECORDINGS = Path(__file__).parents[1] / "observe" / "recordings"
MARKED = {"q:marker": Zset({"0": 0}), "q:id": "9"}
FINISHED = {"finishedOn": str(ADDED + 2), "processedOn": str(ADDED + 1), "returnvalue": "1", "ats": "1", "atm": "1"}
TODAY = Zset({"1": ADDED + 2})


KEPT = {"name": "n", "data": "{}", "opts": "{}", "jid": "2"}
"""A job that is stored when the owner of its deduplication id ends."""


def waiting(**fields: str) -> dict[str, Any]:
    """One waiting job with changed fields."""
    return {"q:1": job(**fields), "q:wait": ["1"], **MARKED}


def without(*names: str) -> dict[str, Any]:
    """One waiting job without some fields."""
    fields = {name: value for name, value in job().items() if name not in names}
    return {"q:1": fields, "q:wait": ["1"], **MARKED}


def completed(**fields: str) -> dict[str, Any]:
    """One completed job with changed fields."""
    return {"q:1": job(**{**FINISHED, **fields}), "q:completed": TODAY, "q:id": "1"}


def delayed(score: float, **fields: str) -> dict[str, Any]:
    return {"q:1": job(delay="5000", **fields), "q:delayed": Zset({"1": score}), "q:id": "1"}


def prioritized(score: float, priority: str, pc: str = "9") -> dict[str, Any]:
    return {"q:1": job(priority=priority), "q:prioritized": Zset({"1": score}), "q:pc": pc, **MARKED}


def stream(*entries: dict[str, str], count: str = "0") -> dict[str, Any]:
    return {"q:events": Stream(entries), "q:id": count}


def family(**changes: Any) -> dict[str, Any]:
    """A parent that waits for its one child."""
    keys = {
        "q:1": job(),
        "q:waiting-children": Zset({"1": ADDED}),
        "q:1:dependencies": {"p:q:2"},
        "q:2": job(parentKey="p:q:1", parent='{"id":"1","queueKey":"p:q"}'),
        "q:wait": ["2"],
        **MARKED,
        **changes,
    }
    return {name: value for name, value in keys.items() if value is not None}


BAD: list[tuple[str, str, dict[str, Any]]] = [
    ("one-state", "membership.state", {"q:1": job(), "q:id": "1"}),
    ("one-state", "membership.state", {**waiting(), "q:active": ["1"]}),
    ("no-ghosts", "membership.wait", {**waiting(), "q:wait": ["1", "2"]}),
    ("no-ghosts", "membership.delayed", {"q:delayed": Zset({"2": ADDED * 4096})}),
    ("no-duplicates", "membership.wait.order", {**waiting(), "q:wait": ["1", "1"]}),
    ("paused-list", "membership.wait", {**waiting(), "q:meta": {"paused": "1"}}),
    ("paused-list", "membership.paused", {"q:1": job(), "q:paused": ["1"], "q:id": "1"}),
    ("finished-fields", "job.finishedOn", waiting(finishedOn=str(ADDED + 2))),
    ("finished-fields", "job.finishedOn", {"q:1": job(returnvalue="1"), "q:completed": TODAY, "q:id": "1"}),
    ("finished-fields", "job.failedReason", {"q:1": job(**FINISHED), "q:failed": TODAY, "q:id": "1"}),
    ("required-fields", "job.priority", without("priority")),
    ("required-fields", "job.data", without("data")),
    ("numbers", "job.delay", waiting(delay="soon")),
    ("numbers", "job.priority", waiting(priority="high")),
    ("numbers", "job.stc", waiting(stc="-1")),
    ("numbers", "job.ats", waiting(ats="1.5")),
    ("times", "job.timestamp", waiting(timestamp=str(ADDED // 1000))),
    ("times", "job.timestamp", waiting(timestamp=str(ADDED * 1000))),
    ("times", "job.timestamp", waiting(timestamp=f"{ADDED}.25")),
    ("times", "job.processedOn", waiting(processedOn="2023-11-14T22:13:20Z")),
    ("times-in-order", "job.processedOn", waiting(processedOn=str(ADDED - 60_000))),
    ("times-in-order", "job.finishedOn", completed(processedOn=str(ADDED + 60_000))),
    ("attempts", "job.atm", completed(atm="2")),
    ("attempts", "job.ats", waiting(atm="1")),
    ("json-texts", "job.data", waiting(data="{'a': 1}")),
    ("json-texts", "job.opts", waiting(opts="[]")),
    ("json-texts", "job.stacktrace", waiting(stacktrace='"Error"')),
    ("json-texts", "job.returnvalue", completed(returnvalue="undefined")),
    ("json-texts", "job.progress", waiting(progress="half")),
    ("parent-fields", "job.parentKey", waiting(parentKey="p:q:9")),
    ("parent-fields", "job.parentKey", waiting(parentKey="p:q:9", parent='{"id":"8","queueKey":"p:q"}')),
    ("finish-scores", "membership.completed.score", {**completed(), "q:completed": Zset({"1": ADDED})}),
    ("due-scores", "membership.delayed.score", delayed(ADDED + 5000)),
    ("due-scores", "membership.delayed.score", delayed(ADDED * 4096)),
    ("priority-scores", "membership.prioritized.score", prioritized(3 * 2**32 + 1, "2")),
    ("priority-scores", "membership.prioritized.score", prioritized(5, "5")),
    ("base-marker", "marker.base", {"q:1": job(), "q:wait": ["1"], "q:id": "1"}),
    (
        "base-marker",
        "marker.base",
        {
            "q:1": job(priority="1"),
            "q:prioritized": Zset({"1": 2**32 + 1}),
            "q:pc": "1",
            "q:id": "1",
            "q:marker": Zset({"1": ADDED}),
        },
    ),
    ("marker-members", "marker.other", {"q:marker": Zset({"x": 0})}),
    ("marker-members", "marker.base", {"q:marker": Zset({"0": 1})}),
    ("marker-members", "marker.delay", {"q:marker": Zset({"1": 0})}),
    ("delay-marker", "marker.delay", {**delayed((ADDED + 5000) * 4096), "q:marker": Zset({"1": ADDED + 9000})}),
    ("locks", "lock.left", {"q:1:lock": "t"}),
    ("locks", "lock.left", {**completed(), "q:1:lock": "t"}),
    ("deduplication", "dedup.job", {"q:de:d": "1"}),
    ("deduplication", "dedup.job", {**completed(), "q:de:d": "1"}),
    ("kept-back", "dedup.next", {"q:dn:d": KEPT}),
    ("kept-back", "dedup.next", {**completed(deid="d"), "q:dn:d": KEPT}),
    ("kept-back", "dedup.next", {**waiting(deid="other"), "q:dn:d": KEPT}),
    ("id-counter", "counter.id", {"q:12": job(), "q:wait": ["12"], **MARKED}),
    ("id-counter", "counter.id", {"q:1": job(), "q:wait": ["1"], "q:marker": Zset({"0": 0})}),
    ("priority-counter", "counter.pc", prioritized(2 * 2**32 + 5, "2", pc="4")),
    ("schedulers", "scheduler.record", {"q:repeat": Zset({"s": ADDED})}),
    ("schedulers", "scheduler.next", {"q:repeat:s": {"every": "1"}}),
    ("schedulers", "scheduler.next", {"q:repeat": Zset({"s": 5}), "q:repeat:s": {"every": "1"}}),
    ("throttles", "limiter.ttl", {"q:limiter": "1"}),
    ("throttles", "stalled-check.ttl", {"q:stalled-check": str(ADDED)}),
    ("no-unknown-keys", "unknown.string", {"q:mine": "x"}),
    ("no-unknown-keys", "unknown.list", {"q:delayed": ["1"]}),
    ("one-dependency-kind", "dependency.pending", family(**{"q:1:processed": {"p:q:2": "1"}})),
    ("pending-children", "dependency.pending", family(**{"q:2": None, "q:wait": None})),
    (
        "pending-children",
        "dependency.pending",
        family(**{"q:wait": None, "q:2": job(**FINISHED), "q:completed": Zset({"2": ADDED + 2})}),
    ),
    ("waits-for-something", "dependency.pending", family(**{"q:1:dependencies": None})),
    ("owned-keys", "dependency", {"q:7:processed": {"p:q:2": "1"}}),
    ("owned-keys", "log", {"q:7:logs": ["row"]}),
    ("event-fields", "event.added.name", stream({"event": "added", "jobId": "1"}, count="9")),
    ("event-fields", "event.waiting.jobId", stream(event("waiting", jobId=""))),
    ("event-fields", "event.drained.jobId", {**waiting(), **stream(event("drained", jobId="1"), count="9")}),
    ("event-fields", "event", stream({"jobId": "1"})),
    ("event-prev", "event.completed.prev", stream(event("completed", jobId="1", returnvalue="1"), count="9")),
    ("event-values", "event.removed.prev", stream(event("removed", jobId="1", prev="limbo"), count="9")),
    ("event-values", "event.delayed.delay", stream(event("delayed", jobId="1", delay="soon"), count="9")),
    ("event-jobs", "event.added", stream(event("waiting", jobId="5"), event("removed", jobId="5", prev="wait"))),
    ("event-jobs", "event.added", stream(event("waiting", jobId="5"))),
    ("event-jobs", "event.waiting.jobId", stream(event("added", jobId="1", name="n"), event("waiting", jobId="5"))),
]


def violations(keys: dict[str, Any], ttls: dict[str, int] | None = None) -> list[Finding]:
    return check_snapshot(snapshot(keys, ttls={"q:1:lock": 5000, **(ttls or {})}))


@pytest.mark.parametrize(("check", "where", "keys"), BAD, ids=[f"{check}-{where}" for check, where, _ in BAD])
def test_each_check_finds_what_it_is_for(check: str, where: str, keys: dict[str, Any]) -> None:
    found = violations(keys)
    assert (check, where) in {(violation.kind, violation.place) for violation in found}, "\n".join(map(str, found))


@pytest.mark.parametrize(("check", "keys"), [(check, keys) for check, _, keys in BAD if check != "times"])
def test_a_bad_snapshot_is_bad_for_one_reason(check: str, keys: dict[str, Any]) -> None:
    related = {
        "no-ghosts": {"base-marker"},
        "no-duplicates": {"one-state"},
        "finished-fields": {"finish-scores"},
        "event-fields": {"event-jobs"},
        "no-unknown-keys": {"one-state"},
        "pending-children": {"waits-for-something"},
        "deduplication": set(),
    }
    assert {violation.kind for violation in violations(keys)} <= {check} | related.get(check, set())


def test_a_lock_that_never_expires_is_found() -> None:
    keys = {"q:1": job(), "q:active": ["1"], "q:1:lock": "t", "q:id": "1"}
    assert [violation.place for violation in violations(keys, {"q:1:lock": -1})] == ["lock.ttl"]


def test_a_job_that_expires_is_found() -> None:
    assert [(violation.kind, violation.place) for violation in violations(waiting(), {"q:1": 5000})] == [
        ("no-expiry", "expiry.job")
    ]


def test_every_check_is_shown_to_fail() -> None:
    shown = {check for check, _, _ in BAD} | {"no-expiry", "nothing-parked"}
    live = {name for case in DAMAGES for name in case.findings}
    assert [check.name for check in ALL_CHECKS if check.name not in shown and not live & check.damages.keys()] == []


@pytest.mark.parametrize(("name", "keys"), [(check, keys) for check, _, keys in BAD if CHECKS[check].damages])
def test_a_violation_has_one_of_the_causes_in_the_table(name: str, keys: dict[str, Any]) -> None:
    check = CHECKS[name]
    assert {check.damage_of(detail) for detail in check.predicate(SnapshotView(snapshot(keys)))} <= check.damages.keys()


GOOD: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a waiting job": waiting(),
    "a completed job": completed(),
    "empty data, as Node writes it for a function": waiting(data=""),
    "a result of null": completed(returnvalue="null"),
    "a chosen timestamp may be anything": waiting(timestamp="5", opts='{"timestamp":5}'),
    "a delayed job with a tie-break": delayed((ADDED + 5000) * 4096 + 17),
    "a job that was delayed again later": delayed((ADDED + 60_000) * 4096),
    "an old marker": {**delayed((ADDED + 5000) * 4096), "q:marker": Zset({"1": ADDED})},
    "a front of a priority class without marker": {
        "q:1": job(priority="2"),
        "q:prioritized": Zset({"1": 2 * 2**32}),
        "q:id": "1",
    },
    "a negative priority": prioritized(-3 * 2**32 + 2, "-3"),
    "work without marker while paused": {"q:1": job(), "q:paused": ["1"], "q:id": "1", "q:meta": {"paused": "1"}},
    "work without marker at a global concurrency": {
        "q:1": job(),
        "q:wait": ["1"],
        "q:id": "1",
        "q:meta": {"concurrency": "1"},
    },
    "work without marker while a worker is busy": {
        "q:1": job(),
        "q:2": job(),
        "q:wait": ["1"],
        "q:active": ["2"],
        "q:id": "2",
    },
    "a lock left behind by token 0": {**delayed((ADDED + 5000) * 4096), "q:1:lock": "t"},
    "an old marker of version 3": {"q:wait": ["0:5"]},
    "custom ids do not count": {"q:a:1:b": job(), "q:wait": ["a:1:b"], "q:marker": Zset({"0": 0})},
    "a family": family(),
    "a child under another prefix": family(**{"q:1:dependencies": {"p:q:2", "other:q:9"}}),
    "a custom event": stream({"event": "mine", "anything": ""}),
    "a failure without text": {
        **waiting(),
        **stream(event("failed", jobId="1", failedReason="", prev="active"), count="9"),
    },
    "a removed job": stream(event("added", jobId="1", name=""), event("removed", jobId="1", prev="wait"), count="1"),
    "data that only Python cannot read": waiting(data="[" * 5000 + "]" * 5000),
    "a trimmed stream": stream(event("removed", jobId="1", prev="wait"), count="1"),
}


@pytest.mark.parametrize("keys", GOOD.values(), ids=GOOD.keys())
def test_states_that_node_leaves_are_not_violations(keys: dict[str, Any]) -> None:
    found = violations(keys)
    assert found == [], "\n".join(map(str, found))


def test_no_marker_is_needed_while_a_rate_limit_runs() -> None:
    keys = {"q:1": job(), "q:wait": ["1"], "q:id": "1", "q:limiter": "1"}
    assert violations(keys, {"q:limiter": 900}) == []


def test_a_deduplication_key_that_expires_may_outlive_its_owner() -> None:
    assert violations({"q:de:d": "1"}, {"q:de:d": 900}) == []


def test_a_job_is_kept_back_as_long_as_one_of_its_id_has_not_ended() -> None:
    assert violations({**waiting(deid="d"), "q:dn:d": KEPT}) == []


def test_a_job_may_be_called_like_one_that_is_kept_back() -> None:
    assert violations({"q:dn:d": job(), "q:wait": ["dn:d"], **MARKED}) == []


@pytest.mark.parametrize("name", ["real_a", "real_b", "frozen_a", "frozen_b"])
def test_all_invariants_hold_for_real_bullmq(name: str) -> None:
    found = check_snapshot(recorded(name))
    assert found == [], "\n".join(map(str, found))


def recorded(name: str) -> Snapshot:
    recording = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="ascii"))
    return assemble(recording["prefix"], recording["taken_ms"], [RawKey(**key) for key in recording["keys"]])


def test_a_timestamp_that_is_not_a_time_says_nothing_about_the_score() -> None:
    assert {finding.kind for finding in violations(delayed((ADDED + 5000) * 4096, timestamp="17"))} == {"times"}
    assert {finding.kind for finding in violations(delayed(ADDED, timestamp="17"))} == {"times", "due-scores"}


def test_the_place_of_jobs_while_paused_depends_on_the_version() -> None:
    waits = snapshot({**waiting(), "q:meta": {"paused": "1"}})
    parked = snapshot({"q:1": job(), "q:paused": ["1"], "q:id": "1", "q:meta": {"paused": "1"}})
    found = {
        version: [[broken.kind for broken in check_snapshot(left, version=version)] for left in (waits, parked)]
        for version in ("5.62.0", "5.81.5", "6.0.0", "6.7.0")
    }
    older: list[list[str]] = [["paused-list"], []]
    newer: list[list[str]] = [[], ["nothing-parked"]]
    assert found == {"5.62.0": older, "5.81.5": older, "6.0.0": newer, "6.7.0": newer}


def test_a_check_can_be_switched_off_with_a_reason() -> None:
    bad = snapshot({"q:1": job(), "q:wait": ["1"], "q:id": "1"})
    assert [violation.kind for violation in check_snapshot(bad)] == ["base-marker"]
    assert check_snapshot(bad, {"base-marker": "the scenario deletes it"}) == []


def test_switching_off_needs_a_known_name_and_a_reason() -> None:
    with pytest.raises(UsageProblem, match="unknown check 'base-marke'"):
        check_snapshot(snapshot({}), {"base-marke": "x"})
    with pytest.raises(UsageProblem, match="without a reason"):
        check_snapshot(snapshot({}), {"base-marker": " "})


def test_every_check_is_documented_and_has_a_name_of_its_own() -> None:
    table = checks_table()
    assert len({name for name, *_ in table}) == len(table)
    assert all(source and doc.endswith(".") for _, _, source, doc in table)


def test_a_violation_is_a_finding_without_a_culprit() -> None:
    (found,) = violations({"q:mine": "x"})
    assert found == Finding(
        requirement=NOBODY_BLAMED,
        source="invariant",
        kind="no-unknown-keys",
        severity="cosmetic",
        where="invariant.no-unknown-keys",
        key="p:q:mine",
        expected="Every key under the prefix has a meaning in BullMQ, and the Redis type that belongs to it.",
        actual="a string that BullMQ does not know",
        message="invariant no-unknown-keys: a string that BullMQ does not know",
        place="unknown.string",
    )


def test_violations_come_in_natural_order() -> None:
    keys = {f"q:{number}": job() for number in (10, 9, 2)} | {"q:id": "10"}
    assert [violation.key for violation in violations(keys)] == ["q:2", "q:9", "q:10"]
