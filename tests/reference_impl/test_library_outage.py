"""Redis goes away and comes back. A private server is killed for it; no wait is longer than it takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from redis.asyncio.cluster import ClusterNode
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.connection import CONNECTION_LOST, Connection
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.journal import ErrorRepeats
from conformance.reference_impl.policy import Policy, ReconnectPolicy
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_events import QueueEvents
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers import RedisInstance
from tests.reference_impl.queue_under_test import MortalRedis, QueueUnderTest, Until, mortal_redis, run_with_queue

QUICK = Policy(reconnect=ReconnectPolicy(first_s=0.02, longest_s=0.1))


@pytest.fixture
def mortal() -> Iterator[MortalRedis]:
    with mortal_redis() as server:
        yield server


@pytest.fixture
def opts(mortal: MortalRedis) -> dict[str, Any]:
    return {"connection": {"port": mortal.port}, "policy": QUICK}


def test_worker_resumes_after_redis_was_killed(
    mortal: MortalRedis, opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bullmq")

    async def steps(tested: QueueUnderTest) -> None:
        worker = tested.worker(lambda _job, _token: None)
        await tested.queue.add("before", 1)
        await tested.hear("completed", "1")
        mortal.kill()
        await tested.hear("disconnected")
        await tested.hear("reconnecting", times=3)
        assert worker.isRunning()
        with pytest.raises(CONNECTION_LOST):
            await tested.queue.add("during", 2)
        mortal.start()
        await tested.hear("reconnected")
        await tested.queue.add("after", 3)
        # Everything was lost with the server, so ids restart: the job that was refused was never repeated.
        await tested.hear("completed", "1", times=2)
        assert (await tested.job("1")).name == "after"
        assert tested.count("completed") == 2
        assert tested.count("disconnected") == tested.count("reconnected")

    run_with_queue(opts, scripts, wait_until, steps)
    lost = next(record for record in caplog.records if record.getMessage().startswith("Redis disconnected (queue q): "))
    found = next(record for record in caplog.records if record.getMessage() == "Redis reconnected (queue q)")
    assert (lost.levelname, found.levelname) == ("ERROR", "INFO")
    assert vars(found)["attempt"] >= 1
    assert vars(found)["duration"] > 0
    assert all(vars(record)["worker_id"] for record in caplog.records)


def test_a_worker_resumes_as_soon_as_its_other_connection_gets_through(
    mortal: MortalRedis, scripts: ScriptTexts, wait_until: Until
) -> None:
    """The second attempt is due after 100 s, but the stalled check reaches Redis before."""
    slow = Policy(reconnect=ReconnectPolicy(first_s=0.02, factor=5000, longest_s=100, jitter=0))

    async def steps(tested: QueueUnderTest) -> None:
        worker = tested.worker(lambda _job, _token: None, stalledInterval=500)
        await tested.queue.add("before", 1)
        await tested.hear("completed", "1")
        mortal.kill()
        await tested.hear("reconnecting")
        assert worker.link.pause_s > 50
        mortal.start()
        await tested.hear("reconnected")
        await tested.queue.add("after", 2)
        await tested.hear("completed", "1", times=2)

    run_with_queue({"connection": {"port": mortal.port}, "policy": slow}, scripts, wait_until, steps)


def test_a_job_outlives_an_outage_that_its_lock_survives(
    server: RedisInstance, prefix: str, scripts: ScriptTexts, wait_until: Until
) -> None:
    """The connections are cut for as long as the job runs; the processor notices nothing."""

    async def steps() -> None:
        proxy = await CuttableProxy.open(server.nodes[0])
        opts = {"connection": {"port": proxy.port}, "prefix": prefix, "policy": QUICK}
        tested = QueueUnderTest(opts, scripts, wait_until)
        started, gate = asyncio.Event(), asyncio.Event()

        async def process(_job: Job, _token: str) -> str:
            started.set()
            await gate.wait()
            return "done"

        await tested.queue.add("a", 1)
        worker = tested.worker(process, lockDuration=30_000, lockRenewTime=40)
        await started.wait()
        await tested.hear("heartbeat", times=2)
        await proxy.cut()
        await tested.hear("heartbeatFailed", "1", times=2)
        assert not gate.is_set(), "the job still runs"
        gate.set()
        await tested.hear("reconnecting", times=2)
        assert not tested.count("completed")
        await proxy.repair()
        await tested.hear("completed", "1")
        assert not tested.count("error"), tested.heard
        await worker.close()
        await tested.queue.close()
        await proxy.close()

    run_for(15, steps())


def test_heartbeats_fail_while_redis_is_away_and_are_logged(
    server: RedisInstance, prefix: str, scripts: ScriptTexts, wait_until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        gate = asyncio.Event()

        async def process(job: Job, _token: str) -> None:
            await tested.queue.connection.command("DEL", job.key("lock"))
            await gate.wait()

        await tested.queue.add("a", 1)
        worker = tested.worker(process, lockRenewTime=40, workerId="w-1")
        await tested.hear("heartbeatFailed", "1", times=2)
        assert worker.isRunning()
        assert tested.count("error", "could not renew lock for job 1") >= 2

    run_with_queue({"connection": {"nodes": list(server.nodes)}, "prefix": prefix}, scripts, wait_until, steps)
    record = next(
        record for record in caplog.records if record.getMessage().startswith("Heartbeat failed (queue q, job 1): ")
    )
    assert record.levelname == "WARNING"
    values = vars(record)
    assert (values["jobId"], values["worker_id"], values["queue"]) == ("1", "w-1", "q")
    assert "could not renew" in str(values["error"])


def test_events_go_on_after_redis_was_killed(
    mortal: MortalRedis, opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until
) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        delivered: list[str] = []
        events = QueueEvents("q", opts, scripts=scripts)
        events.on("waiting", lambda fields, _id: delivered.append(fields["jobId"]))
        links: list[str] = []
        for event in ("disconnected", "reconnected"):
            events.on(event, lambda *_, event=event: links.append(event))
        await events.waitUntilReady()
        await tested.queue.add("before", 1)
        await tested.until(lambda: delivered == ["1"], lambda: delivered)
        mortal.kill()
        await tested.until(lambda: links == ["disconnected"], lambda: links)
        mortal.start()
        await tested.until(lambda: "reconnected" in links, lambda: links)
        await tested.queue.add("after", 2)
        await tested.until(lambda: delivered == ["1", "1"], lambda: delivered)
        await events.close()

    run_with_queue(opts, scripts, wait_until, steps)


@pytest.fixture
def limited(opts: dict[str, Any]) -> dict[str, Any]:
    return {**opts, "policy": Policy(reconnect=ReconnectPolicy(first_s=0.01, longest_s=0.01, max_attempts=3))}


def test_worker_gives_up_after_the_last_attempt(
    mortal: MortalRedis, limited: dict[str, Any], scripts: ScriptTexts, wait_until: Until
) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        worker = tested.worker(lambda _job, _token: None)
        await tested.queue.add("a", 1)
        await tested.hear("completed", "1")
        mortal.kill()
        await tested.hear("closed")
        assert tested.count("unreachable", "3") == 1
        assert tested.count("error") == 1
        assert not worker.isRunning()

    run_with_queue(limited, scripts, wait_until, steps)


def test_event_reader_gives_up_too(
    mortal: MortalRedis, limited: dict[str, Any], scripts: ScriptTexts, wait_until: Until
) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        closed, errors = asyncio.Event(), list[BaseException]()
        events = QueueEvents("q", limited, scripts=scripts)
        events.on("closed", closed.set)
        events.on("error", errors.append)
        await events.waitUntilReady()
        mortal.kill()
        await asyncio.wait_for(closed.wait(), 5)
        assert [type(error) for error in errors] == [RedisConnectionError]
        assert tested.queue.closing is False

    run_with_queue(limited, scripts, wait_until, steps)


def test_a_reader_that_fails_otherwise_says_so_and_goes_on(
    server: RedisInstance, prefix: str, scripts: ScriptTexts, wait_until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conformance.reference_impl.queue_events._REST_AFTER_ERROR_S", 0.02)

    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.connection.command("SET", tested.queue.toKey("events"), "no stream")
        errors, delivered = list[BaseException](), list[str]()
        events = QueueEvents("q", tested.opts, scripts=scripts)
        events.on("error", errors.append)
        events.on("waiting", lambda fields, _id: delivered.append(fields["jobId"]))
        await tested.until(lambda: len(errors) >= 2, lambda: errors)
        assert "WRONGTYPE" in str(errors[0])
        await tested.queue.connection.command("DEL", tested.queue.toKey("events"))
        await events.waitUntilReady()
        await tested.queue.add("a", 1)
        await tested.until(lambda: delivered == ["1"], lambda: delivered)
        await events.close()

    run_with_queue({"connection": {"nodes": list(server.nodes)}, "prefix": prefix}, scripts, wait_until, steps)


def test_nothing_is_sent_twice() -> None:
    """A server that takes a command and hangs up: it is unknown whether the command ran, so it is not repeated."""
    increments: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while header := await reader.readline():
            words = [(await reader.readline(), await reader.readline())[1] for _ in range(int(header[1:]))]
            if words[0].strip() == b"INCR":
                increments.append(words[0])
                break
            writer.write(b"+OK\r\n")
        writer.close()

    async def steps() -> None:
        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        connection = Connection(Address(nodes=(listener.sockets[0].getsockname()[:2],)))
        with pytest.raises(CONNECTION_LOST):
            await connection.command("INCR", "x")
        await connection.close()
        listener.close()

    run_for(5, steps())
    assert len(increments) == 1


def test_nothing_is_sent_twice_in_a_cluster(cluster: RedisInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    carry_out = ClusterNode.execute_command

    async def lose(self: ClusterNode, *args: Any, **kwargs: Any) -> Any:
        if args[0] != "INCR":
            return await carry_out(self, *args, **kwargs)
        sent.append(args[0])
        raise RedisConnectionError("lost on the way")

    monkeypatch.setattr(ClusterNode, "execute_command", lose)

    async def steps() -> None:
        connection = Connection(Address.of({"mode": "cluster", "nodes": list(cluster.nodes)}))
        with pytest.raises(RedisConnectionError):
            await connection.command("INCR", "x")
        await connection.close()

    run_for(10, steps())
    assert sent == ["INCR"]


def test_concerns_about_the_server_are_logged_with_the_worker_id(
    mortal: MortalRedis, opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        bare = Connection(Address(nodes=(("127.0.0.1", mortal.port),)))
        await bare.command("CONFIG SET", "maxmemory-policy", "allkeys-lru")
        await bare.ready()
        await bare.close()
        await tested.queue.waitUntilReady()

    run_with_queue({**opts, "workerId": "w-1"}, scripts, wait_until, steps)
    concerns = [record for record in caplog.records if "Eviction policy is allkeys-lru" in record.getMessage()]
    assert [vars(record).get("worker_id") for record in concerns] == [None, "w-1"]


def test_errors_without_a_listener_are_logged_with_the_worker_id(
    scripts: ScriptTexts, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps() -> None:
        queue = Queue("q", {"workerId": "w-1"}, scripts=scripts)
        queue.emit("error", BullMQError("what now"))
        await queue.close()

    run_for(5, steps())
    (record,) = caplog.records
    assert (record.levelname, record.getMessage(), vars(record)["worker_id"]) == ("ERROR", "what now (queue q)", "w-1")
    assert record.exc_info


def test_a_refusal_by_redis_is_one_line_without_a_traceback_unless_it_fails_a_job(
    scripts: ScriptTexts, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps() -> None:
        queue = Queue("q", {"workerId": "w-1"}, scripts=scripts)
        full = OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
        queue.emit("error", full)
        queue.journal.error("Job failed", jobId="7", error=full)
        await queue.close()

    run_for(5, steps())
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]


REFUSALS = {
    "full": (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]),
    "wrong-type": (["SET", "bull:q:wait", "no list"], ["DEL", "bull:q:wait"]),
    "script-not-permitted": (["ACL", "SETUSER", "default", "-evalsha"], ["ACL", "SETUSER", "default", "+evalsha"]),
    "wait-not-permitted": (["ACL", "SETUSER", "default", "-bzpopmin"], ["ACL", "SETUSER", "default", "+bzpopmin"]),
}
"""Commands that make Redis refuse the fetches of a worker, and those that undo it."""


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_worker_rests_between_refusals_and_goes_on(
    refusal: str, opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until
) -> None:
    begin, end = REFUSALS[refusal]

    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.connection.command(*begin)
        worker = tested.worker(lambda _job, _token: None, drainDelay=0.01)
        times = list[float]()
        worker.on("error", lambda _error: times.append(asyncio.get_running_loop().time()))
        await tested.until(lambda: len(times) >= 8, lambda: tested.heard)
        # Six pauses, from 20 to 640 ms, less their jitter of 20 %: the first error may be that of the stalled check. A
        # slow machine only adds to them.
        assert times[7] - times[0] >= 0.8 * 1.260, times
        await tested.queue.connection.command(*end)
        await tested.queue.add("a", 1)
        await tested.hear("completed", "1")

    growing = Policy(reconnect=ReconnectPolicy(first_s=0.02, longest_s=5))
    run_with_queue({**opts, "policy": growing}, scripts, wait_until, steps)


def test_a_worker_soon_notices_that_redis_refuses_no_more(
    opts: dict[str, Any], scripts: ScriptTexts, wait_until: Until
) -> None:
    begin, end = REFUSALS["full"]

    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.connection.command(*begin)
        errors = list[BaseException]()
        worker = tested.worker(lambda _job, _token: None, drainDelay=0.01)
        worker.on("error", errors.append)
        await tested.until(lambda: len(errors) >= 2, lambda: tested.heard)
        await tested.queue.connection.command(*end)
        await tested.queue.add("a", 1)
        # Long before the pause of an outage is over.
        await tested.hear("completed", "1")

    patient = Policy(reconnect=ReconnectPolicy(first_s=3600, longest_s=3600))
    run_with_queue({**opts, "policy": patient}, scripts, wait_until, steps)


def test_an_error_that_repeats_takes_one_line_a_minute(
    scripts: ScriptTexts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    async def steps() -> None:
        queue = Queue("q", scripts=scripts)
        monkeypatch.setattr(queue, "_repeats", ErrorRepeats(lambda: clock[0]))
        for clock[0] in (*range(60), 60, 61, 200, 400):  # 200: after the 61st second; 400: long after the last line
            queue.emit("error", BullMQError("full"))
        queue.emit("error", BullMQError("other"))
        await queue.close()

    run_for(5, steps())
    lines = [(record.getMessage(), bool(record.exc_info)) for record in caplog.records]
    assert lines == [
        ("full (queue q)", True),
        ("full, again 60 times (queue q)", False),
        ("full, again 2 times (queue q)", False),
        ("full (queue q)", True),
        ("other (queue q)", True),
    ]


def test_errors_that_all_differ_do_not_grow_the_memory() -> None:
    repeats = ErrorRepeats(lambda: 0.0)
    assert [repeats.count(BullMQError(f"job {number}")) for number in range(1000)] == [0] * 1000
    assert len(repeats._kinds) <= 100


def run_for(seconds: float, steps: Any) -> None:
    async def take_steps() -> None:
        async with asyncio.timeout(seconds):
            await steps

    asyncio.run(take_steps())


class CuttableProxy:
    """Passes bytes to a server, until cut: then connections are dropped and new ones too."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._listener: asyncio.Server | None = None
        self.port = 0

    @classmethod
    async def open(cls, node: str) -> CuttableProxy:
        host, _, port = node.rpartition(":")
        proxy = cls(host, int(port))
        proxy._listener = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        proxy.port = proxy._listener.sockets[0].getsockname()[1]
        return proxy

    async def cut(self) -> None:
        self._is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    async def repair(self) -> None:
        self._is_cut = False

    async def close(self) -> None:
        await self.cut()
        assert self._listener is not None
        self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, server_writer}
        await asyncio.gather(_pump(reader, server_writer), _pump(server_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
