"""The reference client and real BullMQ: same steps, same clock, same answers, same bytes in Redis."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.reference_impl.conftest import Compare, Side

NOW = 1_700_000_000_000

OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "delay": {"delay": 5000},
    "fractional-delay": {"delay": 0.1},
    "negative-delay": {"delay": -5},
    "delay-text": {"delay": "10"},
    "priority": {"priority": 7},
    "priority-at-limit": {"priority": 2097152},
    "negative-priority": {"priority": -3},
    "priority-and-delay": {"priority": 2, "delay": 10},
    "lifo": {"lifo": True},
    "custom-id": {"jobId": "mine"},
    "three-part-id": {"jobId": "a:b:c"},
    "empty-id": {"jobId": ""},
    "timestamp": {"timestamp": 1234567890123},
    "timestamp-zero": {"timestamp": 0},
    "attempts": {"attempts": 3},
    "null-attempts": {"attempts": None},
    "backoff-number": {"attempts": 3, "backoff": 100},
    "backoff-zero": {"backoff": 0},
    "backoff-fixed": {"attempts": 3, "backoff": {"type": "fixed", "delay": 10, "jitter": 0.5}},
    "backoff-exponential": {"backoff": {"type": "exponential", "delay": 1.5}},
    "backoff-custom": {"backoff": {"type": "mine"}},
    "keep": {"removeOnComplete": 5, "removeOnFail": {"age": 10, "count": 3}},
    "remove": {"removeOnComplete": True, "removeOnFail": False},
    "logs": {"keepLogs": 3, "stackTraceLimit": 2, "sizeLimit": 100},
    "deduplication": {"deduplication": {"id": "d", "ttl": 60000, "extend": True, "replace": True}},
    "simple-deduplication": {"deduplication": {"id": "d"}},
    "debounce": {"debounce": {"id": "x", "ttl": 60000}},
    "telemetry": {"telemetry": {"metadata": "m", "omitContext": True}},
    "failure-flags": {"failParentOnFailure": True},
    "unknown": {"zz": 1, "aa": [1, None, {"2": 1, "1": 2, "b": 0}], "bb": {}, "cc": "é/\u007f", "dd": 1e15},
    "many": {"a1": 1, "b2": 2, "c3": 3, "d4": 4, "e5": 5, "f6": 6, "g7": 7, "h8": 8, "delay": 3, "attempts": 2},
    "numbers": {"x": 4294967296, "y": -2147483649, "z": 1.0, "u": 4294967295, "w": 9007199254740993, "v": 1e300},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_add_stores_the_same_bytes(name: str, compare: Compare) -> None:
    def story(side: Side) -> None:
        side.open("q", "queue")
        side.do("queue.add", name="first", data_raw='{"a":1}', opts=OPTIONS[name])
        side.do("queue.add", name="second", opts=OPTIONS[name])
        side.do("queue.addBulk", jobs=[{"name": "third", "data_raw": "[]", "opts": OPTIONS[name]}])
        side.do("queue.getJob", job="1")
        side.do("queue.getJobCounts", types=[])

    compare(story)


REFUSED: list[dict[str, Any]] = [
    {"jobId": "12"},
    {"jobId": "-5"},
    {"jobId": "0"},
    {"jobId": "0:1"},
    {"jobId": "a:b"},
    {"priority": 2097153},
    {"priority": 1.5},
    {"priority": "1"},
    {"sizeLimit": 6},
    {"deduplication": {}},
    {"deduplication": {"id": ""}},
    {"debounce": {"ttl": 5}},
    {"backoff": {"type": "fixed", "delay": 1, "jitter": 1.5}},
    {"failParentOnFailure": True, "ignoreDependencyOnFailure": True, "removeDependencyOnFailure": True},
    {"parent": {"id": "9", "queue": "nowhere:q"}},
]


@pytest.mark.parametrize("opts", REFUSED, ids=json.dumps)
def test_add_refuses_with_the_same_words(opts: dict[str, Any], compare: Compare) -> None:
    def story(side: Side) -> None:
        side.open("q", "queue")
        side.do("queue.add", name="job", data_raw='{"ä":1}', opts=opts)
        side.do("queue.addBulk", jobs=[{"name": "fine"}, {"name": "job", "data_raw": '{"ä":1}', "opts": opts}])

    compare(story)


def test_names_and_raw_data_survive(compare: Compare) -> None:
    texts = ['{"a":1.0,"a":2}', "[1e400,12345678901234567890]", '"\\u0000\\ud800 é"', "null", " [ ] ", '{"10":1,"9":2}']

    def story(side: Side) -> None:
        side.open("q", "queue")
        for index, text in enumerate(texts):
            side.do("queue.add", name=f"näme {index} \U0001f600" * 10, data_raw=text)
            side.do("queue.getJob", job=str(index + 1))

    compare(story)


def test_a_queue_writes_meta_when_it_opens(compare: Compare) -> None:
    def story(side: Side) -> None:
        side.open("q", "queue", options={"streams": {"events": {"maxLen": 50}}, "defaultJobOptions": {"attempts": 4}})
        side.do("queue.add", name="a", opts={"backoff": 5})
        side.open("r", "queue", queue="r", options={"skipMetasUpdate": True})
        side.do("queue.getVersion")

    compare(story)


def test_manual_worker_life_of_jobs(compare: Compare) -> None:
    def story(side: Side) -> None:
        side.open("q", "queue")
        side.open("w", "worker", processor="manual", options={"name": "n", "metrics": {"maxDataPoints": 10}})
        jobs = [("a", {"attempts": 2}), ("b", {"attempts": 3, "backoff": 500}), ("c", {"priority": 4}), ("d", {})]
        for name, opts in jobs:
            side.do("queue.add", name=name, data_raw=f'"{name}"', opts=opts)
        side.do("worker.getNextJob", "w", token="t1")
        side.do("worker.moveToFailed", "w", job="1", token="t1", message="first é")
        side.do("worker.getNextJob", "w", token="t2")
        side.do("worker.moveToFailed", "w", job="2", token="t2", message="later")
        side.now += 600
        side.do("worker.getNextJob", "w", token="t3")
        side.do("worker.moveToCompleted", "w", job="4", token="t3", value_raw='{"v":1.50}', fetch_next=True)
        side.do("worker.moveToFailed", "w", job="1", token="t3", message="done", fetch_next=True)
        side.do("worker.moveToFailed", "w", job="2", token="t3", message="no", unrecoverable=True, fetch_next=True)
        side.do("worker.moveToDelayed", "w", job="3", token="t3", timestamp=side.now + 50)
        side.do("worker.getNextJob", "w", token="t4")
        side.do("queue.getJobs", types=["completed", "failed", "delayed"])
        side.do("queue.getMetrics", type="completed")
        side.do("queue.getWorkers")

    state = compare(story).state()
    assert state["P:q:1"][1]["atm"] == "2"
    assert state["P:q:1"][1]["stacktrace"] == "2 traces"


def test_locks_and_refusals_of_workers(compare: Compare) -> None:
    def story(side: Side) -> None:
        side.open("q", "queue")
        side.open("w", "worker", processor="manual")
        for name in "abc":
            side.do("queue.add", name=name)
        side.do("worker.getNextJob", "w", token="t1")
        side.do("worker.getNextJob", "w", token="t2")
        side.do("worker.extendLock", "w", job="1", token="t1", duration_ms=60000)
        side.do("worker.extendLock", "w", job="1", token="wrong", duration_ms=60000)
        side.do("worker.extendLocks", "w", jobs=["1", "2", "9"], tokens=["t1", "x", "y"], duration_ms=5000)
        side.do("worker.moveToCompleted", "w", job="1", token="t2")
        side.do("worker.moveToFailed", "w", job="1", token="t2", message="no")
        side.do("worker.moveToDelayed", "w", job="2", token="t1", timestamp=side.now)
        side.do("worker.moveToWaitingChildren", "w", job="2", token="t2")
        side.do("worker.moveToWait", "w", job="2", token="t2")
        side.do("worker.moveToWait", "w", job="2", token="t2")
        side.do("worker.moveToCompleted", "w", job="3", token="t3")
        side.do("worker.moveToCompleted", "w", job="77", token="t3")
        side.do("job.remove", job="1")
        side.do("queue.remove", job="1")
        side.do("worker.checkStalled", "w")

    compare(story)


def test_queue_control(compare: Compare) -> None:
    def story(side: Side) -> None:
        side.open("q", "queue")
        for index in range(4):
            side.do("queue.add", name=f"n{index}", opts={"delay": 1000 * index, "priority": index % 2})
        side.do("queue.pause")
        side.do("queue.isPaused")
        side.do("queue.add", name="paused")
        side.do("queue.getJobs", types=["waiting"], asc=True)
        side.do("queue.getJobs", types=["delayed", "prioritized", "paused"], start=0, end=1)
        side.do("queue.getCountsPerPriority", priorities=[0, 1, 1, 5])
        side.do("queue.getJobCounts", types=["waiting", "delayed"])
        side.do("queue.getJobCountByTypes", types=["waiting", "delayed"])
        side.do("queue.count")
        side.do("queue.resume")
        side.do("queue.promoteJobs")
        side.do("queue.setGlobalConcurrency", concurrency=2)
        side.do("queue.getGlobalConcurrency")
        side.do("queue.setGlobalRateLimit", max=3, duration_ms=1000)
        side.do("queue.getGlobalRateLimit")
        side.do("queue.isMaxed")
        side.do("queue.removeGlobalConcurrency")
        side.do("queue.removeGlobalRateLimit")
        side.do("queue.getGlobalRateLimit")
        side.do("queue.getGlobalConcurrency")
        side.do("queue.rateLimit", expire_ms=60000)
        side.do("queue.removeRateLimitKey")
        side.do("queue.getRateLimitTtl")
        side.do("queue.trimEvents", max_length=0)
        side.do("queue.drain", delayed=True)

    compare(story)


def test_removing_cleaning_and_retrying(compare: Compare) -> None:
    def story(side: Side) -> None:
        side.open("q", "queue")
        side.open("w", "worker", processor="manual")
        for index in range(6):
            side.do("queue.add", name=f"n{index}", opts={"deduplication": {"id": f"d{index}"}})
        for index in range(1, 5):
            side.do("worker.getNextJob", "w", token="t")
            verb = "worker.moveToFailed" if index % 2 else "worker.moveToCompleted"
            side.do(verb, "w", job=str(index), token="t", **({"message": "m"} if index % 2 else {"value_raw": "7"}))
        side.now += 10
        side.do("queue.getDeduplicationJobId", id="d5")
        side.do("queue.removeDeduplicationKey", id="d5")
        side.do("job.retry", job="1")
        side.do("job.retry", job="2", state="completed")
        side.do("job.retry", job="2", state="completed")
        side.do("queue.retryJobs")
        side.do("queue.clean", grace_ms=0, limit=0, type="completed")
        side.do("queue.clean", grace_ms=0, limit=1, type="wait")
        side.do("queue.remove", job="nothing")
        side.do("job.remove", job="6")
        side.do("queue.obliterate", force=True)

    compare(story)


def test_editing_jobs(compare: Compare) -> None:
    def story(side: Side) -> None:
        side.open("q", "queue")
        side.do("queue.add", name="a", opts={"delay": 1000, "keepLogs": 2})
        side.do("queue.add", name="b")
        side.do("job.updateData", job="1", data_raw='{"x": 1.0}')
        side.do("job.updateProgress", job="1", value_raw='{"p":[1,2]}')
        for row in ("one", "two", "thrée"):
            side.do("job.log", job="1", row=row, keep_logs=2)
        side.do("queue.getJobLogs", job="1", start=0, end=0, asc=False)
        side.do("queue.getJobLogs", job="1")
        side.do("job.clearLogs", job="1", keep_logs=1)
        side.do("job.changeDelay", job="1", delay_ms=2500)
        side.do("job.changeDelay", job="2", delay_ms=1)
        side.do("job.changePriority", job="2", priority=5)
        side.do("job.changePriority", job="2", priority=5, lifo=True)
        side.do("job.getState", job="2")
        side.do("job.promote", job="1")
        side.do("job.promote", job="1")
        side.do("job.isFinished", job="1")
        for op in ("updateData", "updateProgress", "log", "changeDelay", "changePriority", "promote", "retry"):
            given: dict[str, Any] = {"data_raw": "1", "value_raw": "1", "row": "r", "delay_ms": 1, "priority": 1}
            side.do(f"job.{op}", job="404", **given)
        side.do("job.clearLogs", job="1")
        side.do("queue.getJobState", job="404")
        side.do("queue.getJob", job="404")

    compare(story)


def test_parents_added_by_option(compare: Compare) -> None:
    def story(side: Side) -> None:
        parent = {"id": "1", "queue": f"{side.prefix}:q"}
        side.open("q", "queue")
        side.open("w", "worker", processor="manual")
        side.do("queue.add", name="parent")
        side.do("queue.add", name="child", opts={"parent": parent})
        side.do("queue.add", name="forgiven", opts={"parent": parent, "ignoreDependencyOnFailure": True})
        side.do("worker.getNextJob", "w", token="t")
        side.do("worker.moveToCompleted", "w", job="1", token="t")
        side.do("worker.moveToWaitingChildren", "w", job="1", token="t")
        side.do("worker.getNextJob", "w", token="t")
        side.do("worker.moveToCompleted", "w", job="2", token="t", value_raw='{"r":1}', fetch_next=True)
        side.do("worker.moveToFailed", "w", job="3", token="t", message="gone", fetch_next=True)
        side.do("job.getDependencies", job="1")
        side.do("job.getDependenciesCount", job="1")
        side.do("job.getChildrenValues", job="1")
        side.do("job.getIgnoredChildrenFailures", job="1")
        side.do("job.removeChildDependency", job="2")
        side.do("job.removeChildDependency", job="1")
        side.do("job.removeUnprocessedChildren", job="1")
        side.do("queue.getJobs", types=["active"])

    compare(story)


def test_managed_worker_asks_and_obeys(compare: Compare) -> None:
    def story(side: Side) -> None:
        side.open("q", "queue")
        for name, opts in (("a", {"attempts": 2}), ("b", {}), ("c", {"attempts": 5}), ("d", {})):
            side.do("queue.add", name=name, opts=opts)
        side.open("w", "worker", processor="ask")
        for job, outcome in (
            ("1", "fail"),
            ("2", "complete"),
            ("3", "unrecoverable"),
            ("4", "wait"),
            ("4", "complete"),
        ):
            asked = side.wait("w", "job")
            assert asked["job"]["id"] == job
            side.do("resolve", "w", job=job, outcome=outcome, value_raw='"v"', message="as told")
        assert side.wait("w", "job")["job"]["id"] == "1"
        side.do("resolve", "w", job="1", outcome="delay", ms=3600000)
        side.wait_until_idle()
        side.do("close", "w")

    compare(story)


@pytest.mark.parametrize("processor", ["noop", "echo", "throw", "progress", "steps"])
def test_preset_processors(processor: str, compare: Compare) -> None:
    data = {"steps": [{"do": "log", "row": "r"}, {"do": "progress", "value": 5}, {"do": "return", "value": [1]}]}

    def story(side: Side) -> None:
        side.open("q", "queue")
        side.do("queue.add", name="a", data_raw=json.dumps(data))
        side.do("queue.add", name="b", data_raw=json.dumps(data), opts={"removeOnComplete": True, "removeOnFail": 0})
        given = {"values": [1, {"x": 2}], "message": "thrown"}
        side.open("w", "worker", processor=processor, processor_args=given, options={"concurrency": 2})
        side.wait("w", "drained")
        side.wait_until_idle()
        side.do("close", "w")

    compare(story)


def test_a_difference_is_noticed(compare: Compare) -> None:
    """The comparison itself can fail."""

    def story(side: Side) -> None:
        side.open("q", "queue")
        is_reference = side.driver.ready.client.language == "python"
        side.do("queue.add", name="a", opts={"delay": 1 if is_reference else 2})

    with pytest.raises(AssertionError):
        compare(story)
