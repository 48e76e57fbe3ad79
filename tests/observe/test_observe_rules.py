"""Every canonical rule hides what it should, and nothing else; and what the worker clock makes of times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from conformance.gate.judge import chosen_rules
from conformance.observe.canonical import (
    ALL_RULES,
    DEFAULT_RULES,
    FROZEN_CLOCK_RULES,
    canonicalise,
    rules_table,
    without,
)
from conformance.observe.canonical_rules import STALLED_MARKS, CanonicalContext
from conformance.observe.diff import diff
from conformance.observe.tables import Snapshot
from conformance.observe.worker_clock import ITERATION_IDS, WORKER_CLOCK
from conformance.problems import UsageProblem
from tests.observe.snapshot_builders import ADDED, NOW, Stream, Zset, busy, event, job, snapshot

RULES = {rule.name: rule for rule in ALL_RULES}
UUIDS = ("0b5f6a9e-25d0-4d3c-8b0e-0a1f5f0f6a01", "f3c1a0de-1111-4222-8333-444455556666")


def applied(name: str, given: Snapshot, **context: Any) -> Snapshot:
    """The rule's result; applying it once more must change nothing."""
    once = RULES[name].apply(given, CanonicalContext(**context))
    assert RULES[name].apply(once, CanonicalContext(**context)) == once
    return once


def fields(given: Snapshot, job_id: str) -> dict[str, str]:
    found = given.job("q", job_id)
    assert found is not None
    return dict(found.fields)


def test_every_rule_has_a_name_of_its_own_and_a_reason() -> None:
    names = [name for name, _ in rules_table()]
    assert len(set(names)) == len(names) == len(ALL_RULES)
    assert all(reason.endswith(".") for _, reason in rules_table())


def test_frozen_clock_rules_lack_only_the_clock_of_the_client() -> None:
    assert [rule.name for rule in DEFAULT_RULES if rule not in FROZEN_CLOCK_RULES] == ["worker-clock", "iteration-ids"]


def test_a_rule_can_be_switched_off_by_name() -> None:
    rules = without(DEFAULT_RULES, "library-version")
    assert canonicalise(busy(), rules).meta("q")["version"] == "bullmq:5.62.0"
    assert canonicalise(busy()).meta("q")["version"] == "<name>:<version>"


def test_switching_off_an_unknown_rule_is_a_usage_problem() -> None:
    with pytest.raises(UsageProblem, match="library-versoin"):
        without(DEFAULT_RULES, "library-versoin")


def test_own_prefix_is_replaced_wherever_a_key_starts() -> None:
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


def test_lock_tokens_are_named_after_their_first_jobs_so_that_equal_ones_stay_equal() -> None:
    locks = {"q:1:lock": "b", "q:2:lock": "a", "q:3:lock": "b"}
    changed = applied("lock-token", snapshot(locks))
    assert [lock.token for lock in changed.locks] == ["<token of q:1>", "<token of q:2>", "<token of q:1>"]


def test_a_token_too_many_changes_no_other() -> None:
    fewer = applied("lock-token", snapshot({"q:1:lock": "a", "q:3:lock": "b", "q:4:lock": "b"}))
    more = applied("lock-token", snapshot({"q:1:lock": "a", "q:2:lock": "c", "q:3:lock": "d", "q:4:lock": "d"}))
    assert [lock for lock in more.locks if lock.job != "2"] == list(fewer.locks)


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


def test_marks_of_active_jobs_are_masked_in_runs_and_reported_of_stores() -> None:
    given = busy()
    active = {(row.queue, row.job) for row in given.memberships if row.container == "active"}
    marks = {row for row in given.memberships if row.container == "stalled" and (row.queue, row.job) in active}
    rest = tuple(row for row in given.memberships if row not in marks)
    assert marks
    assert STALLED_MARKS.transform(given, CanonicalContext()) == replace(given, memberships=rest)
    assert STALLED_MARKS in chosen_rules(frozen=False, managed=True)
    assert STALLED_MARKS not in (*chosen_rules(frozen=False, managed=False), *ALL_RULES)


DUE = "<timestamp + delay, or later>"


def masked(given: Snapshot) -> Snapshot:
    once = canonicalise(given, (WORKER_CLOCK, ITERATION_IDS))
    assert canonicalise(once, (WORKER_CLOCK, ITERATION_IDS)) == once, "the rules are not idempotent"
    return once


def masked_fields(**fields: str) -> dict[str, str]:
    (only,) = masked(snapshot({"q:1": job(**fields)})).jobs
    return dict(only.fields)


def score(container: str, value: float, **fields: str) -> Any:
    (row,) = masked(snapshot({"q:1": job(**fields), f"q:{container}": Zset({"1": value})})).memberships
    return row.score


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (str(ADDED), "<timestamp>"),
        (str(NOW + 60_000), str(NOW + 60_000)),
        (str(ADDED // 1000), str(ADDED // 1000)),
        (f"{ADDED}.5", f"{ADDED}.5"),
        ("now", "now"),
    ],
)
def test_a_timestamp_is_masked_only_when_it_is_a_past_time_in_ms(given: str, expected: str) -> None:
    assert masked_fields(timestamp=given)["timestamp"] == expected


def test_a_timestamp_that_the_user_chose_stays() -> None:
    opts = f'{{"timestamp":{ADDED}}}'
    assert masked_fields(timestamp=str(ADDED), opts=opts)["timestamp"] == str(ADDED)
    assert masked_fields(timestamp=str(ADDED + 7), opts=opts)["timestamp"] == "<timestamp>"


def test_a_hash_that_was_evicted_and_created_again_has_times() -> None:
    (only,) = masked(snapshot({"q:1": {"processedOn": str(ADDED), "finishedOn": str(ADDED + 1)}})).jobs
    assert only.fields == {"processedOn": "<timestamp or later>", "finishedOn": "<timestamp or later>"}


@pytest.mark.parametrize("text", ["", "soon"])
def test_a_timestamp_that_is_not_a_number_says_nothing_about_later_times(text: str) -> None:
    fields = masked_fields(timestamp=text, processedOn=str(ADDED), finishedOn=str(ADDED + 1))
    assert (fields["processedOn"], fields["finishedOn"]) == ("<timestamp or later>", "<timestamp or later>")
    assert fields["timestamp"] == text
    assert masked_fields(timestamp=text, processedOn="5")["processedOn"] == "5"


@pytest.mark.parametrize(("container", "expected"), [("completed", "<time>"), ("waiting-children", "<time>")])
def test_a_score_without_hash_is_a_time(container: str, expected: str) -> None:
    def kept(value: float) -> object:
        (row,) = masked(snapshot({f"q:{container}": Zset({"1": value})})).memberships
        return row.score

    assert kept(ADDED) == expected
    assert kept(ADDED / 1000) == ADDED / 1000
    assert kept(NOW + 60_000) == NOW + 60_000


def test_the_due_time_of_a_job_whose_hash_was_evicted_is_a_time() -> None:
    stream = Stream([event("delayed", jobId="1", delay=str(NOW))])
    (only,) = masked(snapshot({"q:1": {"delay": "0"}, "q:events": stream})).events
    assert only.get("delay") == "<time>"


@pytest.mark.parametrize(
    ("processed", "finished", "expected"),
    [
        (ADDED, ADDED, ("<timestamp or later>", "<timestamp or later>")),
        (ADDED + 5, ADDED + 6, ("<timestamp or later>", "<timestamp or later>")),
        (ADDED - 2, ADDED + 6, ("<timestamp or later>", "<timestamp or later>")),  # taken before the command was sent
        (ADDED - 2001, ADDED + 6, (str(ADDED - 2001), "<timestamp or later>")),
        (ADDED + 5, ADDED - 1996, ("<timestamp or later>", str(ADDED - 1996))),
        (ADDED + 5, NOW + 60_000, ("<timestamp or later>", str(NOW + 60_000))),
    ],
)
def test_activation_and_end_are_masked_when_they_are_in_order(
    processed: int, finished: int, expected: tuple[str, str]
) -> None:
    fields = masked_fields(processedOn=str(processed), finishedOn=str(finished))
    assert (fields["processedOn"], fields["finishedOn"]) == expected


@pytest.mark.parametrize(
    ("moment", "expected"),
    [(ADDED + 5000, DUE), (ADDED + 5000 + 0.0009765625, DUE), (NOW + 5000, DUE), (ADDED + 4999, None), (5000, None)],
)
def test_a_delayed_score_is_masked_when_it_follows_from_the_fields(moment: float, expected: str | None) -> None:
    given = moment * 4096
    assert score("delayed", given, delay="5000") == (expected or given)


@pytest.mark.parametrize(("moment", "expected"), [(ADDED + 5000, DUE), (ADDED, None)])
def test_a_missing_delay_makes_no_score_wrong(moment: float, expected: str | None) -> None:
    given, fields = moment * 4096, job(opts='{"delay":5000}')
    del fields["delay"]
    (row,) = masked(snapshot({"q:1": fields, "q:delayed": Zset({"1": given})})).memberships
    assert row.score == (expected or given)


def test_a_delayed_score_of_a_chosen_timestamp_is_exact() -> None:
    opts = f'{{"timestamp":{ADDED}}}'
    exact = (ADDED + 5000) * 4096.0
    assert score("delayed", exact, delay="5000", opts=opts) == exact
    assert score("delayed", (NOW - 10 + 5000) * 4096.0, delay="5000", opts=opts) == DUE


@pytest.mark.parametrize("container", ["completed", "failed"])
def test_a_finish_score_is_masked_when_it_equals_the_field(container: str) -> None:
    assert score(container, ADDED + 5, finishedOn=str(ADDED + 5)) == "<finishedOn>"
    assert score(container, ADDED + 6, finishedOn=str(ADDED + 5)) == ADDED + 6


def test_a_waiting_parents_score_is_a_time_from_its_timestamp_on() -> None:
    assert score("waiting-children", ADDED) == "<timestamp or later>"
    assert score("waiting-children", ADDED - 2001) == ADDED - 2001


def test_priority_scores_are_not_times() -> None:
    assert score("prioritized", 2.0**32 + 1, priority="1") == 2.0**32 + 1


@pytest.mark.parametrize(
    ("delay", "opts", "expected"),
    [
        ("5000", '{"delay":5000}', "5000"),
        ("0", '{"delay":5000}', "0"),
        ("200", '{"backoff":{"type":"fixed","delay":200}}', "200"),
        ("800", '{"backoff":{"type":"exponential","delay":200}}', "800"),
        ("300", '{"backoff":{"type":"exponential","delay":200}}', "<about 300 ms>"),
        ("39998", "{}", "<about 39998 ms>"),
    ],
)
def test_only_unrequested_delays_are_approximate(delay: str, opts: str, expected: str) -> None:
    assert masked_fields(delay=delay, opts=opts)["delay"] == expected


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (ADDED + 5000, "<due time of a delayed job>"),
        (ADDED + 9000, "<due time of a delayed job>"),
        (ADDED + 6000, ADDED + 6000),
        (5000, 5000),
    ],
)
def test_a_delay_marker_has_the_due_time_of_a_delayed_job(marked: int, expected: object) -> None:
    given = snapshot(
        {
            "q:1": job(delay="5000"),
            "q:delayed": Zset({"1": (ADDED + 5000) * 4096 + 3}),
            "q:marker": Zset({"0": 0, "1": marked}),
            "q:events": Stream([event("delayed", jobId="gone", delay=str(ADDED + 9000))]),
        }
    )
    assert {row.member: row.score for row in masked(given).markers} == {"0": 0, "1": expected}


def delayed_events(*delays: int, opts: str = '{"delay":5000}') -> list[str | None]:
    entries = [event("added", jobId="1", name="n"), *(event("delayed", jobId="1", delay=str(d)) for d in delays)]
    changed = masked(snapshot({"q:1": job(opts=opts), "q:events": Stream(entries)}))
    return [row.get("delay") for row in changed.events if row.name == "delayed"]


def test_the_first_delayed_event_is_exact_and_later_ones_are_later() -> None:
    assert delayed_events(ADDED + 5000, ADDED + 7000) == ["<timestamp + delay>", "<timestamp or later>"]


@pytest.mark.parametrize("wrong", [5000, ADDED, ADDED + 4999])
def test_a_delayed_event_with_another_time_stays(wrong: int) -> None:
    assert delayed_events(wrong) == [str(wrong)]


def test_a_delayed_event_of_a_removed_job_is_a_time_or_stays() -> None:
    entries = Stream([event("delayed", jobId="x", delay=str(ADDED)), event("delayed", jobId="x", delay="5000")])
    changed = masked(snapshot({"q:events": entries}))
    assert [row.get("delay") for row in changed.events] == ["<time>", "5000"]


@pytest.mark.parametrize(("scheduler", "same"), [("s", True), ("", True), ("another", False)])
def test_an_iteration_is_known_by_its_field_and_an_empty_name_by_its_id(scheduler: str, *, same: bool) -> None:
    due = ADDED + 60_000
    job_id = f"repeat:{scheduler}:{due}" if same else f"plain-{due}"

    def added(at: int) -> Snapshot:
        opts = f'{{"repeat":{{"pattern":"* * * * *"}},"timestamp":{at},"delay":{due - at},"jobId":"{job_id}"}}'
        fields = {"timestamp": str(at), "delay": str(due - at), "opts": opts, "rjk": scheduler if same else ""}
        return masked(snapshot({f"q:{job_id}": job(**fields), "q:delayed": Zset({job_id: due * 4096})}))

    # The timestamp of an iteration is the clock's; another job's was chosen if the options have the same.
    assert (added(ADDED).jobs == added(ADDED + 63).jobs) is same


def iterations(first: int) -> Snapshot:
    """A scheduler with an iteration that ran and one that is delayed."""
    second = first + 60_000
    opts = (
        f'{{"repeat":{{"every":60000,"offset":{first % 60_000},"count":2}},"prevMillis":{second},'
        f'"timestamp":{first + 3},"delay":59997,"jobId":"repeat:s:{second}"}}'
    )
    fields = {"timestamp": str(first + 3), "delay": "59997", "rjk": "s", "opts": opts}
    return snapshot(
        {
            f"q:repeat:s:{first}": job(timestamp=str(first), rjk="s", nrjid=f"repeat:s:{second}"),
            f"q:repeat:s:{second}": job(**fields),
            "q:completed": Zset({f"repeat:s:{first}": first + 2}),
            "q:delayed": Zset({f"repeat:s:{second}": second * 4096}),
            "q:repeat": Zset({"s": second}),
            "q:repeat:s": {"every": "60000", "offset": str(first % 60_000), "ic": "2"},
            "q:events": Stream([event("delayed", jobId=f"repeat:s:{second}", delay=str(second))]),
        },
        now=second,
    )


def test_iterations_of_a_scheduler_are_the_same_at_any_time() -> None:
    left, right = masked(iterations(ADDED)), masked(iterations(ADDED + 12_345))
    assert (left.schedulers, left.events) == (right.schedulers, right.events)
    assert left.jobs == right.jobs
    assert left.schedulers[0].next == "<time 2>"
    assert [row.get("delay") for row in left.events] == ["<own time>"]
    assert {row.id for row in left.jobs} == {"repeat:s:<time 1>", "repeat:s:<time 2>"}


YEARS = 300_000_000_000
"""Ten years in ms."""


@pytest.mark.parametrize(
    ("start", "own_time", "shown"),
    [
        (NOW + YEARS, NOW + YEARS + 5, NOW + YEARS + 5),
        (NOW + YEARS, NOW + YEARS, NOW + YEARS),
        (NOW + YEARS, NOW + 60_000, "<time 1>"),  # an iteration from before the start was changed
        (ADDED, NOW + YEARS, "<time 1>"),  # counted from now
    ],
)
def test_a_time_that_follows_from_a_start_to_come_is_the_same_on_every_clock(
    start: int, own_time: int, shown: int | str
) -> None:
    """So another time of a pattern is seen, though the client has no clock."""
    iteration = job(rjk="s", opts=f'{{"repeat":{{"pattern":"0 0 31 1 *","startDate":{start}}}}}')
    changed = masked(snapshot({f"q:repeat:s:{own_time}": iteration, "q:repeat": Zset({"s": own_time})}))
    assert (changed.jobs[0].id, changed.schedulers[0].next) == (f"repeat:s:{shown}", shown)


@pytest.mark.parametrize(
    ("after_ms", "shown"),
    [
        (60_000, "<a period after an iteration>"),
        (0, None),
        (-60_000, None),
        (100_001 + 60_000, None),  # NOW is 100 s later: periods may have passed without an iteration
    ],
)
def test_the_next_time_of_a_scheduler_without_record_is_at_most_a_period_away(after_ms: int, shown: str | None) -> None:
    own_time = ADDED + 1
    iteration = job(rjk="s", opts='{"repeat":{"every":60000}}')
    keys = {f"q:repeat:s:{own_time}": iteration, "q:repeat": Zset({"s": own_time + after_ms})}
    (row,) = masked(snapshot(keys)).schedulers
    assert row.next == (shown or ("<time 1>" if after_ms == 0 else own_time + after_ms))


def test_the_next_time_of_a_cron_pattern_without_iteration_stays() -> None:
    iteration = job(rjk="s", opts='{"repeat":{"pattern":"* * * * *"}}')
    (row,) = masked(snapshot({f"q:repeat:s:{ADDED}": iteration, "q:repeat": Zset({"s": ADDED + 60_000})})).schedulers
    assert row.next == ADDED + 60_000


@pytest.mark.parametrize("period", [{"every": "1800000"}, {"pattern": "0 0 1 1 *"}])
def test_an_offset_from_before_its_period_was_changed_is_the_same_at_any_time(period: dict[str, str]) -> None:
    """It shows when the scheduler was started; a missing value, a non-number or one below 0 is detected."""

    def changed(offset: str | None) -> Mapping[str, str] | None:
        record = period if offset is None else {**period, "offset": offset}
        return masked(snapshot({"q:repeat": Zset({"s": ADDED}), "q:repeat:s": record})).schedulers[0].fields

    assert changed("2163820") == changed("2163816") == changed(period.get("every", "2163820"))
    assert ("every" in period) == (changed("1799999") != changed("2163820"))
    assert len({str(changed(offset)) for offset in ("2163820", "-5", "soon", None)}) == 4


def test_an_iteration_that_is_not_at_its_own_time_stays() -> None:
    fields = {"timestamp": str(ADDED), "delay": "10000", "rjk": "s"}
    (only,) = masked(snapshot({f"q:repeat:s:{ADDED + 60_000}": job(**fields)})).jobs
    assert only.fields["delay"] == "10000"


def test_the_stalled_check_and_metrics_are_masked_when_they_are_past_times() -> None:
    def changed(value: int) -> tuple[str, str]:
        given = masked(snapshot({"q:stalled-check": str(value), "q:metrics:failed": {"prevTS": str(value)}}))
        return given.stalled_checks[0].value, given.metrics[0].fields["prevTS"]

    assert changed(ADDED) == ("<time>", "<time>")
    assert changed(NOW + 60_000) == (str(NOW + 60_000), str(NOW + 60_000))


def test_the_time_of_a_childs_failure_is_masked() -> None:
    given = snapshot({"q:1:unsuccessful": Zset({"p:q:2": ADDED, "p:q:3": 5})})
    assert {row.child: row.score for row in masked(given).dependencies} == {"p:q:2": "<time>", "p:q:3": 5}


READABLE = {
    "data": '{"n":1}',
    "opts": '{"attempts":0}',
    "parent": '{"id":"1","queueKey":"p:q"}',
    "stacktrace": '["a","b"]',
    "progress": "50",
    "returnvalue": "1",
    "timestamp": str(ADDED),
    "processedOn": str(ADDED + 1),
    "finishedOn": str(ADDED + 2),
    "delay": "0",
}
UNREADABLE = [
    *[(name, text) for name in ("data", "opts", "parent", "stacktrace", "progress") for text in ("{", "NaN", "[NaN]")],
    ("opts", '{"delay":Infinity}'),
    ("parent", '{"id":1,}'),
    ("stacktrace", '["a","b"'),
    ("stacktrace", "['a','b']"),
    *[(name, text) for name in ("timestamp", "processedOn", "finishedOn", "delay") for text in ("soon", "", "NaN")],
]


@pytest.mark.parametrize(("name", "text"), UNREADABLE)
def test_a_value_that_node_cannot_read_never_equals_a_readable_one(name: str, text: str) -> None:
    """Node need not read a finding of a trial as its own state, under any rules (`_judge_left_behind`)."""
    ended = {"q:completed": Zset({"7": ADDED + 2}), "q:events": Stream([event("completed", jobId="7")])}
    left, right = (snapshot({"q:7": job(**changed), **ended}) for changed in (READABLE, {**READABLE, name: text}))
    assert diff(canonicalise(left, ALL_RULES), canonicalise(right, ALL_RULES))
    assert diff(canonicalise(right, ALL_RULES), canonicalise(left, ALL_RULES))


@pytest.mark.parametrize("name", ["returnvalue", "data"])
def test_no_rule_touches_data_of_events(name: str) -> None:
    left, right = (snapshot({"q:events": Stream([event("completed", jobId="7", **{name: text})])}) for text in "1{")
    assert diff(canonicalise(left, ALL_RULES), canonicalise(right, ALL_RULES))
