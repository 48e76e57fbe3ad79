"""The parts that the model stands on: numbers and JSON as text, sorted sets, cron patterns, names, agreement."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from conformance.driver.ops import queue
from conformance.model import Call, Model, Names, NotModelled, Prediction, agreement
from conformance.model.calls import Failure
from conformance.model.containers import SortedSet, list_range
from conformance.model.cron import next_time
from conformance.model.texts import cjson, js_number, normalised_json, number_text, parse_int
from conformance.observe.tables import Lock

from .bench import START_MS, opening


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.1, "0.1"),
        (-0.0, "0"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (-1234.5, "-1234.5"),
        (1.5e300, "1.5e+300"),
        (float("inf"), "null"),
    ],
)
def test_numbers_as_javascript_prints_them(number: float, text: str) -> None:
    assert js_number(number) == text


def test_numbers_as_lua_prints_them() -> None:
    assert [number_text(0.1), number_text(1.7e12), cjson(123456789012345)] == [
        "0.10000000000000001",
        "1700000000000",
        "1.2345678901234e+14",
    ]


def test_json_as_javascript_normalises_it() -> None:
    text = '{"b": 1.0, "2": 2, "1": "\\u00e9\\ud800", "__proto__": [1e400]}'
    assert normalised_json(text) == '{"1":"\u00e9\\ud800","2":2,"b":1,"__proto__":[null]}'
    with pytest.raises(ValueError, match="NaN"):
        normalised_json("NaN")


def test_json_as_lua_writes_it() -> None:
    assert cjson({"a": None, "b": [], "c": [None], "d": [1, None, 2, None]}) == '{"b":{},"c":{},"d":[1,null,2]}'
    with pytest.raises(Failure):
        cjson([1] + [None] * 20 + [2])


def test_the_integer_that_a_text_begins_with() -> None:
    assert [parse_int(text) for text in ("12", "-5.7", "1e3", "x", None)] == [12, -5, 1, None, None]


def test_a_sorted_set_orders_by_score_and_then_by_member() -> None:
    members = SortedSet()
    for member, score in (("b", 2), ("a", 2), ("c", 1)):
        members.add(member, score)
    assert (members.members(), members.between(2), members.pop_first()) == (["c", "a", "b"], ["a", "b"], "c")


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(0, -1, "abc"), (1, 1, "b"), (-2, -1, "bc"), (2, 1, ""), (-9, 0, "a"), (5, 9, "")]
)
def test_ranges_by_index(start: int, end: int, expected: str) -> None:
    assert "".join(list_range(list("abc"), start, end)) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*/5 * * * * *", "2023-11-14 22:13:25"),
        ("0 0 1 1 *", "2024-01-01 00:00:00"),
        ("30 6 * * 1-5", "2023-11-15 06:30:00"),
        ("0 12 13 * 5", "2023-11-17 12:00:00"),
        ("0 0 29 2 *", "2024-02-29 00:00:00"),
    ],
)
def test_the_next_time_of_a_cron_pattern(pattern: str, expected: str) -> None:
    found = next_time(pattern, START_MS)
    assert found is not None
    assert datetime.fromtimestamp(found / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") == expected


@pytest.mark.parametrize("pattern", ["@daily", "* * * JAN *", "* * L * *", "61 * * * *"])
def test_patterns_that_are_not_modelled(pattern: str) -> None:
    with pytest.raises(NotModelled):
        next_time(pattern, START_MS)


def test_names_translate_prefix_and_random_ids() -> None:
    ours, theirs = "00000000-0000-4000-8000-000000000001", "6f1c2c64-9e0c-4f0e-8d0a-6f5d5c2f2e11"
    names = Names("bc12")
    names.learn({"id": ours, "children": []}, {"id": theirs, "children": []})
    sent = names.outward(queue.Remove(job=ours))
    assert (sent.job, names.inward({"k": f"bc12:q:{theirs}"})) == (theirs, {"k": f"the-model:q:{ours}"})


def ok(value: dict[str, object]) -> Prediction:
    return Prediction(op="queue.getRateLimitTtl", status="ok", value=value)


def test_answers_agree_or_not() -> None:
    assert agreement.compare_answers(ok({"count": 10_000}), "ok", {"count": 9_970}) == []
    assert agreement.compare_answers(ok({"count": 10_000}), "ok", {"count": 10}) != []
    assert agreement.compare_answers(ok({"count": 1}), "fail", None, "missing-job") != []
    assert agreement.compare_answers(replace(ok({}), status="fail", code="other"), "fail", None, "other") == []


def test_snapshots_agree_or_not() -> None:
    model = Model()
    model.apply(Call("q", opening("queue", "q")), START_MS)
    model.apply(Call("q", queue.Add(name="n")), START_MS)
    real = model.snapshot()
    names = Names(model.prefix)
    assert agreement.compare_snapshots(model, real, names=names) == []
    lock = Lock(queue="q", job="1", token="t", ttl_ms=5)
    for wrong in (replace(real, jobs=()), replace(real, events=real.events[1:]), replace(real, locks=(lock,))):
        assert agreement.compare_snapshots(model, wrong, names=names) != []
        assert agreement.compare_snapshots(model, wrong) != []
