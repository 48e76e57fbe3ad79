"""The driver as a process: handshake, unknown operations, long lines, its clock, and how it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from conformance.driver.ops import REGISTRY
from conformance.driver.ops.library import LIBRARY_OPERATIONS
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.servers import open_server
from conformance.upstream.node import NodeBinary, bundled_node, node_version

from .conftest import LineClient

Open = Callable[..., LineClient]
NEWER_ONLY = {
    *("job.removeDeduplicationKey", "queue.getMeta", "queue.removeOrphanedJobs"),
    *("worker.cancelJob", "worker.cancelAllJobs"),
    *(name for name, op in REGISTRY.items() if op.on == "relay"),
}
"""Methods that came after 5.62.0; it has `removeDeduplicationKey` on Queue alone."""


def test_handshake_declares_every_operation_that_bullmq_has(start_driver: Callable[[], LineClient]) -> None:
    ready = start_driver().hello()

    assert ready["protocol"] == 1
    packages = ready["client"].pop("packages")
    assert set(packages) == {"node", "ioredis", "msgpackr", "cron-parser"}
    assert ready["client"] == {
        "name": "bullmq",
        "language": "javascript",
        "version": BULLMQ_VERSION,
        "targets": BULLMQ_VERSION,
    }
    assert set(ready["ops"]) == set(REGISTRY) - NEWER_ONLY - LIBRARY_OPERATIONS
    assert set(ready["capabilities"]) == {
        *("clock", "manual-worker", "managed-worker", "cluster", "raw-data"),
        *("sandbox", "url", "client", "fail-fast", "queue-events", "unheard"),
    }


def test_ends_at_once_when_stdin_ends(opened: Open) -> None:
    driver = opened("worker", "w", processor="noop", options={"drainDelay": 120})
    started = time.monotonic()
    assert driver.end() == 0
    assert time.monotonic() - started < 60, "it waited for the command that blocks"


@pytest.mark.parametrize("op", ["no.such.op", "constructor", *sorted(NEWER_ONLY), *sorted(LIBRARY_OPERATIONS)])
def test_an_operation_that_it_does_not_have_is_unsupported(driver: LineClient, op: str) -> None:
    result = driver.call(op, "q")
    assert result["status"] == "unsupported"
    assert result["reason"]


def test_lines_that_are_not_messages_are_logged_and_survived(driver: LineClient) -> None:
    driver.write(b"not json")
    driver.write(b'{"type":"surprise"}')
    driver.ok("reset")
    driver.wait_for_log("not JSON")
    driver.wait_for_log("surprise")


def test_a_line_over_16_mib_is_refused(driver: LineClient) -> None:
    big = "x" * (16 * 1024 * 1024)
    driver.write(json.dumps({"type": "call", "id": 900, "op": "reset", "args": {"padding": big}}).encode())
    refused = driver.result(900)
    assert refused["status"] == "fail"
    assert refused["error"]["code"] == "invalid-argument"
    driver.ok("reset")


def test_warnings_of_bullmq_do_not_reach_stdout(opened: Open, store: redis.Redis) -> None:
    store.config_set("maxmemory-policy", "allkeys-lru")
    try:
        driver = opened("queue", "q")
        driver.ok("queue.count", "q")
    finally:
        store.config_set("maxmemory-policy", "noeviction")
    driver.wait_for_log("Eviction policy")


def test_a_handle_must_exist_and_fit(opened: Open) -> None:
    driver = opened("queue", "q")
    assert driver.error("queue.count", "other")["code"] == "invalid-argument"
    assert driver.error("worker.isPaused", "q")["code"] == "invalid-argument"
    driver.ok("close", "q")
    assert driver.error("queue.count", "q")["code"] == "invalid-argument"


def test_a_handle_cannot_be_opened_twice(opened: Open) -> None:
    opened("queue", "q")
    with pytest.raises(AssertionError, match="already open"):
        opened("queue", "q")


def test_calls_may_follow_open_without_waiting(driver: LineClient, redis_port: int, prefix: str) -> None:
    address = {"mode": "standalone", "nodes": [f"127.0.0.1:{redis_port}"]}
    driver.start("open", "q", role="queue", queue="q", prefix=prefix, redis=address)
    assert driver.ok("queue.count", "q") == {"count": 0}


def test_no_connection_is_undecided_and_says_why(driver: LineClient) -> None:
    address = {"mode": "standalone", "nodes": ["127.0.0.1:1"]}
    call = {"role": "queue", "queue": "q", "prefix": "p", "redis": address}
    line = {"type": "call", "id": 901, "op": "open", "handle": "q", "deadline_ms": 300, "args": call}
    driver.write(json.dumps(line).encode())
    result = driver.result(901)
    assert result["status"] == "info"
    assert result["error"]["code"] == "connection-lost"
    assert result["error"]["definite"] is False
    assert "ECONNREFUSED" in result["error"]["message"]


def test_the_clock_stands_still_until_reset(opened: Open, store: redis.Redis, prefix: str) -> None:
    driver = opened("queue", "q")
    driver.ok("queue.add", "q", now_ms=1_700_000_000_000, name="a")
    driver.ok("queue.add", "q", name="b")
    driver.ok("queue.add", "q", now_ms=1_700_000_000_005, name="c")
    driver.ok("reset")
    opened("queue", "q")
    driver.ok("queue.add", "q", name="d")

    times = [int(store.hget(f"{prefix}:q:{job}", "timestamp") or 0) for job in (1, 2, 3, 4)]
    assert times[:3] == [1_700_000_000_000, 1_700_000_000_000, 1_700_000_000_005]
    assert times[3] > 1_790_000_000_000 or abs(times[3] - time.time() * 1000) < 60_000


def test_a_cron_pattern_follows_the_clock(opened: Open) -> None:
    driver = opened("queue", "q", now_ms=1_700_000_000_000)
    job = driver.ok("queue.upsertJobScheduler", "q", id="s", repeat={"pattern": "0 0 * * *", "tz": "UTC"})["job"]
    assert job["id"] == "repeat:s:1700006400000"


@pytest.mark.slow
def test_jitter_follows_the_seed(start_driver: Callable[[], LineClient], redis_port: int, prefix: str) -> None:
    address = {"mode": "standalone", "nodes": [f"127.0.0.1:{redis_port}"]}
    backoff = {"type": "fixed", "delay": 1_000_000, "jitter": 1}

    def delay(seed: int, queue: str) -> float:
        driver = start_driver()
        driver.hello(seed=seed)
        for role, handle in (("queue", "q"), ("worker", "w")):
            driver.ok("open", handle, role=role, queue=queue, prefix=prefix, redis=address)
        driver.ok("queue.add", "q", name="n", opts={"attempts": 2, "backoff": backoff})
        driver.ok("worker.getNextJob", "w", token="t")
        driver.ok("worker.moveToFailed", "w", job="1", token="t", message="no")
        found: float = driver.ok("queue.getJob", "q", job="1")["job"]["delay"]
        return found

    assert delay(7, "first") == delay(7, "second")
    assert delay(7, "third") != delay(8, "fourth")


def test_reset_closes_handles_and_forgets_jobs(opened: Open, store: redis.Redis, prefix: str) -> None:
    driver = opened("queue", "q")
    opened("worker", "w", processor="ask")
    opened("events", "e")
    driver.ok("queue.add", "q", name="n")
    driver.event("w", "job")
    driver.ok("reset")

    assert driver.error("resolve", "w", job="1", outcome="complete")["code"] == "invalid-argument"
    assert store.lrange(f"{prefix}:q:active", 0, -1) == [b"1"]
    names = [client["name"] for client in store.client_list()]
    assert not [name for name in names if name.startswith(f"{prefix}:")], names


def test_runs_on_the_bundled_node(
    start_driver: Callable[[NodeBinary], LineClient], redis_port: int, prefix: str
) -> None:
    path = bundled_node()
    assert path is not None
    version = node_version(path)
    assert version is not None
    driver = start_driver(NodeBinary(path, version, "nodejs-bin"))
    driver.hello()
    address = {"mode": "standalone", "nodes": [f"127.0.0.1:{redis_port}"]}
    driver.ok("open", "q", role="queue", queue="q", prefix=prefix, redis=address)
    driver.ok("queue.add", "q", name="n", data_raw='{"big": 12345678901234567890}')
    assert driver.ok("queue.getJobState", "q", job="1") == {"state": "waiting"}
    assert driver.end() == 0


# On a real cluster of three nodes.


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[str]]:
    """Addresses of the nodes."""
    with open_server("cluster:3", announce=print) as server:
        yield list(server.nodes)


def test_every_role_works_on_a_cluster(driver: LineClient, cluster: list[str]) -> None:
    address = {"mode": "cluster", "nodes": cluster}
    roles = {"q": "queue", "e": "events", "f": "flow", "hand": "worker", "loop": "worker"}
    for handle, role in roles.items():
        processor = "ask" if handle == "loop" else "manual"
        queue = "looped" if handle == "loop" else "q"
        driver.ok("open", handle, role=role, queue=queue, prefix="{tag}", redis=address, processor=processor)

    driver.ok("queue.add", "q", name="n", data_raw="1.0")
    driver.event("e", "queue-event", name="waiting")
    assert driver.ok("worker.getNextJob", "hand", token="t")["job"]["id"] == "1"
    driver.ok("worker.moveToCompleted", "hand", job="1", token="t", value_raw='"v"')
    assert driver.ok("job.waitUntilFinished", "q", job="1", events="e") == {"value_raw": '"v"'}

    driver.ok("flow.add", "f", flow={"name": "p", "queue": "looped", "opts": {"jobId": "root"}})
    driver.event("loop", "job")
    driver.ok("resolve", "loop", job="root", outcome="complete")
    driver.event("loop", "completed", job="root")
    for handle in roles:
        driver.ok("close", handle)


def test_a_prefix_without_hash_tag_fails(driver: LineClient, cluster: list[str]) -> None:
    address = {"mode": "cluster", "nodes": cluster}
    driver.ok("open", "q", role="queue", queue="q", prefix="plain", redis=address)
    error = driver.error("queue.add", "q", name="n")
    assert (error["code"], "CROSSSLOT" in error["message"]) == ("other", True)
    bulk = driver.error("queue.addBulk", "q", jobs=[{"name": "n"}])
    assert (bulk["code"], "same slot" in bulk["message"]) == ("other", True)
    driver.ok("reset")
