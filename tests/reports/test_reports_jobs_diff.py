from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.observe.canonical import ALL_RULES, canonicalise
from conformance.observe.diff import diff
from conformance.observe.keyspace import STATES
from conformance.observe.tables import Snapshot
from tests.observe.snapshot_builders import ADDED, NOW, Stream, Zset, event, job, snapshot
from tests.reports.reports_builders import differences_of, plain_store, planted

SEEN_BY_SPARK = {"order"}
"""Classes that are found inside Spark, by SQL."""


def test_the_same_store_under_two_prefixes_has_no_differences() -> None:
    assert differences_of(snapshot(plain_store()), snapshot(plain_store("other"), prefix="other")) == []


def test_every_planted_difference_is_found_and_nothing_else() -> None:
    store = plain_store()
    changed, expected = planted(store)
    found = {(row[0], row[6]) for row in differences_of(snapshot(store), snapshot(changed))}
    assert found == {pair for pair in expected if pair[0] not in SEEN_BY_SPARK}


def test_a_stale_lock_is_told_from_another_difference_of_locks() -> None:
    store = {"q:1": job(), "q:wait": ["1"]}
    found = differences_of(snapshot(store), snapshot({**store, "q:1:lock": "t"}))
    assert [row[0] for row in found] == ["stale-lock"]


def test_one_lock_too_few_gives_no_other_lock_another_token() -> None:
    jobs = {f"q:{number}": job() for number in range(5)}
    locks = {f"q:{number}:lock": f"token-{number}" for number in range(5)}
    store = {**jobs, **locks, "q:active": [str(number) for number in range(5)]}
    found = differences_of(snapshot(store), snapshot({key: v for key, v in store.items() if key != "q:1:lock"}))
    assert [(row[0], row[6]) for row in found] == [("lock", "q:1")]


def test_a_time_to_live_where_none_may_be_is_a_difference() -> None:
    store = plain_store()
    found = differences_of(snapshot(store), snapshot(store, ttls={"q:1": 5000}))
    assert [(row[0], row[3]) for row in found] == [("ttl", "expiry.job")]


def test_events_of_a_trimmed_stream_are_compared_where_both_sides_have_the_first_one() -> None:
    store = {"q:1": job(), "q:2": job(), "q:wait": ["1", "2"]}
    added = [event("added", jobId="1"), event("waiting", jobId="1")]
    expected = snapshot({**store, "q:events": Stream([*added, event("waiting", jobId="2")])})
    actual = snapshot({**store, "q:events": Stream(added[:1])})
    found = differences_of(expected, actual, trimmed=frozenset({"q"}))
    assert [(row[0], row[6]) for row in found] == [("transition-without-event", "q:1")]


IDS = [str(number) for number in range(4)]
FIELDS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "b"]),
        "data": st.sampled_from(["{}", '{"x":1}', '{"x": 1}']),
        "opts": st.sampled_from(['{"attempts":1}', '{"attempts":1,"delay":5}', '{"delay":5,"attempts":1}']),
        "timestamp": st.sampled_from([str(ADDED), str(ADDED + 7), str(NOW + 9_000_000), "soon"]),
        "delay": st.sampled_from(["0", "5", "77"]),
    },
    optional={
        "processedOn": st.sampled_from([str(ADDED + 50), str(ADDED - 90_000)]),
        "finishedOn": st.sampled_from([str(ADDED + 60), "0"]),
        "stacktrace": st.sampled_from(['["Error: x"]', "[]", "?"]),
        "failedReason": st.sampled_from(["at p:q:1", "other"]),
    },
)
LISTED = ("wait", "paused", "active")


@st.composite
def stores(draw: st.DrawFn) -> Snapshot:
    """Queues of a few jobs whose hashes, containers, events and logs are anything."""
    keys: dict[str, Any] = {
        f"q:{name}": dict(fields) for name, fields in draw(st.dictionaries(st.sampled_from(IDS), FIELDS)).items()
    }
    for container in draw(st.lists(st.sampled_from(STATES), unique=True, max_size=4)):
        members = draw(st.lists(st.sampled_from(IDS), unique=True, min_size=1))
        score = draw(st.sampled_from([1.0, float(ADDED + 60), (ADDED + 5) * 4096.0]))
        keys[f"q:{container}"] = sorted(members) if container in LISTED else Zset(dict.fromkeys(members, score))
    if draw(st.booleans()):
        names = st.sampled_from(["added", "waiting", "completed"])
        pairs = draw(st.lists(st.tuples(names, st.sampled_from(IDS)), min_size=1, max_size=5))
        keys["q:events"] = Stream([event(name, jobId=number) for name, number in pairs])
    if draw(st.booleans()):
        keys["q:0:logs"] = draw(st.lists(st.sampled_from(["x", "y"]), min_size=1))
    return snapshot(keys)


@settings(max_examples=60)
@given(stores(), stores())
def test_the_pipeline_finds_the_jobs_that_the_gate_finds(expected: Snapshot, actual: Snapshot) -> None:
    gate = diff(canonicalise(expected, ALL_RULES), canonicalise(actual, ALL_RULES))
    by_gate = {found.key for found in gate if found.where != "event.order" and not found.where.endswith(".order")}
    assert {row[6] for row in differences_of(expected, actual)} >= by_gate
    assert {row[6] for row in differences_of(expected, actual) if row[1] != "wrong-event-order"} <= by_gate


@settings(max_examples=50)
@given(stores())
def test_rules_are_idempotent(found: Snapshot) -> None:
    once = canonicalise(found, ALL_RULES)
    assert canonicalise(once, ALL_RULES) == once


UNMASKED = ("name", "data", "failedReason")


@settings(max_examples=50)
@given(stores(), st.sampled_from(UNMASKED), st.sampled_from(IDS))
def test_rules_never_merge_states_that_differ_in_an_unmasked_field(found: Snapshot, field: str, name: str) -> None:
    changed = [
        row if row.id != name else type(row)(queue=row.queue, id=row.id, fields={**row.fields, field: "changed"})
        for row in found.jobs
    ]
    other = type(found)(**{**{t: getattr(found, t) for t in found.__slots__}, "jobs": tuple(changed)})
    has_job = any(row.id == name for row in found.jobs)
    rows = differences_of(found, other)
    assert bool(rows) == has_job
    assert all(row[7] == field for row in rows)


@pytest.mark.parametrize("rule", ["stack-trace-text", "opts-parsed-json"])
def test_a_rule_that_is_switched_off_hides_nothing(rule: str) -> None:
    left = {"q:1": job(stacktrace='["a"]', opts='{"a":1,"b":2}'), "q:wait": ["1"]}
    right = {"q:1": job(stacktrace='["b"]', opts='{"b":2,"a":1}'), "q:wait": ["1"]}
    assert differences_of(snapshot(left), snapshot(right)) == []
    assert differences_of(snapshot(left), snapshot(right), switched_off=(rule,)) != []
