"""The worker's real loop on a private Redis: jobs taken, limited, paused and ended; every wait has a deadline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.reference_impl.errors import (
    InvalidArgument,
    RateLimitError,
)
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from tests.reference_impl.queue_under_test import QueueUnderTest, WithQueue


def test_waiting_worker_is_woken_by_the_marker(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        worker = tested.worker(lambda job, _token: job.data)
        idle = asyncio.Event()
        worker.on("drained", idle.set)
        await idle.wait()
        await tested.queue.add("a", {"x": 1})
        await tested.hear("completed", "1")
        assert (await tested.job("1")).returnvalue == {"x": 1}

    with_queue(steps)


def test_delayed_job_is_run_when_due(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        tested.worker(lambda _job, _token: None)
        await tested.queue.add("a", 1, {"delay": 200})
        await tested.hear("completed", "1")
        job = await tested.job("1")
        assert (job.processedOn or 0) - (job.timestamp or 0) >= 200

    with_queue(steps)


def test_concurrency_limits_the_jobs_at_a_time(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        running, most = 0, 0
        gate = asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gate.wait()
            running -= 1

        await tested.queue.addBulk([{"name": f"n{index}", "data": index} for index in range(7)])
        tested.worker(process, concurrency=3)
        await tested.until(lambda: running == 3, lambda: running)
        gate.set()
        for index in range(1, 8):
            await tested.hear("completed", str(index))
        assert most == 3
        assert await tested.queue.getJobCounts("active", "wait") == {"active": 0, "wait": 0}

    with_queue(steps)


def test_limiter_spaces_the_starts(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.addBulk([{"name": "n", "data": index} for index in range(3)])
        tested.worker(lambda _job, _token: None, limiter={"max": 1, "duration": 100})
        for job_id in "123":
            await tested.hear("completed", job_id)
        starts = [(await tested.job(job_id)).processedOn or 0 for job_id in "123"]
        assert starts[1] - starts[0] >= 95
        assert starts[2] - starts[1] >= 95

    with_queue(steps)


def test_rate_limit_error_puts_the_job_back(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        tries: list[int] = []

        async def process(job: Job, _token: str) -> None:
            tries.append(job.attemptsStarted)
            if len(tries) == 1:
                await worker.rateLimit(50)
                raise RateLimitError

        worker = tested.worker(process, limiter={"max": 100, "duration": 1000})
        await tested.queue.add("a", 1)
        await tested.hear("completed", "1")
        assert tries == [1, 2]
        assert (await tested.job("1")).attemptsMade == 1

    with_queue(steps)


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


def test_close_lets_running_jobs_end_and_fetches_no_more(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        started, gate = asyncio.Event(), asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            started.set()
            await gate.wait()

        await tested.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2}])
        worker = tested.worker(process)
        await started.wait()
        closing = asyncio.create_task(worker.close())
        await tested.until(lambda: worker.closing, lambda: tested.heard)
        gate.set()
        await closing
        assert ("completed", "1") in tested.heard
        assert await tested.queue.getJobState("2") == "waiting"

    with_queue(steps)


def test_forced_close_leaves_the_job_and_its_lock(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        started = asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            started.set()
            await asyncio.Event().wait()

        await tested.queue.add("a", 1)
        worker = tested.worker(process)
        await started.wait()
        await worker.close(force=True)
        assert await tested.queue.getJobState("1") == "active"
        assert await tested.queue.connection.command("EXISTS", tested.queue.keys.of_job("1", "lock")) == 1

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
