"""Mistakes of a program get an error that a Python programmer understands, and leave nothing in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.reference_impl import BullMQError, Closed, InvalidArgument, Queue, QueueEvents, Worker, classify
from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.errors import ErrorCategory
from conformance.reference_impl.js_values import stringify
from conformance.reference_impl.packing import pack
from tests.reference_impl.queue_under_test import QueueUnderTest, WithQueue


@pytest.mark.parametrize("make", [lambda: Worker("q", print), lambda: QueueEvents("q")])
@pytest.mark.filterwarnings("error")
def test_a_client_that_starts_at_once_needs_an_event_loop(make: Callable[[], object]) -> None:
    with pytest.raises(BullMQError, match=r"needs a running event loop: create it in a coroutine, or with .*autorun"):
        make()


def test_a_worker_that_starts_later_does_not() -> None:
    worker = Worker("q", print, {"autorun": False})
    asyncio.run(worker.close())


def _calls(queue: Queue) -> Iterator[Any]:
    yield queue.add("a", 1)
    yield queue.addBulk([{"name": "a", "data": 1}])
    yield queue.getJobCounts()
    yield queue.getJobLogs("1")
    yield queue.upsertJobScheduler("s", {"every": 1000})


def test_a_call_after_close_is_not_a_lost_connection(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        heard: list[BaseException] = []
        tested.queue.on("disconnected", heard.append)
        await tested.queue.add("a", 1)
        await tested.queue.close()
        for call in _calls(tested.queue):
            with pytest.raises(Closed, match=r"Connection is closed\.") as caught:
                await call
            assert not is_connection_problem(caught.value)
            assert classify(caught.value) is ErrorCategory.PERMANENT
        assert heard == []

    with_queue(steps)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda queue: queue.add(None, 1), r"name must be a text, not None \(NoneType\)"),
        (lambda queue: queue.addBulk([{"name": 7, "data": 1}]), r"name must be a text, not 7 \(int\)"),
        (lambda queue: queue.add("a", 1, {"jobId": 7}), r"jobId must be a text, not 7 \(int\)"),
        (lambda queue: queue.addBulk([{"name": "a", "opts": {"jobId": 7}}]), r"jobId must be a text, not 7 \(int\)"),
        (lambda queue: queue.getJob(7), r"job id must be a text, not 7 \(int\)"),
    ],
)
def test_names_and_ids_are_texts(with_queue: WithQueue, call: Any, text: str) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        with pytest.raises(InvalidArgument, match=text):
            await call(tested.queue)
        assert not await tested.queue.getJobCountByTypes()

    with_queue(steps)


@pytest.mark.parametrize("name", [7, ("q",)])
def test_the_name_of_a_queue_is_a_text(name: Any) -> None:
    with pytest.raises(InvalidArgument, match="the name of a queue must be a text"):
        Queue(name)


def test_keys_of_objects_are_texts_or_numbers(with_queue: WithQueue) -> None:
    """Python's `json` takes the same ones."""
    assert stringify({"a": 1, 2: 2, None: 3, True: 4, 1.5: 5}) == '{"2":2,"a":1,"null":3,"true":4,"1.5":5}'
    keys: list[Any] = [(1, 2), b"a", frozenset()]
    for key in keys:
        with pytest.raises(TypeError, match="texts or numbers, not"):
            stringify({key: 1})
        with pytest.raises(TypeError, match="texts or numbers, not"):
            pack({key: 1})

    async def steps(tested: QueueUnderTest) -> None:
        with pytest.raises(TypeError, match=r"keys of an object must be texts or numbers, not \(1, 2\) \(tuple\)"):
            await tested.queue.add("a", {(1, 2): 3})

    with_queue(steps)


def test_limits_are_integers(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        await tested.queue.setGlobalRateLimit(10, 1000)
        await tested.queue.setGlobalConcurrency(3)
        limits = (await tested.queue.getGlobalRateLimit(), await tested.queue.getGlobalConcurrency())
        assert repr(limits) == "({'max': 10, 'duration': 1000}, 3)"

    with_queue(steps)
