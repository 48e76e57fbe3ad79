"""The driver of the official Python client: queues, jobs, and workers one step at a time."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from conformance.driver.errors import OperationFailed, OperationIndeterminate
from conformance.driver.ops import Op, flow, job, queue, worker

from .conftest import Bench

EXCLUSIVE = {"failParentOnFailure": True, "removeDependencyOnFailure": True}
"""Options that the client refuses together."""


# Queue and jobs


def test_what_is_added_is_in_redis_and_is_read_back(bench: Bench) -> None:
    data = {"text": "é\ud800", "list": [1, None]}
    added = bench.call(queue.Add(name="n", data_raw=json.dumps(data), opts={"priority": 3, "attempts": 2})).id
    assert json.loads(bench.hash(added)["data"]) == data
    view = bench.call(queue.GetJob(job=added)).job
    assert view is not None
    assert (view.name, view.priority, view.opts["attempts"]) == ("n", 3, 2)
    assert json.loads(view.data_raw) == data
    assert bench.call(queue.GetJob(job="missing")).job is None


def test_bulk_counts_and_pages(bench: Bench) -> None:
    ids = bench.call(queue.AddBulk(jobs=[queue.NewJob(name="a"), queue.NewJob(name="b", opts={"delay": 60_000})])).ids
    assert bench.call(queue.GetJobCounts(types=["waiting", "delayed"])).counts == {"waiting": 1, "delayed": 1}
    found = bench.call(queue.GetJobs(types=["delayed"])).jobs
    assert [view.id for view in found if view] == [ids[1]]


def test_changes_of_a_job_reach_redis(bench: Bench) -> None:
    added = bench.call(queue.Add(name="n", opts={"delay": 60_000})).id
    bench.call(job.UpdateData(job=added, data_raw='{"new":1}'))
    bench.call(job.UpdateProgress(job=added, value_raw="50"))
    assert bench.call(job.Log(job=added, row="a row")).count == 1
    bench.call(job.Promote(job=added))
    bench.call(job.ChangePriority(job=added, priority=4))
    stored = bench.hash(added)
    assert (stored["data"], stored["progress"], stored["priority"], stored["delay"]) == ('{"new":1}', "50", "4", "0")
    assert bench.call(queue.GetJobLogs(job=added)).logs == ["a row"]
    assert bench.call(job.GetState(job=added)).state == "prioritized"


def test_a_flow_and_a_scheduler_are_shown_as_the_client_shows_them(bench: Bench) -> None:
    bench.open("flow", "f")
    child = flow.FlowJob(name="c", queue="q", opts={"jobId": "child"})
    tree = bench.call(flow.AddFlow(flow=flow.FlowJob(name="p", queue="q", children=[child])), "f")
    assert [node.id for node in tree.children] == ["child"]
    assert bench.call(job.GetState(job=tree.id)).state == "waiting-children"
    bench.call(flow.UpsertJobScheduler(id="s", repeat={"every": 60_000}, name="n", data_raw='{"a":1}'))
    shown = bench.call(flow.GetJobScheduler(id="s")).scheduler
    assert shown is not None
    assert (shown.key, shown.every, shown.template_data_raw) == ("s", 60_000, '{"a":1}')
    assert bench.call(flow.RemoveJobScheduler(id="s")).value is True
    assert bench.call(flow.RemoveJobScheduler(id="s")).value is False


# Workers, one step at a time


def test_a_manual_worker_claims_finishes_and_fetches(bench: Bench) -> None:
    bench.open("worker", "w", processor="manual")
    assert bench.call(worker.GetNextJob(token="t"), "w").job is None
    assert bench.call(worker.GetNextJob(token="t"), "w").job is None  # at once, although the queue was seen empty
    first, second = (bench.call(queue.Add(name="n", opts={"attempts": 2})).id for _ in range(2))
    claimed = bench.call(worker.GetNextJob(token="t"), "w").job
    assert claimed is not None
    assert claimed.id == first
    done = bench.call(worker.MoveToCompleted(job=first, token="t", value_raw='{"ok":true}', fetch_next=True), "w")
    assert done.job is not None
    assert done.job.id == second
    bench.call(worker.MoveToFailed(job=second, token="t", message="again"), "w")
    assert bench.call(job.GetState(job=second)).state == "waiting"
    stored = bench.hash(second)
    assert stored["failedReason"] == "again"
    assert "again" in json.loads(stored["stacktrace"])[0]
    assert bench.hash(first)["returnvalue"] == '{"ok":true}'


def test_locks_and_the_stalled_check(bench: Bench) -> None:
    bench.open("worker", "w", processor="manual")
    held = bench.call(queue.Add(name="n")).id
    bench.call(worker.GetNextJob(token="t"), "w")
    assert bench.call(worker.ExtendLock(job=held, token="other", duration_ms=9000), "w").value is False
    assert bench.call(worker.ExtendLock(job=held, token="t", duration_ms=9000), "w").value is True
    extend = worker.ExtendLocks(jobs=[held, "missing"], tokens=["t", "t"], duration_ms=9000)
    assert bench.call(extend, "w").ids == ["missing"]
    assert bench.call(worker.CheckStalled(), "w").ids == []
    with bench.server.connect() as client:
        client.delete(f"{bench.prefix}:q:{held}:lock", f"{bench.prefix}:q:stalled-check")
    assert bench.call(worker.CheckStalled(), "w").ids == [held]


@pytest.mark.parametrize(
    ("op", "handle", "code"),
    [
        (job.UpdateProgress(job="missing", value_raw="1"), "q", "missing-job"),
        (job.Promote(job="JOB"), "q", "wrong-state"),
        (job.RemoveJob(job="JOB"), "q", "lock-mismatch"),
        (worker.MoveToCompleted(job="JOB", token="other"), "w", "lock-mismatch"),
        (worker.MoveToCompleted(job="1", token="t"), "w", "missing-job"),
        (queue.Add(name="n", opts=EXCLUSIVE), "q", "invalid-argument"),
        (queue.Add(name="n", data_raw="no json"), "q", "invalid-argument"),
        (queue.Add(name="n", data_raw="NaN"), "q", "invalid-argument"),
        (queue.Add(name="n", opts={"parent": {"id": "x", "queue": "none:q"}}), "q", "missing-parent"),
        (flow.UpsertJobScheduler(id="s", repeat={}), "q", "invalid-argument"),
        (queue.Pause(), "nobody", "invalid-argument"),
        (queue.Pause(), "w", "invalid-argument"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_the_client_raises_is_told_in_the_protocols_words(
    bench: Bench, op: Op[Any], handle: str, code: str
) -> None:
    bench.open("worker", "w", processor="manual")
    held = bench.call(queue.Add(name="n", opts={"jobId": "held"})).id
    bench.call(worker.GetNextJob(token="t"), "w")
    fields = {name: held if value == "JOB" else value for name, value in msgspec.to_builtins(op).items()}
    with pytest.raises(OperationFailed) as failure:
        bench.call(msgspec.convert(fields, type(op)), handle)
    assert (failure.value.error.code, failure.value.error.definite) == (code, True), failure.value


def test_a_refusal_by_redis_is_not_an_argument_error(bench: Bench) -> None:
    with bench.server.connect() as client:
        client.set(f"{bench.prefix}:q:wait", "not a list")
    with pytest.raises(OperationFailed, match="WRONGTYPE") as failure:
        bench.call(queue.Add(name="n"))
    assert failure.value.error.code == "other"


def test_a_claimed_job_that_the_client_cannot_read_leaves_the_outcome_open(bench: Bench) -> None:
    bench.open("worker", "w", processor="manual")
    added = bench.call(queue.Add(name="n")).id
    with bench.server.connect() as client:
        client.hset(f"{bench.prefix}:q:{added}", "data", "{broken")
    with pytest.raises(OperationFailed) as reading:
        bench.call(queue.GetJob(job=added))
    assert reading.value.error.code == "other"
    with pytest.raises(OperationIndeterminate):
        bench.call(worker.GetNextJob(token="t"), "w")
