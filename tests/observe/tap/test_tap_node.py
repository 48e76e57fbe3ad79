"""Node's BullMQ behind the tap: each phase at an exact script, and what Redis and the client make of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from conformance.driver.errors import OperationFailed, OperationIndeterminate
from conformance.observe.tap.rules import Action, Cut, Error, Hold, Trigger
from conformance.observe.tap.tap import Tap

from .conftest import DEADLINE_MS, Node, eventually, in_background

UNSURE = (OperationFailed, OperationIndeterminate)


@pytest.fixture
def active_job(node: Node) -> str:
    """A job that a manual worker has claimed; it was added and claimed before any rule is in force."""
    node.open("q", "queue")
    node.open("w", "worker", processor="manual")
    node.do("queue.add", name="n")
    return str(node.do("worker.getNextJob", "w", token="t")["job"]["id"])


def state(redis: Any, node: Node, job: str) -> str:
    """The place of the job, according to Redis."""
    if job.encode() in redis.lrange(f"{node.prefix}:q:active", 0, -1):
        return "active"
    return "completed" if redis.zscore(f"{node.prefix}:q:completed", job) is not None else "nowhere"


def finish(node: Node, job: str) -> Any:
    return node.do("worker.moveToCompleted", "w", job=job, token="t", value_raw='"done"')


def test_held_before_it_is_sent_the_job_is_still_active(tap: Tap, node: Node, redis: Any, active_job: str) -> None:
    with tap.when(Trigger(script="moveToFinished"), Hold()) as barrier:
        finishing = in_background(lambda: finish(node, active_job))
        command = barrier.reached.wait(DEADLINE_MS)
        assert command.argv[0] == active_job.encode()
        assert state(redis, node, active_job) == "active"
        barrier.release()
        finishing()
    assert state(redis, node, active_job) == "completed"


def test_held_after_it_ran_the_job_is_completed_already(tap: Tap, node: Node, redis: Any, active_job: str) -> None:
    with tap.when(Trigger(script="moveToFinished", phase="after-execute"), Hold()) as barrier:
        finishing = in_background(lambda: finish(node, active_job))
        barrier.reached.wait(DEADLINE_MS)
        assert state(redis, node, active_job) == "completed"
        barrier.release()
        finishing()


@pytest.mark.parametrize(
    ("phase", "runs"), [("before-send", False), ("after-execute", True), ("mid-reply", True)], ids=str
)
@pytest.mark.parametrize("action", [Cut(), Cut(reset=True)], ids=str)
def test_cut_once_the_client_repeats_the_call(
    tap: Tap, node: Node, redis: Any, active_job: str, *, phase: Any, runs: bool, action: Action
) -> None:
    """ioredis sends again what had no reply: harmless before the script ran, and a refused call after it."""
    with tap.when(Trigger(script="moveToFinished", phase=phase), action) as barrier:
        finishing = in_background(lambda: finish(node, active_job))
        barrier.reached.wait(DEADLINE_MS)
        if runs:
            assert state(redis, node, active_job) == "completed"
            with pytest.raises(UNSURE, match=rf"Missing lock for job {re.escape(active_job)}"):
                finishing()
        else:
            finishing()
    assert state(redis, node, active_job) == "completed"
    calls = tap.recording.calls("moveToFinished")
    assert next(record.fate for record in calls) == ("answered" if runs else "lost")
    assert len(calls) == 2
    assert calls[0].connection != calls[1].connection


def test_while_redis_is_out_of_reach_the_client_does_not_know_that_redis_has_done_it(
    tap: Tap, node: Node, redis: Any, active_job: str
) -> None:
    with tap.when(Trigger(script="moveToFinished", phase="after-execute"), Hold()) as barrier:
        finishing = in_background(lambda: finish(node, active_job))
        barrier.reached.wait(DEADLINE_MS)
        before = tap.recording.mark()
        with tap.outage():
            assert state(redis, node, active_job) == "completed"
            eventually(lambda: not tap.connections(), tap.connections)
        with pytest.raises(UNSURE, match="Missing lock for job"):
            finishing()
    assert len(tap.recording.calls("moveToFinished", after=before)) == 1


def test_an_error_instead_of_the_script(tap: Tap, node: Node, redis: Any, active_job: str) -> None:
    with (
        tap.when(Trigger(script="moveToFinished"), Error("OOM command not allowed when used memory > 'maxmemory'.")),
        pytest.raises(UNSURE, match="OOM command not allowed"),
    ):
        finish(node, active_job)
    assert state(redis, node, active_job) == "active"
    finish(node, active_job)
    assert state(redis, node, active_job) == "completed"


def test_the_second_job_of_a_bulk_is_cut_off(tap: Tap, node: Node, redis: Any) -> None:
    node.open("q", "queue")
    node.do("queue.add", name="loads the script")
    with tap.when(Trigger(script="addStandardJob", call=2), Hold()) as barrier:
        adding = in_background(lambda: node.do("queue.addBulk", jobs=[{"name": name} for name in "abc"]))
        assert barrier.reached.wait(DEADLINE_MS).in_flight == 1
        assert redis.llen(f"{node.prefix}:q:wait") == 2
        barrier.release()
        assert len(adding()["ids"]) == 3


def test_a_flow_is_held_after_its_transaction(tap: Tap, node: Node, redis: Any) -> None:
    node.open("f", "flow")
    flow = {"name": "parent", "queue": "q", "children": [{"name": "child", "queue": "q"}]}
    with tap.when(Trigger(script="addParentJob", phase="after-execute"), Hold()) as barrier:
        adding = in_background(lambda: node.do("flow.add", "f", flow=flow))
        assert barrier.reached.wait(DEADLINE_MS).transaction == 1
        assert redis.llen(f"{node.prefix}:q:wait") == 1
        barrier.release()
        adding()


def test_an_idle_worker_that_was_cut_off_comes_back(tap: Tap, node: Node) -> None:
    node.open("q", "queue")
    node.open("w", "worker", processor="echo", options={"runRetryDelay": 100})
    blocked = tap.recording.wait_for(lambda record: record.name == "BZPOPMIN", deadline_ms=DEADLINE_MS)
    tap.cut(blocked.connection)
    eventually(
        lambda: blocked.connection not in {connection.number for connection in tap.connections()}, tap.connections
    )
    tap.recording.wait_for(
        lambda record: record.name == "BZPOPMIN" and record.connection != blocked.connection, deadline_ms=DEADLINE_MS
    )
    node.do("queue.add", name="n")
    node.wait("w", "completed")
