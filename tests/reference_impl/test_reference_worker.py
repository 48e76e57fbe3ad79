"""A queue and its worker on a private Redis: a pause, a job without a hash, concurrent adds, and refused options."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from tests.reference_impl.queue_under_test import QueueUnderTest, WithQueue


def test_paused_worker_takes_nothing_until_resumed(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        worker = tested.worker(lambda _job, _token: None)
        await tested.queue.add("a", 1)
        await tested.hear("completed", "1")
        await worker.pause()
        assert (worker.isPaused(), worker.isRunning()) == (True, False)
        await tested.queue.add("b", 2)
        assert await worker.getNextJob("t", {"block": False}) is None
        assert await tested.queue.getJobState("2") == "waiting"
        worker.resume()
        await tested.hear("completed", "2")
        assert worker.isRunning()

    with_queue(steps)


def test_a_job_without_a_hash_is_a_hole(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2}])
        await tested.queue.connection.command("DEL", tested.queue.toKey("1"))
        assert [job and job.id for job in await tested.queue.getWaiting()] == [None, "2"]

    with_queue(steps)


def test_concurrent_adds_keep_their_order(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        jobs = await asyncio.gather(*(tested.queue.add(f"n{index}", index) for index in range(50)))
        assert [job.id for job in jobs] == [str(index + 1) for index in range(50)]

    with_queue(steps)


@pytest.mark.parametrize(
    ("opts", "text"),
    [
        ({"concurrency": 0}, "concurrency must be a finite number greater than 0"),
        ({"maxStalledCount": -1}, "maxStalledCount must be greater or equal than 0"),
        ({"maxStartedAttempts": -1}, "maxStartedAttempts must be greater or equal than 0"),
        ({"stalledInterval": 0}, "stalledInterval must be greater than 0"),
        ({"drainDelay": 0}, "drainDelay must be greater than 0"),
    ],
)
def test_bad_worker_options(with_queue: WithQueue, opts: dict[str, Any], text: str) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        with pytest.raises(InvalidArgument, match=text):
            tested.worker(None, **opts)

    with_queue(steps)


@pytest.mark.parametrize(
    ("name", "text"), [("", "Queue name must be provided"), ("a:b", "Queue name cannot contain :")]
)
def test_bad_queue_names(name: str, text: str, scripts: ScriptTexts) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Queue(name, scripts=scripts)
