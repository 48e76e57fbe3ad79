"""Corners where a client is easily wrong: back-off without a delay, odd errors, `meta`, integers beyond 2**53."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.attempts import delay_before_retry
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers import RedisInstance
from tests.reference_impl.queue_under_test import QueueUnderTest, WithQueue

# --- back-off ----------------------------------------------------------------------------------------------------


def test_a_strategy_without_an_answer_means_at_once(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.add("a", 1, {"attempts": 2, "backoff": {"type": "mine"}})
        tested.worker(_throws(RuntimeError("boom")), settings={"backoffStrategy": lambda *_: None})
        await tested.hear("failed", "1", times=2)
        assert (await tested.job("1")).attemptsMade == 2

    with_queue(steps)


# --- errors of a processor -------------------------------------------------------------------------------------------


def _throws(error: BaseException) -> Any:
    async def process(_job: Job, _token: str) -> None:
        raise error

    return process


def _exits(_job: Job, _token: str) -> None:
    sys.exit("no more")


async def _cancels_itself(_job: Job, _token: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def _awaits_what_was_cancelled(_job: Job, _token: str) -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner


class Odd(BaseException):
    """An error that is not an Exception."""


@pytest.mark.parametrize(
    ("process", "reason"),
    [
        (_awaits_what_was_cancelled, "CancelledError"),
        (_cancels_itself, "CancelledError"),
        (_throws(SystemExit(3)), "SystemExit: 3"),
        (_exits, "SystemExit: no more"),
        (_throws(Odd("really")), "Odd: really"),
        (_throws(RuntimeError()), "RuntimeError"),
        (_throws(RuntimeError("")), None),
    ],
    ids=["inner-cancelled", "self-cancelled", "system-exit", "sync-exit", "odd", "without-text", "empty-text"],
)
def test_anything_that_a_processor_throws_is_a_failed_attempt(
    process: Any, reason: str | None, with_queue: WithQueue
) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        tested.worker(process)
        for number in ("1", "2"):  # the second shows that the worker lives on
            await tested.queue.add("a", 1)
            await tested.hear("failed", number)
            job = await tested.job(number)
            assert (job.failedReason, job.attemptsMade, await job.getState()) == (reason, 1, "failed")

    with_queue(steps)


def test_jobs_of_a_worker_that_is_given_up_stay_active(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        async def process(_job: Job, _token: str) -> None:
            await asyncio.sleep(60)

        worker = tested.worker(process)
        await tested.queue.add("a", 1)
        started = asyncio.Event()
        worker.on("active", lambda *_: started.set())
        await started.wait()
        await worker.close(force=True)
        assert await tested.queue.getJobState("1") == "active"
        assert tested.count("failed") == 0

    with_queue(steps)


def test_jobs_of_a_program_that_ends_stay_active(
    connection: dict[str, Any], prefix: str, scripts: ScriptTexts, server: RedisInstance
) -> None:
    """asyncio.run cancels the running tasks: it is unknown whether such an attempt has failed."""
    opts: dict[str, Any] = {"connection": connection, "prefix": prefix}

    async def program() -> None:
        from conformance.reference_impl.workers.worker import Worker

        started = asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            started.set()
            await asyncio.sleep(60)

        queue = Queue("q", opts, scripts=scripts)
        await queue.add("a", 1)
        _worker = Worker("q", process, opts, scripts=scripts)
        await asyncio.wait_for(started.wait(), 10)

    asyncio.run(program())
    client = server.connect()
    assert client.lrange(f"{prefix}:q:active", 0, -1) == [b"1"]
    assert not client.exists(f"{prefix}:q:failed")


# --- meta ----------------------------------------------------------------------------------------------------------

META = {b"opts.maxLenEvents": b"10000", b"version": b"bullmq:5.62.0"}

FIRST_COMMANDS: dict[str, Any] = {
    "getJobCounts": lambda queue: queue.getJobCounts(),
    "getJob": lambda queue: queue.getJob("1"),
    "getJobLogs": lambda queue: queue.getJobLogs("1"),
    "getWorkers": lambda queue: queue.getWorkers(),
    "isPaused": lambda queue: queue.isPaused(),
    "drain": lambda queue: queue.drain(),
    "remove": lambda queue: queue.remove("1"),
    "addBulk": lambda queue: queue.addBulk([{"name": "a", "data": 1}]),
    "setGlobalConcurrency": lambda queue: queue.setGlobalConcurrency(3),
    "two-at-once": lambda queue: asyncio.gather(queue.getJobCounts(), queue.isPaused()),
}


@pytest.mark.parametrize("name", FIRST_COMMANDS)
def test_a_queue_writes_meta_with_its_first_command(
    name: str, connection: dict[str, Any], prefix: str, scripts: ScriptTexts, server: RedisInstance
) -> None:
    async def steps() -> None:
        queue = Queue("q", {"connection": connection, "prefix": prefix}, scripts=scripts)
        await FIRST_COMMANDS[name](queue)
        assert META.items() <= server.connect().hgetall(f"{prefix}:q:meta").items()
        await queue.connection.command("DEL", queue.keys.key("meta"))
        await FIRST_COMMANDS["isPaused"](queue)
        assert not server.connect().exists(f"{prefix}:q:meta"), "it is written once"
        await queue.close()

    asyncio.run(steps())


def test_meta_is_not_written_where_the_queue_shall_not(
    connection: dict[str, Any], prefix: str, scripts: ScriptTexts, server: RedisInstance
) -> None:
    async def steps() -> None:
        queue = Queue("q", {"connection": connection, "prefix": prefix, "skipMetasUpdate": True}, scripts=scripts)
        await queue.getJobCounts()
        await queue.close()

    asyncio.run(steps())
    assert not server.connect().exists(f"{prefix}:q:meta")


# --- integers ------------------------------------------------------------------------------------------------------

BIG = 2**53 + 1


@pytest.mark.parametrize("job_id", ["12", "-1", "NaN", str(2**53)])
def test_an_id_that_javascript_writes_for_an_integer_is_refused(job_id: str) -> None:
    with pytest.raises(InvalidArgument, match="Custom Id cannot be integers"):
        options.validate("name", {"jobId": job_id}, "{}")


@pytest.mark.parametrize("job_id", ["007", "1e9", "+1", "1.5", "nan", "Infinity", str(BIG), str(10**21)])
def test_an_id_that_javascript_writes_otherwise_is_taken(job_id: str) -> None:
    options.validate("name", {"jobId": job_id}, "{}")


@pytest.mark.parametrize("attempt", [31, 40, 64, 2000])
def test_late_retries_have_the_delay_of_javascript(attempt: int) -> None:
    """Beyond 2**53 it is a double, which Redis takes; an integer of Python would be refused."""
    delay = asyncio.run(delay_before_retry({"type": "exponential", "delay": 20_000}, attempt, ValueError(), None))
    assert delay == 20_000 * 2.0 ** min(attempt - 1, 1023)
    assert isinstance(delay, int) == (attempt == 31)


def test_large_integers_of_data_stay_exact(with_queue: WithQueue, server: RedisInstance) -> None:
    """From the producer to the result, and where the data is read and written back."""

    async def steps(tested: QueueUnderTest) -> None:
        async def process(job: Job, _token: str) -> Any:
            await job.updateProgress(job.data)
            await job.updateData(job.data)
            return job.data

        await tested.queue.add("own", {"id": BIG, "ids": [2**64, -(2**100)]})
        await tested.queue.add("foreign", 1)
        foreign = f'{{"id":{BIG},"far":[1e400,-{"9" * 5000}]}}'
        server.connect().hset(tested.queue.keys.key("2"), "data", foreign)
        tested.worker(process)
        await tested.hear("completed", "1")
        await tested.hear("completed", "2")
        for job_id, text in (("1", f'{{"id":{BIG},"ids":[{2**64},-{2**100}]}}'), ("2", foreign)):
            stored = server.connect().hmget(tested.queue.keys.key(job_id), "data", "progress", "returnvalue")
            assert stored == [text.encode()] * 3

    with_queue(steps)


@pytest.mark.parametrize(
    "act",
    [
        lambda queue: queue.add("a", 1, {"delay": BIG}),
        lambda queue: queue.add("a", 1, {"mine": {"deep": [BIG]}}),
        lambda queue: queue.addBulk([{"name": "a", "data": 1, "opts": {"timestamp": BIG}}]),
        lambda queue: queue.rateLimit(BIG),
        lambda queue: queue.upsertJobScheduler("s", {"every": BIG}),
    ],
    ids=["delay", "own-option", "bulk", "argument", "scheduler"],
)
def test_large_integers_that_redis_would_change_are_refused(
    act: Any, with_queue: WithQueue, server: RedisInstance
) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.waitUntilReady()
        with pytest.raises(InvalidArgument, match=f"the integer {BIG} is beyond"):
            await act(tested.queue)
        left = set(server.connect().scan_iter(match=f"{tested.queue.qualifiedName}*"))
        assert left == {f"{tested.queue.qualifiedName}:meta".encode()}

    with_queue(steps)
