"""A problem is reported in one line that names it, and a failed job is logged once."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from conformance.reference_impl import (
    BullMQError,
    FlowProducer,
    InvalidArgument,
    Job,
    Queue,
    UnreadableJob,
    Worker,
)
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers import RedisInstance
from tests.reference_impl.conftest import until
from tests.reference_impl.queue_under_test import QueueUnderTest, WithQueue


@pytest.fixture
def opts(connection: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {"connection": connection, "prefix": prefix}


BAD_HASHES: dict[str, dict[str, Any]] = {
    "data-no-json": {"name": "a", "data": "{", "opts": "{}"},
    "data-too-deep": {"name": "a", "data": "[" * 200_000, "opts": "{}"},
    "opts-no-json": {"name": "a", "data": "1", "opts": "nope"},
    "opts-a-number": {"name": "a", "data": "1", "opts": "7"},
    "parent-no-json": {"name": "a", "data": "1", "opts": "{}", "parent": "x"},
}


@pytest.mark.parametrize("name", BAD_HASHES)
def test_a_job_that_cannot_be_read_is_named(name: str, with_queue: WithQueue, server: RedisInstance) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        server.connect().hset(tested.queue.toKey("x"), mapping=dict[Any, Any](BAD_HASHES[name]))
        with pytest.raises(UnreadableJob, match=rf"^job x of {re.escape(tested.queue.qualifiedName)} cannot be read: "):
            await tested.queue.getJob("x")

    with_queue(steps)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda queue, _: queue.addBulk([{"data": 1}]), "a job needs 'name': {'data': 1, 'opts': {}}"),
        (lambda queue, _: queue.add("a", 1, {"parent": {"id": "1"}}), "the option parent needs 'queue': {'id': '1'}"),
        (lambda _, flows: flows.add({"name": "a"}), "a job of a flow needs 'queueName': {'name': 'a'}"),
        (lambda _, flows: flows.add({"queueName": "q"}), "a job of a flow needs 'name': {'queueName': 'q'}"),
        (lambda _, flows: flows.add("flow"), "a job of a flow needs 'name': 'flow'"),
        (lambda _, flows: flows.getFlow({"id": "1"}), "getFlow needs 'queueName': {'id': '1'}"),
    ],
    ids=["bulk", "parent", "flow-queue", "flow-name", "no-flow", "get-flow"],
)
def test_missing_arguments_are_named(
    act: Any, said: str, connection: dict[str, Any], prefix: str, scripts: ScriptTexts
) -> None:
    async def steps() -> None:
        opts: dict[str, Any] = {"connection": connection, "prefix": prefix}
        async with Queue("q", opts, scripts=scripts) as queue, FlowProducer(opts, scripts=scripts) as flows:
            with pytest.raises(InvalidArgument, match=f"^{re.escape(said)}$"):
                await act(queue, flows)

    asyncio.run(steps())
    assert issubclass(UnreadableJob, BullMQError)


@pytest.mark.parametrize("logger", [None, True], ids=["without-logger", "with-logger"])
def test_a_failed_job_is_logged_once_with_its_traceback(
    logger: Any, with_queue: WithQueue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bullmq")

    async def steps(tested: QueueUnderTest) -> None:
        def breaks(_job: Job, _token: str) -> None:
            raise LookupError("no luck")

        tested.worker(breaks, logger=logger)
        await tested.queue.add("a", 1, {"attempts": 2})
        await tested.hear("failed", "1", times=2)

    with_queue(steps)
    (line,) = [record for record in caplog.records if record.getMessage().startswith("Job failed")]
    assert line.getMessage() == "Job failed (queue q, job 1): LookupError: no luck"
    assert (vars(line)["queue"], vars(line)["jobId"]) == ("q", "1")
    assert line.exc_text or line.exc_info
    assert "breaks" in caplog.text


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("nan", "Job failed (queue q, job 1): InvalidArgument: "),
        ("lock", "Missing lock for job 1. moveToFinished (queue q)"),
    ],
)
def test_an_error_while_completing_is_one_line(
    spoil: str, said: str, opts: dict[str, Any], scripts: ScriptTexts, caplog: pytest.LogCaptureFixture
) -> None:
    """A result that is not JSON fails its job; a missing lock leaves it unchanged. `error` has no listener."""

    async def steps() -> None:
        async def spoilt(job: Job, _token: str) -> float:
            if spoil == "lock":
                await queue.connection.command("DEL", job.key("lock"))
            return float("nan") if spoil == "nan" else 1

        async with Queue("q", opts, scripts=scripts) as queue:
            await queue.add("a", 1)
            async with Worker("q", spoilt, {**opts, "drainDelay": 30}, scripts=scripts) as worker:
                idle = asyncio.Event()
                worker.on("drained", idle.set)
                await asyncio.wait_for(idle.wait(), 15)
                await until(lambda: bool(_errors(caplog)), lambda: caplog.records)

    asyncio.run(steps())
    (line,) = _errors(caplog)
    assert line.startswith(said)


def _errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
