"""The library of flows by itself: ids, pages, what it refuses, and scripts that Redis forgets meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import ResponseError

from conformance.reference_impl.errors import Closed, InvalidArgument, PartlyStored
from conformance.reference_impl.flow_producer import FlowProducer
from conformance.reference_impl.option_types import FlowOptions
from conformance.reference_impl.queue import Queue

if TYPE_CHECKING:
    from conformance.reference_impl.connection.resp import Command
    from conformance.reference_impl.scripts.runner import ScriptTexts
    from conformance.servers import RedisInstance

Steps = Callable[[Callable[[FlowProducer, Queue], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def steps(connection: dict[str, Any], prefix: str, scripts: ScriptTexts) -> Steps:
    """Take steps with a flow producer and a queue of its own."""

    async def take_steps(with_queue: Callable[[FlowProducer, Queue], Coroutine[Any, Any, None]]) -> None:
        options: dict[str, Any] = {"connection": connection, "prefix": prefix}
        producer, queue = FlowProducer(options, scripts=scripts), Queue("q", options, scripts=scripts)
        try:
            async with asyncio.timeout(15):
                await with_queue(producer, queue)
        finally:
            await producer.close()
            await queue.close()

    return lambda with_queue: asyncio.run(take_steps(with_queue))


def tree(*children: str) -> dict[str, Any]:
    below = [{"name": name, "queueName": "q"} for name in children]
    return {"name": "parent", "queueName": "q", "children": below}


def test_ids_are_uuids_and_queues_have_defaults(steps: Steps) -> None:
    async def with_queue(producer: FlowProducer, queue: Queue) -> None:
        defaults: FlowOptions = {"queuesOptions": {"q": {"defaultJobOptions": {"attempts": 7}}}}
        flow = await producer.add(tree("a", "b"), defaults)
        assert len({uuid.UUID(flow.job.known_id), *(child.job.id for child in flow.children if child)}) == 3
        assert "jobId" not in flow.job.opts
        stored = await queue.getJob(flow.job.known_id)
        assert stored is not None
        assert (stored.opts["attempts"], stored.data) == (7, {})

    steps(with_queue)


REFUSED = ResponseError("OOM command not allowed when used memory > 'maxmemory'.")


@pytest.mark.parametrize(
    ("replies", "raised"),
    [([REFUSED, REFUSED, REFUSED], ResponseError), (["1", REFUSED, REFUSED], PartlyStored)],
    ids=["all refused", "some refused"],
)
def test_a_flow_that_redis_refuses_is_not_added(
    replies: list[Any], raised: type[Exception], steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node.js still resolves (chaos.flow-refused-unnoticed); errors of Redis are errors of the call."""

    async def refusing(*_: object) -> list[Any]:
        return replies

    async def with_queue(producer: FlowProducer, _queue: Queue) -> None:
        monkeypatch.setattr(producer._runner, "run_transaction", refusing)
        with pytest.raises(raised, match="OOM"):
            await producer.add(tree("a", "b"))

    steps(with_queue)


def test_dependencies_come_in_pages(steps: Steps) -> None:
    async def with_queue(producer: FlowProducer, _queue: Queue) -> None:
        parent = (await producer.add(tree(*map(str, range(300))))).job
        cursor, seen = 0, set()
        for _ in range(300):
            page = await parent.getDependencies(
                {"unprocessed": {"cursor": cursor, "count": 20}, "failed": {"count": 5}}
            )
            assert set(page) == {"unprocessed", "nextUnprocessedCursor", "failed", "nextFailedCursor"}
            seen |= set(page["unprocessed"])
            cursor = page["nextUnprocessedCursor"]
            if cursor == 0:
                break
        assert len(seen) == 300
        assert page["nextFailedCursor"] == 5

    steps(with_queue)


def test_a_flow_survives_a_script_flush(steps: Steps) -> None:
    async def with_queue(producer: FlowProducer, queue: Queue) -> None:
        await producer.add(tree("a"))
        await queue.connection.command("SCRIPT FLUSH")
        flow = await producer.add(tree("b"))
        assert await queue.getJobState(flow.job.known_id) == "waiting-children"

    steps(with_queue)


def test_a_flow_survives_a_script_flush_between_looking_and_sending(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def with_queue(producer: FlowProducer, queue: Queue) -> None:
        send, flushes = producer.connection.transaction, 0

        async def forgotten_first(commands: Sequence[Command]) -> list[Any]:
            nonlocal flushes
            if flushes < 1:
                flushes += 1
                await queue.connection.command("SCRIPT FLUSH")
            return await send(commands)

        monkeypatch.setattr(producer.connection, "transaction", forgotten_first)
        flow = await producer.add(tree("a"))
        assert flushes == 1
        assert await queue.getJobState(flow.job.known_id) == "waiting-children"

    steps(with_queue)


@pytest.mark.parametrize(("known", "sizes"), [("addParentJob", [3, 2]), ("addStandardJob", [3, 3])])
def test_a_flow_survives_when_another_client_loads_a_part_of_the_scripts(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, scripts: ScriptTexts, known: str, sizes: list[int]
) -> None:
    """Seen in chaos: the parent was added, its children were not, and all of them were acknowledged."""

    async def with_queue(producer: FlowProducer, queue: Queue) -> None:
        send = producer.connection.transaction
        sent: list[int] = []

        async def forgotten_in_part(commands: Sequence[Command]) -> list[Any]:
            if not sent:
                await queue.connection.command("SCRIPT FLUSH")
                await queue.connection.command("SCRIPT LOAD", scripts[known].text)
            sent.append(len(commands))
            return await send(commands)

        monkeypatch.setattr(producer.connection, "transaction", forgotten_in_part)
        flow = await producer.add(tree("a", "b"))
        assert sent == sizes
        assert await queue.getJobState(flow.job.known_id) == "waiting-children"
        assert await flow.job.getDependenciesCount({"unprocessed": True}) == {"unprocessed": 2}

    steps(with_queue)


def test_a_flow_survives_when_its_scripts_are_forgotten_every_time(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen in chaos on a busy machine: half of a flow was there, and its root waited for a child that never came."""

    async def with_queue(producer: FlowProducer, queue: Queue) -> None:
        send = producer.connection.transaction

        async def always_forgotten(commands: Sequence[Command]) -> list[Any]:
            await queue.connection.command("SCRIPT FLUSH")
            return await send(commands)

        monkeypatch.setattr(producer.connection, "transaction", always_forgotten)
        flow = await producer.add(tree("a", "b"))
        assert await queue.getJobState(flow.job.known_id) == "waiting-children"
        assert await flow.job.getDependenciesCount({"unprocessed": True}) == {"unprocessed": 2}

    steps(with_queue)


def test_an_invalid_job_sends_nothing(steps: Steps) -> None:
    async def with_queue(producer: FlowProducer, queue: Queue) -> None:
        with pytest.raises(InvalidArgument, match="Custom Id cannot be integers"):
            await producer.addBulk([tree("a"), {"name": "bad", "queueName": "q", "opts": {"jobId": "7"}}])
        assert await queue.count() == 0

    steps(with_queue)


def test_a_closed_producer_refuses(steps: Steps) -> None:
    async def with_queue(producer: FlowProducer, _queue: Queue) -> None:
        await producer.close()
        with pytest.raises(Closed):
            await producer.add(tree("a"))

    steps(with_queue)


def test_a_flow_in_a_cluster(cluster: RedisInstance, scripts: ScriptTexts) -> None:
    prefix = cluster.fresh_prefix()
    options: dict[str, Any] = {"connection": {"mode": "cluster", "nodes": list(cluster.nodes)}, "prefix": prefix}

    async def with_queue() -> None:
        producer = FlowProducer(options, scripts=scripts)
        flow = await producer.add(tree("a", "b"))
        found = await producer.getFlow({"id": flow.job.id, "queueName": "q"})
        assert found is not None
        assert len(found.children) == 2
        await producer.close()

    asyncio.run(with_queue())
    cluster.remove_prefix(prefix)
