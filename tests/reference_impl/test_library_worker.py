"""The library on a real Redis, beyond the protocol: closing, retries, validation, logs, odd data, many jobs."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from conformance.reference_impl.errors import ErrorPolicy, InvalidArgument, TransientError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.option_types import JobsOptions
from conformance.reference_impl.policy import SPECIFIED, SPECIFIED_JOB_OPTIONS, BackoffPolicy, Policy
from conformance.reference_impl.scripts.runner import ScriptTexts
from tests.reference_impl.queue_under_test import QueueUnderTest, Until, WithQueue, run_with_queue


def raising(error: Exception) -> Callable[[Job, str], Any]:
    def process(_job: Job, _token: str) -> None:
        raise error

    return process


# --- before anything is written ------------------------------------------------------------------------------------


async def _is_untouched(tested: QueueUnderTest) -> bool:
    keys = await tested.queue.connection.command("KEYS", f"{tested.queue.qualifiedName}:*")
    return [key.decode().rpartition(":")[2] for key in keys] in ([], ["meta"])


def test_refused_options_write_nothing(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        with pytest.raises(InvalidArgument, match="priority must be 0 or more, not -1"):
            await tested.queue.add("a", 1, {"priority": -1})
        with pytest.raises(InvalidArgument, match="delay"):
            await tested.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2, "opts": {"delay": -5}}])
        with pytest.raises(InvalidArgument, match=r"Job payload 10\.0 MB exceeds limit of 10 MB"):
            await tested.queue.add("big", "x" * 10 * 1024 * 1024)
        assert await _is_untouched(tested)

    with_queue(steps, policy=SPECIFIED)


def test_without_a_policy_the_same_jobs_are_stored(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.add("a", 1, {"priority": -1, "attempts": 0, "removeOnComplete": -1})
        await tested.queue.add("big", "x" * 10 * 1024 * 1024, {"backoff": {"type": "own", "delay": 0}})
        assert len(await tested.queue.getJobs("waiting")) + len(await tested.queue.getJobs("prioritized")) == 2

    with_queue(steps)


def test_strange_jobs_of_other_clients_are_still_read(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.add("a", 1, {"jobId": "x", "delay": 5})
        key = tested.queue.toKey("x")
        await tested.queue.connection.command("HSET", key, "opts", '{"attempts":-1,"priority":-1}', "name", "")
        strict = tested.worker(lambda job, _token: job.opts["attempts"], policy=SPECIFIED)
        await tested.hear("completed", "x")
        assert strict.policy.strict_options

    with_queue(steps)


def test_warnings_are_reported(with_queue: WithQueue, caplog: pytest.LogCaptureFixture) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.add("a", 1, {"removeOnFail": 10_001})

    with_queue(steps, policy=SPECIFIED, workerId="w-1")
    (record,) = caplog.records
    assert record.getMessage().startswith("removeOnFail is 10001")
    assert vars(record)["worker_id"] == "w-1"


def test_progress_is_checked_before_it_is_written(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        job = await tested.queue.add("a", 1)
        for act in (job.updateProgress(101), tested.queue.updateJobProgress("1", -1)):
            with pytest.raises(InvalidArgument, match="progress must be between 0 and 100"):
                await act
        await job.updateProgress(50)
        assert (await tested.job("1")).progress == 50

    with_queue(steps, policy=SPECIFIED)


@pytest.mark.parametrize(("policy", "opts", "kept"), [(None, {}, 5), (3, {}, 3), (3, {"keepLogs": 2}, 2)])
def test_logs_of_a_job_are_trimmed(with_queue: WithQueue, policy: int | None, opts: dict[str, Any], kept: int) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        job = await tested.queue.add("a", 1, opts)
        for row in range(5):
            await job.log(f"row {row}")
        logs = await tested.queue.getJobLogs("1")
        assert logs == {"logs": [f"row {row}" for row in range(5 - kept, 5)], "count": kept}

    with_queue(steps, policy=Policy(keep_logs=policy))


def test_the_event_stream_is_trimmed(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.addBulk([{"name": "a", "data": number} for number in range(300)])
        length = await tested.queue.connection.command("XLEN", tested.queue.toKey("events"))
        assert length <= 200, "Redis trims whole nodes of 100 entries"

    with_queue(steps, streams={"events": {"maxLen": 10}})


def test_concurrent_adds_keep_their_order(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        jobs = await asyncio.gather(*(tested.queue.add(f"n{index}", index) for index in range(50)))
        assert [job.id for job in jobs] == [str(index + 1) for index in range(50)]

    with_queue(steps)


# --- retries by policy ---------------------------------------------------------------------------------------------


def test_a_permanent_error_ends_a_job_where_the_policy_says_so(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.add("a", 1, {"attempts": 3})
        tested.worker(raising(ValueError("bad data")))
        await tested.hear("failed", "1")
        job = await tested.job("1")
        assert (await job.getState(), job.attemptsMade) == ("failed", 1)

    with_queue(steps, policy=Policy(errors=ErrorPolicy(fail_permanent=True)))


@pytest.mark.parametrize(
    ("error", "policy"),
    [
        (ValueError("Node would try again"), Policy()),
        (TimeoutError("no answer"), SPECIFIED),
        (TransientError("not deployed yet"), SPECIFIED),
    ],
)
def test_other_errors_use_up_the_attempts(with_queue: WithQueue, error: Exception, policy: Policy) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.add("a", 1, {"attempts": 3})
        tested.worker(raising(error))
        await tested.hear("failed", "1", times=3)
        assert (await tested.job("1")).attemptsMade == 3

    with_queue(steps, policy=policy)


@pytest.mark.parametrize(
    ("policy", "least", "most"),
    [(Policy(), 8_192_000_000, 8_192_000_000), (Policy(backoff=BackoffPolicy()), 3_600_000, 3_600_000)],
)
def test_the_delay_of_a_late_retry_is_capped(with_queue: WithQueue, policy: Policy, least: int, most: int) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        job = await tested.queue.add("a", 1, {"attempts": 20, "backoff": {"type": "exponential", "delay": 1_000_000}})
        await tested.queue.connection.command("HSET", tested.queue.toKey("1"), "atm", 13)
        tested.worker(raising(TimeoutError()))
        await tested.hear("failed", "1")
        assert least <= ((await tested.job("1")).delay or 0) <= most
        assert await job.getState() == "delayed"

    with_queue(steps, policy=policy)


def test_specified_defaults_of_a_job(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        job = await tested.queue.add("a", 1)
        assert (job.opts["attempts"], job.opts["backoff"]) == (3, {"type": "exponential", "delay": 1000})

    with_queue(steps, policy=SPECIFIED, defaultJobOptions=SPECIFIED_JOB_OPTIONS)


# --- locks ---------------------------------------------------------------------------------------------------------


def test_lock_tokens_are_made_of_a_random_uuid(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        tokens: list[str] = []
        tested.worker(lambda _job, token: tokens.append(token))
        await tested.queue.add("a", 1)
        await tested.hear("completed", "1")
        own_id, _, number = tokens[0].rpartition(":")
        assert uuid.UUID(own_id).version == 4
        assert number.isdecimal()

    with_queue(steps)


# --- closing -------------------------------------------------------------------------------------------------------


def test_closing_waits_for_a_limited_time(with_queue: WithQueue, caplog: pytest.LogCaptureFixture) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        started = asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            started.set()
            await asyncio.Event().wait()

        await tested.queue.add("a", 1)
        worker = tested.worker(process, stalledInterval=20)
        await started.wait()
        await worker.close()
        assert tested.count("closed") == 1
        assert await tested.queue.getJobState("1") == "active"
        tested.worker(lambda _job, _token: None, stalledInterval=20)
        await tested.queue.connection.command("DEL", tested.queue.keys.of_job("1", "lock"))
        await tested.hear("completed", "1")

    with_queue(steps, policy=Policy(close_timeout_s=0.05))
    assert any("unfinished" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("timeout_s", [None, 30.0])
def test_closing_lets_jobs_end(with_queue: WithQueue, timeout_s: float | None) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        started, gate = asyncio.Event(), asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            started.set()
            await gate.wait()

        await tested.queue.add("a", 1)
        worker = tested.worker(process)
        await started.wait()
        closing = asyncio.create_task(worker.close())
        await tested.until(lambda: worker.closing, lambda: tested.heard)
        gate.set()
        await closing
        assert tested.count("completed", "1") == 1

    with_queue(steps, policy=Policy(close_timeout_s=timeout_s))


# --- stalled checks ------------------------------------------------------------------------------------------------


def test_a_stalled_check_that_takes_too_long_is_not_doubled(
    with_queue: WithQueue, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        gate = asyncio.Event()
        running, most = 0, 0

        async def slow_check() -> list[str]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gate.wait()
            running -= 1
            return []

        worker = tested.worker(lambda _job, _token: None, stalledInterval=10, autorun=False)
        worker.scripts.move_stalled_jobs_to_wait = slow_check  # type: ignore[method-assign] # the slow Redis
        running_worker = asyncio.create_task(worker.run())
        await tested.hear("stalledCheckSkipped", times=3)
        assert most == 1
        gate.set()
        await tested.until(lambda: running == 0, lambda: running)
        await worker.close()
        await running_worker

    with_queue(steps)
    assert any("Stalled check skipped" in record.getMessage() for record in caplog.records)


def test_a_failing_stalled_check_is_reported(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.connection.command("SET", tested.queue.toKey("stalled"), "no set")
        tested.worker(lambda _job, _token: None, stalledInterval=10)
        await tested.until(lambda: any("WRONGTYPE" in about for _, about in tested.heard), lambda: tested.heard)

    with_queue(steps)


def test_a_failing_renewal_is_reported(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        gate = asyncio.Event()

        async def process(job: Job, _token: str) -> None:
            await tested.queue.connection.command("DEL", job.key("lock"))
            await tested.queue.connection.command("HSET", job.key("lock"), "no", "text")
            await gate.wait()

        await tested.queue.add("a", 1)
        tested.worker(process, lockRenewTime=40)
        await tested.hear("heartbeatFailed", "1")
        await tested.until(lambda: any("WRONGTYPE" in about for _, about in tested.heard), lambda: tested.heard)
        await tested.queue.connection.command("DEL", tested.queue.keys.of_job("1", "lock"))
        gate.set()

    with_queue(steps)


@pytest.mark.parametrize("ended", [0, 1], ids=["first-run-ends", "second-run-ends"])
def test_the_lock_of_a_second_run_is_renewed_when_the_first_run_ends(with_queue: WithQueue, ended: int) -> None:
    """A worker that lost a job may claim it again: each of its runs has a lock of its own, as in Node."""

    async def steps(tested: QueueUnderTest) -> None:
        gates = [asyncio.Event(), asyncio.Event()]
        tokens: list[str] = []

        async def process(job: Job, token: str) -> None:
            gate = gates[len(tokens)]
            tokens.append(token)
            if len(tokens) == 1:
                await tested.queue.connection.command("DEL", job.key("lock"))
            await gate.wait()

        await tested.queue.add("a", 1)
        tested.worker(process, concurrency=2, lockRenewTime=40, stalledInterval=20, maxStalledCount=9)
        await tested.until(lambda: len(tokens) == 2, lambda: (tokens, tested.heard))
        await tested.hear("heartbeat", "['1']")
        assert tokens[0] != tokens[1]
        assert tested.count("heartbeatFailed", "1") >= 1, "the first run's lock is the second's now"
        gates[ended].set()
        if ended:
            await tested.hear("completed", "1")
        else:
            await tested.hear("error", "Lock mismatch for job 1. Cmd moveToFinished from active")
        renewals, failures = tested.count("heartbeat", "['1']"), tested.count("heartbeatFailed", "1")
        if ended:  # what is left is the first run, which cannot know
            await tested.hear("heartbeatFailed", "1", times=failures + 2)
        else:
            await tested.hear("heartbeat", "['1']", times=renewals + 2)
        gates[1 - ended].set()
        await tested.hear("completed", "1")

    with_queue(steps)


WORKERS = 10
TASKS_AT_REST = WORKERS * 5 + 1
"""Of each worker: its run, the waits for a job and for its marker, renewing locks, the stalled check."""


@pytest.mark.slow
def test_ten_thousand_jobs_leave_nothing_behind(
    connection: dict[str, Any], prefix: str, scripts: ScriptTexts, wait_until: Until
) -> None:
    """Ten workers, each job once; in the end there are neither more tasks nor more objects than after the first."""

    async def steps(tested: QueueUnderTest) -> None:
        runs: dict[str, int] = {}

        def process(job: Any, _token: str) -> None:
            runs[job.known_id] = runs.get(job.known_id, 0) + 1

        async def work_off(count: int) -> int:
            """Answer how many objects there are, once the workers are at rest."""
            runs.clear()
            for _ in range(count // 1000):
                await tested.queue.addBulk([{"name": "n", "data": {}, "opts": options} for _ in range(1000)])
            await tested.until(lambda: len(runs) == count, lambda: len(runs), within_s=60)
            await tested.until(lambda: len(asyncio.all_tasks()) == TASKS_AT_REST, asyncio.all_tasks)
            assert set(runs.values()) == {1}
            runs.clear()
            tested.heard.clear()
            gc.collect()
            return len(gc.get_objects())

        options: JobsOptions = {"removeOnComplete": True}
        for _ in range(WORKERS):
            tested.worker(process)
        objects_before = await work_off(1000)
        objects_after = await work_off(10_000)
        assert objects_after - objects_before < 1000, "a leak of one object in ten jobs"

    run_with_queue({"connection": connection, "prefix": prefix}, scripts, wait_until, steps, within_s=90)
