"""The reference client and real BullMQ: same steps, same clock, same answers, same bytes in Redis."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.reference_impl.conftest import Compare, ComparedClient

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
    "numbers": {"x": 4294967296, "y": -2147483649, "z": 1.0, "u": 4294967295, "w": 9007199254740992, "v": 1e300},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_add_stores_the_same_bytes(name: str, compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        client.do("queue.add", name="first", data_raw='{"a":1}', opts=OPTIONS[name])
        client.do("queue.add", name="second", opts=OPTIONS[name])
        client.do("queue.addBulk", jobs=[{"name": "third", "data_raw": "[]", "opts": OPTIONS[name]}])
        client.do("queue.getJob", job="1")
        client.do("queue.getJobCounts", types=[])

    compare(steps)


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
    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        client.do("queue.add", name="job", data_raw='{"ä":1}', opts=opts)
        client.do("queue.addBulk", jobs=[{"name": "fine"}, {"name": "job", "data_raw": '{"ä":1}', "opts": opts}])

    compare(steps)


def test_names_and_raw_data_survive(compare: Compare) -> None:
    texts = ['{"a":1.0,"a":2}', "[1e300,12345678901234567000]", '"\\u0000\\ud800 é"', "null", " [ ] ", '{"10":1,"9":2}']

    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        for index, text in enumerate(texts):
            client.do("queue.add", name=f"näme {index} \U0001f600" * 10, data_raw=text)
            client.do("queue.getJob", job=str(index + 1))

    compare(steps)


def test_a_queue_writes_meta_when_it_opens(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        client.open("q", "queue", options={"streams": {"events": {"maxLen": 50}}, "defaultJobOptions": {"attempts": 4}})
        client.do("queue.add", name="a", opts={"backoff": 5})
        client.open("r", "queue", queue="r", options={"skipMetasUpdate": True})
        client.do("queue.getVersion")

    compare(steps)


def test_manual_worker_life_of_jobs(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        client.open("w", "worker", processor="manual", options={"name": "n", "metrics": {"maxDataPoints": 10}})
        jobs = [("a", {"attempts": 2}), ("b", {"attempts": 3, "backoff": 500}), ("c", {"priority": 4}), ("d", {})]
        for name, opts in jobs:
            client.do("queue.add", name=name, data_raw=f'"{name}"', opts=opts)
        client.do("worker.getNextJob", "w", token="t1")
        client.do("worker.moveToFailed", "w", job="1", token="t1", message="first é")
        client.do("worker.getNextJob", "w", token="t2")
        client.do("worker.moveToFailed", "w", job="2", token="t2", message="later")
        client.now += 600
        client.do("worker.getNextJob", "w", token="t3")
        client.do("worker.moveToCompleted", "w", job="4", token="t3", value_raw='{"v":1.50}', fetch_next=True)
        client.do("worker.moveToFailed", "w", job="1", token="t3", message="done", fetch_next=True)
        client.do("worker.moveToFailed", "w", job="2", token="t3", message="no", unrecoverable=True, fetch_next=True)
        client.do("worker.moveToDelayed", "w", job="3", token="t3", timestamp=client.now + 50)
        client.do("worker.getNextJob", "w", token="t4")
        client.do("queue.getJobs", types=["completed", "failed", "delayed"])
        client.do("queue.getMetrics", type="completed")
        client.do("queue.getWorkers")

    state = compare(steps).state()
    assert state["P:q:1"][1]["atm"] == "2"
    assert state["P:q:1"][1]["stacktrace"] == "2 traces"


def test_locks_and_refusals_of_workers(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        client.open("w", "worker", processor="manual")
        for name in "abc":
            client.do("queue.add", name=name)
        client.do("worker.getNextJob", "w", token="t1")
        client.do("worker.getNextJob", "w", token="t2")
        client.do("worker.extendLock", "w", job="1", token="t1", duration_ms=60000)
        client.do("worker.extendLock", "w", job="1", token="wrong", duration_ms=60000)
        client.do("worker.extendLocks", "w", jobs=["1", "2", "9"], tokens=["t1", "x", "y"], duration_ms=5000)
        client.do("worker.moveToCompleted", "w", job="1", token="t2")
        client.do("worker.moveToFailed", "w", job="1", token="t2", message="no")
        client.do("worker.moveToDelayed", "w", job="2", token="t1", timestamp=client.now)
        client.do("worker.moveToWaitingChildren", "w", job="2", token="t2")
        client.do("worker.moveToWait", "w", job="2", token="t2")
        client.do("worker.moveToWait", "w", job="2", token="t2")
        client.do("worker.moveToCompleted", "w", job="3", token="t3")
        client.do("worker.moveToCompleted", "w", job="77", token="t3")
        client.do("job.remove", job="1")
        client.do("queue.remove", job="1")
        client.do("worker.checkStalled", "w")

    compare(steps)


def test_queue_control(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        for index in range(4):
            client.do("queue.add", name=f"n{index}", opts={"delay": 1000 * index, "priority": index % 2})
        client.do("queue.pause")
        client.do("queue.isPaused")
        client.do("queue.add", name="paused")
        client.do("queue.getJobs", types=["waiting"], asc=True)
        client.do("queue.getJobs", types=["delayed", "prioritized", "paused"], start=0, end=1)
        client.do("queue.getCountsPerPriority", priorities=[0, 1, 1, 5])
        client.do("queue.getJobCounts", types=["waiting", "delayed"])
        client.do("queue.getJobCountByTypes", types=["waiting", "delayed"])
        client.do("queue.count")
        client.do("queue.resume")
        client.do("queue.promoteJobs")
        client.do("queue.setGlobalConcurrency", concurrency=2)
        client.do("queue.getGlobalConcurrency")
        client.do("queue.setGlobalRateLimit", max=3, duration_ms=1000)
        client.do("queue.getGlobalRateLimit")
        client.do("queue.isMaxed")
        client.do("queue.removeGlobalConcurrency")
        client.do("queue.removeGlobalRateLimit")
        client.do("queue.getGlobalRateLimit")
        client.do("queue.getGlobalConcurrency")
        client.do("queue.rateLimit", expire_ms=60000)
        client.do("queue.removeRateLimitKey")
        client.do("queue.getRateLimitTtl")
        client.do("queue.trimEvents", max_length=0)
        client.do("queue.drain", delayed=True)

    compare(steps)


def test_removing_cleaning_and_retrying(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        client.open("w", "worker", processor="manual")
        for index in range(6):
            client.do("queue.add", name=f"n{index}", opts={"deduplication": {"id": f"d{index}"}})
        for index in range(1, 5):
            client.do("worker.getNextJob", "w", token="t")
            verb = "worker.moveToFailed" if index % 2 else "worker.moveToCompleted"
            client.do(verb, "w", job=str(index), token="t", **({"message": "m"} if index % 2 else {"value_raw": "7"}))
        client.now += 10
        client.do("queue.getDeduplicationJobId", id="d5")
        client.do("queue.removeDeduplicationKey", id="d5")
        client.do("job.retry", job="1")
        client.do("job.retry", job="2", state="completed")
        client.do("job.retry", job="2", state="completed")
        client.do("queue.retryJobs")
        client.do("queue.clean", grace_ms=0, limit=0, type="completed")
        client.do("queue.clean", grace_ms=0, limit=1, type="wait")
        client.do("queue.remove", job="nothing")
        client.do("job.remove", job="6")
        client.do("queue.obliterate", force=True)

    compare(steps)


def test_editing_jobs(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        client.do("queue.add", name="a", opts={"delay": 1000, "keepLogs": 2})
        client.do("queue.add", name="b")
        client.do("job.updateData", job="1", data_raw='{"x": 1.0}')
        client.do("job.updateProgress", job="1", value_raw='{"p":[1,2]}')
        for row in ("one", "two", "thrée"):
            client.do("job.log", job="1", row=row, keep_logs=2)
        client.do("queue.getJobLogs", job="1", start=0, end=0, asc=False)
        client.do("queue.getJobLogs", job="1")
        client.do("job.clearLogs", job="1", keep_logs=1)
        client.do("job.changeDelay", job="1", delay_ms=2500)
        client.do("job.changeDelay", job="2", delay_ms=1)
        client.do("job.changePriority", job="2", priority=5)
        client.do("job.changePriority", job="2", priority=5, lifo=True)
        client.do("job.getState", job="2")
        client.do("job.promote", job="1")
        client.do("job.promote", job="1")
        client.do("job.isFinished", job="1")
        for op in ("updateData", "updateProgress", "log", "changeDelay", "changePriority", "promote", "retry"):
            given: dict[str, Any] = {"data_raw": "1", "value_raw": "1", "row": "r", "delay_ms": 1, "priority": 1}
            client.do(f"job.{op}", job="404", **given)
        client.do("job.clearLogs", job="1")
        client.do("queue.getJobState", job="404")
        client.do("queue.getJob", job="404")

    compare(steps)


def test_parents_added_by_option(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        parent = {"id": "1", "queue": f"{client.prefix}:q"}
        client.open("q", "queue")
        client.open("w", "worker", processor="manual")
        client.do("queue.add", name="parent")
        client.do("queue.add", name="child", opts={"parent": parent})
        client.do("queue.add", name="forgiven", opts={"parent": parent, "ignoreDependencyOnFailure": True})
        client.do("worker.getNextJob", "w", token="t")
        client.do("worker.moveToCompleted", "w", job="1", token="t")
        client.do("worker.moveToWaitingChildren", "w", job="1", token="t")
        client.do("worker.getNextJob", "w", token="t")
        client.do("worker.moveToCompleted", "w", job="2", token="t", value_raw='{"r":1}', fetch_next=True)
        client.do("worker.moveToFailed", "w", job="3", token="t", message="gone", fetch_next=True)
        client.do("job.getDependencies", job="1")
        client.do("job.getDependenciesCount", job="1")
        client.do("job.getChildrenValues", job="1")
        client.do("job.getIgnoredChildrenFailures", job="1")
        client.do("job.removeChildDependency", job="2")
        client.do("job.removeChildDependency", job="1")
        client.do("job.removeUnprocessedChildren", job="1")
        client.do("queue.getJobs", types=["active"])

    compare(steps)


def test_managed_worker_asks_and_obeys(compare: Compare) -> None:
    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        for name, opts in (("a", {"attempts": 2}), ("b", {}), ("c", {"attempts": 5}), ("d", {})):
            client.do("queue.add", name=name, opts=opts)
        client.open("w", "worker", processor="ask")
        for job, outcome in (
            ("1", "fail"),
            ("2", "complete"),
            ("3", "unrecoverable"),
            ("4", "wait"),
            ("4", "complete"),
        ):
            asked = client.wait("w", "job")
            assert asked["job"]["id"] == job
            client.do("resolve", "w", job=job, outcome=outcome, value_raw='"v"', message="as told")
        assert client.wait("w", "job")["job"]["id"] == "1"
        client.do("resolve", "w", job="1", outcome="delay", ms=3600000)
        client.wait_until_idle()
        client.do("close", "w")

    compare(steps)


@pytest.mark.parametrize("processor", ["noop", "echo", "throw", "progress", "steps"])
def test_preset_processors(processor: str, compare: Compare) -> None:
    data = {"steps": [{"do": "log", "row": "r"}, {"do": "progress", "value": 5}, {"do": "return", "value": [1]}]}

    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        client.do("queue.add", name="a", data_raw=json.dumps(data))
        client.do("queue.add", name="b", data_raw=json.dumps(data), opts={"removeOnComplete": True, "removeOnFail": 0})
        given = {"values": [1, {"x": 2}], "message": "thrown"}
        client.open("w", "worker", processor=processor, processor_args=given, options={"concurrency": 2})
        client.wait("w", "drained")
        client.wait_until_idle()
        client.do("close", "w")

    compare(steps)


def test_a_difference_is_noticed(compare: Compare) -> None:
    """The comparison itself can fail."""

    def steps(client: ComparedClient) -> None:
        client.open("q", "queue")
        is_reference = client.driver.ready.client.language == "python"
        client.do("queue.add", name="a", opts={"delay": 1 if is_reference else 2})

    with pytest.raises(AssertionError):
        compare(steps)
