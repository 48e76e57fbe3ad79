"""Features that users of other clients expect: names, listeners, counts, context managers, signals and limits."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

import conformance.reference_impl as library
from conformance.reference_impl import (
    Closed,
    EventEmitter,
    FlowProducer,
    InvalidArgument,
    Job,
    JobsOptions,
    Policy,
    Queue,
    QueueEvents,
    ReconnectPolicy,
    Tls,
    Worker,
)
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers import RedisInstance
from tests.reference_impl.conftest import until
from tests.reference_impl.queue_under_test import QueueUnderTest, WithQueue, mortal_redis

# --- one place -----------------------------------------------------------------------------------------------------


def test_everything_comes_from_one_place() -> None:
    assert [name for name in library.__all__ if not hasattr(library, name)] == []
    official = ("Queue", "Job", "FlowProducer", "Worker", "JobScheduler", "QueueEvents")
    errors = ("WaitingChildrenError", "UnrecoverableError", "DelayedError", "RateLimitError", "WaitingError")
    assert {*official, *errors} <= set(library.__all__)


# --- listeners -----------------------------------------------------------------------------------------------------


def _none() -> None: ...
def _one(_job: Any) -> None: ...
def _two(_job: Any, _result: Any) -> None: ...
def _four(_a: Any, _b: Any, _c: Any, _d: Any) -> None: ...
def _by_name(*, _job: Any) -> None: ...
def _with_default(_job: Any, _result: Any = None, _previous: Any = None, _more: Any = 7) -> None: ...


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        (lambda: heard.append(()), ()),
        (lambda job: heard.append((job,)), ("j",)),
        (lambda job, result: heard.append((job, result)), ("j", "r")),
        (lambda job, *rest: heard.append((job, *rest)), ("j", "r", "active")),
        (lambda job, result="x", *, deep=False: heard.append((job, result, deep)), ("j", "r", False)),
        (partial(lambda mark, job: heard.append((mark, job)), "m"), ("m", "j")),
    ],
    ids=["none", "one", "two", "all", "defaults", "partial"],
)
def test_a_listener_may_take_fewer_arguments(listener: Callable[..., Any], expected: tuple[Any, ...]) -> None:
    heard.clear()
    emitter = _Emitter()
    emitter.on("completed", listener)
    emitter.emit("completed", "j", "r", "active")
    assert heard == [expected]


heard: list[tuple[Any, ...]] = []


class _Emitter(EventEmitter[str]):
    EVENTS = Worker.EVENTS


@pytest.mark.parametrize(
    ("event", "listener", "said"),
    [
        ("completed", _four, "the listener of 'completed' needs 4 arguments, and gets 3"),
        ("drained", _one, "the listener of 'drained' needs 1 arguments, and gets 0"),
        ("completed", _by_name, "the listener of 'completed' needs '_job' by name, which it does not get"),
        ("completed", "no function", "the listener of 'completed' cannot be called: 'no function'"),
        ("error", _two, "the listener of 'error' needs 2 arguments, and gets 1"),
    ],
)
def test_a_wrong_listener_is_refused_when_it_is_registered(event: str, listener: Any, said: str) -> None:
    emitter = _Emitter()
    for register in (emitter.on, emitter.once):
        with pytest.raises(InvalidArgument, match=said):
            register(event, listener)
    emitter.on("of-my-own", _four)
    emitter.on("completed", _with_default)


def test_a_listener_for_once() -> None:
    emitter, calls = _Emitter(), list[Any]()
    assert emitter.once("completed", calls.append) == calls.append
    emitter.once("completed", _none)
    emitter.off("completed", _none)
    for number in (1, 2):
        emitter.emit("completed", number, None, None)
    assert calls == [1]


def test_a_coroutine_that_fails_is_an_error_event() -> None:
    async def steps() -> None:
        emitter, errors = _Emitter(), list[Any]()

        async def failing(_job: Any) -> None:
            raise RuntimeError("boom")

        emitter.on("error", errors.append)
        emitter.on("completed", failing)
        emitter.emit("completed", 1, 2, 3)
        await until(lambda: len(errors) == 1, lambda: errors)
        assert str(errors[0]) == "boom"

    asyncio.run(steps())


@pytest.mark.parametrize("kind", [Queue, Worker, QueueEvents])
def test_every_event_is_emitted_with_as_many_arguments_as_it_says(kind: type[Any]) -> None:
    assert kind.EVENTS["error"] == 1
    assert all(isinstance(count, int) and 0 <= count <= 3 for count in kind.EVENTS.values())


# --- queues and jobs -----------------------------------------------------------------------------------------------


def test_counts_by_their_own_names(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        queue = tested.queue
        several: list[JobsOptions] = [{}, {"delay": 60_000}, {"priority": 1}, {}, {}]
        await queue.addBulk([{"name": "a", "data": 1, "opts": opts} for opts in several])
        holder = tested.worker(None)
        assert await holder.getNextJob("t") is not None
        done = await holder.getNextJob("t")
        assert done is not None
        await done.moveToCompleted("x", "t", fetchNext=False)
        counts = {name: await getattr(queue, f"get{name}Count")() for name in COUNTED}
        assert counts == {**dict.fromkeys(COUNTED, 1), "Failed": 0, "WaitingChildren": 0}
        text = await queue.exportPrometheusMetrics({"env": "test"})
        assert 'bullmq_job_count{queue="q", state="delayed", env="test"} 1' in text.splitlines()

    with_queue(steps)


COUNTED = ("Waiting", "Active", "Delayed", "Prioritized", "WaitingChildren", "Completed", "Failed")


def test_older_names_and_a_client_for_own_commands(with_queue: WithQueue, server: RedisInstance) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        queue = tested.queue
        job = await queue.add("a", {"x": 1}, {"debounce": {"id": "d"}})
        assert await queue.getDebounceJobId("d") == job.id
        assert await queue.removeDebounceKey("d") == 1
        await queue.client.set(queue.toKey("priority"), "1")
        assert await queue.removeDeprecatedPriorityKey() == 1
        assert isinstance(queue.client, Redis)
        assert await queue.client.hget(queue.toKey("1"), "name") == "a"
        assert queue.defaultJobOptions == {}
        assert (job.queue, job.prefix) == (queue, queue.keys.prefix)
        assert job.queueQualifiedName == queue.qualifiedName
        shown = job.toJSON()
        assert (shown["data"], shown["id"], "owner" in shown) == ({"x": 1}, "1", False)
        assert job.asJSON()["data"] == '{"x":1}'
        for obliterate in (
            partial(queue.obliterate, force=True),
            partial(queue.obliterate, True),
            partial(queue.obliterate, {"force": True}),
        ):
            await queue.add("a", 1)
            await tested.worker(None).getNextJob("t", {"block": False})
            await obliterate()
            assert not server.connect().exists(queue.toKey("id"))
            await queue.resume()
        await queue.disconnect()
        assert await queue.count() == 0

    with_queue(steps)


def test_a_job_as_json_is_that_of_node(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.add("a", [1], {"attempts": 2, "deduplication": {"id": "d"}})
        job = await tested.job("1")
        counted = {"progress": 0, "attemptsMade": 0, "attemptsStarted": 0, "stalledCounter": 0}
        texts = {"failedReason": "null", "stacktrace": "[]", "returnvalue": "null"}
        known = {"id": "1", "name": "a", "data": "[1]", "opts": {"attempts": 2, "de": {"id": "d"}}}
        assert job.asJSON() == {
            **known,
            **counted,
            **texts,
            "timestamp": job.timestamp,
            "deduplicationId": "d",
        }

    with_queue(steps)


def test_blocks_that_close_what_they_open(connection: dict[str, Any], prefix: str, scripts: ScriptTexts) -> None:
    opts: dict[str, Any] = {"connection": connection, "prefix": prefix}

    async def steps() -> None:
        done: list[Any] = []
        async with (
            Queue("q", opts, scripts=scripts) as queue,
            FlowProducer(opts, scripts=scripts) as flows,
            QueueEvents("q", opts, scripts=scripts) as events,
            Worker("q", lambda job: done.append(job.data), opts, scripts=scripts) as worker,
        ):
            await flows.add({"name": "a", "queueName": "q", "data": 1})
            await until(lambda: done == [1], lambda: done)
        assert all(part.closing for part in (queue, flows, events, worker))
        with pytest.raises(Closed):
            await queue.count()

    asyncio.run(steps())


# --- limits --------------------------------------------------------------------------------------------------------


def test_a_job_that_runs_too_long_has_failed(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        cancelled: list[Any] = []

        async def process(job: Job, _token: str) -> Any:
            if job.name == "own":
                raise TimeoutError("of the processor")
            try:
                await asyncio.sleep(60 if job.name == "slow" else 0)
            except asyncio.CancelledError:
                cancelled.append(job.id)
                raise
            return "quick"

        await tested.queue.addBulk([{"name": name, "data": 1} for name in ("slow", "own", "quick")])
        tested.worker(process, policy=Policy(job_timeout_s=0.5), concurrency=3)
        for job_id, event, reason in (
            ("1", "failed", "job 1 ran for more than 0.5 s"),
            ("2", "failed", "of the processor"),
            ("3", "completed", None),
        ):
            await tested.hear(event, job_id)
            assert (await tested.job(job_id)).failedReason == reason
        assert cancelled == ["1"]

    with_queue(steps)


@pytest.mark.parametrize(("field", "value"), [("job_timeout_s", 0), ("wait_unsent_s", -1)])
def test_limits_check_their_numbers(field: str, value: float) -> None:
    make: Any = Policy
    with pytest.raises(InvalidArgument, match=f"^{field} must be"):
        make(**{field: value})


def test_a_producer_waits_where_nothing_was_sent(scripts: ScriptTexts) -> None:
    async def steps() -> None:
        patient = Policy(wait_unsent_s=30, reconnect=ReconnectPolicy(first_s=0.05, longest_s=0.2))
        hasty = Policy(reconnect=patient.reconnect)
        with mortal_redis() as redis:
            opts: dict[str, Any] = {"connection": {"port": redis.port}}
            waiting = Queue("q", {**opts, "policy": patient}, scripts=scripts)
            failing = Queue("q", {**opts, "policy": hasty}, scripts=scripts)
            attempts: list[int] = []
            waiting.on("reconnecting", attempts.append)
            for queue in (waiting, failing):
                await queue.add("before", 1)
            redis.kill()
            await until(lambda: not waiting.connection.is_connected, lambda: "still connected")
            with pytest.raises(RedisConnectionError):
                await failing.add("hasty", 1)
            adding = [asyncio.create_task(waiting.add("patient", number)) for number in range(3)]
            await until(lambda: len(attempts) >= 1, lambda: attempts, within_s=20)
            redis.start()
            added = await asyncio.gather(*adding)
            assert [(job.id, job.data) for job in added] == [("1", 0), ("2", 1), ("3", 2)]
            for queue in (waiting, failing):
                await queue.close()

    asyncio.run(steps())


def test_the_patience_of_a_producer_ends(scripts: ScriptTexts) -> None:
    async def steps() -> None:
        policy = Policy(wait_unsent_s=0.3, reconnect=ReconnectPolicy(first_s=0.05))
        queue = Queue("q", {"connection": {"port": 1}, "policy": policy}, scripts=scripts)
        started = time.monotonic()
        with pytest.raises(RedisConnectionError, match="no connection to"):
            await queue.add("a", 1)
        assert time.monotonic() - started >= 0.05, "it has tried again at least once"
        await queue.close()

    asyncio.run(steps())


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        (lambda _job, _token, _more: None, "the processor needs 3 arguments, and gets 2"),
        (lambda *, job: job, "the processor needs 'job' by name"),
        (7, "the processor cannot be called: 7"),
        ("function", "a sandboxed processor is 'module:function', importable by another process, not 'function'"),
    ],
)
def test_a_wrong_processor_is_refused_at_once(processor: Any, said: str, connection: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=said):
        Worker("q", processor, {"connection": connection, "autorun": False}, scripts={})


# --- signals -------------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys
from conformance.reference_impl import Worker

async def process(job):
    print("started", job.id, flush=True)
    await asyncio.sleep(float(job.data))
    return "done"

async def main():
    worker = Worker("q", process, {"connection": sys.argv[1], "prefix": sys.argv[2]})
    print("ready", flush=True)
    await worker.run_until_signal()
    print("closed", flush=True)

asyncio.run(main())
"""


def _started(url: str, prefix: str, program: str = PROGRAM) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, url, prefix], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("signals", "state"), [(["SIGTERM"], "completed"), (["SIGINT"], "completed"), (["SIGTERM", "SIGTERM"], "active")]
)
def test_a_signal_closes_gracefully_and_a_second_one_at_once(
    signals: list[str], state: str, server: RedisInstance, prefix: str, scripts: ScriptTexts
) -> None:
    async def steps() -> None:
        opts: dict[str, Any] = {"connection": f"redis://{server.nodes[0]}", "prefix": prefix}
        queue = Queue("q", opts, scripts=scripts)
        await queue.add("a", 1 if state == "completed" else 60)
        process = _started(opts["connection"], prefix)
        assert process.stdout is not None
        try:
            assert [process.stdout.readline(), process.stdout.readline()] == ["ready\n", "started 1\n"]
            for name in signals:
                os.kill(process.pid, getattr(signal, name))
                await asyncio.to_thread(time.sleep, 0.3)  # two of a kind that are pending at once are one
            assert process.stdout.readline() == "closed\n"
            assert process.wait(30) == 0
        finally:
            process.kill()
        assert await queue.getJobState("1") == state
        await queue.close()

    asyncio.run(steps())


TWO_WORKERS = """
import asyncio, sys
from conformance.reference_impl import Worker

async def process(job):
    print("started", job.id, flush=True)
    await asyncio.sleep(0.1)

async def main():
    opts = {"connection": sys.argv[1], "prefix": sys.argv[2]}
    workers = [Worker(name, process, opts) for name in ("q", "r")]
    print("ready", flush=True)
    await asyncio.gather(*(worker.run_until_signal() for worker in workers))
    print("closed", flush=True)

asyncio.run(main())
"""


def test_one_signal_ends_all_workers_of_a_process(server: RedisInstance, prefix: str, scripts: ScriptTexts) -> None:
    async def steps() -> None:
        opts: dict[str, Any] = {"connection": f"redis://{server.nodes[0]}", "prefix": prefix}
        queues = [Queue(name, opts, scripts=scripts) for name in ("q", "r")]
        process = _started(opts["connection"], prefix, TWO_WORKERS)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            for queue in queues:
                await queue.add("a", 1)
                assert process.stdout.readline() == "started 1\n"
            os.kill(process.pid, signal.SIGTERM)
            said, _ = process.communicate(timeout=30)
            assert (said, process.returncode) == ("closed\n", 0)
        finally:
            process.kill()
        for queue in queues:
            await queue.close()

    asyncio.run(steps())


def test_certificates_are_shown_without_their_passphrase() -> None:
    assert "geheim" not in repr(Tls(passphrase="geheim"))
