"""The worker's real loop on a private Redis. Times are short, and every wait has a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from conformance.reference_impl.errors import (
    BullMQError,
    InvalidArgument,
    RateLimitError,
    ScriptError,
    UnrecoverableError,
)
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queues.events import QueueEvents
from conformance.reference_impl.queues.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.workers.worker import Worker
from conformance.servers import Server

Until = Callable[..., Awaitable[None]]
Processor = Callable[[Job, str], Any]


class House:
    """One queue and the workers of a test."""

    def __init__(self, opts: dict[str, Any], scripts: ScriptTexts, until: Until) -> None:
        self.opts, self.scripts, self.until = opts, scripts, until
        self.queue = Queue("q", opts, scripts=scripts)
        self.workers: list[Worker] = []
        self.heard: list[tuple[str, Any]] = []

    def worker(self, processor: Processor | None, **opts: Any) -> Worker:
        worker = Worker("q", processor, {**self.opts, "drainDelay": 30, **opts}, scripts=self.scripts)
        for event in ("completed", "failed", "stalled", "error"):
            worker.on(event, lambda subject, *_, event=event: self.heard.append((event, _id_or_text(subject))))
        self.workers.append(worker)
        return worker

    async def hear(self, event: str, subject: str, times: int = 1) -> None:
        await self.until(lambda: self.heard.count((event, subject)) >= times, lambda: self.heard)

    async def job(self, job_id: str) -> Job:
        job = await self.queue.getJob(job_id)
        assert job is not None
        return job


def _id_or_text(subject: Any) -> str:
    return subject.known_id if isinstance(subject, Job) else str(subject)


Scene = Callable[[Callable[[House], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def scene(connection: dict[str, Any], prefix: str, scripts: ScriptTexts, wait_until: Until) -> Scene:
    """Run a coroutine with a house; its workers are closed by force afterwards."""

    @asynccontextmanager
    async def house() -> AsyncIterator[House]:
        built = House({"connection": connection, "prefix": prefix}, scripts, wait_until)
        try:
            yield built
        finally:
            for worker in built.workers:
                await worker.close(force=True)
            await built.queue.close()

    def run(play: Callable[[House], Coroutine[Any, Any, None]]) -> None:
        async def perform() -> None:
            async with asyncio.timeout(15), house() as built:
                await play(built)

        asyncio.run(perform())

    return run


def test_waiting_worker_is_woken_by_the_marker(scene: Scene) -> None:
    async def play(house: House) -> None:
        worker = house.worker(lambda job, _token: job.data)
        idle = asyncio.Event()
        worker.on("drained", idle.set)
        await idle.wait()
        await house.queue.add("a", {"x": 1})
        await house.hear("completed", "1")
        assert (await house.job("1")).returnvalue == {"x": 1}

    scene(play)


def test_delayed_job_is_run_when_due(scene: Scene) -> None:
    async def play(house: House) -> None:
        house.worker(lambda _job, _token: None)
        await house.queue.add("a", 1, {"delay": 200})
        await house.hear("completed", "1")
        job = await house.job("1")
        assert (job.processedOn or 0) - (job.timestamp or 0) >= 200

    scene(play)


def test_concurrency_limits_the_jobs_at_a_time(scene: Scene) -> None:
    async def play(house: House) -> None:
        running, most = 0, 0
        gate = asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gate.wait()
            running -= 1

        await house.queue.addBulk([{"name": f"n{index}", "data": index} for index in range(7)])
        house.worker(process, concurrency=3)
        await house.until(lambda: running == 3, lambda: running)
        gate.set()
        for index in range(1, 8):
            await house.hear("completed", str(index))
        assert most == 3
        assert await house.queue.getJobCounts("active", "wait") == {"active": 0, "wait": 0}

    scene(play)


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


def test_limiter_spaces_the_starts(scene: Scene) -> None:
    async def play(house: House) -> None:
        await house.queue.addBulk([{"name": "n", "data": index} for index in range(3)])
        house.worker(lambda _job, _token: None, limiter={"max": 1, "duration": 100})
        for job_id in "123":
            await house.hear("completed", job_id)
        starts = [(await house.job(job_id)).processedOn or 0 for job_id in "123"]
        assert starts[1] - starts[0] >= 95
        assert starts[2] - starts[1] >= 95

    scene(play)


def test_rate_limit_error_puts_the_job_back(scene: Scene) -> None:
    async def play(house: House) -> None:
        tries: list[int] = []

        async def process(job: Job, _token: str) -> None:
            tries.append(job.attemptsStarted)
            if len(tries) == 1:
                await worker.rateLimit(50)
                raise RateLimitError

        worker = house.worker(process, limiter={"max": 100, "duration": 1000})
        await house.queue.add("a", 1)
        await house.hear("completed", "1")
        assert tries == [1, 2]
        assert (await house.job("1")).attemptsMade == 1

    scene(play)


def test_paused_worker_takes_nothing_until_resumed(scene: Scene) -> None:
    async def play(house: House) -> None:
        worker = house.worker(lambda _job, _token: None)
        await house.queue.add("a", 1)
        await house.hear("completed", "1")
        await worker.pause()
        assert (worker.isPaused(), worker.isRunning()) == (True, False)
        await house.queue.add("b", 2)
        assert await worker.getNextJob("t", {"block": False}) is None
        assert await house.queue.getJobState("2") == "waiting"
        worker.resume()
        await house.hear("completed", "2")
        assert worker.isRunning()

    scene(play)


def test_close_lets_running_jobs_end_and_fetches_no_more(scene: Scene) -> None:
    async def play(house: House) -> None:
        started, gate = asyncio.Event(), asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            started.set()
            await gate.wait()

        await house.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2}])
        worker = house.worker(process)
        await started.wait()
        closing = asyncio.create_task(worker.close())
        await house.until(lambda: worker.closing, lambda: house.heard)
        gate.set()
        await closing
        assert ("completed", "1") in house.heard
        assert await house.queue.getJobState("2") == "waiting"

    scene(play)


def test_forced_close_leaves_the_job_and_its_lock(scene: Scene) -> None:
    async def play(house: House) -> None:
        started = asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            started.set()
            await asyncio.Event().wait()

        await house.queue.add("a", 1)
        worker = house.worker(process)
        await started.wait()
        await worker.close(force=True)
        assert await house.queue.getJobState("1") == "active"
        assert await house.queue.connection.command("EXISTS", house.queue.keys.of_job("1", "lock")) == 1

    scene(play)


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


def test_unreadable_job_is_told_and_the_next_one_runs(scene: Scene) -> None:
    async def play(house: House) -> None:
        await house.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2}])
        await house.queue.connection.command("HSET", house.queue.toKey("1"), "data", "{broken")
        house.worker(lambda _job, _token: None)
        await house.hear("completed", "2")
        assert next(event for event, _ in house.heard) == "error"
        assert await house.queue.getJobState("1") == "active"

    scene(play)


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


def test_a_job_without_a_hash_is_a_hole(scene: Scene) -> None:
    async def play(house: House) -> None:
        await house.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2}])
        await house.queue.connection.command("DEL", house.queue.toKey("1"))
        assert [job and job.id for job in await house.queue.getWaiting()] == [None, "2"]

    scene(play)


def test_concurrent_adds_keep_their_order(scene: Scene) -> None:
    async def play(house: House) -> None:
        jobs = await asyncio.gather(*(house.queue.add(f"n{index}", index) for index in range(50)))
        assert [job.id for job in jobs] == [str(index + 1) for index in range(50)]

    scene(play)


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
def test_bad_worker_options(scene: Scene, opts: dict[str, Any], text: str) -> None:
    async def play(house: House) -> None:
        with pytest.raises(InvalidArgument, match=text):
            house.worker(None, **opts)

    scene(play)


@pytest.mark.parametrize(
    ("name", "text"), [("", "Queue name must be provided"), ("a:b", "Queue name cannot contain :")]
)
def test_bad_queue_names(name: str, text: str, scripts: ScriptTexts) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Queue(name, scripts=scripts)


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
