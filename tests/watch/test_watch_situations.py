"""Situations with real workers that `watch` must report, and a healthy load of which it must report nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from conformance.checkers.live_queues import WatchLimits
from conformance.protocol.states import DELAY_FACTOR
from conformance.reference_impl import Queue
from conformance.servers.setting import split_node

from .conftest import INTERVAL_S, Stage


def library_queue(stage: Stage, name: str) -> Queue:
    host, port = split_node(stage.server.nodes[0])
    return Queue(name, {"connection": {"host": host, "port": port}, "prefix": stage.prefix})


def schedule(stage: Stage, queue: str, schedules: dict[str, dict[str, Any]]) -> None:
    async def upsert() -> None:
        library = library_queue(stage, queue)
        for name, repeat in schedules.items():
            await library.upsertJobScheduler(name, repeat)
        await library.close()

    asyncio.run(upsert())


def test_a_frozen_worker_is_deaf(stage: Stage) -> None:
    stage.freeze(stage.start_worker("mail", name="alpha"))
    stage.add("mail", 3)
    stage.add("mail", 1)  # the frozen worker got the first marker
    found = stage.finding("deaf")
    assert (found.queue, found.number) == ("mail", 1)
    assert "4 jobs waited" in found.message
    assert "the marker is set" in found.message
    assert found.examples[0].startswith("alpha 127.0.0.1:")


def test_a_worker_without_a_marker_is_deaf_until_it_polls(stage: Stage) -> None:
    stage.start_worker("mail", drainDelay=600)
    stage.add("mail", 2, marker=False)
    found = stage.finding("deaf")
    assert found.number == 1
    assert "the marker is missing" in found.message


@pytest.mark.slow
def test_one_frozen_worker_is_found_next_to_another_that_works(stage: Stage) -> None:
    frozen = stage.start_worker("mail", name="frozen")
    stage.freeze(frozen)
    stage.add("mail", 500)
    # Redis counts whole seconds since the marker was sent, and a busy worker does not use this connection either.
    stage.until(lambda: stage.idle_s("frozen") >= 2, "the frozen worker is the idlest")
    stage.start_worker("mail", job_ms=200, name="busy")
    stage.until(lambda: stage.client.llen(stage.keys("mail").key("active")) == 1, "the other worker takes a job")
    found = stage.finding("deaf")
    assert found.number == 1
    assert "while others took jobs" in found.message
    assert found.examples[0].startswith("frozen ")


def test_jobs_without_a_worker(stage: Stage) -> None:
    stage.add("mail", 2)
    found = stage.finding("no-worker")
    assert found.number == 2


def test_a_backlog_that_grows(stage: Stage) -> None:
    ended = threading.Event()

    def produce() -> None:
        while not ended.wait(0.01):
            stage.add("mail", 1)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        found = stage.finding("growing")
    finally:
        ended.set()
        producer.join()
    assert found.number >= 20


def test_a_job_that_stalls(stage: Stage) -> None:
    dying = stage.start_worker("mail", job_ms=600_000, lockDuration=300, stalledInterval=200)
    stage.add("mail", 1)
    stage.until(lambda: stage.client.llen(stage.keys("mail").key("active")) == 1, "the job is active")
    session = stage.watch()
    session.look()
    dying.kill()
    stage.until(lambda: not stage.connections("mail"), "Redis forgets the connections of the dead worker")
    stage.start_worker("mail", job_ms=1, lockDuration=300, stalledInterval=200)
    found = stage.finding("stalls", session)
    assert found.number == 1


def test_a_delayed_job_past_its_time(stage: Stage) -> None:
    stage.add("mail", 1)
    client, keys = stage.client, stage.keys("mail")
    client.delete(keys.key("wait"))
    seconds, _ = client.time()
    client.zadd(keys.key("delayed"), {"1": (seconds - 30) * 1000 * DELAY_FACTOR})
    found = stage.finding("overdue")
    assert found.number == 1
    assert "the first by 3" in found.message


def test_a_schedule_without_its_next_iteration(stage: Stage) -> None:
    schedule(stage, "mail", {"lost": {"pattern": "0 0 1 1 *"}, "kept": {"pattern": "0 0 1 1 *"}})
    client, keys = stage.client, stage.keys("mail")
    (job,) = (each for each in client.zrange(keys.key("delayed"), 0, -1) if b":lost:" in each)
    client.zrem(keys.key("delayed"), job)
    client.delete(keys.key(job.decode()))
    found = stage.finding("schedule")
    assert found.examples == ["lost"]


def test_a_schedule_whose_last_iteration_has_finished(stage: Stage) -> None:
    schedule(stage, "mail", {"lost": {"pattern": "0 0 1 1 *"}})
    client, keys = stage.client, stage.keys("mail")
    (job,) = client.zrange(keys.key("delayed"), 0, -1)
    client.zrem(keys.key("delayed"), job)
    name = job.decode().replace(job.decode().rpartition(":")[2], "1700000000000")
    client.rename(keys.key(job.decode()), keys.key(name))
    client.zadd(keys.key("repeat"), {"lost": 1_700_000_000_000})
    client.zadd(keys.key("failed"), {name: 1_700_000_000_100})
    assert stage.finding("schedule").examples == ["lost"]


HEALTHY = WatchLimits(deaf_ms=8_000, growth_ms=8_000, growth_jobs=100, stalls=1, settle_ms=5_000)
"""Longer than a busy machine stops a process, and short enough to be reached in the test."""


@pytest.mark.slow
def test_nothing_is_found_in_a_healthy_store(stage: Stage) -> None:
    """Load, schedules that end as planned, and queues whose jobs wait for a reason."""
    client = stage.client
    schedule(stage, "load", {"tick": {"every": 300}, "few": {"every": 200, "limit": 2}})
    for _ in range(2):
        stage.start_worker("load", job_ms=5, concurrency=5)
    stage.start_worker("busy", job_ms=600_000)
    stage.add("busy", 4)
    stage.start_worker("paused")
    client.hset(stage.keys("paused").key("meta"), "paused", "1")
    stage.add("paused", 3)
    stage.start_worker("limited", limiter={"max": 1, "duration": 600_000})
    stage.add("limited", 4)
    stage.start_worker("full", job_ms=600_000, concurrency=5)
    stage.add("full", 0)
    client.hset(stage.keys("full").key("meta"), "concurrency", "1")
    stage.add("full", 4)
    session, end = stage.watch(HEALTHY), time.monotonic() + 14
    claims = 0.0
    while time.monotonic() < end:
        stage.add("load", 5)
        moment = session.look()
        assert not moment.error
        assert not moment.findings, moment.findings
        claims += moment.queues["load"].look.events.active
        time.sleep(INTERVAL_S)
    assert claims > 50
    assert {queue: state.look.waiting > 0 for queue, state in moment.queues.items()} == {
        "busy": True,
        "full": True,
        "limited": True,
        "load": moment.queues["load"].look.waiting > 0,
        "paused": True,
    }
