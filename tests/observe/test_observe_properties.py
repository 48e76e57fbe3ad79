"""Properties of any snapshot, and of recordings of real BullMQ: canonical form, differences, and none where none is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.observe.canonical import DEFAULT_RULES, FROZEN_CLOCK_RULES, canonicalise, without
from conformance.observe.canonical_rules import CanonicalContext, CanonicalRule
from conformance.observe.diff import diff
from conformance.observe.tables import Snapshot
from conformance.protocol.states import LIST_CONTAINERS, STATE_CONTAINERS
from tests.observe.snapshot_builders import ADDED, NOW, Stream, Zset, event, job, recorded, snapshot

bounded = settings(max_examples=60)

IDS = st.sampled_from(
    ["1", "2", "10", "a:b:c", f"repeat:s:{ADDED}", "0b5f6a9e-25d0-4d3c-8b0e-0a1f5f0f6a01", "<uuid 1>", "p"]
)
TIMES = st.one_of(st.integers(ADDED - 3, NOW + 5000), st.sampled_from([0, 1, -1, ADDED * 1000]))
TEXTS = st.one_of(
    st.sampled_from(["", "p:q:1", "<prefix>", "[]", "{}", '{"b":1,"a":[null]}', "null"]), st.text(max_size=6)
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "timestamp": TIMES.map(str),
        "processedOn": TIMES.map(str),
        "finishedOn": TIMES.map(str),
        "delay": st.one_of(st.integers(-5, 90_000).map(str), TEXTS),
        "data": TEXTS,
        "opts": st.one_of(
            TEXTS, st.sampled_from(['{"delay":5}', '{"backoff":{"delay":9}}', f'{{"timestamp":{ADDED}}}'])
        ),
        "parent": TEXTS,
        "stacktrace": st.sampled_from(["[]", '["x"]', "no"]),
        "rjk": st.just("s"),
        "extra": TEXTS,
    },
)
SCORES = st.one_of(TIMES, TIMES.map(lambda ms: ms * 4096), st.floats(0, 1e16))
EVENTS = st.lists(
    st.builds(
        lambda kind, job_id, due: event(kind, jobId=job_id, delay=str(due)),
        st.sampled_from(["added", "delayed", "waiting", "custom"]),
        IDS,
        TIMES,
    ),
    max_size=5,
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    keys: dict[str, Any] = {
        f"q:{job_id}": job(**fields) for job_id, fields in draw(st.dictionaries(IDS, FIELDS)).items()
    }
    for container in STATE_CONTAINERS:
        members = draw(st.lists(IDS, max_size=3, unique=True))
        scores = {member: draw(SCORES) for member in members} if container not in LIST_CONTAINERS else {}
        keys[f"q:{container}"] = Zset(scores) if scores else members
    ttls = {f"q:{job_id}:lock": draw(st.integers(-1, 60_000)) for job_id in draw(st.sets(IDS, max_size=2))}
    keys.update({name: draw(TEXTS) for name in ttls})
    keys["q:marker"] = Zset(draw(st.dictionaries(st.sampled_from(["0", "1", "x"]), SCORES, max_size=2)))
    keys["q:events"] = Stream(draw(EVENTS))
    keys["q:repeat"] = Zset(draw(st.dictionaries(st.just("s"), SCORES)))
    keys["q:meta"] = {"version": draw(TEXTS), "opts.maxLenEvents": "10"}
    keys["q:unknown"] = draw(TEXTS)
    used = {name: value for name, value in keys.items() if value or isinstance(value, str)}
    return snapshot({name: value for name, value in used.items() if not _mistyped(name, value)}, ttls=ttls)


def _mistyped(name: str, value: object) -> bool:
    """A sorted set that happens to be drawn without members would be a list."""
    return name.removeprefix("q:") in set(STATE_CONTAINERS) - set(LIST_CONTAINERS) and not isinstance(value, Zset)


@bounded
@given(snapshots())
def test_canonical_form_is_a_fixed_point(given_snapshot: Snapshot) -> None:
    for rules in (DEFAULT_RULES, FROZEN_CLOCK_RULES):
        once = canonicalise(given_snapshot, rules)
        assert canonicalise(once, rules) == once


@bounded
@given(snapshots())
def test_nothing_differs_from_itself(given_snapshot: Snapshot) -> None:
    assert diff(given_snapshot, given_snapshot) == []
    canonical = canonicalise(given_snapshot)
    assert diff(canonical, canonical) == []


@bounded
@given(snapshots(), snapshots())
def test_snapshots_without_a_difference_are_equal(left: Snapshot, right: Snapshot) -> None:
    if left != right:
        assert diff(left, right) != []
    assert diff(left, right) == diff(left, right)


@bounded
@given(snapshots(), st.sampled_from(["name", "priority", "ats", "failedReason", "returnvalue", "pb"]), st.data())
def test_a_change_of_an_unmasked_field_is_always_found(whole: Snapshot, field: str, data: st.DataObject) -> None:
    jobs = list(whole.jobs)
    if not jobs:
        return
    chosen = data.draw(st.integers(0, len(jobs) - 1))
    old = jobs[chosen].fields.get(field)
    new = data.draw(st.text(max_size=5).filter(lambda text: text != old))
    jobs[chosen] = replace(jobs[chosen], fields={**jobs[chosen].fields, field: new})
    found = diff(canonicalise(whole), canonicalise(replace(whole, jobs=tuple(jobs))))
    assert any(difference.where.startswith(f"job.{field}") for difference in found)


@bounded
@given(snapshots(), st.data())
def test_a_job_that_goes_away_is_found(whole: Snapshot, data: st.DataObject) -> None:
    if whole.jobs:
        gone = data.draw(st.sampled_from(whole.jobs))
        rest = replace(whole, jobs=tuple(row for row in whole.jobs if row is not gone))
        assert [difference.kind for difference in diff(whole, rest)] == ["missing-job"]


@bounded
@given(snapshots(), st.data())
def test_a_row_that_goes_away_from_any_table_is_found(whole: Snapshot, data: st.DataObject) -> None:
    tables = [
        name for name in ("memberships", "locks", "events", "markers", "metas", "unknown") if getattr(whole, name)
    ]
    name = data.draw(st.sampled_from(tables))
    rows = getattr(whole, name)
    index = data.draw(st.integers(0, len(rows) - 1))
    changes: dict[str, Any] = {name: (*rows[:index], *rows[index + 1 :])}
    assert diff(whole, replace(whole, **changes)) != []


CONTEXT = CanonicalContext(lock_duration_ms=60_000, stalled_interval_ms=60_000)


def canonical(name: str, rules: tuple[CanonicalRule, ...]) -> Snapshot:
    once = canonicalise(recorded(name), rules, CONTEXT)
    assert canonicalise(once, rules, CONTEXT) == once
    return once


@pytest.mark.parametrize(
    ("left", "right", "rules"),
    [
        ("real_a", "real_b", DEFAULT_RULES),
        ("frozen_a", "frozen_b", FROZEN_CLOCK_RULES),
        ("real_a", "frozen_b", DEFAULT_RULES),
    ],
    ids=["two real clocks", "two frozen clocks", "one of each"],
)
def test_two_runs_of_real_bullmq_are_equal(left: str, right: str, rules: tuple[CanonicalRule, ...]) -> None:
    found = diff(canonical(left, rules), canonical(right, rules))
    assert found == [], "\n".join(map(str, found))


@pytest.mark.parametrize("table", ["jobs", "memberships", "locks", "dependencies", "logs", "events", "schedulers"])
def test_the_recordings_fill_the_tables(table: str) -> None:
    assert getattr(recorded("real_a"), table)


def test_nothing_of_bullmq_is_unknown_or_expires_unexpectedly() -> None:
    assert recorded("real_a").unknown == ()
    assert recorded("real_a").expiries == ()


@pytest.mark.parametrize(
    "name",
    ["own-prefix", "generated-uuids", "lock-ttl", "stream-ids", "worker-clock"],
)
def test_these_rules_are_needed_for_two_equal_runs(name: str) -> None:
    rules = without(DEFAULT_RULES, name)
    left, right = (canonicalise(recorded(run), rules, CONTEXT) for run in ("real_a", "real_b"))
    assert diff(left, right) != []


def test_a_difference_of_one_byte_in_a_recording_is_found() -> None:
    whole = recorded("frozen_a")
    jobs = list(whole.jobs)
    jobs[0] = replace(jobs[0], fields={**jobs[0].fields, "name": jobs[0].fields["name"] + " "})
    left, right = (
        canonicalise(side, FROZEN_CLOCK_RULES, CONTEXT) for side in (whole, replace(whole, jobs=tuple(jobs)))
    )
    assert [difference.where for difference in diff(left, right)] == ["job.name"]
