from __future__ import annotations

from typing import Any

import pytest

from conformance.observe.canonical import Context
from conformance.observe.handmade import ADDED, NOW, Stream, Zset, event, job, snapshot
from conformance.observe.rules.clock import WORKER_CLOCK
from conformance.observe.tables import Snapshot

DUE = "<timestamp + delay, or later>"


def masked(given: Snapshot) -> Snapshot:
    once = WORKER_CLOCK.apply(given, Context())
    assert WORKER_CLOCK.apply(once, Context()) == once, "the rule is not idempotent"
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


def test_a_hash_that_was_evicted_and_begins_anew_has_times_all_the_same() -> None:
    (only,) = masked(snapshot({"q:1": {"processedOn": str(ADDED), "finishedOn": str(ADDED + 1)}})).jobs
    assert only.fields == {"processedOn": "<timestamp or later>", "finishedOn": "<processedOn or later>"}


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
        (ADDED, ADDED, ("<timestamp or later>", "<processedOn or later>")),
        (ADDED + 5, ADDED + 6, ("<timestamp or later>", "<processedOn or later>")),
        (ADDED - 2, ADDED + 6, ("<timestamp or later>", "<processedOn or later>")),  # taken before the command was sent
        (ADDED - 2001, ADDED + 6, (str(ADDED - 2001), "<processedOn or later>")),
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


def test_priority_scores_are_no_times() -> None:
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
def test_only_delays_that_nobody_asked_for_are_approximate(delay: str, opts: str, expected: str) -> None:
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
def test_a_delay_marker_tells_the_due_time_of_a_delayed_job(marked: int, expected: object) -> None:
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
