"""The worker when attempts fail, locks are lost, connections are killed and scripts forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from conformance.reference_impl.errors import BullMQError, ScriptError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_events import QueueEvents
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers import RedisInstance
from tests.reference_impl.queue_under_test import QueueUnderTest, Until, WithQueue


def test_failed_attempts_back_off_and_then_end(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        asked: list[tuple[int, str | None]] = []

        def strategy(attempt: int, kind: str | None, _error: BaseException, _job: Any) -> int:
            asked.append((attempt, kind))
            return 1

        def process(_job: Job, _token: str) -> None:
            raise RuntimeError("boom")

        await tested.queue.add("a", 1, {"attempts": 3, "backoff": {"type": "mine"}, "stackTraceLimit": 2})
        tested.worker(process, settings={"backoffStrategy": strategy})
        await tested.hear("failed", "1", times=3)
        job = await tested.job("1")
        assert asked == [(1, "mine"), (2, "mine")]
        assert (job.attemptsMade, job.failedReason, len(job.stacktrace)) == (3, "boom", 2)
        assert job.stacktrace[0].startswith("RuntimeError: boom\n    at process (")
        assert await job.getState() == "failed"

    with_queue(steps)


def test_an_unreadable_job_is_reported_and_the_next_one_runs(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2}])
        await tested.queue.connection.command("HSET", tested.queue.toKey("1"), "data", "{broken")
        tested.worker(lambda _job, _token: None)
        await tested.hear("completed", "2")
        assert next(event for event, _ in tested.heard) == "error"
        assert await tested.queue.getJobState("1") == "active"

    with_queue(steps)


def test_a_job_without_a_hash_is_a_hole(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2}])
        await tested.queue.connection.command("DEL", tested.queue.toKey("1"))
        assert [job and job.id for job in await tested.queue.getWaiting()] == [None, "2"]

    with_queue(steps)


def test_killed_connections_are_replaced(with_queue: WithQueue, server: RedisInstance) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        worker = tested.worker(lambda _job, _token: None, name="survivor")
        await tested.queue.add("a", 1)
        await tested.hear("completed", "1")
        workers: list[Any] = []
        while not workers:
            workers = await tested.queue.getWorkers()
        admin = server.connect()
        for client in admin.client_list():
            if client["name"] == workers[0]["rawname"] or client["cmd"] == "evalsha":
                admin.client_kill_filter(_id=client["id"])
        await tested.until(worker.isRunning, lambda: tested.heard)
        await tested.queue.waitUntilReady()
        await _add_again(tested.queue)
        await tested.hear("completed", "2")
        assert not [text for event, text in tested.heard if event == "error"]

    with_queue(steps)


async def _add_again(queue: Queue) -> None:
    """The queue's own connection was killed too: its user sees one error at most."""
    try:
        await queue.add("b", 2)
    except RedisConnectionError:
        await queue.add("b", 2)


def test_scripts_are_loaded_again_after_a_flush(with_queue: WithQueue, server: RedisInstance) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.add("a", 1)
        server.connect().script_flush()
        await tested.queue.addBulk([{"name": "b", "data": 2}, {"name": "c", "data": 3, "opts": {"delay": 5}}])
        server.connect().script_flush()
        assert (await tested.queue.add("d", 4)).id == "4"

    with_queue(steps)


def test_finished_jobs_are_reported_to_their_waiters(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        def process(job: Job, _token: str) -> Any:
            if job.name == "bad":
                raise RuntimeError("no luck")
            return [1]

        events = QueueEvents("q", tested.opts, scripts=tested.scripts)
        good, bad = await tested.queue.add("good", 1), await tested.queue.add("bad", 1)
        early = [asyncio.create_task(job.waitUntilFinished(events, 5000)) for job in (good, bad)]
        tested.worker(process)
        assert await early[0] == [1]
        with pytest.raises(BullMQError, match="no luck"):
            await early[1]
        assert await good.waitUntilFinished(events, 5000) == [1]
        later = await tested.queue.add("later", 1, {"delay": 60_000})
        with pytest.raises(TimeoutError, match="timed out before finishing"):
            await later.waitUntilFinished(events, 30)
        await events.close()

    with_queue(steps)


def test_refusals_carry_their_code(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        worker = tested.worker(None)
        await tested.queue.add("a", 1)
        job = await worker.getNextJob("mine", {"block": False})
        assert job is not None
        with pytest.raises(ScriptError, match="Lock mismatch") as caught:
            await job.moveToCompleted(1, "other", False)
        assert caught.value.code == -6
        with pytest.raises(TypeError, match="serialize"):
            await job.moveToCompleted({1, 2}, "mine", False)
        assert await job.getState() == "active"

    with_queue(steps)


def test_everything_works_in_a_cluster(cluster: RedisInstance, scripts: ScriptTexts, wait_until: Until) -> None:
    async def take_steps() -> None:
        opts = {"connection": {"mode": "cluster", "nodes": list(cluster.nodes)}, "prefix": cluster.fresh_prefix()}
        tested = QueueUnderTest(opts, scripts, wait_until)
        await tested.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2, "opts": {"delay": 10}}])
        tested.worker(lambda job, _token: job.data)
        for job_id in "12":
            await tested.hear("completed", job_id)
        assert (await tested.queue.getJobLogs("1"))["count"] == 0
        assert await tested.queue.getWorkers() == []
        await tested.workers[0].close()
        await tested.queue.close()

    asyncio.run(take_steps())
