"""Findings as changes: what distinguishes them, which side they belong to, and which were not decided."""

from __future__ import annotations

import pytest

from conformance.findings import Finding
from conformance.ledger.loader import load_ledger
from conformance.versions.changes import ChangeContext, Side, changes_of, sign_of, signs_by_scenario, undecided
from tests.report.sample_runs import finding, scenario

TOLD = ChangeContext(older=load_ledger("5.62.0"), newer=load_ledger("6.7.0"), shared={"interop/handed"})
ROW = "pause.moves-wait"


def stated(message: str) -> Finding:
    return finding(ROW, "scenario", "[1]", "[]", source="assertion", kind="assertion", message=message)


def test_a_change_is_worded_by_both_ledgers() -> None:
    (change,) = changes_of([scenario("pause/x", "fail", ROW, findings=[stated("it waits")])], "older", TOLD).values()
    assert (change.statement, change.later) == (TOLD.older[ROW].statement, TOLD.newer[ROW].statement)
    assert change.statement != change.later
    assert (change.before, change.after, change.what, change.aspect) == ("[1]", "[]", "it waits", "steps")


def test_the_newer_version_as_oracle_is_the_expected_side() -> None:
    (change,) = changes_of([scenario("pause/x", "fail", ROW, findings=[stated("it waits")])], "newer", TOLD).values()
    assert (change.before, change.after) == ("[]", "[1]")


def test_one_change_however_many_scenarios_show_it() -> None:
    records = [scenario(f"pause/{name}", "fail", ROW, findings=[stated("it waits")]) for name in "ab"]
    (change,) = changes_of(records, "older", TOLD).values()
    assert change.scenarios == ["pause/a", "pause/b"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("job 1700000000000 waits", "job 1700000000001 waits", True),
        ("it waits", "it is parked", False),
        ("priority -1", "priority -2", False),
    ],
)
def test_ids_and_times_make_no_other_sign(one: str, other: str, same: bool) -> None:
    assert (sign_of(stated(one), "older") == sign_of(stated(other), "older")) is same
    assert sign_of(stated(one), "older") != sign_of(stated(one), "newer")


@pytest.mark.parametrize(
    ("source", "name", "aspect"),
    [
        ("snapshot", "pause/x", "redis"),
        ("invariant", "pause/x", "redis"),
        ("events", "pause/x", "events"),
        ("answer", "pause/x", "answers"),
        ("traffic", "pause/x", "calls"),
        ("protocol", "pause/x", "steps"),
        ("snapshot", "interop/handed[client=adder]", "together"),
    ],
)
def test_the_aspect_of_a_change(source: str, name: str, aspect: str) -> None:
    record = scenario(name, "fail", ROW, findings=[finding(ROW, "job.x", "1", "2", source=source)])
    (change,) = changes_of([record], "older", TOLD).values()
    assert change.aspect == aspect


def test_a_scenario_that_was_not_decided_shows_nothing_and_is_named() -> None:
    records = [
        scenario("pause/open", "inconclusive", ROW, reason="the machine was too busy"),
        scenario("pause/same", "pass", ROW),
        scenario("library/logs", "unsupported", ROW, reason="the driver declares none of them: logs.read"),
        scenario("meta/new", "unsupported", ROW, reason="the driver declares none of them: queue.getMeta"),
    ]
    assert signs_by_scenario(records, "older") == {
        "pause/open": None,
        "pause/same": set(),
        "library/logs": None,
        "meta/new": None,
    }
    # Neither version has logs, and one has the other call.
    assert undecided(records, {"queue.getMeta"}) == {
        "pause/open": "the machine was too busy",
        "meta/new": "the driver declares none of them: queue.getMeta",
    }


@pytest.mark.parametrize(
    ("states", "before", "after", "number"),
    [
        ("older", "bullmq:5.62.0", "bullmq:6.7.0", 0),
        ("newer", "bullmq:6.7.0", "bullmq:5.62.0", 0),
        ("older", "bullmq:5.62.0", "bullmq:5.62.0-x", 1),
        ("older", "5.62.0 jobs", "6.7.0 events", 1),
    ],
)
def test_the_name_of_a_version_is_not_a_change(states: Side, before: str, after: str, number: int) -> None:
    record = scenario("meta/x", "fail", ROW, findings=[finding(ROW, "meta.version", before, after)])
    context = ChangeContext(older=TOLD.older, newer=TOLD.newer, versions=("5.62.0", "6.7.0"))
    assert len(changes_of([record], states, context)) == number
