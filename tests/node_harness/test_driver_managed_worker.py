"""Workers of the driver that run BullMQ's real loop."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import redis

from .conftest import LineClient, Open


@pytest.fixture
def asking(opened_on_kept: Open) -> LineClient:
    """A queue and a worker that asks the kit."""
    opened_on_kept("queue", "q")
    return opened_on_kept("worker", "w", processor="ask", options={"drainDelay": 1})


def test_a_job_is_handed_to_the_kit_and_completed_by_it(asking: LineClient, store: redis.Redis, prefix: str) -> None:
    asking.ok("queue.add", "q", name="n", data_raw='{"a":1}')
    handed = asking.event("w", "job")
    assert handed["job"]["data_raw"] == '{"a":1}'
    assert store.get(f"{prefix}:q:1:lock") == handed["token"].encode()
    asking.event("w", "active", job="1")

    asking.ok("resolve", "w", job="1", outcome="complete", value_raw='{"v": 1.0}')
    asking.event("w", "completed", job="1")
    assert store.hget(f"{prefix}:q:1", "returnvalue") == b'{"v": 1.0}'
    asking.event("w", "drained")


def test_every_other_outcome(asking: LineClient, store: redis.Redis, prefix: str) -> None:
    asking.ok("queue.add", "q", name="n", opts={"attempts": 2})
    asking.event("w", "job")
    asking.ok("resolve", "w", job="1", outcome="fail", message="once")
    assert asking.event("w", "job")["job"]["failed_reason"] == "once"
    asking.ok("resolve", "w", job="1", outcome="wait")
    asking.event("w", "job")
    asking.ok("resolve", "w", job="1", outcome="delay", ms=20)
    asking.event("w", "job")
    asking.ok("resolve", "w", job="1", outcome="rate-limit", ms=20)
    asking.event("w", "job")
    asking.ok("resolve", "w", job="1", outcome="unrecoverable", message="for ever")
    _wait_for_state(asking, "1", "failed")
    assert store.hget(f"{prefix}:q:1", "failedReason") == b"for ever"


def test_waiting_children(asking: LineClient, prefix: str) -> None:
    asking.ok("queue.add", "q", name="parent")
    asking.event("w", "job")
    child = {"delay": 60_000, "parent": {"id": "1", "queue": f"{prefix}:q"}}
    asking.ok("queue.add", "q", name="child", opts=child)
    asking.ok("resolve", "w", job="1", outcome="waiting-children")
    _wait_for_state(asking, "1", "waiting-children")


def _wait_for_state(driver: LineClient, job: str, state: str) -> None:
    deadline = time.monotonic() + 10
    while (seen := driver.ok("job.getState", "q", job=job)["state"]) != state:
        assert time.monotonic() < deadline, f"job {job} is {seen}, not {state}"


def test_an_answer_that_no_job_waits_for_is_refused(asking: LineClient) -> None:
    assert asking.error("resolve", "w", job="1", outcome="complete")["code"] == "invalid-argument"
    assert asking.error("resolve", "w", job="1", outcome="explode")["code"] == "invalid-argument"


def test_a_gentle_close_waits_for_the_job(asking: LineClient) -> None:
    asking.ok("queue.add", "q", name="n")
    asking.event("w", "job")
    closing = asking.start("close", "w")
    asking.ok("resolve", "w", job="1", outcome="complete")
    assert asking.result(closing)["status"] == "ok"
    assert asking.ok("job.getState", "q", job="1") == {"state": "completed"}


def test_a_forced_close_leaves_the_job_active(asking: LineClient) -> None:
    asking.ok("queue.add", "q", name="n")
    asking.event("w", "job")
    asking.ok("close", "w", force=True)
    assert asking.ok("job.getState", "q", job="1") == {"state": "active"}


def test_errors_of_the_worker_are_events(asking: LineClient, store: redis.Redis, prefix: str) -> None:
    asking.ok("queue.add", "q", name="n")
    asking.event("w", "job")
    store.delete(f"{prefix}:q:1:lock")
    asking.ok("resolve", "w", job="1", outcome="complete")
    assert "Missing lock for job 1" in asking.event("w", "error")["message"]


STEPS = [
    {"do": "progress", "value": 5},
    {"do": "log", "row": "r"},
    {"do": "sleep", "ms": 1},
    {"do": "fail", "message": "first", "until_attempt": 1},
    {"do": "return", "value": {"done": True}},
]


@pytest.mark.parametrize(
    ("processor", "data", "outcome"),
    [
        ({"processor": "noop"}, "1", ("completed", "null")),
        ({"processor": "echo"}, '{"a":[1]}', ("completed", '{"a":[1]}')),
        ({"processor": "sleep", "processor_args": {"ms": 1}}, "1", ("completed", "null")),
        ({"processor": "fail", "processor_args": {"times": 1, "message": "m"}}, "1", ("completed", "null")),
        ({"processor": "fail", "processor_args": {"times": 9, "message": "m"}}, "1", ("failed", "m")),
        ({"processor": "throw", "processor_args": {"message": "thrown"}}, "1", ("failed", "thrown")),
        ({"processor": "progress", "processor_args": {"values": [1, 2]}}, "1", ("completed", "null")),
        ({"processor": "steps"}, json.dumps({"steps": STEPS}), ("completed", '{"done":true}')),
        ({"processor": "steps"}, '{"steps":[{"do":"unrecoverable","message":"u"}]}', ("failed", "u")),
    ],
)
def test_preset_processors(
    opened_on_kept: Open, processor: dict[str, Any], data: str, outcome: tuple[str, str]
) -> None:
    driver = opened_on_kept("queue", "q")
    opened_on_kept("worker", "w", **processor)
    driver.ok("queue.add", "q", name="n", data_raw=data, opts={"attempts": 2})
    state, expected = outcome
    _wait_for_state(driver, "1", state)
    job = driver.ok("queue.getJob", "q", job="1")["job"]
    assert (job["returnvalue_raw"] if state == "completed" else job["failed_reason"]) == expected


def test_steps_report_on_their_way(opened_on_kept: Open) -> None:
    driver = opened_on_kept("queue", "q")
    opened_on_kept("worker", "w", processor="steps")
    driver.ok("queue.add", "q", name="n", data_raw=json.dumps({"steps": STEPS}), opts={"attempts": 2})
    _wait_for_state(driver, "1", "completed")
    assert driver.ok("queue.getJob", "q", job="1")["job"]["progress_raw"] == "5"
    assert driver.ok("queue.getJobLogs", "q", job="1")["logs"] == ["r", "r"]
