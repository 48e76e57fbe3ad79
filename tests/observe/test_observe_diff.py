from __future__ import annotations

from typing import Any

import pytest

from conformance.observe import diff as diff_module
from conformance.observe.canonical import DEFAULT_RULES, canonicalise
from conformance.observe.canonical_rules import STREAM_IDS
from conformance.observe.differences import (
    KINDS,
    TEXT_LIMIT,
    Difference,
    difference,
    natural,
    same_reading,
    severity_of,
    summarise,
    summarise_pair,
)
from conformance.observe.tables import Snapshot
from tests.observe.snapshot_builders import ADDED, Stream, Zset, busy, event, job, snapshot

EVENTS = [
    *[event("added", jobId=str(number), name="n") for number in range(1, 9)],
    event("waiting", jobId="1"),
    event("delayed", jobId="3", delay=str(ADDED + 5000)),
    event("active", jobId="2", prev="waiting"),
    event("completed", jobId="7", returnvalue="1", prev="active"),
    event("failed", jobId="8", failedReason="boom", prev="active"),
]


def diff(expected: Snapshot, actual: Snapshot) -> list[Difference]:
    """The differences, stream ids aside: they are numbered here, so that one entry less would shift them."""
    return diff_module.diff(*(canonicalise(side, (STREAM_IDS,)) for side in (expected, actual)))


def only(expected: Snapshot, actual: Snapshot) -> Difference:
    found = diff(expected, actual)
    assert len(found) == 1, "\n".join(map(str, found))
    return found[0]


def changed(**changes: Any) -> Snapshot:
    return busy(**changes)


def field_changed(number: str, **fields: str) -> Snapshot:
    found = busy().job("q", number)
    assert found is not None
    return busy(**{number: {**found.fields, **fields}})


def without_field(number: str, field: str) -> Snapshot:
    found = busy().job("q", number)
    assert found is not None
    return busy(**{number: {name: value for name, value in found.fields.items() if name != field}})


def with_events(*entries: dict[str, str]) -> Snapshot:
    return busy(events=Stream(entries))


CASES: list[tuple[str, Snapshot, tuple[str, str, str, str]]] = [
    ("no state", changed(wait=["5"]), ("no-state", "lost-jobs", "membership.state", "q:1")),
    ("two states", changed(active=["2", "1"]), ("two-states", "breaks-others", "membership.state", "q:1")),
    ("twice in a list", changed(wait=["5", "1", "5"]), ("two-states", "breaks-others", "membership.state", "q:5")),
    ("other state", changed(wait=["5"], paused=["1"]), ("wrong-state", "breaks-others", "membership.state", "q:1")),
    ("order", changed(wait=["1", "5"]), ("wrong-order", "wrong-behaviour", "membership.wait.order", "q:wait")),
    (
        "score",
        changed(prioritized=Zset({"6": 2 * 2**32 + 7})),
        ("wrong-value", "breaks-others", "membership.prioritized.score", "q:6"),
    ),
    (
        "due score",
        changed(delayed=Zset({"3": ADDED + 5000.0})),
        ("wrong-value", "breaks-others", "membership.delayed.score", "q:3"),
    ),
    ("stalled", changed(stalled=None), ("missing-member", "wrong-behaviour", "membership.stalled", "q:2")),
    ("stalled too many", changed(stalled={"1", "2"}), ("extra-member", "wrong-behaviour", "membership.stalled", "q:1")),
    ("timestamp", field_changed("1", timestamp="1"), ("wrong-value", "breaks-others", "job.timestamp", "q:1")),
    ("type", field_changed("1", timestamp="today"), ("wrong-type", "breaks-others", "job.timestamp", "q:1")),
    ("missing field", without_field("7", "atm"), ("missing-field", "wrong-behaviour", "job.atm", "q:7")),
    ("missing link", without_field("5", "parentKey"), ("missing-field", "breaks-others", "job.parentKey", "q:5")),
    ("extra field", field_changed("1", mine="x"), ("extra-field", "cosmetic", "job.mine", "q:1")),
    ("data", field_changed("1", data="[]"), ("wrong-type", "breaks-others", "job.data", "q:1")),
    ("data value", field_changed("1", data='{"a":1}'), ("wrong-value", "breaks-others", "job.data", "q:1")),
    ("data spelling", field_changed("1", data="{ }"), ("wrong-value", "cosmetic", "job.data.text", "q:1")),
    ("data no json", field_changed("1", data="{'a'}"), ("wrong-type", "breaks-others", "job.data", "q:1")),
    (
        "option",
        field_changed("1", opts='{"attempts":2}'),
        ("wrong-value", "wrong-behaviour", "job.opts.attempts", "q:1"),
    ),
    (
        "option type",
        field_changed("1", opts='{"attempts":"0"}'),
        ("wrong-type", "breaks-others", "job.opts.attempts", "q:1"),
    ),
    (
        "boolean is not a number",
        field_changed("1", opts='{"attempts":false}'),
        ("wrong-type", "breaks-others", "job.opts.attempts", "q:1"),
    ),
    ("option missing", field_changed("1", opts="{}"), ("missing-field", "cosmetic", "job.opts.attempts", "q:1")),
    (
        "option too many",
        field_changed("1", opts='{"attempts":0,"x":{"y":1}}'),
        ("extra-field", "cosmetic", "job.opts.x", "q:1"),
    ),
    (
        "option spelling",
        field_changed("3", opts='{"delay":5000,"attempts":0}'),
        ("wrong-value", "cosmetic", "job.opts.text", "q:3"),
    ),
    ("lock", changed(**{"2:lock": None}), ("missing-lock", "breaks-others", "lock", "q:2")),
    ("lock too many", changed(**{"1:lock": "t"}), ("extra-lock", "breaks-others", "lock.left", "q:1")),
    (
        "claimed too early",
        changed(wait=["5"], active=["1", "2"], **{"1:lock": "t"}),
        ("wrong-state", "breaks-others", "membership.state", "q:1"),
    ),
    (
        "not claimed",
        changed(wait=["5", "1", "2"], active=None, **{"2:lock": None}),
        ("wrong-state", "breaks-others", "membership.state", "q:2"),
    ),
    ("token", changed(**{"2:lock": "other"}), ("wrong-value", "breaks-others", "lock.token", "q:2")),
    ("lock ttl", busy(ttls={"q:2:lock": -1}), ("ttl", "wrong-behaviour", "lock.ttl", "q:2")),
    (
        "child missing",
        changed(**{"4:dependencies": None}),
        ("missing-member", "breaks-others", "dependency.pending", "q:4"),
    ),
    (
        "child too many",
        changed(**{"4:processed": {"p:q:7": "1"}}),
        ("extra-member", "breaks-others", "dependency.processed", "q:4"),
    ),
    ("log", changed(**{"7:logs": ["row 2"]}), ("wrong-value", "wrong-behaviour", "log", "q:7")),
    ("no log", changed(**{"7:logs": None}), ("missing-key", "wrong-behaviour", "log", "q:7")),
    ("log too many", changed(**{"1:logs": ["x"]}), ("extra-key", "wrong-behaviour", "log", "q:1")),
    ("event missing", with_events(*EVENTS[:-2], EVENTS[-1]), ("missing-event", "missing", "event.completed", "q:7")),
    (
        "event too many",
        with_events(*EVENTS, event("drained")),
        ("extra-event", "wrong-behaviour", "event.drained", "q:events"),
    ),
    (
        "event order",
        with_events(*EVENTS[:-2], EVENTS[-1], EVENTS[-2]),
        ("wrong-event-order", "wrong-behaviour", "event.order", "q:events"),
    ),
    (
        "event field",
        with_events(*EVENTS[:8], event("waiting", jobId="1", prev="active"), *EVENTS[9:]),
        ("event-field", "wrong-behaviour", "event.waiting.prev", "q:1"),
    ),
    (
        "event field order",
        with_events({"event": "added", "name": "n", "jobId": "1"}, *EVENTS[1:]),
        ("event-field", "cosmetic", "event.added.field-order", "q:1"),
    ),
    (
        "scheduler",
        changed(**{"repeat": None, "repeat:s": None}),
        ("missing-key", "breaks-others", "scheduler", "q:repeat:s"),
    ),
    ("next time", changed(repeat=Zset({"s": 1.0})), ("wrong-value", "breaks-others", "scheduler.next", "q:repeat:s")),
    ("no record", changed(**{"repeat:s": None}), ("missing-key", "breaks-others", "scheduler.record", "q:repeat:s")),
    ("dedup", changed(**{"de:d": None}), ("missing-key", "breaks-others", "dedup", "q:de:d")),
    ("dedup owner", changed(**{"de:d": "2"}), ("wrong-value", "breaks-others", "dedup.job", "q:de:d")),
    ("dedup ttl", busy(ttls={"q:de:d": 5}), ("ttl", "breaks-others", "dedup.ttl", "q:de:d")),
    ("kept back", changed(**{"dn:d": None}), ("missing-key", "lost-jobs", "dedup.next", "q:dn:d")),
    (
        "kept data",
        changed(**{"dn:d": {"name": "n", "data": "2"}}),
        ("wrong-value", "breaks-others", "dedup.next.data", "q:dn:d"),
    ),
    ("no meta", changed(meta=None), ("missing-key", "missing", "meta", "q:meta")),
    (
        "meta",
        changed(meta={"opts.maxLenEvents": "10000", "version": "x:1"}),
        ("wrong-value", "cosmetic", "meta.version", "q:meta"),
    ),
    (
        "base marker",
        changed(marker=Zset({"1": ADDED + 5000})),
        ("missing-key", "breaks-others", "marker.base", "q:marker"),
    ),
    (
        "delay marker",
        changed(marker=Zset({"0": 0, "1": 5000})),
        ("wrong-value", "breaks-others", "marker.delay", "q:marker"),
    ),
    (
        "strange marker",
        changed(marker=Zset({"0": 0, "1": ADDED + 5000, "x": 1})),
        ("extra-key", "wrong-behaviour", "marker.other", "q:marker"),
    ),
    ("id counter", changed(id="9"), ("wrong-value", "breaks-others", "counter.id", "q:id")),
    ("no pc", changed(pc=None), ("missing-key", "wrong-behaviour", "counter.pc", "q:pc")),
    ("limiter", changed(limiter="4"), ("wrong-value", "wrong-behaviour", "limiter", "q:limiter")),
    ("limiter ttl", busy(ttls={"q:limiter": -1}), ("ttl", "wrong-behaviour", "limiter.ttl", "q:limiter")),
    (
        "stalled check",
        changed(**{"stalled-check": None}),
        ("missing-key", "wrong-behaviour", "stalled-check", "q:stalled-check"),
    ),
    (
        "metrics",
        changed(**{"metrics:completed": {"count": "2", "prevTS": str(ADDED), "prevCount": "0"}}),
        ("wrong-value", "wrong-behaviour", "metrics.completed.count", "q:metrics:completed"),
    ),
    (
        "metrics points",
        changed(**{"metrics:completed:data": ["1"]}),
        ("wrong-value", "wrong-behaviour", "metrics.completed.data", "q:metrics:completed"),
    ),
    ("foreign key", changed(mine="x"), ("extra-key", "cosmetic", "unknown.string", "q:mine")),
    ("expiry", busy(ttls={"q:1": 5000}), ("ttl", "breaks-others", "expiry.job", "p:q:1")),
]


@pytest.mark.parametrize(("actual", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_one_change_is_one_difference(actual: Snapshot, expected: tuple[str, str, str, str]) -> None:
    found = only(busy(), actual)
    assert (found.kind, found.severity, found.where, found.key) == expected


@pytest.mark.parametrize(
    ("value", "where", "severity"),
    [
        ('{"a": "\\u00e9"}', "dependency.processed.text", "cosmetic"),
        ('{"a":"e"}', "dependency.processed", "breaks-others"),
        ("[]", "dependency.processed", "breaks-others"),
        ("{", "dependency.processed", "breaks-others"),
    ],
)
def test_the_result_of_a_child_is_compared_as_json(value: str, where: str, severity: str) -> None:
    found = only(busy(**{"4:processed": {"p:q:7": '{"a":"é"}'}}), busy(**{"4:processed": {"p:q:7": value}}))
    assert (found.where, found.severity, found.field) == (where, severity, "p:q:7")


def test_every_kind_has_a_case() -> None:
    tested = {case[2][0] for case in CASES} | {"missing-job", "extra-job"}
    assert set(KINDS) == tested


MISSING_JOB = {
    "7": None,
    "completed": None,
    "7:logs": None,
    "events": Stream(entry for entry in EVENTS if entry.get("jobId") != "7"),
    "id": "7",
    "marker": Zset({"1": ADDED + 5000}),
}


def test_a_missing_job_is_one_difference_and_not_twenty() -> None:
    found = only(busy(), busy(**MISSING_JOB))
    assert (found.kind, found.where, found.key) == ("missing-job", "job", "q:7")
    assert found.expected == '"n in completed"'


def test_a_finished_job_that_is_gone_from_its_container_is_one_difference_in_canonical_form_too() -> None:
    done = {"q:1": job(finishedOn=str(ADDED)), "q:completed": Zset({"1": float(ADDED)})}
    gone = {"q:completed": Zset({"1": float(ADDED)})}
    found = only(canonicalise(snapshot(done)), canonicalise(snapshot(gone)))
    assert (found.kind, found.key) == ("missing-job", "q:1")


def test_a_text_in_place_of_a_masked_time_is_of_the_wrong_type() -> None:
    found = only(canonicalise(snapshot({"q:1": job()})), canonicalise(snapshot({"q:1": job(timestamp="soon")})))
    assert (found.kind, found.where) == ("wrong-type", "job.timestamp")


def test_an_extra_job_is_one_difference_and_not_twenty() -> None:
    found = only(busy(**MISSING_JOB), busy())
    assert (found.kind, found.where, found.key) == ("extra-job", "job", "q:7")


def test_a_list_that_replaced_another_type_is_a_wrong_type() -> None:
    found = diff(busy(), busy(stalled="a string"))
    assert ("wrong-type", "unknown.string", "q:stalled") in {
        (difference.kind, difference.where, difference.key) for difference in found
    }


def test_scores_that_follow_from_a_wrong_field_are_not_mentioned_again() -> None:
    def later(score_ms: int) -> Snapshot:
        fields = job(timestamp=str(ADDED + 1), delay="5000", opts='{"attempts":0,"delay":5000}')
        return busy(**{"3": fields, "delayed": Zset({"3": (ADDED + score_ms) * 4096})})

    assert [difference.where for difference in diff(busy(), later(5001))] == ["job.timestamp"]
    assert [difference.where for difference in diff(busy(), later(5002))] == [
        "job.timestamp",
        "membership.delayed.score",
    ]


def test_an_approximate_delay_is_met_with_a_tolerance() -> None:
    def delayed(delay: int) -> Snapshot:
        return canonicalise(snapshot({"q:1": job(delay=str(delay))}), DEFAULT_RULES)

    assert diff(delayed(30_000), delayed(29_990)) == []
    assert [difference.where for difference in diff(delayed(30_000), delayed(25_000))] == ["job.delay"]


def test_the_order_explains_most_first_and_numbers_count() -> None:
    expected = snapshot({f"q:{n}": job() for n in (2, 10, 11)} | {"q:wait": ["2", "10", "11"]})
    actual = snapshot({f"q:{n}": job(name="x") for n in (10, 2)} | {"q:wait": ["10", "2"]})
    found = [(difference.kind, difference.key) for difference in diff(expected, actual)]
    assert found == [
        ("missing-job", "q:11"),
        ("wrong-order", "q:wait"),
        ("wrong-value", "q:2"),
        ("wrong-value", "q:10"),
    ]


def test_one_event_too_few_among_many_does_not_shift_the_others() -> None:
    entries = [event("progress", jobId="1", data=str(number)) for number in range(200)]
    left = snapshot({"q:1": job(), "q:events": Stream([event("added", jobId="1", name="n"), *entries])})
    right = snapshot({"q:1": job(), "q:events": Stream(entries)})
    assert [difference.where for difference in diff(left, right)] == ["event.added"]


def test_a_moved_event_is_still_compared_field_by_field() -> None:
    left = snapshot({"q:events": Stream([event("paused", a="1"), event("cleaned", count="1")])})
    right = snapshot({"q:events": Stream([event("cleaned", count="1"), event("paused", a="2")])})
    assert {difference.where for difference in diff(left, right)} == {"event.order", "event.paused.a"}


def test_one_event_too_many_is_no_less_one_because_another_like_it_has_moved() -> None:
    first, second = event("added", jobId="1"), event("added", jobId="2")
    left = snapshot({"q:events": Stream([first, second])})
    right = snapshot({"q:events": Stream([second, second, first])})
    assert [(difference.kind, difference.key) for difference in diff(left, right)] == [
        ("extra-event", "q:2"),
        ("wrong-event-order", "q:events"),
    ]
    assert [(difference.kind, difference.key) for difference in diff(right, left)] == [
        ("missing-event", "q:2"),
        ("wrong-event-order", "q:events"),
    ]


def test_a_missing_field_that_means_its_default_is_cosmetic() -> None:
    def severity(expected: str, actual: str) -> str:
        return only(field_changed("1", opts=expected), field_changed("1", opts=actual)).severity

    assert severity('{"attempts":0}', "{}") == "cosmetic"
    assert severity('{"attempts":3}', "{}") == "missing"
    assert severity('{"attempts":0}', '{"attempts":3}') == "wrong-behaviour"
    assert severity('{"attempts":0,"delay":0}', '{"attempts":0}') == "missing"


def test_long_values_are_cut_around_the_first_difference() -> None:
    left, right = summarise_pair("x" * 500 + "left" + "y" * 500, "x" * 500 + "right" + "y" * 500)
    assert "left" in left
    assert "right" in right
    assert max(len(left), len(right)) <= TEXT_LIMIT + 2
    assert left.startswith("…")
    assert left.endswith("…")
    at_start, at_end = (summarise_pair(*pair)[0] for pair in ((f"a{'x' * 500}", "x"), (f"{'x' * 500}a", "x" * 500)))
    assert (at_start[:2], at_start[-1]) == ('"a', "…")
    assert (at_end[0], at_end[-2:]) == ("…", 'a"')


def test_a_kept_back_job_shows_the_value_of_each_side() -> None:
    found = only(busy(), changed(**{"dn:d": {"name": "n", "data": "2"}}))
    assert found.actual == '"2"'
    assert found.expected != found.actual


def test_values_are_quoted_as_json() -> None:
    assert summarise('a "b"\n') == '"a \\"b\\"\\n"'
    assert summarise(None) == "(absent)"
    assert summarise(5.0) == "5"
    assert len(summarise("x" * 5000)) == TEXT_LIMIT + 1


def test_a_difference_reads_as_one_line() -> None:
    text = str(difference("wrong-value", "job.timestamp", "q:1", "1", "2", field="timestamp"))
    assert text == 'wrong-value [breaks-others] job.timestamp at q:1 field timestamp: expected "1", got "2"'


def test_a_difference_outside_of_the_table_is_wrong_behaviour() -> None:
    assert severity_of("job.progress", "wrong-value") == "wrong-behaviour"


def test_natural_order_takes_digits_of_other_scripts_for_text() -> None:
    assert sorted(["q:10", "q:2", "q:²", "q:٣"], key=natural)[:2] == ["q:2", "q:10"]


@pytest.mark.parametrize(
    ("left", "right", "alike"),
    [
        ("9007199254740993", "9007199254740992", True),
        ("9007199254740993", "9007199254740995", False),
        ('{"n":1e400}', '{"n":null}', True),
        ("1.0", "1", True),
        ("1", "true", False),
        ("[1,2]", "[2,1]", False),
        ("no JSON", "no JSON", False),
    ],
)
def test_numbers_are_read_alike_as_far_as_javascript_can_hold_them(left: str, right: str, alike: bool) -> None:
    assert same_reading(left, right) is alike


def test_texts_that_look_the_same_show_their_first_different_byte() -> None:
    left, right = summarise_pair("caf\u00e9 x", "cafe\u0301 x")
    assert left == '"caf\u00e9 x" (from byte 3: c3 a9 20 78)'
    assert right == '"cafe\u0301 x" (from byte 3: 65 cc 81 20)'
    assert summarise_pair("a\u00a0b", "a b") == (
        '"a\u00a0b" (from byte 1: c2 a0 62)',
        '"a b" (from byte 1: 20 62)',
    )
    assert summarise_pair("ab", "a\u200bb")[1] == '"a\u200bb" (from byte 1: e2 80 8b 62)'
    assert summarise_pair(["a\u00a0b"], ["a b"])[0] == '["a\u00a0b"] (from byte 3: c2 a0 62 22)'
    assert summarise_pair("a\udcff", "b\udcff") == ('"a\udcff"', '"b\udcff"')
    assert summarise_pair("same", "same") == ('"same"', '"same"')
