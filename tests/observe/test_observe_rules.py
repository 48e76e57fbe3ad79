from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conformance.observe.canonical import (
    ALL_RULES,
    DEFAULT_RULES,
    FROZEN_CLOCK_RULES,
    Context,
    canonicalise,
    rules_table,
    without,
)
from conformance.observe.handmade import Stream, Zset, event, job, snapshot
from conformance.observe.tables import Snapshot
from conformance.problems import UsageProblem

from .observe_builders import busy

RULES = {rule.name: rule for rule in ALL_RULES}
UUIDS = ("0b5f6a9e-25d0-4d3c-8b0e-0a1f5f0f6a01", "f3c1a0de-1111-4222-8333-444455556666")


def applied(name: str, given: Snapshot, **context: Any) -> Snapshot:
    """The rule's result; applying it once more must change nothing."""
    once = RULES[name].apply(given, Context(**context))
    assert RULES[name].apply(once, Context(**context)) == once
    return once


def fields(given: Snapshot, job_id: str) -> dict[str, str]:
    found = given.job("q", job_id)
    assert found is not None
    return dict(found.fields)


def test_every_rule_has_a_name_of_its_own_and_a_reason() -> None:
    names = [name for name, _ in rules_table()]
    assert len(set(names)) == len(names) == len(ALL_RULES)
    assert all(reason.endswith(".") for _, reason in rules_table())


def test_frozen_clock_rules_lack_only_the_worker_clock() -> None:
    assert [rule.name for rule in DEFAULT_RULES if rule not in FROZEN_CLOCK_RULES] == ["worker-clock"]


def test_a_rule_can_be_switched_off_by_name() -> None:
    rules = without(DEFAULT_RULES, "library-version")
    assert canonicalise(busy(), rules).meta("q")["version"] == "bullmq:5.62.0"
    assert canonicalise(busy()).meta("q")["version"] == "<name>:<version>"


def test_switching_off_an_unknown_rule_is_a_usage_problem() -> None:
    with pytest.raises(UsageProblem, match="library-versoin"):
        without(DEFAULT_RULES, "library-versoin")


def test_own_prefix_is_replaced_wherever_a_key_begins() -> None:
    given = snapshot(
        {
            "q:1": job(parentKey="p:q:2", parent='{"id":"2","queueKey":"p:q"}', failedReason="child p:c:3 failed"),
            "q:2:processed": {"p:c:3": '"p:c:3"'},
            "q:foreign": "x",
        }
    )
    changed = applied("own-prefix", given)
    assert fields(changed, "1")["parentKey"] == "<prefix>:q:2"
    assert fields(changed, "1")["parent"] == '{"id":"2","queueKey":"<prefix>:q"}'
    assert fields(changed, "1")["failedReason"] == "child <prefix>:c:3 failed"
    assert [(row.child, row.value) for row in changed.dependencies] == [("<prefix>:c:3", '"<prefix>:c:3"')]
    assert changed.unknown[0].key == "<prefix>:q:foreign"


def test_own_prefix_leaves_texts_that_only_look_like_it() -> None:
    given = snapshot({"q:1": job(data='{"step:p":1,"up:q":"other-p:q:1"}', parentKey="bull:q:2")})
    assert applied("own-prefix", given).jobs == given.jobs


def test_lock_tokens_are_numbered_so_that_equal_ones_stay_equal() -> None:
    locks = {"q:1:lock": "b", "q:2:lock": "a", "q:3:lock": "b"}
    changed = applied("lock-token", snapshot(locks))
    assert [lock.token for lock in changed.locks] == ["<token 1>", "<token 2>", "<token 1>"]


@pytest.mark.parametrize(
    ("ttl", "floor", "expected"),
    [
        (1, 0, "<within lockDuration>"),
        (30_000, 0, "<within lockDuration>"),
        (30_001, 0, 30_001),
        (-1, 0, -1),
        (24_999, 25_000, 24_999),
    ],
)
def test_lock_ttl_keeps_what_is_outside_its_band(ttl: int, floor: int, expected: object) -> None:
    given = snapshot({"q:1:lock": "t"}, ttls={"q:1:lock": ttl})
    (lock,) = applied("lock-ttl", given, lock_duration_ms=30_000, ttl_floor_ms=floor).locks
    assert lock.ttl_ms == expected


@pytest.mark.parametrize(("ttl", "expected"), [(900, "<within ttl>"), (1001, 1001), (-1, -1)])
def test_dedup_ttl_is_judged_by_what_the_owner_asked_for(ttl: int, expected: object) -> None:
    owner = job(opts='{"de":{"id":"d","ttl":1000}}')
    given = snapshot({"q:1": owner, "q:de:d": "1"}, ttls={"q:de:d": ttl})
    (row,) = applied("dedup-ttl", given).deduplications
    assert row.ttl_ms == expected


@pytest.mark.parametrize(("ttl", "expected"), [(500, "<within duration>"), (1500, 1500), (-1, -1)])
def test_limiter_ttl_is_judged_by_the_duration(ttl: int, expected: object) -> None:
    by_meta = snapshot({"q:meta": {"max": "1", "duration": "1000"}, "q:limiter": "1"}, ttls={"q:limiter": ttl})
    by_context = snapshot({"q:limiter": "1"}, ttls={"q:limiter": ttl})
    assert applied("limiter-ttl", by_meta).limiters[0].ttl_ms == expected
    assert applied("limiter-ttl", by_context, limiter_duration_ms=1000).limiters[0].ttl_ms == expected


@pytest.mark.parametrize(("ttl", "expected"), [(500, "<within stalledInterval>"), (1500, 1500), (-1, -1)])
def test_stalled_check_ttl_is_judged_by_the_interval(ttl: int, expected: object) -> None:
    given = snapshot({"q:stalled-check": "1"}, ttls={"q:stalled-check": ttl})
    assert applied("stalled-check-ttl", given, stalled_interval_ms=1000).stalled_checks[0].ttl_ms == expected


def test_stream_ids_go_and_the_order_stays() -> None:
    given = snapshot({"q:events": Stream([event("paused"), event("resumed")])})
    changed = applied("stream-ids", given)
    assert [(row.id, row.name) for row in changed.events] == [("<stream id>", "paused"), ("<stream id>", "resumed")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [('["a\\n at b","c"]', '["<stack>","<stack>"]'), ("[]", "[]"), ("oops", "oops"), ("[1]", "[1]"), ("{}", "{}")],
)
def test_stack_traces_keep_their_number_if_they_are_texts(text: str, expected: str) -> None:
    changed = applied("stack-trace-text", snapshot({"q:1": job(stacktrace=text)}))
    assert fields(changed, "1")["stacktrace"] == expected


def test_opts_and_parent_lose_their_key_order_and_nothing_else() -> None:
    given = snapshot(
        {
            "q:1": job(opts='{"b":1,"a":{"d":2,"c":"x\\/y"}}', parent='{"queueKey":"q","id":"1"}'),
            "q:2": job(opts="[]", data='{"b":1,"a":2}'),
            "q:repeat:s": {"every": "1", "opts": '{"z":1,"y":2}'},
        }
    )
    changed = applied("opts-parsed-json", given)
    assert fields(changed, "1")["opts"] == '{"a":{"c":"x/y","d":2},"b":1}'
    assert fields(changed, "1")["parent"] == '{"id":"1","queueKey":"q"}'
    assert (fields(changed, "2")["opts"], fields(changed, "2")["data"]) == ("[]", '{"b":1,"a":2}')
    assert changed.schedulers[0].fields == {"every": "1", "opts": '{"y":2,"z":1}'}


@pytest.mark.parametrize(
    ("version", "expected"),
    [("bullmq:5.62.0", "<name>:<version>"), ("mine:1", "<name>:<version>"), ("5.62.0", "5.62.0"), ("a b:c", "a b:c")],
)
def test_library_version_keeps_its_form(version: str, expected: str) -> None:
    changed = applied("library-version", snapshot({"q:meta": {"version": version}}))
    assert changed.meta("q")["version"] == expected


@pytest.mark.parametrize("names", [UUIDS, UUIDS[::-1]])
def test_uuids_are_numbered_by_their_appearance_not_by_their_text(names: tuple[str, str]) -> None:
    first, second = names
    given = snapshot(
        {
            f"q:{first}": job(data='{"unrelated":"99999999-9999-4999-8999-999999999999"}'),
            f"q:{second}": job(parentKey=f"p:q:{first}"),
            f"q:{first}:dependencies": {f"p:q:{second}"},
            "q:wait": [second],
            "q:waiting-children": Zset({first: 1.0}),
            "q:events": Stream([event("added", jobId=first, name="n"), event("added", jobId=second, name="n")]),
        }
    )
    changed = applied("generated-uuids", given)
    assert fields(changed, "<uuid 2>")["parentKey"] == "p:q:<uuid 1>"
    assert changed.dependencies[0].child == "p:q:<uuid 2>"
    assert "99999999-9999" in fields(changed, "<uuid 1>")["data"]
    assert [row.job for row in changed.events] == ["<uuid 1>", "<uuid 2>"]


def test_uuids_without_events_are_numbered_by_name() -> None:
    given = snapshot({f"q:{UUIDS[0]}": job(name="b"), f"q:{UUIDS[1]}": job(name="a")})
    changed = applied("generated-uuids", given)
    assert {row.id: row.fields["name"] for row in changed.jobs} == {"<uuid 1>": "a", "<uuid 2>": "b"}


def test_the_busy_queue_is_the_same_under_two_prefixes() -> None:
    left, right = (canonicalise(busy(prefix)) for prefix in ("p", "some:other"))
    assert replace(left, taken_ms=0) == replace(right, taken_ms=0)


def test_worker_traces_are_markers_and_the_throttle_and_nothing_else() -> None:
    given = busy()
    assert given.markers
    assert given.stalled_checks
    assert applied("worker-traces", given) == replace(given, markers=(), stalled_checks=())
