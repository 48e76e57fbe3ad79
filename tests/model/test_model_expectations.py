"""Predictions of the model in small cases, written by hand from the facts of the protocol, and its parts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from conformance.driver.ops import REGISTRY, flow, job, lifecycle, queue, worker
from conformance.driver.ops.library import LIBRARY_OPERATIONS
from conformance.model import Model, NotModelled, Prediction, operations
from conformance.model.calls import CallFailure
from conformance.model.schedule import next_time
from conformance.model.state import SortedSet, list_range
from conformance.model.texts import cjson, js_number, normalised_json, number_text, parse_int
from conformance.participants.clock import FROZEN_START_MS as START_MS
from conformance.protocol.states import DELAY_FACTOR, PRIORITY_FACTOR
from conformance.steps.shapes import NOWHERE, CallStep, ClockStep, opening


class ModelClient:
    """A queue, a worker and a flow producer, in the fewest words."""

    def __init__(self, **worker_options: Any) -> None:
        self.model = Model()
        self.now_ms = START_MS
        self.model.apply(opening("q", "queue", "q"), START_MS)
        self.model.apply(opening("w", "worker", "q", **worker_options), START_MS)
        self.model.apply(opening("f", "flow", ""), START_MS)

    def call(self, handle: str, op: Any) -> Prediction:
        return self.model.apply(CallStep(handle, op), self.now_ms)

    def add(self, **opts: Any) -> str:
        value = self.call("q", queue.Add(name="n", opts=opts)).value
        assert value is not None
        return str(value["id"])

    def claim(self, token: str = "t") -> str | None:
        value = self.call("w", worker.GetNextJob(token=token)).value
        assert value is not None
        return value["job"]["id"] if value["job"] else None

    def complete(self, job_id: str, token: str = "t", **more: Any) -> Prediction:
        return self.call("w", worker.MoveToCompleted(job=job_id, token=token, **more))

    def fail(self, job_id: str, token: str = "t", **more: Any) -> Prediction:
        return self.call("w", worker.MoveToFailed(job=job_id, token=token, message="boom", **more))

    def state(self, job_id: str, name: str = "q") -> str:
        return self.model.state_of(name, job_id)

    def field(self, job_id: str, name: str) -> str | None:
        found = self.model.snapshot().job("q", job_id)
        return None if found is None else found.fields.get(name)

    def members(self, container: str) -> list[str]:
        return self.model.snapshot().members("q", container)

    def flow(self, **child_opts: Any) -> None:
        """A parent `p` with the children `a` (with the options) and `b`."""
        children = [
            flow.FlowJob(name="c", queue="q", opts={"jobId": "a", **child_opts}),
            flow.FlowJob(name="c", queue="q", opts={"jobId": "b"}),
        ]
        self.call("f", flow.AddFlow(flow=flow.FlowJob(name="p", queue="q", opts={"jobId": "p"}, children=children)))


def names(prediction: Prediction) -> list[str]:
    return [event.name for event in prediction.events]


def test_waiting_jobs_are_taken_in_order_and_before_those_with_a_priority() -> None:
    client = ModelClient()
    first, urgent, lifo, low = client.add(), client.add(priority=1), client.add(lifo=True), client.add(priority=2)
    assert [client.claim() for _ in range(4)] == [lifo, first, urgent, low]


def test_scores_of_priorities_and_delays() -> None:
    client = ModelClient()
    client.add(priority=3)
    client.add(delay=10)
    client.add(delay=10)
    scores = {row.job: row.score for row in client.model.snapshot().memberships}
    due = (START_MS + 10) * DELAY_FACTOR
    assert scores == {"1": 3 * PRIORITY_FACTOR + 1, "2": due, "3": due + 1}


def test_a_delayed_job_waits_for_its_time() -> None:
    client = ModelClient()
    delayed = client.add(delay=10)
    assert client.claim() is None
    client.now_ms += 10
    assert client.claim() == delayed
    assert client.field(delayed, "delay") == "0"


@pytest.mark.parametrize(("token", "code"), [("wrong", "lock-mismatch"), ("0", None), ("t", None)])
def test_only_the_owner_of_the_lock_may_finish(token: str, code: str | None) -> None:
    client = ModelClient()
    job_id = client.add()
    client.claim("t")
    assert client.complete(job_id, token).code == code


def test_finishing_twice_finds_no_lock() -> None:
    client = ModelClient()
    job_id = client.add()
    client.claim()
    assert names(client.complete(job_id)) == ["completed", "drained"]
    assert client.complete(job_id).code == "missing-lock"


def test_a_failed_job_is_retried_after_its_back_off_until_the_attempts_are_used_up() -> None:
    client = ModelClient()
    job_id = client.add(attempts=2, backoff=500)
    client.claim()
    assert names(client.fail(job_id)) == ["delayed"]
    assert client.state(job_id) == "delayed"
    client.now_ms += 500
    client.claim()
    assert names(client.fail(job_id)) == ["failed", "retries-exhausted", "drained"]


def test_a_worker_decides_about_retries_by_what_it_claimed() -> None:
    client = ModelClient()
    job_id = client.add(attempts=2)
    client.claim()
    client.fail(job_id)
    client.claim()
    assert client.call("w", worker.MoveToWait(job=job_id, token="t")).status == "ok"
    assert client.claim() == job_id
    assert names(client.fail(job_id)) == ["failed", "retries-exhausted", "drained"]


def test_two_checks_are_needed_to_find_a_stalled_job() -> None:
    client = ModelClient()
    job_id = client.add()
    client.claim()
    client.call("w", worker.CheckStalled())
    client.model.endure(ClockStep(30_000))
    assert client.state(job_id) == "active"
    found = client.call("w", worker.CheckStalled())
    assert (found.value, names(found)) == ({"ids": [job_id]}, ["waiting", "stalled"])
    assert client.field(job_id, "stc") == "1"


def test_a_renewed_lock_keeps_a_job_from_stalling() -> None:
    client = ModelClient(lockDuration=60_000)
    client.add()
    client.claim()
    client.call("w", worker.CheckStalled())
    client.model.endure(ClockStep(30_000))
    assert client.call("w", worker.CheckStalled()).value == {"ids": []}


def test_a_parent_waits_for_all_of_its_children() -> None:
    client = ModelClient()
    client.flow()
    assert client.state("p") == "waiting-children"
    for _ in range(2):
        client.complete(str(client.claim()), value_raw="1")
    assert client.state("p") == "waiting"
    values = client.call("q", job.GetChildrenValues(job="p")).value
    assert values == {"values": {client.model.key("q", "a"): "1", client.model.key("q", "b"): "1"}}


@pytest.mark.parametrize(
    ("option", "state", "deferred"),
    [
        ("failParentOnFailure", "waiting", True),
        ("continueParentOnFailure", "waiting", False),
        ("ignoreDependencyOnFailure", "waiting-children", False),
        ("removeDependencyOnFailure", "waiting-children", False),
        ("attempts", "waiting-children", False),
    ],
)
def test_effects_of_a_failed_child_on_its_parent(option: str, state: str, *, deferred: bool) -> None:
    client = ModelClient()
    client.flow(**{option: True if option != "attempts" else 1})
    assert client.claim() == "a"
    client.fail("a")
    assert client.state("p") == state
    assert (client.field("p", "defa") is not None) == deferred


def test_simple_deduplication_ends_with_the_job() -> None:
    client = ModelClient()
    job_id = client.add(deduplication={"id": "d"})
    assert client.add(deduplication={"id": "d"}) == job_id
    client.claim()
    client.complete(job_id)
    assert client.add(deduplication={"id": "d"}) != job_id


@pytest.mark.parametrize("name", ["deduplication", "debounce"])
def test_deduplication_without_an_id_is_refused(name: str) -> None:
    """An empty object as well: to JavaScript, `{}` is true."""
    for given in ({}, {"ttl": 5}, {"id": ""}):
        assert ModelClient().call("q", queue.Add(name="n", opts={name: given})).code == "invalid-argument"


def test_deduplication_with_a_ttl_ends_with_time() -> None:
    client = ModelClient()
    job_id = client.add(deduplication={"id": "d", "ttl": 10_000})
    client.claim()
    client.complete(job_id)
    assert client.add(deduplication={"id": "d", "ttl": 10_000}) == job_id
    client.model.endure(ClockStep(10_000))
    assert client.add(deduplication={"id": "d", "ttl": 10_000}) != job_id


def test_a_deduplicated_job_replaces_a_delayed_one_only() -> None:
    client = ModelClient()
    delayed = client.add(delay=5, deduplication={"id": "d", "replace": True})
    second = client.add(delay=5, deduplication={"id": "d", "replace": True})
    assert (client.state(delayed), client.state(second)) == ("missing", "delayed")
    client.call("q", job.Promote(job=second))
    assert client.add(delay=5, deduplication={"id": "d", "replace": True}) == second


def test_the_next_iteration_is_made_when_one_is_claimed() -> None:
    client = ModelClient()
    client.call("q", flow.UpsertJobScheduler(id="s", repeat={"every": 1_000}))
    assert client.claim() == f"repeat:s:{START_MS}"
    assert client.members("delayed") == [f"repeat:s:{START_MS + 1_000}"]
    assert client.call("q", job.RemoveJob(job=f"repeat:s:{START_MS + 1_000}")).code == "scheduler-job"


def test_a_rate_limit_holds_the_worker_back_by_both_clocks() -> None:
    client = ModelClient(limiter={"max": 1, "duration": 10_000})
    client.add()
    second = client.add()
    assert client.claim() == "1"
    assert client.claim() is None
    client.model.endure(ClockStep(10_000))
    assert client.claim() is None, "the worker does not even ask"
    client.now_ms += 10_000
    assert client.claim() == second


def test_pausing_parks_the_waiting_jobs() -> None:
    client = ModelClient()
    job_id = client.add()
    client.call("q", queue.Pause())
    later_id = client.add()
    assert (client.members("paused"), client.members("wait"), client.claim()) == ([later_id, job_id], [], None)
    client.call("q", queue.Resume())
    assert client.members("wait") == [later_id, job_id]


@pytest.mark.parametrize(
    ("rule", "kept"), [(True, []), (False, ["1", "2", "3"]), (2, ["2", "3"]), ({"age": 0}, []), ({"count": 1}, ["3"])]
)
def test_how_many_completed_jobs_are_kept(rule: Any, kept: list[str]) -> None:
    client = ModelClient()
    for _ in range(3):
        client.add(removeOnComplete=rule)
        client.now_ms += 1
        client.complete(str(client.claim()))
    assert client.members("completed") == kept


def test_metrics_write_a_point_per_minute() -> None:
    client = ModelClient(metrics={"maxDataPoints": 10})
    for minute in (0, 0, 1, 1, 5):
        client.now_ms = START_MS + minute * 60_000
        client.add()
        client.complete(str(client.claim()))
    value = client.call("q", queue.GetMetrics(type="completed")).value
    assert value is not None
    assert value["data"] == [0, 0, 0, 2, 2]


def test_a_call_refused_by_the_client_changes_nothing_but_one_by_the_server_may() -> None:
    client = ModelClient()
    assert client.call("q", queue.Add(name="n", opts={"priority": 1.5})).code == "invalid-argument"
    assert client.model.snapshot().counters == ()
    assert client.call("q", queue.Add(name="n", opts={"delay": True})).code == "other"
    assert [row.value for row in client.model.snapshot().counters] == ["1"]


def test_a_call_outside_of_the_model_is_refused_and_changes_nothing() -> None:
    client = ModelClient()
    before = client.model.snapshot()
    managed = lifecycle.Open(role="worker", queue="q", prefix="", redis=NOWHERE, processor="noop")
    for op in (
        managed,
        queue.Add(name="n", opts={"repeat": {"every": 5}}),
        queue.Add(name="n", opts={"jobId": "wait"}),
    ):
        with pytest.raises(NotModelled):
            client.call("q" if op is not managed else "w2", op)
    assert client.model.snapshot() == before


def test_the_order_of_a_set_is_not_known() -> None:
    client = ModelClient()
    client.flow()
    assert client.model.is_determined(CallStep("q", job.RemoveJob(job="a")), client.now_ms)
    assert not client.model.is_determined(CallStep("q", job.RemoveJob(job="p")), client.now_ms)


def test_the_successor_of_an_iteration_of_a_long_scheduler_id_is_unknown() -> None:
    for scheduler, is_known in (("a:b:c:d", True), ("a:b:c:d:e", False)):
        client = ModelClient()
        client.call("q", flow.UpsertJobScheduler(id=scheduler, repeat={"every": 20_000}))
        claim = CallStep("w", worker.GetNextJob(token="t"))
        assert client.model.is_determined(claim, client.now_ms) is is_known


def test_every_operation_is_modelled_or_named_as_not_modelled() -> None:
    inside_the_client = {"resolve", "job.waitUntilFinished", "queue.publishEvent", "queue.exportPrometheusMetrics"}
    newer = {
        *("job.removeDeduplicationKey", "queue.getMeta", "queue.removeOrphanedJobs"),
        *("worker.cancelJob", "worker.cancelAllJobs"),
        *(name for name in REGISTRY if name.startswith("relay.")),
    }
    assert inside_the_client | newer | LIBRARY_OPERATIONS == operations.NOT_MODELLED
    assert set(operations.JOB_OPS).isdisjoint(operations.QUEUE_OPS)


def test_a_copy_is_independent() -> None:
    client = ModelClient()
    job_id = client.add()
    copy = client.model.copy()
    copy.apply(CallStep("q", job.RemoveJob(job=job_id)), client.now_ms)
    assert (copy.jobs("q"), client.model.jobs("q")) == ([], [job_id])


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
    with pytest.raises(CallFailure):
        cjson([1] + [None] * 20 + [2])


def test_the_integer_at_the_start_of_a_text() -> None:
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
