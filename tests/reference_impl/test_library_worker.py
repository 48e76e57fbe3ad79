"""What the library promises beyond the protocol, on a real Redis: closing, retries by policy, validation, logs kept."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from conformance.reference_impl.error_categories import ErrorPolicy, TransientError
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.policy import (
    SPECIFIED,
    SPECIFIED_JOB_OPTIONS,
    BackoffPolicy,
    Policy,
)
from conformance.reference_impl.scripts.runner import ScriptTexts

from .library_room import Room, Until, play_in

Scene = Callable[..., None]


@pytest.fixture
def scene(connection: dict[str, Any], prefix: str, scripts: ScriptTexts, wait_until: Until) -> Scene:
    """Run a play with a room; further options are those of its queue and workers."""

    def run(play: Any, **opts: Any) -> None:
        play_in({"connection": connection, "prefix": prefix, **opts}, scripts, wait_until, play)

    return run


def raising(error: Exception) -> Callable[[Job, str], Any]:
    def process(_job: Job, _token: str) -> None:
        raise error

    return process


# --- before anything is written ------------------------------------------------------------------------------------


async def _is_untouched(room: Room) -> bool:
    keys = await room.queue.connection.command("KEYS", f"{room.queue.qualifiedName}:*")
    return [key.decode().rpartition(":")[2] for key in keys] in ([], ["meta"])


def test_refused_options_write_nothing(scene: Scene) -> None:
    async def play(room: Room) -> None:
        with pytest.raises(InvalidArgument, match="priority must be 0 or more, not -1"):
            await room.queue.add("a", 1, {"priority": -1})
        with pytest.raises(InvalidArgument, match="delay"):
            await room.queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 2, "opts": {"delay": -5}}])
        with pytest.raises(InvalidArgument, match=r"Job payload 10\.0 MB exceeds limit of 10 MB"):
            await room.queue.add("big", "x" * 10 * 1024 * 1024)
        assert await _is_untouched(room)

    scene(play, policy=SPECIFIED)


def test_without_a_policy_the_same_jobs_are_stored(scene: Scene) -> None:
    async def play(room: Room) -> None:
        await room.queue.add("a", 1, {"priority": -1, "attempts": 0, "removeOnComplete": -1})
        await room.queue.add("big", "x" * 10 * 1024 * 1024, {"backoff": {"type": "own", "delay": 0}})
        assert len(await room.queue.getJobs("waiting")) + len(await room.queue.getJobs("prioritized")) == 2

    scene(play)


def test_strange_jobs_of_others_are_read_all_the_same(scene: Scene) -> None:
    async def play(room: Room) -> None:
        await room.queue.add("a", 1, {"jobId": "x", "delay": 5})
        key = room.queue.toKey("x")
        await room.queue.connection.command("HSET", key, "opts", '{"attempts":-1,"priority":-1}', "name", "")
        strict = room.worker(lambda job, _token: job.opts["attempts"], policy=SPECIFIED)
        await room.hear("completed", "x")
        assert strict.policy.strict_options

    scene(play)


def test_warnings_are_told(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    async def play(room: Room) -> None:
        await room.queue.add("a", 1, {"removeOnFail": 10_001})

    scene(play, policy=SPECIFIED, workerId="w-1")
    (record,) = caplog.records
    assert record.getMessage().startswith("removeOnFail is 10001")
    assert vars(record)["worker_id"] == "w-1"


def test_progress_is_checked_before_it_is_written(scene: Scene) -> None:
    async def play(room: Room) -> None:
        job = await room.queue.add("a", 1)
        for act in (job.updateProgress(101), room.queue.updateJobProgress("1", -1)):
            with pytest.raises(InvalidArgument, match="progress must be between 0 and 100"):
                await act
        await job.updateProgress(50)
        assert (await room.job("1")).progress == 50

    scene(play, policy=SPECIFIED)


@pytest.mark.parametrize(("policy", "opts", "kept"), [(None, {}, 5), (3, {}, 3), (3, {"keepLogs": 2}, 2)])
def test_logs_of_a_job_are_trimmed(scene: Scene, policy: int | None, opts: dict[str, Any], kept: int) -> None:
    async def play(room: Room) -> None:
        job = await room.queue.add("a", 1, opts)
        for row in range(5):
            await job.log(f"row {row}")
        logs = await room.queue.getJobLogs("1")
        assert logs == {"logs": [f"row {row}" for row in range(5 - kept, 5)], "count": kept}

    scene(play, policy=Policy(keep_logs=policy))


def test_the_event_stream_is_trimmed(scene: Scene) -> None:
    async def play(room: Room) -> None:
        await room.queue.addBulk([{"name": "a", "data": number} for number in range(300)])
        length = await room.queue.connection.command("XLEN", room.queue.toKey("events"))
        assert length <= 200, "Redis trims whole nodes of 100 entries"

    scene(play, streams={"events": {"maxLen": 10}})


# --- retries by policy ---------------------------------------------------------------------------------------------


def test_a_permanent_error_ends_a_job_where_the_policy_says_so(scene: Scene) -> None:
    async def play(room: Room) -> None:
        await room.queue.add("a", 1, {"attempts": 3})
        room.worker(raising(ValueError("bad data")))
        await room.hear("failed", "1")
        job = await room.job("1")
        assert (await job.getState(), job.attemptsMade) == ("failed", 1)

    scene(play, policy=Policy(errors=ErrorPolicy(fail_permanent=True)))


@pytest.mark.parametrize(
    ("error", "policy"),
    [
        (ValueError("Node would try again"), Policy()),
        (TimeoutError("no answer"), SPECIFIED),
        (TransientError("not deployed yet"), SPECIFIED),
    ],
)
def test_other_errors_use_up_the_attempts(scene: Scene, error: Exception, policy: Policy) -> None:
    async def play(room: Room) -> None:
        await room.queue.add("a", 1, {"attempts": 3})
        room.worker(raising(error))
        await room.hear("failed", "1", times=3)
        assert (await room.job("1")).attemptsMade == 3

    scene(play, policy=policy)


@pytest.mark.parametrize(
    ("policy", "least", "most"),
    [(Policy(), 8_192_000_000, 8_192_000_000), (Policy(backoff=BackoffPolicy()), 3_600_000, 3_600_000)],
)
def test_the_delay_of_a_late_retry_is_capped(scene: Scene, policy: Policy, least: int, most: int) -> None:
    async def play(room: Room) -> None:
        job = await room.queue.add("a", 1, {"attempts": 20, "backoff": {"type": "exponential", "delay": 1_000_000}})
        await room.queue.connection.command("HSET", room.queue.toKey("1"), "atm", 13)
        room.worker(raising(TimeoutError()))
        await room.hear("failed", "1")
        assert least <= ((await room.job("1")).delay or 0) <= most
        assert await job.getState() == "delayed"

    scene(play, policy=policy)


def test_specified_defaults_of_a_job(scene: Scene) -> None:
    async def play(room: Room) -> None:
        job = await room.queue.add("a", 1)
        assert (job.opts["attempts"], job.opts["backoff"]) == (3, {"type": "exponential", "delay": 1000})

    scene(play, policy=SPECIFIED, defaultJobOptions=SPECIFIED_JOB_OPTIONS)


# --- locks ---------------------------------------------------------------------------------------------------------


def test_lock_tokens_are_made_of_a_random_uuid(scene: Scene) -> None:
    async def play(room: Room) -> None:
        tokens: list[str] = []
        room.worker(lambda _job, token: tokens.append(token))
        await room.queue.add("a", 1)
        await room.hear("completed", "1")
        own_id, _, number = tokens[0].rpartition(":")
        assert uuid.UUID(own_id).version == 4
        assert number.isdecimal()

    scene(play)


# --- closing -------------------------------------------------------------------------------------------------------


def test_closing_waits_only_so_long(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    async def play(room: Room) -> None:
        started = asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            started.set()
            await asyncio.Event().wait()

        await room.queue.add("a", 1)
        worker = room.worker(process, stalledInterval=20)
        await started.wait()
        await worker.close()
        assert room.count("closed") == 1
        assert await room.queue.getJobState("1") == "active"
        room.worker(lambda _job, _token: None, stalledInterval=20)
        await room.queue.connection.command("DEL", room.queue.keys.of_job("1", "lock"))
        await room.hear("completed", "1")

    scene(play, policy=Policy(close_timeout_s=0.05))
    assert any("unfinished" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("timeout_s", [None, 30.0])
def test_closing_lets_jobs_end(scene: Scene, timeout_s: float | None) -> None:
    async def play(room: Room) -> None:
        started, gate = asyncio.Event(), asyncio.Event()

        async def process(_job: Job, _token: str) -> None:
            started.set()
            await gate.wait()

        await room.queue.add("a", 1)
        worker = room.worker(process)
        await started.wait()
        closing = asyncio.create_task(worker.close())
        await room.until(lambda: worker.closing, lambda: room.heard)
        gate.set()
        await closing
        assert room.count("completed", "1") == 1

    scene(play, policy=Policy(close_timeout_s=timeout_s))


# --- stalled checks ------------------------------------------------------------------------------------------------


def test_a_stalled_check_that_takes_too_long_is_not_doubled(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    async def play(room: Room) -> None:
        gate = asyncio.Event()
        running, most = 0, 0

        async def slow_check() -> list[str]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gate.wait()
            running -= 1
            return []

        worker = room.worker(lambda _job, _token: None, stalledInterval=10, autorun=False)
        worker.scripts.move_stalled_jobs_to_wait = slow_check  # type: ignore[method-assign] # the slow Redis
        running_worker = asyncio.create_task(worker.run())
        await room.hear("stalledCheckSkipped", times=3)
        assert most == 1
        gate.set()
        await room.until(lambda: running == 0, lambda: running)
        await worker.close()
        await running_worker

    scene(play)
    assert any("Stalled check skipped" in record.getMessage() for record in caplog.records)


def test_a_failing_stalled_check_is_told(scene: Scene) -> None:
    async def play(room: Room) -> None:
        await room.queue.connection.command("SET", room.queue.toKey("stalled"), "no set")
        room.worker(lambda _job, _token: None, stalledInterval=10)
        await room.until(lambda: any("WRONGTYPE" in about for _, about in room.heard), lambda: room.heard)

    scene(play)


def test_a_failing_renewal_is_told(scene: Scene) -> None:
    async def play(room: Room) -> None:
        gate = asyncio.Event()

        async def process(job: Job, _token: str) -> None:
            await room.queue.connection.command("DEL", job.key("lock"))
            await room.queue.connection.command("HSET", job.key("lock"), "no", "text")
            await gate.wait()

        await room.queue.add("a", 1)
        room.worker(process, lockRenewTime=40)
        await room.hear("heartbeatFailed", "1")
        await room.until(lambda: any("WRONGTYPE" in about for _, about in room.heard), lambda: room.heard)
        await room.queue.connection.command("DEL", room.queue.keys.of_job("1", "lock"))
        gate.set()

    scene(play)
