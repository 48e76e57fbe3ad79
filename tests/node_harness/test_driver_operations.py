"""Effects of the driver's operations in answers and in Redis."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from conformance.protocol.scripts import BULLMQ_VERSION

from .conftest import LineClient, Open

NOW = 1_700_000_000_000


@pytest.fixture
def driver(opened_on_kept: Open) -> LineClient:
    """Every kind of handle but a managed worker, with a frozen clock."""
    opened_on_kept("queue", "q", now_ms=NOW)
    opened_on_kept("worker", "w", processor="manual", options={"name": "hand", "lockDuration": 60_000})
    opened_on_kept("flow", "f")
    return opened_on_kept("events", "e")


EXACT = '{"z": 1.0, "a": 12345678901234567890, "10": "\\ud800", "2":[ ]}'


def test_data_reaches_redis_byte_for_byte(driver: LineClient, store: redis.Redis, prefix: str) -> None:
    driver.ok("queue.add", "q", name="n", data_raw=EXACT)
    driver.ok("queue.addBulk", "q", jobs=[{"name": "n", "data_raw": EXACT}])
    driver.ok("queue.add", "q", name="n", data_raw="not json at all")
    assert [store.hget(f"{prefix}:q:{job}", "data") for job in (1, 2)] == [EXACT.encode()] * 2
    assert store.hget(f"{prefix}:q:3", "data") == b"not json at all"

    driver.ok("job.updateData", "q", job="2", data_raw="[ 1.50 ]")
    assert store.hget(f"{prefix}:q:2", "data") == b"[ 1.50 ]"

    driver.ok("job.updateProgress", "q", job="1", value_raw='{"p": 1e1}')
    assert store.hget(f"{prefix}:q:1", "progress") == b'{"p": 1e1}'

    driver.ok("worker.getNextJob", "w", token="t")
    driver.ok("worker.moveToCompleted", "w", job="1", token="t", value_raw="1.0")
    assert store.hget(f"{prefix}:q:1", "returnvalue") == b"1.0"


def test_a_view_shows_what_the_user_of_bullmq_sees(driver: LineClient) -> None:
    driver.ok("queue.add", "q", name="n", data_raw=EXACT, opts={"priority": 3})
    job = driver.ok("queue.getJob", "q", job="1")["job"]
    assert job["data_raw"] == '{"2":[],"10":"\\ud800","z":1,"a":12345678901234567000}'
    assert (job["timestamp"], job["priority"], job["progress_raw"], job["finished_on"]) == (NOW, 3, "0", None)
    assert driver.ok("queue.getJob", "q", job="nope") == {"job": None}


def test_data_that_is_not_json_fails_the_reading(driver: LineClient) -> None:
    driver.ok("queue.add", "q", name="n", data_raw="{")
    assert driver.error("queue.getJob", "q", job="1")["code"] == "other"
    claimed = driver.call("worker.getNextJob", "w", token="t")
    assert claimed["status"] == "info", "the job is active now, but no worker has it"


def test_one_step_at_a_time(driver: LineClient) -> None:
    driver.ok("queue.addBulk", "q", jobs=[{"name": "a", "opts": {"attempts": 2}}, {"name": "b"}])
    assert driver.ok("worker.getNextJob", "w", token="t")["job"]["attempts_started"] == 1
    assert driver.ok("worker.extendLock", "w", job="1", token="t", duration_ms=9000) == {"value": True}
    assert driver.ok("worker.extendLock", "w", job="1", token="x", duration_ms=9000) == {"value": False}
    renewal: dict[str, Any] = {"jobs": ["1", "2"], "tokens": ["t", "t"], "duration_ms": 9000}
    assert driver.ok("worker.extendLocks", "w", **renewal) == {"ids": ["2"]}

    foreign = driver.error("worker.moveToFailed", "w", job="1", token="x", message="no")
    assert (foreign["code"], foreign["definite"]) == ("lock-mismatch", True)
    driver.ok("worker.moveToFailed", "w", job="1", token="t", message="no")
    assert driver.ok("job.getState", "q", job="1") == {"state": "waiting"}

    assert driver.ok("worker.getNextJob", "w", token="t")["job"]["id"] == "2"
    following = driver.ok("worker.moveToCompleted", "w", job="2", token="t", fetch_next=True)["job"]
    assert (following["id"], following["attempts_made"], following["failed_reason"]) == ("1", 1, "no")
    driver.ok("worker.moveToFailed", "w", job="1", token="t", message="final", unrecoverable=True)
    assert driver.ok("queue.getJobCounts", "q", types=["completed", "failed"])["counts"] == {
        "completed": 1,
        "failed": 1,
    }
    assert driver.ok("job.isFinished", "q", job="1") == {"value": True}
    assert driver.ok("worker.getNextJob", "w", token="t") == {"job": None}


def test_moves_out_of_active(driver: LineClient) -> None:
    for name in "abc":
        driver.ok("queue.add", "q", name=name)
    driver.ok("worker.getNextJob", "w", token="t")
    driver.ok("worker.moveToDelayed", "w", job="1", token="t", timestamp=NOW + 500)
    assert driver.ok("queue.getJob", "q", job="1")["job"]["delay"] == 500
    driver.ok("worker.getNextJob", "w", token="t")
    driver.ok("worker.moveToWait", "w", job="2", token="t")
    assert driver.ok("worker.getNextJob", "w", token="t")["job"]["id"] == "2"
    assert driver.ok("worker.moveToWaitingChildren", "w", job="2", token="t") == {"value": False}
    assert driver.ok("worker.getNextJob", "w", token="t", now_ms=NOW + 500)["job"]["id"] == "3"
    assert driver.ok("worker.getNextJob", "w", token="t")["job"]["id"] == "1"


def test_stalled_jobs_are_recovered_and_named(driver: LineClient, store: redis.Redis, prefix: str) -> None:
    driver.ok("queue.add", "q", name="n")
    driver.ok("worker.getNextJob", "w", token="t")
    assert driver.ok("worker.checkStalled", "w") == {"ids": []}
    store.delete(f"{prefix}:q:1:lock", f"{prefix}:q:stalled-check")
    assert driver.ok("worker.checkStalled", "w") == {"ids": ["1"]}
    driver.event("w", "stalled", job="1")


@pytest.mark.parametrize(
    ("op", "handle", "args", "code"),
    [
        ("job.updateData", "q", {"data_raw": "1"}, "missing-job"),
        ("job.updateProgress", "q", {"value_raw": "1"}, "missing-job"),
        ("job.log", "q", {"row": "r"}, "missing-job"),
        ("job.retry", "q", {}, "missing-job"),
        ("job.promote", "q", {}, "wrong-state"),
        ("worker.moveToCompleted", "w", {"token": "t"}, "missing-job"),
        ("worker.moveToFailed", "w", {"token": "t", "message": "m"}, "missing-job"),
        ("job.waitUntilFinished", "q", {"events": "e"}, "missing-job"),
    ],
)
def test_a_missing_job_is_reported_by_the_script(
    driver: LineClient, op: str, handle: str, args: dict[str, str], code: str
) -> None:
    assert driver.error(op, handle, job="gone", **args)["code"] == code


@pytest.mark.parametrize(
    "opts",
    [
        {"jobId": "0:x"},
        {"jobId": "12"},
        {"priority": 2_097_153},
        {"priority": 1.5},
        {"sizeLimit": 1},
        {"deduplication": {"ttl": 1}},
        {"failParentOnFailure": True, "removeDependencyOnFailure": True},
    ],
)
def test_options_refused_by_bullmq_are_invalid_arguments(driver: LineClient, opts: dict[str, object]) -> None:
    assert driver.error("queue.add", "q", name="n", opts=opts)["code"] == "invalid-argument"


def test_other_errors_have_their_names(driver: LineClient) -> None:
    driver.ok("queue.add", "q", name="n")
    driver.ok("worker.getNextJob", "w", token="t")
    assert driver.error("job.remove", "q", job="1")["code"] == "lock-mismatch"
    assert driver.ok("queue.remove", "q", job="1") == {"count": 0}
    assert driver.error("queue.obliterate", "q")["code"] == "other"
    orphan = {"parent": {"id": "none", "queue": "p:q"}}
    assert driver.error("queue.add", "q", name="n", opts=orphan)["code"] == "missing-parent"


def test_queue_events_come_from_the_moment_of_opening(driver: LineClient, opened_on_kept: Open) -> None:
    driver.ok("queue.add", "q", name="n", data_raw="1")
    seen = driver.event("e", "queue-event", name="waiting")
    assert seen["fields"] == {"jobId": "1"}
    assert seen["event_id"].count("-") == 1

    opened_on_kept("events", "late")
    driver.ok("worker.getNextJob", "w", token="t")
    driver.ok("worker.moveToCompleted", "w", job="1", token="t", value_raw='{"v":[1]}')
    completed = driver.event("late", "queue-event", name="completed")
    assert completed["fields"] == {"jobId": "1", "returnvalue": {"v": [1]}, "prev": "active"}
    assert driver.event("late", "queue-event", name="drained")["fields"] == {}
    late = [event["args"]["name"] for event in driver.events if event["handle"] == "late"]
    assert late == ["active"], "nothing from before, and nothing twice"


def test_wait_until_finished(driver: LineClient) -> None:
    driver.ok("queue.addBulk", "q", jobs=[{"name": "a"}, {"name": "b"}, {"name": "c"}])
    waiting = driver.start("job.waitUntilFinished", "q", job="1", events="e")
    driver.ok("worker.getNextJob", "w", token="t")
    driver.ok("worker.moveToCompleted", "w", job="1", token="t", value_raw='{"v":1}')
    assert driver.result(waiting)["value"] == {"value_raw": '{"v":1}'}

    driver.ok("worker.getNextJob", "w", token="t")
    driver.ok("worker.moveToFailed", "w", job="2", token="t", message="for a reason")
    failed = driver.error("job.waitUntilFinished", "q", job="2", events="e")
    assert (failed["code"], failed["message"]) == ("job-failed", "for a reason")
    assert driver.error("job.waitUntilFinished", "q", job="3", events="e", ttl_ms=20)["code"] == "timeout"


def test_flow(driver: LineClient) -> None:
    children = [{"name": "c1", "queue": "q", "opts": {"jobId": "kid"}}, {"name": "c2", "queue": "other"}]
    root = {"name": "p", "queue": "q", "data_raw": "{}", "opts": {"jobId": "root"}, "children": children}
    added = driver.ok("flow.add", "f", flow=root)
    assert (added["id"], [child["queue"] for child in added["children"]]) == ("root", ["q", "other"])
    assert driver.ok("job.getDependenciesCount", "q", job="root")["unprocessed"] == 2

    driver.ok("worker.getNextJob", "w", token="t")
    driver.ok("worker.moveToCompleted", "w", job="kid", token="t", value_raw='"grown"')
    values = driver.ok("job.getChildrenValues", "q", job="root")["values"]
    assert [(key.rsplit(":", 1)[1], value) for key, value in values.items()] == [("kid", '"grown"')]
    tree = driver.ok("flow.getFlow", "f", job="root", queue="q")["flow"]
    assert {child["id"] for child in tree["children"]} == {child["id"] for child in added["children"]}
    assert driver.ok("flow.getFlow", "f", job="none", queue="q") == {"flow": None}
    flows = driver.ok("flow.addBulk", "f", flows=[{"name": "x", "queue": "q"}, {"name": "y", "queue": "q"}])
    assert len(flows["flows"]) == 2


def test_scheduler(driver: LineClient, store: redis.Redis, prefix: str) -> None:
    template: dict[str, Any] = {"name": "tick", "data_raw": '{"n": 1.0}', "opts": {"attempts": 3}}
    first = driver.ok("queue.upsertJobScheduler", "q", id="s", repeat={"every": 1000}, **template)["job"]
    assert (first["id"], first["name"]) == (f"repeat:s:{NOW}", "tick")
    assert store.hget(f"{prefix}:q:repeat:s", "data") == b'{"n": 1.0}'

    driver.ok("worker.getNextJob", "w", token="t")
    assert driver.ok("queue.getJobs", "q", types=["delayed"])["jobs"][0]["id"] == f"repeat:s:{NOW + 1000}"
    scheduler = driver.ok("queue.getJobScheduler", "q", id="s")["scheduler"]
    assert (scheduler["every"], scheduler["next"], scheduler["iteration_count"]) == (1000, NOW + 1000, 2)
    assert (scheduler["template_data_raw"], scheduler["template_opts"]) == ('{"n":1}', {"attempts": 3})
    assert driver.ok("queue.getJobSchedulersCount", "q") == {"count": 1}
    assert [scheduler["key"] for scheduler in driver.ok("queue.getJobSchedulers", "q")["schedulers"]] == ["s"]
    assert driver.ok("queue.removeJobScheduler", "q", id="s") == {"value": True}
    assert driver.ok("queue.removeJobScheduler", "q", id="s") == {"value": False}
    assert driver.ok("queue.getJobScheduler", "q", id="s") == {"scheduler": None}
    assert driver.error("queue.upsertJobScheduler", "q", id="s", repeat={})["code"] == "invalid-argument"


def test_control_and_getters_of_the_queue(driver: LineClient) -> None:
    driver.ok("queue.pause", "q")
    assert driver.ok("queue.isPaused", "q") == {"value": True}
    driver.ok("queue.resume", "q")
    driver.ok("queue.setGlobalConcurrency", "q", concurrency=1)
    driver.ok("queue.setGlobalRateLimit", "q", max=5, duration_ms=1000)
    assert driver.ok("queue.getGlobalConcurrency", "q") == {"value": 1}
    assert driver.ok("queue.getGlobalRateLimit", "q") == {"max": 5, "duration_ms": 1000}
    driver.ok("queue.removeGlobalConcurrency", "q")
    driver.ok("queue.removeGlobalRateLimit", "q")
    assert driver.ok("queue.getGlobalRateLimit", "q") == {"max": None, "duration_ms": None}
    assert driver.ok("queue.getVersion", "q") == {"value": f"bullmq:{BULLMQ_VERSION}"}
    assert driver.ok("queue.getWorkers", "q") == {"names": ["hand"]}
    assert driver.ok("queue.getWorkersCount", "q") == {"count": 1}
    assert driver.ok("queue.getRateLimitTtl", "q") == {"count": -2}
    assert driver.ok("queue.getMetrics", "q", type="completed")["data"] == []

    driver.ok("queue.add", "q", name="n", opts={"deduplication": {"id": "d"}, "delay": 1000})
    assert driver.ok("queue.getDeduplicationJobId", "q", id="d") == {"value": "1"}
    assert driver.ok("queue.removeDeduplicationKey", "q", id="d") == {"count": 1}
    driver.ok("job.changeDelay", "q", job="1", delay_ms=5)
    driver.ok("queue.promoteJobs", "q")
    driver.ok("job.changePriority", "q", job="1", priority=7)
    assert driver.ok("queue.getCountsPerPriority", "q", priorities=[0, 7]) == {"counts": {"0": 0, "7": 1}}
    assert driver.ok("job.log", "q", job="1", row="first") == {"count": 1}
    assert driver.ok("queue.getJobLogs", "q", job="1") == {"logs": ["first"], "count": 1}
    driver.ok("job.clearLogs", "q", job="1")
    assert driver.ok("queue.count", "q") == {"count": 1}
    assert driver.ok("queue.clean", "q", grace_ms=0, limit=0, type="prioritized") == {"ids": ["1"]}
    driver.ok("queue.drain", "q", delayed=True)
    driver.ok("queue.obliterate", "q", force=True)


def test_worker_switches(driver: LineClient) -> None:
    assert driver.ok("worker.isRunning", "w") == {"value": False}
    driver.ok("worker.pause", "w")
    assert driver.ok("worker.isPaused", "w") == {"value": True}
    driver.ok("worker.resume", "w")
    driver.event("w", "resumed")
    driver.ok("worker.rateLimit", "w", expire_ms=50_000)
    assert driver.ok("queue.getRateLimitTtl", "q", max_jobs=1)["count"] > 0
    driver.ok("close", "w")
    driver.event("w", "closed")


def test_answers_are_valid_utf8_for_any_content_of_a_job(driver: LineClient) -> None:
    driver.ok("queue.add", "q", name="caf\u00e9 \U0001f600", data_raw='"\\udc00 \\u0000"')
    job = driver.ok("queue.getJob", "q", job="1")["job"]
    assert job["name"] == "caf\u00e9 \U0001f600"
    assert json.loads(job["data_raw"]) == "\udc00 \u0000"


def test_children_that_fail_or_are_let_go(driver: LineClient, prefix: str) -> None:
    ignored = {"name": "i", "queue": "q", "opts": {"jobId": "ignored", "ignoreDependencyOnFailure": True}}
    others = [{"name": "c", "queue": "q", "opts": {"jobId": name, "delay": 60_000}} for name in ("left", "freed")]
    driver.ok("flow.add", "f", flow={"name": "p", "queue": "q", "opts": {"jobId": "p"}, "children": [ignored, *others]})
    driver.ok("worker.getNextJob", "w", token="t")
    driver.ok("worker.moveToFailed", "w", job="ignored", token="t", message="oh")

    assert driver.ok("job.getIgnoredChildrenFailures", "q", job="p") == {"values": {f"{prefix}:q:ignored": "oh"}}
    assert driver.ok("job.removeChildDependency", "q", job="freed") == {"value": True}
    assert driver.ok("job.getDependencies", "q", job="p") == {
        "processed": {},
        "unprocessed": [f"{prefix}:q:left"],
        "ignored": {f"{prefix}:q:ignored": "oh"},
        "failed": [],
    }
    driver.ok("job.removeUnprocessedChildren", "q", job="p")
    assert driver.ok("queue.getJobState", "q", job="left") == {"state": "unknown"}
    assert driver.ok("queue.getJobState", "q", job="p") == {"state": "waiting"}


def test_limits_and_housekeeping(driver: LineClient) -> None:
    driver.ok("queue.rateLimit", "q", expire_ms=50_000)
    driver.ok("queue.removeRateLimitKey", "q")
    assert driver.ok("queue.getRateLimitTtl", "q") == {"count": -2}
    assert driver.ok("queue.isMaxed", "q") == {"value": False}
    driver.ok("queue.setGlobalConcurrency", "q", concurrency=1)
    driver.ok("queue.add", "q", name="n")
    driver.ok("worker.getNextJob", "w", token="t")
    assert driver.ok("queue.isMaxed", "q") == {"value": True}

    driver.ok("worker.moveToFailed", "w", job="1", token="t", message="no")
    driver.ok("queue.retryJobs", "q", timestamp=NOW - 1)
    assert driver.ok("queue.getJobCountByTypes", "q", types=["failed", "waiting"]) == {"count": 1}
    assert driver.ok("queue.getJobState", "q", job="1") == {"state": "failed"}
    driver.ok("queue.retryJobs", "q")
    assert driver.ok("queue.getJobState", "q", job="1") == {"state": "waiting"}
    assert driver.ok("queue.trimEvents", "q", max_length=0)["count"] > 0
