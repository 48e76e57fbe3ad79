"""What the model says in small cases, written by hand from the facts of the protocol."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import flow, job, lifecycle, queue, worker
from conformance.model import Call, Model, NotModelled, Prediction, legality
from conformance.protocol.scores import DELAY_FACTOR, PRIORITY_FACTOR

from .bench import START_MS, opening


class Room:
    """A queue, a worker and a flow producer, in the fewest words."""

    def __init__(self, **worker_options: Any) -> None:
        self.model = Model()
        self.now_ms = START_MS
        self.call("q", opening("queue", "q"))
        self.call("w", opening("worker", "q", worker_options))
        self.call("f", opening("flow", ""))

    def call(self, handle: str, op: Any) -> Prediction:
        return self.model.apply(Call(handle, op), self.now_ms)

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
    room = Room()
    first, urgent, lifo, low = room.add(), room.add(priority=1), room.add(lifo=True), room.add(priority=2)
    assert [room.claim() for _ in range(4)] == [lifo, first, urgent, low]


def test_scores_of_priorities_and_delays() -> None:
    room = Room()
    room.add(priority=3)
    room.add(delay=10)
    room.add(delay=10)
    scores = {row.job: row.score for row in room.model.snapshot().memberships}
    due = (START_MS + 10) * DELAY_FACTOR
    assert scores == {"1": 3 * PRIORITY_FACTOR + 1, "2": due, "3": due + 1}


def test_a_delayed_job_waits_for_its_time() -> None:
    room = Room()
    delayed = room.add(delay=10)
    assert room.claim() is None
    room.now_ms += 10
    assert room.claim() == delayed
    assert room.field(delayed, "delay") == "0"


@pytest.mark.parametrize(("token", "code"), [("wrong", "lock-mismatch"), ("0", None), ("t", None)])
def test_only_the_owner_of_the_lock_may_finish(token: str, code: str | None) -> None:
    room = Room()
    one = room.add()
    room.claim("t")
    assert room.complete(one, token).code == code


def test_finishing_twice_finds_no_lock() -> None:
    room = Room()
    one = room.add()
    room.claim()
    assert names(room.complete(one)) == ["completed", "drained"]
    assert room.complete(one).code == "missing-lock"


def test_a_failed_job_is_retried_after_its_back_off_until_the_attempts_are_used_up() -> None:
    room = Room()
    one = room.add(attempts=2, backoff=500)
    room.claim()
    assert names(room.fail(one)) == ["delayed"]
    assert room.state(one) == "delayed"
    room.now_ms += 500
    room.claim()
    assert names(room.fail(one)) == ["failed", "retries-exhausted", "drained"]


def test_a_worker_decides_about_retries_by_what_it_claimed() -> None:
    room = Room()
    one = room.add(attempts=2)
    room.claim()
    room.fail(one)
    room.claim()
    assert room.call("w", worker.MoveToWait(job=one, token="t")).status == "ok"
    assert room.claim() == one
    assert names(room.fail(one)) == ["failed", "retries-exhausted", "drained"]


def test_two_checks_are_needed_to_find_a_stalled_job() -> None:
    room = Room()
    one = room.add()
    room.claim()
    room.call("w", worker.CheckStalled())
    room.model.pass_time(30_000)
    assert room.state(one) == "active"
    found = room.call("w", worker.CheckStalled())
    assert (found.value, names(found)) == ({"ids": [one]}, ["waiting", "stalled"])
    assert room.field(one, "stc") == "1"


def test_a_renewed_lock_keeps_a_job_from_stalling() -> None:
    room = Room(lockDuration=60_000)
    room.add()
    room.claim()
    room.call("w", worker.CheckStalled())
    room.model.pass_time(30_000)
    assert room.call("w", worker.CheckStalled()).value == {"ids": []}


def test_a_parent_waits_for_all_of_its_children() -> None:
    room = Room()
    room.flow()
    assert room.state("p") == "waiting-children"
    for _ in range(2):
        room.complete(str(room.claim()), value_raw="1")
    assert room.state("p") == "waiting"
    values = room.call("q", job.GetChildrenValues(job="p")).value
    assert values == {"values": {room.model.key("q", "a"): "1", room.model.key("q", "b"): "1"}}


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
def test_what_a_failed_child_means_to_its_parent(option: str, state: str, *, deferred: bool) -> None:
    room = Room()
    room.flow(**{option: True if option != "attempts" else 1})
    assert room.claim() == "a"
    room.fail("a")
    assert room.state("p") == state
    assert (room.field("p", "defa") is not None) == deferred


def test_simple_deduplication_ends_with_the_job() -> None:
    room = Room()
    one = room.add(deduplication={"id": "d"})
    assert room.add(deduplication={"id": "d"}) == one
    room.claim()
    room.complete(one)
    assert room.add(deduplication={"id": "d"}) != one


@pytest.mark.parametrize("name", ["deduplication", "debounce"])
def test_deduplication_without_an_id_is_refused(name: str) -> None:
    """An empty object as well: to JavaScript, `{}` is true."""
    for given in ({}, {"ttl": 5}, {"id": ""}):
        assert Room().call("q", queue.Add(name="n", opts={name: given})).code == "invalid-argument"


def test_deduplication_with_a_ttl_ends_with_time() -> None:
    room = Room()
    one = room.add(deduplication={"id": "d", "ttl": 10_000})
    room.claim()
    room.complete(one)
    assert room.add(deduplication={"id": "d", "ttl": 10_000}) == one
    room.model.pass_time(10_000)
    assert room.add(deduplication={"id": "d", "ttl": 10_000}) != one


def test_a_deduplicated_job_replaces_a_delayed_one_only() -> None:
    room = Room()
    delayed = room.add(delay=5, deduplication={"id": "d", "replace": True})
    second = room.add(delay=5, deduplication={"id": "d", "replace": True})
    assert (room.state(delayed), room.state(second)) == ("missing", "delayed")
    room.call("q", job.Promote(job=second))
    assert room.add(delay=5, deduplication={"id": "d", "replace": True}) == second


def test_the_next_iteration_is_made_when_one_is_claimed() -> None:
    room = Room()
    room.call("q", flow.UpsertJobScheduler(id="s", repeat={"every": 1_000}))
    assert room.claim() == f"repeat:s:{START_MS}"
    assert room.members("delayed") == [f"repeat:s:{START_MS + 1_000}"]
    assert room.call("q", job.RemoveJob(job=f"repeat:s:{START_MS + 1_000}")).code == "scheduler-job"


def test_a_rate_limit_holds_the_worker_back_by_both_clocks() -> None:
    room = Room(limiter={"max": 1, "duration": 10_000})
    room.add()
    second = room.add()
    assert room.claim() == "1"
    assert room.claim() is None
    room.model.pass_time(10_000)
    assert room.claim() is None, "the worker does not even ask"
    room.now_ms += 10_000
    assert room.claim() == second


def test_pausing_parks_the_waiting_jobs() -> None:
    room = Room()
    one = room.add()
    room.call("q", queue.Pause())
    two = room.add()
    assert (room.members("paused"), room.members("wait"), room.claim()) == ([two, one], [], None)
    room.call("q", queue.Resume())
    assert room.members("wait") == [two, one]


@pytest.mark.parametrize(
    ("rule", "kept"), [(True, []), (False, ["1", "2", "3"]), (2, ["2", "3"]), ({"age": 0}, []), ({"count": 1}, ["3"])]
)
def test_how_many_completed_jobs_are_kept(rule: Any, kept: list[str]) -> None:
    room = Room()
    for _ in range(3):
        room.add(removeOnComplete=rule)
        room.now_ms += 1
        room.complete(str(room.claim()))
    assert room.members("completed") == kept


def test_metrics_write_a_point_per_minute() -> None:
    room = Room(metrics={"maxDataPoints": 10})
    for minute in (0, 0, 1, 1, 5):
        room.now_ms = START_MS + minute * 60_000
        room.add()
        room.complete(str(room.claim()))
    value = room.call("q", queue.GetMetrics(type="completed")).value
    assert value is not None
    assert value["data"] == [0, 0, 0, 2, 2]


def test_a_refused_call_changes_nothing_in_the_client_but_the_server_may_have_begun() -> None:
    room = Room()
    assert room.call("q", queue.Add(name="n", opts={"priority": 1.5})).code == "invalid-argument"
    assert room.model.snapshot().counters == ()
    assert room.call("q", queue.Add(name="n", opts={"delay": True})).code == "other"
    assert [row.value for row in room.model.snapshot().counters] == ["1"]


def test_what_is_not_modelled_is_said_and_changes_nothing() -> None:
    room = Room()
    before = room.model.snapshot()
    managed = lifecycle.Open(role="worker", queue="q", prefix="", redis=opening("flow", "").redis, processor="noop")
    for op in (
        managed,
        queue.Add(name="n", opts={"repeat": {"every": 5}}),
        queue.Add(name="n", opts={"jobId": "wait"}),
    ):
        with pytest.raises(NotModelled):
            room.call("q" if op is not managed else "w2", op)
    assert room.model.snapshot() == before


def test_the_order_of_a_set_is_not_known() -> None:
    room = Room()
    room.flow()
    assert room.model.is_determined(Call("q", job.RemoveJob(job="a")), room.now_ms)
    assert not room.model.is_determined(Call("q", job.RemoveJob(job="p")), room.now_ms)


def test_every_operation_is_modelled_or_named_as_not_modelled() -> None:
    assert {"resolve", "job.waitUntilFinished", "job.removeDeduplicationKey"} == legality.NOT_MODELLED
    assert set(legality.JOB_OPS).isdisjoint(legality.QUEUE_OPS)


def test_a_copy_is_independent() -> None:
    room = Room()
    one = room.add()
    copy = room.model.copy()
    copy.apply(Call("q", job.RemoveJob(job=one)), room.now_ms)
    assert (copy.jobs("q"), room.model.jobs("q")) == ([], [one])
