"""The shortcut from the end of a job to the next one: it is taken, and nothing differs from the long way."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from conformance.protocol.keys import QueueKeys
from conformance.reference_impl.clock import AdjustableClock
from conformance.reference_impl.connection.resp import packed
from conformance.reference_impl.errors import UnrecoverableError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.js_values import stringify
from conformance.reference_impl.scripts.move import FINISH, FinishArguments, MoveScripts
from conformance.reference_impl.workers.shortcut import Ending, QuickCompletion
from conformance.reference_impl.workers.worker import Worker
from tests.reference_impl.queue_under_test import OUTCOME_EVENTS, QueueUnderTest, WithQueue

NOW = 1_700_000_000_000
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.fixture
def endings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the jobs that took the shortcut."""
    taken: list[str] = []
    go_on = QuickCompletion.go_on

    def noted(shortcut: QuickCompletion, ending: Ending, reply: Any) -> None:
        taken.append(ending.job.known_id)
        go_on(shortcut, ending, reply)

    monkeypatch.setattr(QuickCompletion, "go_on", noted)
    return taken


async def nothing(_job: Job, _token: str) -> None:
    """Do not even wait."""


async def _add(tested: QueueUnderTest, count: int, opts: dict[str, Any] | None = None) -> None:
    await tested.queue.addBulk([{"name": "job", "data": number, "opts": opts or {}} for number in range(count)])


# --- the bytes -----------------------------------------------------------------------------------------------------


class KnowingRunner:
    """A runner whose scripts were all sent."""

    def known_digest(self, _name: str) -> str:
        return "a" * 40


class Owner:
    """The worker, as its scripts see it."""

    def __init__(self, opts: dict[str, Any], prefix: str) -> None:
        self.opts, self.keys, self.closing, self.clock = opts, QueueKeys(prefix, "q"), False, AdjustableClock()
        self.clock.stop_at(NOW)


@pytest.mark.parametrize("fetch_next", [True, False])
@pytest.mark.parametrize("value", [None, 0, "text", "Zürich \N{SNOWMAN}", {"a": [1, 2.5, True]}, "x" * 100_000])
@pytest.mark.parametrize(
    "job_opts",
    [
        {"attempts": 0},
        {"attempts": 3, "removeOnComplete": True},
        {"attempts": 1.0, "removeOnComplete": {"age": 5, "count": 7}, "failParentOnFailure": True},
        {"removeOnComplete": 10},
    ],
)
@pytest.mark.parametrize("opts", [{}, {"name": "w", "limiter": {"max": 1, "duration": 5}, "lockDuration": 30_000}])
def test_the_bytes_are_those_of_the_long_way(
    opts: dict[str, Any], job_opts: dict[str, Any], value: Any, fetch_next: bool
) -> None:
    owner: Any = Owner(opts, "bull é")
    scripts, text = MoveScripts(KnowingRunner(), owner), stringify(value)  # type: ignore[arg-type]
    made = scripts.packed_completion("job-ü", text, "token:1", job_opts, fetch_next=fetch_next)
    call = scripts.finish_call(FinishArguments("job-ü", "completed", text, "token:1", job_opts, fetch_next), NOW)
    wanted = packed(("EVALSHA", "a" * 40, len(call.keys), *call.keys, *call.arguments))
    assert call.name == FINISH
    assert made == (wanted, NOW)


def test_a_closing_worker_fetches_nothing_by_the_shortcut() -> None:
    owner: Any = Owner({}, "bull")
    scripts = MoveScripts(KnowingRunner(), owner)  # type: ignore[arg-type]
    without = scripts.packed_completion("1", "null", "t", {}, fetch_next=False)
    owner.closing = True
    assert scripts.packed_completion("1", "null", "t", {}, fetch_next=True) == without


# --- which way is taken --------------------------------------------------------------------------------------------


def test_the_shortcut_is_taken_from_the_second_job_on(with_queue: WithQueue, endings: list[str]) -> None:
    """The first completion sends the text of the script."""

    async def steps(tested: QueueUnderTest) -> None:
        await _add(tested, 6)
        tested.worker(nothing)
        await tested.hear("completed", times=6)
        assert endings == ["2", "3", "4", "5", "6"]
        job = await tested.job("6")
        assert job.finishedOn is not None
        assert job.attemptsMade == 1

    with_queue(steps)


class TracingWorker(Worker):
    """A worker whose program observes its calls."""

    async def persist(self, act: Any, **more: Any) -> Any:
        return await super().persist(act, **more)


def test_a_program_that_replaces_a_skipped_method_gets_its_calls(
    with_queue: WithQueue, endings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        seen: list[str] = []
        complete = Job.moveToCompleted

        async def noted(job: Job, *args: Any) -> Any:
            seen.append(job.known_id)
            return await complete(job, *args)

        await _add(tested, 4)
        with monkeypatch.context() as patched:
            patched.setattr(Job, "moveToCompleted", noted)
            worker = tested.worker(nothing)
            await tested.hear("completed", times=4)
            await worker.close()
        assert seen == ["1", "2", "3", "4"]
        await _add(tested, 4)
        worker = tested.worker(nothing, autorun=False)
        # The same method, but in the object: it could as well be a wrapper.
        monkeypatch.setattr(worker.scripts, "move_to_finished", worker.scripts.move_to_finished)
        running = asyncio.create_task(worker.run())
        await tested.hear("completed", times=8)
        await worker.close()
        await running
        await _add(tested, 4)
        tested.workers.append(TracingWorker("q", nothing, tested.opts, scripts=tested.scripts))
        await tested.until(lambda: tested.workers[-1]._fetcher._drained, lambda: tested.heard)
        assert endings == []

    with_queue(steps)


# --- the same outcome both ways ------------------------------------------------------------------------------------


async def _refuse(job: Job, _token: str) -> None:
    if job.data == 2:
        raise UnrecoverableError("no")


async def _cancel(job: Job, _token: str) -> None:
    if job.data == 2:
        raise asyncio.CancelledError


async def _return_a_set(job: Job, _token: str) -> Any:
    return {1} if job.data == 2 else job.data


async def _lose_the_lock(job: Job, _token: str) -> None:
    if job.data == 2:
        await job.owner.connection.command("DEL", job.key("lock"))


async def _flush_scripts(job: Job, _token: str) -> None:
    if job.data % 2:
        await job.owner.connection.command("SCRIPT FLUSH")


async def _lose_the_connection(job: Job, _token: str) -> None:
    if job.data == 2:
        await job.owner.connection.command("CLIENT KILL", "SKIPME", "no", "ADDR", await _own_address(job))


async def _own_address(job: Job) -> str:
    info = (await job.owner.connection.command("CLIENT INFO")).decode()
    return str(dict(word.partition("=")[::2] for word in info.split())["addr"])


async def _break_the_next_job(job: Job, _token: str) -> None:
    if job.data == 2:
        await job.owner.connection.command("HSET", job.owner.keys.key("4"), "opts", "not json")


async def _wait_in_the_middle(job: Job, _token: str) -> None:
    await asyncio.sleep(0.001 * (job.data % 3))


PROCESSORS = (
    *(nothing, _refuse, _cancel, _return_a_set, _lose_the_lock, _flush_scripts),
    *(_lose_the_connection, _break_the_next_job, _wait_in_the_middle),
)


IN_TURN = (_lose_the_connection, _break_the_next_job)
"""With several jobs at a time, luck decides which of them loses its reply or is fetched before it breaks."""


@pytest.mark.parametrize(
    ("processor", "concurrency"),
    [(processor, number) for processor in PROCESSORS for number in (1, 3) if number == 1 or processor not in IN_TURN],
)
def test_both_ways_have_the_same_outcome(
    with_queue: WithQueue, endings: list[str], monkeypatch: pytest.MonkeyPatch, processor: Any, concurrency: int
) -> None:
    async def outcome(tested: QueueUnderTest) -> Any:
        await tested.queue.obliterate(force=True)
        await tested.queue.resume()
        tested.heard.clear()
        await _add(tested, 8)
        worker = tested.worker(processor, concurrency=concurrency)
        await tested.until(lambda: worker._fetcher._drained and not worker._loop._in_hand - 1, lambda: tested.heard)  # type: ignore[union-attr]
        await worker.close()
        jobs = await tested.queue.getJobs(["completed", "failed", "waiting"])
        ends = sorted((job.known_id, job.returnvalue, job.failedReason, job.attemptsMade) for job in jobs if job)
        heard = sorted(event for event in tested.heard if event[0] in OUTCOME_EVENTS)
        return heard, ends, await tested.queue.getJobCounts()

    async def steps(tested: QueueUnderTest) -> None:
        short = await outcome(tested)
        assert endings
        del endings[:]
        monkeypatch.setattr(Worker, "_shortcut", lambda _worker: None)
        assert short == await outcome(tested)
        assert endings == []

    with_queue(steps)


def test_a_repeating_job_gets_its_next_iteration(with_queue: WithQueue, endings: list[str]) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await _add(tested, 3)
        await tested.queue.upsertJobScheduler("every", {"every": 50}, {"name": "again"})
        tested.worker(nothing)
        await tested.hear("completed", times=6)
        assert len(endings) >= 3

    with_queue(steps)


# --- what a processor may rely on ----------------------------------------------------------------------------------


def test_context_variables_are_those_of_the_job(with_queue: WithQueue, endings: list[str]) -> None:
    """A processor does not see those of the job before; listeners see those of their job."""

    async def steps(tested: QueueUnderTest) -> None:
        VARIABLE.set("of the program")
        seen: list[str] = []
        heard: list[str] = []

        async def process(job: Job, _token: str) -> None:
            seen.append(VARIABLE.get())
            VARIABLE.set(f"of job {job.id}")

        await _add(tested, 4)
        worker = tested.worker(process)
        worker.on("completed", lambda: heard.append(VARIABLE.get()))
        await tested.hear("completed", times=4)
        assert seen == ["of the program"] * 4
        assert heard == [f"of job {number}" for number in range(1, 5)]
        assert endings

    with_queue(steps)


def test_every_job_is_a_task_of_its_own(with_queue: WithQueue, endings: list[str]) -> None:
    """Libraries need the current task from the first step on: timeouts, task groups, sessions per task."""

    async def steps(tested: QueueUnderTest) -> None:
        tasks: list[Any] = []

        async def process(_job: Job, _token: str) -> None:
            tasks.append(asyncio.current_task())
            async with asyncio.timeout(5):
                await asyncio.sleep(0)
            assert asyncio.current_task() is tasks[-1]

        await _add(tested, 4)
        tested.worker(process)
        await tested.hear("completed", times=4)
        assert len(set(tasks)) == 4
        assert endings

    with_queue(steps)


def test_a_processor_that_never_waits_leaves_time_for_locks(with_queue: WithQueue, endings: list[str]) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        done = asyncio.Event()

        async def process(job: Job, _token: str) -> None:
            if job.name == "long":
                await done.wait()

        async def feed() -> None:
            while not done.is_set():
                await _add(tested, 100, {"removeOnComplete": True})

        await tested.queue.add("long", 0)
        tested.worker(process, concurrency=10, lockDuration=30_000, lockRenewTime=100)
        feeding = asyncio.create_task(feed())
        await tested.hear("heartbeat", times=3)
        await tested.until(lambda: len(endings) > 100, lambda: len(endings))
        done.set()
        await feeding
        await tested.hear("completed", "1")
        assert tested.count("heartbeatFailed") == 0

    with_queue(steps)


def test_two_workers_of_one_loop_share_the_jobs(with_queue: WithQueue, endings: list[str]) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        runs: list[str] = []

        async def process(job: Job, _token: str) -> None:
            runs.append(job.known_id)

        await _add(tested, 300)
        for _ in range(2):
            tested.worker(process, concurrency=4)
        await tested.hear("completed", times=300)
        assert sorted(runs, key=int) == [str(number) for number in range(1, 301)]
        assert len(endings) > 250

    with_queue(steps)


def test_pause_waits_for_completions_on_their_way(with_queue: WithQueue, endings: list[str]) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await _add(tested, 50)
        worker = tested.worker(nothing, concurrency=5)
        await tested.hear("completed", times=10)
        await worker.pause()
        counts = await tested.queue.getJobCounts("active", "completed")
        assert counts == {"active": 0, "completed": tested.count("completed")}
        worker.resume()
        await tested.hear("completed", times=50)
        assert endings

    with_queue(steps)


def test_close_by_force_does_not_wait_for_completions(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        silent = asyncio.Event()

        async def process(job: Job, _token: str) -> None:
            if job.data == 3:
                # From now on Redis holds back the completion.
                await tested.queue.connection.command("CLIENT PAUSE", 60_000, "WRITE")
                silent.set()

        await _add(tested, 6)
        worker = tested.worker(process)
        try:
            await silent.wait()
            loop: Any = worker._loop
            await tested.until(lambda: len(loop._ending) == 1, lambda: vars(loop))
            async with asyncio.timeout(10):
                await worker.close(force=True)
            assert tested.count("completed") == 3
            assert not loop._in_hand
        finally:
            await tested.queue.connection.command("CLIENT UNPAUSE")

    with_queue(steps)
