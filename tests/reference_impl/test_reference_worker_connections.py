"""Killed connections, forgotten scripts, events, refusals and a cluster, with the worker's real loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from conformance.reference_impl.errors import (
    BullMQError,
    ScriptError,
)
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queues.events import QueueEvents
from conformance.reference_impl.queues.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers import Server

from .house import House, Scene, Until


def test_killed_connections_are_replaced(scene: Scene, server: Server) -> None:
    async def play(house: House) -> None:
        worker = house.worker(lambda _job, _token: None, name="survivor")
        await house.queue.add("a", 1)
        await house.hear("completed", "1")
        workers: list[Any] = []
        while not workers:
            workers = await house.queue.getWorkers()
        admin = server.connect()
        for client in admin.client_list():
            if client["name"] == workers[0]["rawname"] or client["cmd"] == "evalsha":
                admin.client_kill_filter(_id=client["id"])
        await house.until(worker.isRunning, lambda: house.heard)
        await house.queue.waitUntilReady()
        await _add_again(house.queue)
        await house.hear("completed", "2")
        assert not [text for event, text in house.heard if event == "error"]

    scene(play)


async def _add_again(queue: Queue) -> None:
    """The queue's own connection was killed too: whoever uses it sees one error at most."""
    try:
        await queue.add("b", 2)
    except RedisConnectionError:
        await queue.add("b", 2)


def test_scripts_are_loaded_again_after_a_flush(scene: Scene, server: Server) -> None:
    async def play(house: House) -> None:
        await house.queue.add("a", 1)
        server.connect().script_flush()
        await house.queue.addBulk([{"name": "b", "data": 2}, {"name": "c", "data": 3, "opts": {"delay": 5}}])
        server.connect().script_flush()
        assert (await house.queue.add("d", 4)).id == "4"

    scene(play)


def test_finished_jobs_are_reported_to_whoever_waits(scene: Scene) -> None:
    async def play(house: House) -> None:
        def process(job: Job, _token: str) -> Any:
            if job.name == "bad":
                raise RuntimeError("no luck")
            return [1]

        events = QueueEvents("q", house.opts, scripts=house.scripts)
        good, bad = await house.queue.add("good", 1), await house.queue.add("bad", 1)
        early = [asyncio.create_task(job.waitUntilFinished(events, 5000)) for job in (good, bad)]
        house.worker(process)
        assert await early[0] == [1]
        with pytest.raises(BullMQError, match="no luck"):
            await early[1]
        assert await good.waitUntilFinished(events, 5000) == [1]
        later = await house.queue.add("later", 1, {"delay": 60_000})
        with pytest.raises(TimeoutError, match="timed out before finishing"):
            await later.waitUntilFinished(events, 30)
        await events.close()

    scene(play)


def test_events_are_read_from_where_one_wants(scene: Scene) -> None:
    async def play(house: House) -> None:
        await house.queue.add("a", 1)
        told: list[tuple[str, Any]] = []
        events = QueueEvents("q", {**house.opts, "lastEventId": "0"}, scripts=house.scripts)
        events.on("*", lambda event, fields, _id: told.append((event, dict(fields))))
        await house.until(lambda: len(told) == 2, lambda: told)
        assert told == [("added", {"jobId": "1", "name": "a"}), ("waiting", {"jobId": "1"})]
        await events.close()

    scene(play)


def test_refusals_carry_their_code(scene: Scene) -> None:
    async def play(house: House) -> None:
        worker = house.worker(None)
        await house.queue.add("a", 1)
        job = await worker.getNextJob("mine", {"block": False})
        assert job is not None
        with pytest.raises(ScriptError, match="Lock mismatch") as caught:
            await job.moveToCompleted(1, "other", False)
        assert caught.value.code == -6
        with pytest.raises(TypeError, match="serialize"):
            await job.moveToCompleted({1, 2}, "mine", False)
        assert await job.getState() == "active"

    scene(play)


def test_everything_works_in_a_cluster(cluster: Server, scripts: ScriptTexts, wait_until: Until) -> None:
    async def perform() -> None:
        opts = {"connection": {"mode": "cluster", "nodes": list(cluster.nodes)}, "prefix": cluster.fresh_prefix()}
        house = House(opts, scripts, wait_until)
        await house.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2, "opts": {"delay": 10}}])
        house.worker(lambda job, _token: job.data)
        for job_id in "12":
            await house.hear("completed", job_id)
        assert (await house.queue.getJobLogs("1"))["count"] == 0
        assert await house.queue.getWorkers() == []
        await house.workers[0].close()
        await house.queue.close()

    asyncio.run(perform())
