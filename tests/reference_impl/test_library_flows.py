"""The library of flows by itself: ids, pages, what it refuses, and scripts that Redis forgets meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import NoScriptError

from conformance.reference_impl.errors import Closed, InvalidArgument
from conformance.reference_impl.flows.flow_producer import FlowProducer
from conformance.reference_impl.queues.queue import Queue

if TYPE_CHECKING:
    from conformance.reference_impl.connection.resp import Command
    from conformance.reference_impl.scripts.runner import ScriptTexts
    from conformance.servers import Server

Play = Callable[[Callable[[FlowProducer, Queue], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def play(connection: dict[str, Any], prefix: str, scripts: ScriptTexts) -> Play:
    """Run a scene with a flow producer and a queue of its own."""

    async def perform(scene: Callable[[FlowProducer, Queue], Coroutine[Any, Any, None]]) -> None:
        options = {"connection": connection, "prefix": prefix}
        producer, queue = FlowProducer(options, scripts=scripts), Queue("q", options, scripts=scripts)
        try:
            async with asyncio.timeout(15):
                await scene(producer, queue)
        finally:
            await producer.close()
            await queue.close()

    return lambda scene: asyncio.run(perform(scene))


def tree(*children: str) -> dict[str, Any]:
    below = [{"name": name, "queueName": "q"} for name in children]
    return {"name": "parent", "queueName": "q", "children": below}


def test_ids_are_uuids_and_queues_have_defaults(play: Play) -> None:
    async def scene(producer: FlowProducer, queue: Queue) -> None:
        defaults = {"queuesOptions": {"q": {"defaultJobOptions": {"attempts": 7}}}}
        flow = await producer.add(tree("a", "b"), defaults)
        assert len({uuid.UUID(flow.job.known_id), *(each.job.id for each in flow.children if each)}) == 3
        assert "jobId" not in flow.job.opts
        stored = await queue.getJob(flow.job.known_id)
        assert stored is not None
        assert (stored.opts["attempts"], stored.data) == (7, {})

    play(scene)


def test_dependencies_come_in_pages(play: Play) -> None:
    async def scene(producer: FlowProducer, _queue: Queue) -> None:
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

    play(scene)


def test_a_flow_survives_a_script_flush(play: Play) -> None:
    async def scene(producer: FlowProducer, queue: Queue) -> None:
        await producer.add(tree("a"))
        await queue.connection.command("SCRIPT FLUSH")
        flow = await producer.add(tree("b"))
        assert await queue.getJobState(flow.job.known_id) == "waiting-children"

    play(scene)


def test_a_flow_survives_a_script_flush_between_looking_and_sending(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(producer: FlowProducer, queue: Queue) -> None:
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

    play(scene)


@pytest.mark.parametrize(("known", "sizes"), [("addParentJob", [3, 2]), ("addStandardJob", [3, 3])])
def test_a_flow_survives_when_another_client_loads_a_part_of_the_scripts(
    play: Play, monkeypatch: pytest.MonkeyPatch, scripts: ScriptTexts, known: str, sizes: list[int]
) -> None:
    """Seen in chaos: the parent was added, its children were not, and all of them were acknowledged."""

    async def scene(producer: FlowProducer, queue: Queue) -> None:
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

    play(scene)


def test_a_flow_tells_when_its_scripts_are_forgotten_every_time(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(producer: FlowProducer, queue: Queue) -> None:
        send = producer.connection.transaction

        async def always_forgotten(commands: Sequence[Command]) -> list[Any]:
            await queue.connection.command("SCRIPT FLUSH")
            return await send(commands)

        monkeypatch.setattr(producer.connection, "transaction", always_forgotten)
        with pytest.raises(NoScriptError, match="several times in a row"):
            await producer.add(tree("a"))
        assert await queue.count() == 0

    play(scene)


def test_an_invalid_job_sends_nothing(play: Play) -> None:
    async def scene(producer: FlowProducer, queue: Queue) -> None:
        with pytest.raises(InvalidArgument, match="Custom Id cannot be integers"):
            await producer.addBulk([tree("a"), {"name": "bad", "queueName": "q", "opts": {"jobId": "7"}}])
        assert await queue.count() == 0

    play(scene)


def test_a_closed_producer_refuses(play: Play) -> None:
    async def scene(producer: FlowProducer, _queue: Queue) -> None:
        await producer.close()
        with pytest.raises(Closed):
            await producer.add(tree("a"))

    play(scene)


def test_a_flow_in_a_cluster(cluster: Server, scripts: ScriptTexts) -> None:
    prefix = cluster.fresh_prefix()
    options = {"connection": {"mode": "cluster", "nodes": list(cluster.nodes)}, "prefix": prefix}

    async def scene() -> None:
        producer = FlowProducer(options, scripts=scripts)
        flow = await producer.add(tree("a", "b"))
        found = await producer.getFlow({"id": flow.job.id, "queueName": "q"})
        assert found is not None
        assert len(found.children) == 2
        await producer.close()

    asyncio.run(scene())
    cluster.remove_prefix(prefix)
