"""What a worker does when attempts fail, locks are lost and jobs stall, on a private Redis."""

from __future__ import annotations

import asyncio
from typing import Any

from conformance.reference_impl.errors import (
    UnrecoverableError,
)
from conformance.reference_impl.jobs.job import Job

from .house import House, Scene


def test_failed_attempts_back_off_and_then_end(scene: Scene) -> None:
    async def play(house: House) -> None:
        asked: list[tuple[int, str | None]] = []

        def strategy(attempt: int, kind: str | None, _error: BaseException, _job: Any) -> int:
            asked.append((attempt, kind))
            return 1

        def process(_job: Job, _token: str) -> None:
            raise RuntimeError("boom")

        await house.queue.add("a", 1, {"attempts": 3, "backoff": {"type": "mine"}, "stackTraceLimit": 2})
        house.worker(process, settings={"backoffStrategy": strategy})
        await house.hear("failed", "1", times=3)
        job = await house.job("1")
        assert asked == [(1, "mine"), (2, "mine")]
        assert (job.attemptsMade, job.failedReason, len(job.stacktrace)) == (3, "boom", 2)
        assert job.stacktrace[0].startswith("RuntimeError: boom\n    at process (")
        assert await job.getState() == "failed"

    scene(play)


def test_unrecoverable_error_ends_the_attempts(scene: Scene) -> None:
    async def play(house: House) -> None:
        def process(_job: Job, _token: str) -> None:
            raise UnrecoverableError("never")

        await house.queue.add("a", 1, {"attempts": 5})
        house.worker(process)
        await house.hear("failed", "1")
        assert await (await house.job("1")).getState() == "failed"

    scene(play)


def test_unknown_backoff_leaves_the_job_active(scene: Scene) -> None:
    async def play(house: House) -> None:
        def process(_job: Job, _token: str) -> None:
            raise RuntimeError("boom")

        await house.queue.add("a", 1, {"attempts": 2, "backoff": {"type": "nobody-knows"}})
        house.worker(process)
        await house.until(lambda: any("Unknown backoff" in text for _, text in house.heard), lambda: house.heard)
        assert await house.queue.getJobState("1") == "active"

    scene(play)


def test_locks_of_running_jobs_are_renewed(scene: Scene) -> None:
    async def play(house: House) -> None:
        gate = asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            await gate.wait()

        await house.queue.add("a", 1)
        house.worker(process, lockDuration=200)
        lock = house.queue.keys.of_job("1", "lock")
        renewals, last = 0, 0
        while renewals < 2:
            left = await house.queue.connection.command("PTTL", lock)
            renewals += left > last > 0
            last = left
        gate.set()
        await house.hear("completed", "1")

    scene(play)


def test_lost_lock_is_an_error_and_not_a_completion(scene: Scene) -> None:
    async def play(house: House) -> None:
        async def process(job: Job, _token: str) -> None:
            await house.queue.connection.command("DEL", job.key("lock"))

        await house.queue.add("a", 1)
        house.worker(process)
        await house.hear("error", "Missing lock for job 1. moveToFinished", times=2)
        assert ("completed", "1") not in house.heard
        assert await house.queue.getJobState("1") == "active"

    scene(play)


def test_stalled_job_is_recovered_and_in_the_end_failed(scene: Scene) -> None:
    async def play(house: House) -> None:
        dead = house.worker(None, lockDuration=1)
        await house.queue.add("a", 1)
        assert await dead.getNextJob("token", {"block": False})
        house.worker(lambda _job, _token: None, stalledInterval=20, maxStalledCount=0)
        await house.hear("stalled", "1")
        await house.hear("failed", "1")
        assert (await house.job("1")).failedReason == "job stalled more than allowable limit"

    scene(play)


def test_too_many_starts_fail_the_job_unseen(scene: Scene) -> None:
    async def play(house: House) -> None:
        seen: list[str] = []
        await house.queue.add("a", 1, {"jobId": "x"})
        await house.queue.connection.command("HSET", house.queue.toKey("x"), "ats", 2)
        house.worker(lambda job, _token: seen.append(job.known_id), maxStartedAttempts=2)
        await house.hear("failed", "x")
        assert seen == []
        assert (await house.job("x")).failedReason == "job started more than allowable limit"

    scene(play)


def test_unreadable_job_is_told_and_the_next_one_runs(scene: Scene) -> None:
    async def play(house: House) -> None:
        await house.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2}])
        await house.queue.connection.command("HSET", house.queue.toKey("1"), "data", "{broken")
        house.worker(lambda _job, _token: None)
        await house.hear("completed", "2")
        assert next(event for event, _ in house.heard) == "error"
        assert await house.queue.getJobState("1") == "active"

    scene(play)
