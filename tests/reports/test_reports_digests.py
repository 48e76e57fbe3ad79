"""Jobs are equal if and only if nothing is listed for them; digests say so only of jobs that also break no check."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conformance.observe import compare_jobs, diff
from conformance.observe.canonical_rules import OPTS_PARSED_JSON, STACK_TRACE_TEXT, CanonicalContext
from conformance.observe.tables import Job, Snapshot
from reports.diff import equality, explanation
from reports.diff.checks import JOB_CHECKS, judged
from reports.diff.equality import JobDigests, JobEquality, grouped, unequal_jobs
from reports.snapshot.digests import library
from reports.snapshot.digests.library import job_records
from reports.snapshot.digests.records import GOOD, USUAL
from reports.snapshot.digests.rows import JOB_TABLES
from reports.snapshot.rows import as_bytes, maps, rows_by_table, texts
from tests.observe.snapshot_builders import ADDED, NOW, Stream, Zset, event, job, snapshot
from tests.reports.reports_builders import (
    by_digests,
    finished_job,
    hidden_in_jobs,
    listed,
    names_by_number,
    plain_store,
    planted,
    rows_in_doubt,
    settings_for,
    tables_of,
)
from tests.reports.test_reports_diff import LATER, SHORT, TURNED, pairs, store, stores


def looked_at(expected: Snapshot, actual: Snapshot, **changes: Any) -> set[bytes]:
    """Keys of the jobs that digests leave to the rules and checks."""
    names = {**names_by_number(tables_of(expected)), **names_by_number(tables_of(actual))}
    return {names[number] for number in by_digests(expected, actual, **changes).wanted.tolist()}


def broken(side: Snapshot) -> set[tuple[bytes, str, str]]:
    return {(found.key.encode(), found.kind, found.place) for found in judged(side, JOB_CHECKS)}


def untouched(left: Snapshot, right: Snapshot) -> set[bytes]:
    """Keys of the jobs that hold the same bytes on both sides."""
    rows, others = (grouped(without_places(side)) for side in (left, right))
    same = {f"{queue}:{name}".encode() for queue, name in rows if rows[queue, name] == others.get((queue, name))}
    return same if left.prefix == right.prefix else set()


def without_places(side: Snapshot) -> Snapshot:
    """Without what says where in a list or a stream a row stands."""
    members = tuple(replace(row, position=None) for row in side.memberships)
    return replace(side, memberships=members, events=tuple(replace(row, id="") for row in side.events))


def insist_on_looking(both: tuple[Snapshot, Snapshot], **changes: Any) -> None:
    """Every job that differs or breaks a check is compared, except one that holds the same bytes on both sides."""
    seen = looked_at(*both, **changes)
    left, right = map(broken, both)
    assert listed(*both, **changes) <= seen
    assert {key for key, _, _ in left ^ right} <= seen
    assert {key for key, _, _ in left | right} - untouched(*both) <= seen


def test_digests_of_usual_jobs_decide_with_any_times_and_any_spelling_of_their_options() -> None:
    left = snapshot(sound_store(0, {"stacktrace": '["a text"]'}))
    right = snapshot(sound_store(LATER, {"opts": TURNED, "stacktrace": '["other text"]'}))
    assert looked_at(left, right) == set()
    assert by_digests(left, right).hidden() == {"worker-clock": 7, "opts-parsed-json": 1, "stack-trace-text": 1}


def sound_store(shift: int, fields: dict[str, str] | None = None, **keys: Any) -> dict[str, Any]:
    """A store whose jobs break no check."""
    return {**store(shift, {"ats": "1", **(fields or {})}), **keys}


@pytest.mark.parametrize(
    "change",
    [
        {"fields": {"data": '{"other":1}'}},
        {"fields": {"opts": '{"attempts":4,"delay":5}'}},
        {"fields": {"opts": '{"attempts":3,"delay":5,"delay":5}'}},
        {"fields": {"atm": "2"}},
        {"fields": {"more": "x"}},
        {"fields": {"stacktrace": '["one","two"]'}},
        {"fields": {"processedOn": str(ADDED - 9_000)}},
        {"fields": {"finishedOn": str(NOW + 9_000_000)}},
        {"fields": {"timestamp": "soon"}},
        {"q:completed": Zset({"1": 17.0})},
        {"q:completed": Zset({}), "q:failed": Zset({"1": float(ADDED + 60)})},
        {"q:failed": Zset({"1": float(ADDED + 60)})},
        {"q:1:logs": ["a line"]},
        {"q:1:dependencies": {"p:q:2"}},
        {"q:events": Stream([event("added", jobId="1", name="n")])},
        {"q:events": Stream([event("completed", jobId="1", returnvalue="null"), event("added", jobId="1", name="n")])},
        {"q:events": Stream([event("added", jobId="1", name="m"), event("completed", jobId="1", returnvalue="null")])},
    ],
)
def test_a_job_with_any_difference_is_compared(change: dict[str, Any]) -> None:
    left, right = snapshot(sound_store(0)), snapshot(sound_store(0, **change))
    assert looked_at(left, right) == {b"q:1"}
    assert looked_at(right, left) == {b"q:1"}


def test_a_text_with_the_own_prefix_is_compared() -> None:
    texts_of = {"p": "at p:q:1", "other": "at o:q:1"}
    left, right = (snapshot(sound_store(0, {"failedReason": text}), prefix) for prefix, text in texts_of.items())
    assert looked_at(left, right) == listed(left, right) == {b"q:1"}


def test_with_a_rule_unknown_to_digests_every_job_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equality, "UNDERSTOOD", frozenset({"worker-clock"}))
    assert looked_at(*[snapshot(sound_store(0))] * 2) == {b"q:1", b"q:2", b"q:3"}


def test_events_of_jobs_that_are_gone_are_compared_as_well() -> None:
    history = [event("added", jobId="gone", name="n"), event("completed", jobId="gone", returnvalue="null")]
    left = snapshot({**sound_store(0), "q:events": Stream(history)})
    assert looked_at(left, left) == set()
    assert looked_at(left, snapshot({**sound_store(0), "q:events": Stream(history[:1])})) == {b"q:gone"}


@contextmanager
def without_cargo() -> Iterator[None]:
    with patch.object(library, "_is_built", return_value=False):
        yield


@pytest.mark.slow
@settings(max_examples=100)
@given(pairs())
@example((snapshot(sound_store(0)), snapshot(sound_store(LATER, {"opts": TURNED, "stacktrace": '["other"]'}))))
@example((snapshot(plain_store()), snapshot(planted(plain_store())[0])))
def test_digests_without_the_compiled_library_leave_out_as_much(both: tuple[Snapshot, Snapshot]) -> None:
    compiled, hidden = looked_at(*both), by_digests(*both).hidden()
    with without_cargo():
        insist_on_looking(both)
        assert looked_at(*both) == compiled
        assert by_digests(*both).hidden() == hidden


TWICE = [event("added", jobId="1", name="n")] * 2
BETWEEN = [TWICE[0], event("added", jobId="2", name="n"), TWICE[0]]
"""The same events of job 1, with other stream ids."""

RULES = ("worker-clock", "opts-parsed-json", "stack-trace-text", "own-prefix", "generated-uuids", "stream-ids")


@pytest.mark.slow
@settings(max_examples=400)
@given(pairs(), st.sets(st.sampled_from(RULES)), st.booleans())
@example((snapshot(sound_store(0)), snapshot(sound_store(LATER))), {"worker-clock"}, False)
@example((snapshot(sound_store(0)), snapshot(sound_store(0, {"opts": TURNED}))), {"opts-parsed-json"}, False)
@example((snapshot(sound_store(0)), snapshot(sound_store(0, {"stacktrace": '["x"]'}))), {"stack-trace-text"}, False)
@example((snapshot({"q:events": Stream(TWICE)}), snapshot({"q:events": Stream(BETWEEN)})), {"stream-ids"}, False)
@example((snapshot(store(0)), snapshot(store(LATER))), set(), False)
@example((snapshot(plain_store()), snapshot(planted(plain_store())[0])), set(), False)
def test_nothing_is_passed_over_that_rules_find_different_or_checks_wrong(
    both: tuple[Snapshot, Snapshot], switched_off: set[str], is_trimmed: bool
) -> None:
    trimmed = frozenset({"q"} if is_trimmed else ())
    insist_on_looking(both, switched_off=tuple(sorted(switched_off)), trimmed=trimmed)


@pytest.mark.slow
@settings(max_examples=300)
@given(pairs())
@example((snapshot(store(0)), snapshot(store(LATER, {"opts": TURNED, "stacktrace": '["other"]'}))))
@example((snapshot(sound_store(0)), snapshot(sound_store(LATER, {"opts": TURNED, "stacktrace": '["other"]'}))))
def test_digests_count_what_rules_hide_as_the_rules_do(both: tuple[Snapshot, Snapshot]) -> None:
    assert hidden_in_jobs(*both, with_digests=True) == hidden_in_jobs(*both, with_digests=False)


def _all(side: JobDigests) -> Any:
    return np.ones(len(side.keys), np.bool_)


def _each(both: JobEquality) -> Any:
    return np.ones(len(both._common[0]), np.bool_)


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "times in no order": (JobDigests, "_times_in_order", property(_all)),
    # Jobs with a score that does not follow are wrong by themselves, and so always compared.
    "jobs where they do not say they are": (JobDigests, "_is_where_it_says", property(_all)),
    "flows are alone": (JobDigests, "is_alone", property(_all)),
    "every job is sound": (JobDigests, "is_sound", property(_all)),
    "any container": (JobDigests, "container", property(lambda side: np.zeros(len(side.keys), np.uint8))),
    "any number of containers": (JobDigests, "members", property(lambda side: np.ones(len(side.keys), np.int64))),
    "any events": (JobEquality, "_same_events", property(_each)),
    "scores of lists": (JobDigests, "score", property(lambda side: np.zeros(len(side.keys)))),
    "any bytes are the same bytes": (JobEquality, "_identical", property(_each)),
    "any events are the same bytes": (equality, "_STORED", tuple(n for n in equality._STORED if "events" not in n)),
    "any logs and children": (JobDigests, "beside", property(lambda side: np.zeros(len(side.keys), np.uint64))),
}


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_the_property_fails_where_digests_say_too_much(name: str) -> None:
    @settings(max_examples=20, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(pairs())
    @example((snapshot(sound_store(0)), snapshot(sound_store(0, **ODD_SCORE))))
    @example((snapshot(sound_store(0)), snapshot(sound_store(0, {"processedOn": str(ADDED - 9_000)}))))
    @example((snapshot(sound_store(0)), snapshot(sound_store(0, **OTHER_EVENTS))))
    @example((snapshot(sound_store(0)), snapshot({**sound_store(0), "q:1:logs": ["a line"]})))
    @example((snapshot(sound_store(0)), snapshot(sound_store(0, **PAUSED))))
    @example((snapshot({**sound_store(0), "q:1:logs": ["a"]}), snapshot({**sound_store(0), "q:1:logs": ["b"]})))
    @example((snapshot(two_states(0)), snapshot(two_states(LATER))))
    @example((snapshot(no_json(0)), snapshot(no_json(LATER))))
    @example((snapshot(no_result(0)), snapshot(no_result(LATER))))
    @example((snapshot(sound_store(0, **PRIORITY)), snapshot(sound_store(0, **OTHER_PRIORITY))))
    def check(both: tuple[Snapshot, Snapshot]) -> None:
        insist_on_looking(both)

    owner, what, value = MUTANTS[name]
    with patch.object(owner, what, value), pytest.raises((AssertionError, ExceptionGroup)):
        check()


def unequal(expected: Snapshot, actual: Snapshot, **changes: Any) -> set[bytes]:
    """Keys of the jobs that are not equal: those that digests leave to the rules, if these find them different."""
    facts = settings_for(expected, actual, **changes)
    left, right = map(rows_by_table, rows_in_doubt(expected, actual, facts, Counter()))
    return {":".join(key).encode() for key, _ in unequal_jobs(left, right, facts, Counter())}


@st.composite
def copies(draw: st.DrawFn) -> tuple[Snapshot, Snapshot]:
    """A store, and its copy without one row, or with one that has another text, score or container."""
    side = draw(stores())
    table = draw(st.sampled_from([table for table in JOB_TABLES if getattr(side, table)] or ["jobs"]))
    rows = list(getattr(side, table))
    if rows:
        row: Any = rows.pop(draw(st.integers(0, len(rows) - 1)))
        if hasattr(row, "fields"):
            name = draw(st.sampled_from(list(dict(row.fields))))
            changed = {"fields": type(row.fields)({**dict(row.fields), name: draw(st.sampled_from("5{"))}.items())}
        elif table == "memberships":
            changed = {"container": "paused"} if row.score is None else {"score": 18.0}
        else:
            changed = {"text": "other"}
        rows += [replace(row, **changed)] if draw(st.booleans()) else []
    copied: dict[str, Any] = {table: tuple(rows), "prefix": draw(st.sampled_from(["p", "other"]))}
    return side, replace(side, **copied)


ABOUT = tuple(snapshot(store(0, {"delay": delay, "opts": "{}"})) for delay in ("70000", "70003"))
"""A job that was moved to a time: its delay is about the same on both sides."""


@settings(max_examples=60)
@given(st.one_of(pairs(), copies(), st.tuples(stores(), stores())), st.sets(st.sampled_from(RULES)), st.booleans())
@example((snapshot(sound_store(0)), snapshot(sound_store(LATER, {"opts": TURNED}))), set(), False)
@example((snapshot(sound_store(0)), snapshot(sound_store(LATER, {"failedReason": "p:q:1"}), "other")), set(), False)
@example((snapshot(plain_store()), snapshot(planted(plain_store())[0])), set(), False)
@example(ABOUT, set(), False)
@example((snapshot(sound_store(0), now=ADDED - 9_000_000), snapshot(sound_store(0))), set(), False)
def test_jobs_are_equal_if_and_only_if_the_explanation_lists_nothing(
    both: tuple[Snapshot, Snapshot], switched_off: set[str], is_trimmed: bool
) -> None:
    changes: dict[str, Any] = {"switched_off": tuple(sorted(switched_off))}
    changes["trimmed"] = frozenset({"q"} if is_trimmed else ())
    assert unequal(*both, **changes) == listed(*both, **changes)


@pytest.mark.parametrize(
    ("module", "what", "defect"),
    [
        (equality, "_alike", lambda *_: True),
        (equality, "same", lambda *_: False),
        (compare_jobs, "compare_fields", lambda *_: ()),
        *((diff, f"compare_{what}", lambda *_: ()) for what in ("jobs", "memberships", "events")),
        *((diff, f"_compare_{what}", lambda *_: ()) for what in ("dependencies", "logs")),
        (explanation, "confirmed", lambda found, *_: found),
    ],
)
def test_a_defect_of_the_decision_or_of_the_explanation_makes_them_disagree(
    module: Any, what: str, defect: Callable[..., Any]
) -> None:
    with patch.object(module, what, defect), pytest.raises((AssertionError, ExceptionGroup)):
        test_jobs_are_equal_if_and_only_if_the_explanation_lists_nothing()


def two_states(shift: int) -> dict[str, Any]:
    return sound_store(shift, {"failedReason": "no"}, **{"q:failed": Zset({"1": float(ADDED + shift + 60)})})


def no_json(shift: int) -> dict[str, Any]:
    return sound_store(shift, {"returnvalue": "no json"})


def no_result(shift: int) -> dict[str, Any]:
    found = sound_store(shift)
    del found["q:1"]["returnvalue"]
    return found


ODD_SCORE: dict[str, Any] = {"q:completed": Zset({"1": 17.0})}
OTHER_EVENTS: dict[str, Any] = {"q:events": Stream([event("added", jobId="1", name="n")])}
PAUSED: dict[str, Any] = {"q:wait": ["9"], "q:9": job(), "q:paused": ["2"]}
PRIORITY: dict[str, Any] = {"q:4": job(priority="3"), "q:prioritized": Zset({"4": 3.0 * 2**32 + 1})}
OTHER_PRIORITY: dict[str, Any] = {"q:4": job(priority="3"), "q:prioritized": Zset({"4": 3.0 * 2**32 + 2})}

SCALARS = ["1", "1.0", "-0", "01", "1e5", "true", "null", "NaN", '"a"', '"\\n"', '"\\u0041"', '"\\ud800"', "1" * 20]
NAMES = ['"a"', '"b"', '"a\\/"', '"a/"', '"\\u0061"', "a"]
VALUES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{name}:{value}" for name, value in pairs) + "}"
        ),
    ),
    max_leaves=6,
)


@st.composite
def two_spellings(draw: st.DrawFn) -> tuple[str, str]:
    """Two texts of JSON, or of something like it, with members in another order or changed a little."""
    members = draw(st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=4))
    others = draw(st.permutations(members)) if draw(st.booleans()) else [*members[1:], *draw(st.just(members[:1]))]
    end = draw(st.sampled_from(["}", "} ", "}}", ""]))
    first, second = ("{" + ",".join(f"{name}:{value}" for name, value in each) for each in (members, others))
    return first + end, second + draw(st.sampled_from([end, "}"]))


def record_of(**fields: str) -> Any:
    """The digest of a hash with these fields."""
    pairs = [(as_bytes(name), as_bytes(value)) for name, value in fields.items()]
    return job_records(texts([b"q"]), texts([b"1"]), maps([pairs]), b"bull")[0]


def canonical(rule: Any, field: str, text: str) -> str:
    one = Snapshot(prefix="p", taken_ms=0, jobs=(Job(queue="q", id="1", fields={field: text}),))
    return str(rule.apply(one, CanonicalContext()).jobs[0].fields[field])


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, '["\\ud800"]'])
def test_a_text_that_python_cannot_read_or_write_has_a_digest_without_the_compiled_library(text: str) -> None:
    with without_cargo():
        first, second = (record_of(opts='{"a":1}', stacktrace=trace) for trace in (text, f"{text} "))
    assert (first["texts"] == second["texts"]) == (len(text) < 5000)


@pytest.mark.slow
@settings(max_examples=200)
@given(two_spellings())
@example(('{"a":1,"a":2}', '{"a":2,"a":1}'))
@example(('{"a\\/":1,"a/":2}', '{"a/":2,"a\\/":1}'))
def test_options_with_one_digest_are_the_same_json(spellings: tuple[str, str]) -> None:
    records = [record_of(opts=text) for text in spellings]
    is_usual = all(record["flags"] & USUAL for record in records)
    if is_usual and records[0]["texts"] == records[1]["texts"]:
        first, second = (canonical(OPTS_PARSED_JSON, "opts", text) for text in spellings)
        assert first == second


def test_options_in_another_order_have_one_digest_and_others_another() -> None:
    shuffled = '{ "backoff" : {"delay":5,"type":"fixed"},"attempts":3 }'
    assert (
        record_of(opts='{"attempts":3,"backoff":{"type":"fixed","delay":5}}')["texts"]
        == record_of(opts=shuffled)["texts"]
    )
    assert len({record_of(opts=text)["texts"] for text in (SHORT, '{"attempts":3}', '{"attempts":"3"}', "[]")}) == 4


@settings(max_examples=300)
@given(st.lists(st.sampled_from(['"a"', '"b"', "1", "[]", '"\\u00e9"', "x"]), max_size=3))
def test_stack_traces_with_one_digest_are_as_many_texts(entries: list[str]) -> None:
    text, other = f"[{','.join(entries)}]", json.dumps(["z"] * len(entries))
    if record_of(stacktrace=text)["texts"] == record_of(stacktrace=other)["texts"]:
        assert canonical(STACK_TRACE_TEXT, "stacktrace", text) == canonical(STACK_TRACE_TEXT, "stacktrace", other)


@pytest.mark.slow
@settings(max_examples=200)
@given(two_spellings())
def test_a_text_that_a_digest_calls_json_is_json(spellings: tuple[str, str]) -> None:
    usual = {"name": "n", "opts": "{}", "timestamp": str(ADDED), "delay": "0", "priority": "0"}
    for text in spellings:
        if record_of(**usual, data=text)["flags"] & GOOD:
            msgspec.json.decode(text)


def test_a_usual_job_is_good() -> None:
    assert record_of(**finished_job(ats="1"))["flags"] & GOOD
    assert not record_of(**finished_job(ats="1", returnvalue="no json"))["flags"] & GOOD
    assert Counter(
        bool(record_of(**finished_job(opts=text))["flags"] & USUAL) for text in ("{}", '{"a":"\\u0061"}')
    ) == {
        True: 1,
        False: 1,
    }
