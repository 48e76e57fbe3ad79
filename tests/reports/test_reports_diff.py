"""Jobs in bulk differ as the gate says; what rules hide is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from conformance.observe.canonical import ALL_RULES, canonicalise
from conformance.observe.diff import diff
from conformance.observe.tables import Job, Snapshot
from conformance.protocol.states import STATE_CONTAINERS
from reports.diff.equality import UNDERSTOOD
from reports.diff.snapshot_comparison import SnapshotComparison, settings_of
from reports.snapshot.folders import folder_at
from reports.snapshot.format import SnapshotFolder, bucket_of, buckets_for, lots_for
from tests.observe.snapshot_builders import ADDED, NOW, Stream, Zset, event, job, snapshot
from tests.reports.reports_builders import (
    differences_of,
    hidden_in_jobs,
    listed,
    plain_store,
    planted,
)
from tests.reports.test_reports_failures import manifest

LATER = 777
A_YEAR_MS = 365 * 24 * 3600 * 1000
SHORT = '{"attempts":3,"delay":5}'
TURNED = '{"delay":5,"attempts":3}'


def usual(shift: int, **changes: str) -> dict[str, str]:
    """The hash of a job that ran once."""
    times = {"timestamp": ADDED, "processedOn": ADDED + 50, "finishedOn": ADDED + 60}
    return job(
        **{
            **{name: str(ms + shift) for name, ms in times.items()},
            "opts": SHORT,
            "delay": "5",
            "returnvalue": "null",
            "atm": "1",
            **changes,
        }
    )


def store(shift: int, fields: Mapping[str, str] | None = None, **keys: Any) -> dict[str, Any]:
    """One finished job, one that waits, and one that is delayed; `fields`: other texts in the finished one."""
    return {
        "q:1": usual(shift, **(fields or {})),
        "q:completed": Zset({"1": float(ADDED + 60 + shift)}),
        "q:2": job(timestamp=str(ADDED + shift)),
        "q:wait": ["2"],
        "q:3": job(timestamp=str(ADDED + shift), delay="5", opts='{"delay":5}'),
        "q:delayed": Zset({"3": (ADDED + shift + 5.0) * 4096 + 7}),
        "q:events": Stream([event("added", jobId="1", name="n"), event("completed", jobId="1", returnvalue="null")]),
        **keys,
    }


@pytest.mark.parametrize("text", ["at p:q:1", "at other:q:1"])
def test_a_text_that_names_the_prefix_of_either_side_is_equal_on_both(text: str) -> None:
    sides = store(0, {"failedReason": "at p:q:1"}), store(LATER, {"failedReason": text})
    left, right = map(snapshot, sides, ("p", "other"))
    assert listed(left, right) == set()
    assert differences_of(left, right, hidden := Counter[str]()) == []
    assert hidden["own-prefix"] == int(text != "at p:q:1")


def test_digests_were_made_for_every_rule() -> None:
    """A new canonical rule is added there once it is clear that equal texts stay equal under it."""
    assert {rule.name for rule in ALL_RULES} == UNDERSTOOD


NUMBERS = [str(ADDED), str(ADDED + 7), str(ADDED - 2_500), str(NOW + 9_000_000), "17", "soon"]
HASHES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["n", "m"]),
        "opts": st.sampled_from([SHORT, TURNED, '{"attempts":3}', f'{{"timestamp":{ADDED}}}', "[]"]),
        "timestamp": st.sampled_from(NUMBERS),
        "delay": st.sampled_from(["0", "5", "77"]),
    },
    optional={
        "processedOn": st.sampled_from(NUMBERS),
        "finishedOn": st.sampled_from(NUMBERS),
        "stacktrace": st.sampled_from(['["x"]', '["y"]', "[]", "?"]),
        "failedReason": st.sampled_from(["at p:q:1", "other"]),
        "rjk": st.just("daily"),
    },
)
SCORES = [17.0, float(ADDED), float(ADDED + 7), ADDED * 4096.0, (ADDED + 5) * 4096.0, (ADDED + 12) * 4096.0 + 3]
EVENTS = st.tuples(st.sampled_from(["added", "waiting", "delayed"]), st.sampled_from(["1", "2"]))


@st.composite
def sides(draw: st.DrawFn) -> dict[str, Any]:
    """A queue of up to two jobs in which anything may be odd."""
    keys: dict[str, Any] = {f"q:{number}": draw(HASHES) for number in draw(st.sets(st.sampled_from("12")))}
    for container in draw(
        st.sets(st.sampled_from(["completed", "delayed", "prioritized", "waiting-children"]), max_size=2)
    ):
        keys[f"q:{container}"] = Zset(
            {n: draw(st.sampled_from(SCORES)) for n in draw(st.sets(st.sampled_from("12"), min_size=1))}
        )
    if draw(st.booleans()):
        keys["q:wait"] = sorted(draw(st.sets(st.sampled_from("12"), min_size=1)))
    if listed := draw(st.lists(EVENTS, max_size=4)):
        keys["q:events"] = Stream([event(name, jobId=number, delay=str(ADDED + 5)) for name, number in listed])
    return keys


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Snapshot, Snapshot]:
    """Two queues that have much in common."""
    left = draw(sides())
    right = {**left, **draw(sides())} if draw(st.booleans()) else draw(sides())
    for name in draw(st.sets(st.sampled_from(sorted(right) or ["q:1"]), max_size=2)):
        right.pop(name, None)
    return snapshot(left), snapshot(right, prefix=draw(st.sampled_from(["p", "other"])))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"fields": {"timestamp": str(ADDED - A_YEAR_MS)}}, "worker-clock"),
        ({"q:delayed": Zset({"3": (ADDED + 5.0) * 4096 + 8})}, "worker-clock"),
        ({"fields": {"opts": TURNED}}, "opts-parsed-json"),
        ({"fields": {"stacktrace": '["another"]'}}, "stack-trace-text"),
    ],
)
@pytest.mark.parametrize("with_digests", [True, False])
def test_a_hidden_difference_of_a_job_counts_under_its_rule(
    change: dict[str, Any], rule: str, *, with_digests: bool
) -> None:
    before = {"stacktrace": '["one"]'}
    after = {**before, **change.get("fields", {})}
    left = snapshot(store(0, before))
    right = snapshot(store(0, after, **{name: value for name, value in change.items() if name != "fields"}))
    assert hidden_in_jobs(left, left, with_digests=with_digests) == {}
    assert hidden_in_jobs(left, right, with_digests=with_digests) == {rule: 1}


def test_half_a_time_to_live_another_token_and_a_marker_are_counted_under_their_rules() -> None:
    owner = job(opts='{"de":{"id":"x","ttl":60000}}')
    keys = {"q:1": owner, "q:active": ["1"], "q:1:lock": "a", "q:de:x": "1", "q:stalled-check": "1"}
    marked = {**keys, "q:marker": Zset({"0": 0.0})}
    left = snapshot(marked, ttls={"q:de:x": 50_000, "q:1:lock": 20_000, "q:stalled-check": 9000})
    right = snapshot({**keys, "q:1:lock": "b"}, ttls={"q:de:x": 25_000, "q:1:lock": 9_000, "q:stalled-check": 5000})
    hidden: Counter[str] = Counter()
    assert differences_of(left, right, hidden=hidden) == []
    rules = ("dedup-ttl", "lock-ttl", "lock-token", "stalled-check-ttl", "worker-traces")
    assert hidden == dict.fromkeys(rules, 1)


@given(st.binary(max_size=12), st.integers(0, 5), st.integers(0, 5))
def test_fewer_buckets_are_unions_of_more(name: bytes, few: int, many: int) -> None:
    few, many = sorted((2**few, 2**many))
    assert bucket_of(name, many) % few == bucket_of(name, few)


def test_the_number_of_buckets_grows_with_the_store() -> None:
    assert [buckets_for(keys, 0) for keys in (0, 131_072, 131_073, 400_000, 2_000_000, 10**9)] == [1, 1, 2, 4, 16, 512]
    assert [buckets_for(10_000, size * 2**30) for size in (1, 4, 10**6)] == [2, 8, 512]
    assert [lots_for(buckets) for buckets in (2, 64, 128, 512)] == [1, 1, 2, 8]


OF_WHOLE_LISTS = {"order"}
"""Classes that are found in whole lists, not job by job."""


def test_the_same_store_under_two_prefixes_has_no_differences() -> None:
    assert differences_of(snapshot(plain_store()), snapshot(plain_store("other"), prefix="other")) == []


def test_every_planted_difference_is_found_and_nothing_else() -> None:
    store = plain_store()
    changed, expected = planted(store)
    found = {(row[0], row[6]) for row in differences_of(snapshot(store), snapshot(changed))}
    assert found == {pair for pair in expected if pair[0] not in OF_WHOLE_LISTS}


def test_a_stale_lock_is_distinct_from_other_differences_of_locks() -> None:
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
    for container in draw(st.lists(st.sampled_from(STATE_CONTAINERS), unique=True, max_size=4)):
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
    rows = differences_of(expected, actual)
    assert {row[6] for row in rows} >= by_gate
    assert {row[6] for row in rows if row[1] != "wrong-event-order"} <= by_gate


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


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("left_ms", "right_ms", "later_ms", "differs"),
    [
        (HOUR_MS, HOUR_MS - 120_000, 120_000, False),
        (HOUR_MS, HOUR_MS, 120_000, False),
        (HOUR_MS, HOUR_MS - 60_000, 120_000, True),
        (HOUR_MS, HOUR_MS // 2, 0, True),
        (20_000, 9_000, 120_000, False),
        (HOUR_MS, -1, 0, True),
    ],
)
def test_locks_that_end_at_the_same_moment_are_the_same(
    left_ms: int,
    right_ms: int,
    later_ms: int,
    differs: bool,
) -> None:
    """Stores that are the same are read one after the other; a lock within lockDuration (30 s) may end at any time."""
    keys = {"q:1": job(), "q:active": ["1"], "q:1:lock": "token"}
    left = snapshot(keys, ttls={"q:1:lock": left_ms})
    right = snapshot(keys, ttls={"q:1:lock": right_ms}, now=NOW + later_ms)
    assert [row[3] for row in differences_of(left, right)] == (["lock.ttl"] if differs else [])


LIVING = {"q:1": job(), "q:wait": ["1"], "q:marker": Zset({"0": 0.0}), "q:id": "1"}
EXTENDED = {**LIVING, "q:1": job(opts='{"de":{"id":"x","ttl":1000,"extend":true}}'), "q:de:x": "1"}
ASKED = {**LIVING, "q:1": job(opts='{"de":{"id":"x","ttl":7200000}}'), "q:de:x": "1"}


@pytest.mark.parametrize(
    ("keys", "name", "where"),
    [
        (EXTENDED, "q:de:x", "dedup.ttl"),
        ({**LIVING, "q:mine": "foreign"}, "q:mine", "unknown.string"),
        (LIVING, "q:1", "expiry.job"),
        (LIVING, "q:wait", "expiry.wait"),
        (ASKED, "q:de:x", "invariant.deduplication-ttl"),
    ],
)
def test_keys_that_end_at_the_same_moment_are_the_same_however_late_they_are_read(
    keys: dict[str, Any], name: str, where: str
) -> None:
    """Another prefix, too. `ASKED`: the rule hides a shorter time to live, and the check of one store finds it."""
    left = snapshot(keys, ttls={name: 2 * HOUR_MS})
    hidden: Counter[str] = Counter()
    later = snapshot(keys, "other", ttls={name: 2 * HOUR_MS - 32_000}, now=NOW + 32_000)
    shorter = snapshot(keys, "other", ttls={name: HOUR_MS - 32_000}, now=NOW + 32_000)
    if keys is ASKED:  # the key was set with its owner, long ago
        left, later, shorter = (replace(side, jobs=tuple(map(added_now, side.jobs))) for side in (left, later, shorter))
    assert differences_of(left, later, hidden) == []
    assert set(hidden) <= {"own-prefix"}
    assert [row[3] for row in differences_of(left, shorter)] == [where]


def added_now(row: Job) -> Job:
    return replace(row, fields={**row.fields, "timestamp": str(NOW)})


def test_the_moment_that_was_read_counts_and_not_when_reading_started() -> None:
    store = snapshot(ASKED, ttls={"q:de:x": 2 * HOUR_MS})
    store = replace(store, jobs=tuple(map(added_now, store.jobs)))

    def read_32_s_late(shorter_by_ms: int) -> Snapshot:
        ends_ms = NOW + 2 * HOUR_MS - shorter_by_ms
        (row,) = store.deduplications
        return replace(store, deduplications=(replace(row, ttl_ms=ends_ms - NOW - 32_000, expires_ms=ends_ms),))

    assert differences_of(store, read_32_s_late(0)) == []
    assert differences_of(store, read_32_s_late(HOUR_MS), hidden := Counter[str]()) != []
    assert hidden == {"dedup-ttl": 1}


def test_a_job_that_ended_while_its_store_was_read_has_not_ended_in_the_future() -> None:
    kept = SnapshotFolder(
        name="a", folder=folder_at("a"), manifest=replaced(manifest(), taken_ms=NOW, reading_ms=32_000)
    )
    settings = settings_of(SnapshotComparison(expected=kept, actual=kept, folder=folder_at("b")))
    assert [side.taken_ms for side in settings.sides] == [NOW + 32_000] * 2


def test_clocks_of_two_servers_may_differ_a_little_and_that_is_counted() -> None:
    left = snapshot(EXTENDED, ttls={"q:de:x": HOUR_MS})
    right = snapshot(EXTENDED, ttls={"q:de:x": HOUR_MS - 1500})
    assert differences_of(left, right, hidden := Counter[str]()) == []
    assert hidden == {"dedup-ttl": 1}
    assert [row[3] for row in differences_of(left, right, switched_off=("dedup-ttl",))] == ["dedup.ttl"]


LOCKED = {**LIVING, "q:active": ["2"], "q:2": job(), "q:2:lock": "token", "q:limiter": "5", "q:de:x": "1"}


@pytest.mark.parametrize("name", ["q:2:lock", "q:limiter", "q:de:x"])
def test_a_key_that_ended_before_the_other_store_was_read_is_not_missing(name: str) -> None:
    left = snapshot(LOCKED, ttls={name: 10_000})
    ended = {key: value for key, value in LOCKED.items() if key != name}
    for sides in (
        (left, snapshot(ended, now=NOW + 20_000)),
        (snapshot(ended, now=NOW + 20_000), left),
    ):
        assert differences_of(*sides, hidden := Counter[str]()) == []
        assert hidden.total() == 1
    assert differences_of(left, snapshot(ended, now=NOW + 9_000)) != [], "it should still have been there"
    assert differences_of(snapshot(LOCKED), snapshot(ended, now=NOW + 20_000)) != [], "it would never have ended"
