"""Misspelt options and event names are errors; names that Node.js knows, and quite different ones, pass."""

from __future__ import annotations

import asyncio
import re
import typing
from pathlib import Path
from typing import Any

import pytest
from mypy import api

from conformance.reference_impl import FlowJob, FlowProducer, InvalidArgument, Queue, QueueEvents, Worker
from conformance.reference_impl.option_types import (
    CLIENT_OPTIONS,
    JOB_OPTIONS,
    NODE_EVENTS,
    JobsOptions,
    QueueEvent,
    WorkerEvent,
)
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package
from tests.reference_impl.queue_under_test import QueueUnderTest, WithQueue


@pytest.mark.parametrize(
    ("opts", "text"),
    [
        ({"concurency": 3}, "unknown option of a Worker 'concurency'; did you mean 'concurrency'?"),
        ({"lock_duration": 3}, "unknown option of a Worker 'lock_duration'; did you mean 'lockDuration'?"),
        ({"defaultJobOptions": {"attemps": 3}}, "unknown job option 'attemps'; did you mean 'attempts'?"),
        ({"limiter": {"maxx": 1}}, "unknown key of the option 'limiter': 'maxx'; did you mean 'max'?"),
        ({"removeOnFail": {"cont": 1}}, "unknown key of the option 'removeOnFail': 'cont'; did you mean 'count'?"),
    ],
)
def test_a_misspelt_option_of_a_client_is_refused(opts: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(text)) as caught:
        Worker("q", None, opts)
    assert caught.value.field in text


@pytest.mark.parametrize("make", [Queue, QueueEvents])
def test_every_client_refuses_misspelt_options(make: Any) -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'prefix'"):
        make("q", {"prefixx": "bull"})
    misspelt: dict[str, Any] = {"prefixx": "bull"}
    with pytest.raises(InvalidArgument, match="did you mean 'prefix'"):
        FlowProducer(misspelt)


@pytest.mark.parametrize("name", ["attemps", "remove_on_complete", "Delay", "job-id", "dedupliction"])
def test_a_misspelt_option_of_a_job_is_refused_before_anything_is_sent(with_queue: WithQueue, name: str) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        queue, flows = tested.queue, FlowProducer(tested.opts, scripts=tested.scripts)
        opts: dict[str, Any] = {name: 1}
        flow: FlowJob = {"name": "a", "queueName": "q", "children": [{"name": "b", "queueName": "q", "opts": opts}]}
        for act in (
            queue.add("a", 1, opts),
            queue.addBulk([{"name": "a", "data": 1}, {"name": "b", "data": 1, "opts": opts}]),
            queue.upsertJobScheduler("s", {"every": 5}, {"opts": opts}),
            flows.add(flow),
        ):
            with pytest.raises(InvalidArgument, match=f"unknown job option '{name}'; did you mean"):
                await act
        await flows.close()
        assert not await queue.getJobCountByTypes()

    with_queue(steps)


@pytest.mark.parametrize(
    ("opts", "text"),
    [
        ({"removeOnComplete": {"agee": 1}}, "key of the option 'removeOnComplete': 'agee'; did you mean 'age'?"),
        ({"deduplication": {"id": "x", "tttl": 5}}, "key of the option 'deduplication': 'tttl'; did you mean 'ttl'?"),
        ({"repeat": {"every": 5, "limt": 5}}, "key of the option 'repeat': 'limt'; did you mean 'limit'?"),
    ],
)
def test_a_name_within_an_option_of_a_job_is_refused(with_queue: WithQueue, opts: Any, text: str) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        with pytest.raises(InvalidArgument, match=re.escape(f"unknown {text}")):
            await tested.queue.add("a", 1, opts)
        assert not await tested.queue.getJobCountByTypes()

    with_queue(steps)


def test_a_misspelt_option_of_a_schedule_is_refused(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        misspelt: dict[str, Any] = {"every": 1000, "start_date": 5}
        with pytest.raises(InvalidArgument, match="unknown repeat option 'start_date'; did you mean 'startDate'"):
            await tested.queue.upsertJobScheduler("s", misspelt)
        assert await tested.queue.getJobSchedulersCount() == 0

    with_queue(steps)


def test_strategies_may_have_options_of_their_own(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        job = await tested.queue.add("a", 1, {"backoff": {"type": "mine", "delays": [1, 2]}})  # type: ignore[arg-type]
        assert job.opts["backoff"]["delays"] == [1, 2]

    with_queue(steps)


@pytest.mark.parametrize("event", ["complete", "fail", "stalledd", "heartbeat_failed", "complete:1"])
def test_a_misspelt_event_is_refused(event: Any) -> None:
    async def acts() -> None:
        worker = Worker("q", None)
        for listen in (worker.on, worker.once):
            with pytest.raises(InvalidArgument, match=f"unknown event '{event.partition(':')[0]}'; did you mean"):
                listen(event, print)
        await worker.close()

    asyncio.run(acts())


def test_other_unknown_names_pass(with_queue: WithQueue) -> None:
    """Node.js stores options that it does not know; a program may emit events of its own."""

    async def steps(tested: QueueUnderTest) -> None:
        opts: dict[str, Any] = {"tenant": "x", "kl": 3}
        job = await tested.queue.add("a", 1, opts)
        assert (await tested.job(job.id or "")).opts["tenant"] == "x"
        heard: list[int] = []
        tenant: Any = "tenant"
        tested.queue.on(tenant, heard.append)
        tested.queue.emit("tenant", 1)
        assert heard == [1]
        tested.worker(None, tenant="x", defaultJobOptions={"tenant": "x"})

    with_queue(steps)


# --- the tables ----------------------------------------------------------------------------------------------------


def _literals(alias: Any) -> set[str]:
    return {name for part in typing.get_args(alias) for name in (typing.get_args(part) or [part])}


def test_the_types_of_events_are_those_that_are_emitted() -> None:
    assert _literals(WorkerEvent) == set(Worker.EVENTS)
    assert _literals(QueueEvent) == set(Queue.EVENTS)


def _members(package: Path, *files: str) -> set[str]:
    """Names of the members of interfaces, at the first level."""
    text = "".join((package / "dist/esm" / file).read_text() for file in files)
    return set(re.findall(r"^    '?([A-Za-z:-]+)'?\??: ", text, re.MULTILINE))


def test_every_option_and_event_of_node_is_known() -> None:
    package = ensure_package(find_node(None), announce=print).root / "node_modules" / "bullmq"
    jobs = _members(package, "interfaces/base-job-options.d.ts", "types/job-options.d.ts")
    assert jobs <= JOB_OPTIONS
    assert set(JobsOptions.__annotations__) <= jobs | {"repeatJobKey"}
    clients = _members(package, *(f"interfaces/{name}-options.d.ts" for name in ("queue", "worker", "sandboxed")))
    assert clients - {"block"} <= CLIENT_OPTIONS
    events = _members(package, *(f"classes/{name}.d.ts" for name in ("queue", "worker", "queue-events")))
    listeners = {name for name in events if name.islower()}
    assert {"completed", "waiting", "deduplicated"} <= listeners
    assert listeners & NODE_EVENTS >= {"active", "cleaned", "duplicated", "stalled"}


FINE = """
from typing import Any
from conformance.reference_impl import (
    ClientOptions, FlowProducer, JobsOptions, Queue, QueueEvents, Worker, WorkerEvent, WorkerOptions
)

SHARED: ClientOptions = {"connection": "redis://redis.example", "prefix": "bull"}
UNCHECKED: dict[str, Any] = {"connection": "redis://redis.example", "tenant": 7}

async def acts(queue: Queue, worker: Worker, flows: FlowProducer, events: QueueEvents) -> None:
    Queue("q", SHARED)
    Queue("q", UNCHECKED)
    Queue("q", {**SHARED, "defaultJobOptions": {"attempts": 3, "removeOnComplete": {"age": 60}}})
    Worker("q", print, {**SHARED, "concurrency": 3, "limiter": {"max": 1, "duration": 5}})
    Worker("q", print, {**UNCHECKED, "concurrency": 3})
    FlowProducer(SHARED)
    QueueEvents("q", {**SHARED, "blockingTimeout": 5})
    longer: ClientOptions = {**SHARED, "lockDuration": 60_000}
    Worker("q", print, longer)
    options: WorkerOptions = {"lockDuration": 60_000}
    Worker("q", print, options)
    retried = JobsOptions(attempts=3)
    await queue.add("a", 1, {"delay": 5, "backoff": {"type": "fixed", "delay": 5}})
    await queue.add("a", 1, retried)
    await queue.add("a", 1, UNCHECKED)
    await queue.addBulk([{"name": "a", "data": number, "opts": {"attempts": 3}} for number in range(3)])
    await queue.addBulk([UNCHECKED])
    await queue.upsertJobScheduler("s", {"pattern": "0 3 * * *", "tz": "UTC"}, {"name": "a", "opts": {"attempts": 3}})
    await flows.add({"name": "a", "queueName": "q", "children": [{"name": "b", "queueName": "q", "data": 1}]})
    await flows.add(UNCHECKED, {"queuesOptions": {"q": {"defaultJobOptions": {"attempts": 3}}}})
    event: WorkerEvent = "completed"
    for name in (event, "failed"):
        queue.emit(name)
    worker.on("failed", print)
    queue.once("waiting", print)
    events.on("completed:7", print)
"""

MISSPELT = (
    'Worker("q", print, {"concurency": 3})',
    'Worker("q", print, {**SHARED, "concurency": 3})',
    'Worker("q", print, {"limiter": {"maximum": 1, "duration": 5}})',
    'Queue("q", {"prefixx": "bull"})',
    'Queue("q", {"defaultJobOptions": {"backof": 5}})',
    'FlowProducer({"conection": "redis://redis.example"})',
    'QueueEvents("q", {"blocking_timeout": 5})',
    'await queue.add("a", 1, {"attemps": 3})',
    'await queue.add("a", 1, {"remove_on_complete": True})',
    'await queue.add("a", 1, {"removeOnComplete": {"agee": 3}})',
    'await queue.addBulk([{"name": "a", "data": 1, "opts": {"attemps": 3}}])',
    'await queue.addBulk([{"nam": "a", "data": 1}])',
    'await queue.upsertJobScheduler("s", {"evry": 1000})',
    'await queue.upsertJobScheduler("s", {"every": 1000}, {"opts": {"attemps": 3}})',
    'await flows.add({"name": "a", "queueName": "q", "children": [{"name": "b", "queue": "q"}]})',
    "options = JobsOptions(attemps=3)",
    'options: WorkerOptions = {"concurency": 3}',
    'worker.on("complete", print)',
    'worker.once("heartbeat_failed", print)',
    'queue.on("pause", print)',
    'event: WorkerEvent = "complete"',
)
"""Each fails alone. Dicts that are written where they are used need no annotation."""


@pytest.mark.slow
def test_misspellings_are_errors_for_mypy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    program = tmp_path / "program.py"
    functions = "".join(
        f"async def wrong_{number}(queue: Queue, worker: Worker, flows: FlowProducer) -> None:\n    {line}\n"
        for number, line in enumerate(MISSPELT)
    )
    program.write_text(FINE + functions, encoding="utf-8")
    shown, _, code = api.run(["--strict", "--config-file=", f"--cache-dir={tmp_path}/cache", str(program)])
    first = len(FINE.splitlines()) + 2
    wrong = {first + 2 * number for number in range(len(MISSPELT))}
    lines = {int(line) for line in re.findall(r"program\.py:(\d+): error", shown)}
    assert (lines, code) == (wrong, 1), shown
