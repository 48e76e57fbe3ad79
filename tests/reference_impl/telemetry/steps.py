"""The steps of `peer.mjs`, in the same order and with the same names, by the client of this tree."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from opentelemetry import trace

from conformance.reference_impl import BullMQOtel, FlowProducer, InvalidArgument, Job, Queue, Worker
from conformance.reference_impl.scripts.runner import ScriptTexts
from tests.reference_impl.telemetry import sdk
from tests.reference_impl.telemetry.spans import SeenSpan, seen_in_python

HOUR = 3_600_000
Until = Callable[..., Awaitable[None]]
Opened = TypeVar("Opened", Queue, Worker, FlowProducer)


class TracedProgram:
    """A program whose queues and workers are traced; its spans are kept in memory."""

    def __init__(self, connection: Any, prefix: str, scripts: ScriptTexts, until: Until) -> None:
        sdk.make_importable()
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._tracer = provider.get_tracer("program")
        self.untraced = {"connection": connection, "prefix": prefix}
        self.opts = {**self.untraced, "telemetry": BullMQOtel("peer", "1", tracer_provider=provider)}
        self._scripts = scripts
        self._until = until
        self._opened: list[Queue | Worker | FlowProducer] = []
        self.seen: dict[str, Any] = {}

    @property
    def spans(self) -> list[SeenSpan]:
        return seen_in_python(self._exporter.get_finished_spans())

    @contextlib.contextmanager
    def in_span(self, name: str) -> Iterator[trace.Span]:
        with self._tracer.start_as_current_span(name, record_exception=False) as span:
            yield span

    def queue(self, name: str, **opts: Any) -> Queue:
        return self._keep(Queue(name, {**self.opts, **opts}, scripts=self._scripts))

    def worker(self, queue: str, processor: Any, **opts: Any) -> Worker:
        return self._keep(Worker(queue, processor, {**self.opts, **opts}, scripts=self._scripts))

    def flow_producer(self) -> FlowProducer:
        return self._keep(FlowProducer(self.opts, scripts=self._scripts))

    async def close(self) -> None:
        for opened in reversed(self._opened):
            await opened.close()

    async def ended(self, queue: Queue, count: int) -> None:
        """Wait until this number of jobs of a queue has ended."""
        ended = 0

        async def look() -> None:
            nonlocal ended
            while ended < count:
                ended = await queue.getJobCountByTypes("completed", "failed")
                await asyncio.sleep(0.005)

        looking = asyncio.ensure_future(look())
        try:
            await self._until(looking.done, lambda: f"{ended} of {count} jobs have ended", within_s=60)
        finally:
            looking.cancel()

    def _keep(self, opened: Opened) -> Opened:
        self._opened.append(opened)
        return opened


async def options_of(queue: Queue, job_ids: list[Any]) -> list[str]:
    return [await field_of(queue, job_id, "opts") for job_id in job_ids]


async def field_of(queue: Queue, job_id: Any, field: str) -> Any:
    stored = await queue.connection.command("HGET", queue.toKey(str(job_id)), field)
    return None if stored is None else stored.decode()


async def adding(program: TracedProgram) -> None:
    queue = program.queue("q")
    with_defaults = program.queue("q", defaultJobOptions={"telemetry": {"omitContext": True}, "attempts": 2})
    ids: list[Any] = []
    with program.in_span("adding"):
        ids.append((await queue.add("single", 1)).id)
        ids.append((await queue.add("silent", 1, {"telemetry": {"omitContext": True}})).id)
        ids.append((await queue.add("own", 1, {"telemetry": {"metadata": "mine"}, "attempts": 3})).id)
        ids.append((await with_defaults.add("defaults", 1)).id)
        several: list[dict[str, Any]] = [
            {"name": "plain", "data": 1},
            {"name": "own", "data": 1, "opts": {"telemetry": {"metadata": "mine"}}},
            {"name": "silent", "data": 1, "opts": {"telemetry": {"omitContext": True}, "lifo": True}},
            {"name": "both", "data": 1, "opts": {"telemetry": {"metadata": "mine", "omitContext": True}}},
        ]
        for opened in (queue, with_defaults):
            ids += [job.id for job in await opened.addBulk(several)]
    untraced = program.queue("q", telemetry=None, defaultJobOptions={"telemetry": {"omitContext": True}})
    ids.append((await untraced.add("untraced", 1)).id)
    ids += [job.id for job in await untraced.addBulk([{"name": "untraced", "data": 1}])]
    program.seen["adding"] = await options_of(queue, ids)


async def refusals(program: TracedProgram) -> None:
    with contextlib.suppress(InvalidArgument):
        await program.queue("q").add("refused", 1, {"jobId": "0"})


async def operating(program: TracedProgram) -> None:
    queue = program.queue("operated")
    await queue.add("one", 1, {"delay": HOUR})
    await queue.pause()
    await queue.resume()
    await queue.updateJobProgress("1", {"half": True})
    await queue.promoteJobs()
    await queue.retryJobs({"state": "failed", "count": 5})
    await queue.remove("1")
    await queue.drain()
    await queue.clean(0, 10, "completed")
    await queue.trimEvents(7)
    await queue.removeDeduplicationKey("d")
    await queue.removeDebounceKey("d")
    await queue.removeRepeatable("one", {"every": HOUR})
    await queue.removeRepeatableByKey("key")
    await queue.obliterate()


async def flowing(program: TracedProgram) -> None:
    def flow(root: str) -> dict[str, Any]:
        leaf_options = {"jobId": f"{root}-leaf", "telemetry": {"metadata": "mine"}}
        return {
            "name": root,
            "queueName": "parents",
            "opts": {"jobId": root},
            "children": [
                {"name": "without-options", "queueName": "children"},
                {
                    "name": "silent",
                    "queueName": "children",
                    "opts": {"jobId": f"{root}-silent", "telemetry": {"omitContext": True}},
                },
                {
                    "name": "nested",
                    "queueName": "children",
                    "opts": {"jobId": f"{root}-nested"},
                    "children": [{"name": "leaf", "queueName": "children", "opts": leaf_options}],
                },
            ],
        }

    producer = program.flow_producer()
    defaults: dict[str, Any] = {"children": {"defaultJobOptions": {"telemetry": {"omitContext": True}, "attempts": 2}}}
    await producer.add(flow("root"), {"queuesOptions": defaults})
    await producer.addBulk([flow("first"), flow("second")])
    parents, children = program.queue("parents"), program.queue("children")
    names = ["root", "first", "second"]
    ids_below = [f"{name}-{end}" for name in names for end in ("silent", "nested", "leaf")]
    program.seen["flows"] = [*await options_of(parents, names), *await options_of(children, ids_below)]


async def by_hand(program: TracedProgram) -> None:
    queue = program.queue("hand")
    worker = program.worker("hand", None, name="hands", autorun=False)

    async def take() -> Job:
        job = await worker.getNextJob("token")
        assert job is not None
        return job

    with program.in_span("preparing"):
        await queue.addBulk(
            [
                {"name": "completes", "data": 1},
                {"name": "fails", "data": 1},
                {"name": "fails-silently", "data": 1, "opts": {"telemetry": {"omitContext": True}}},
                {"name": "is-delayed", "data": 1, "opts": {"attempts": 2, "backoff": HOUR}},
                {"name": "is-retried", "data": 1, "opts": {"attempts": 2}},
            ]
        )
    with program.in_span("finishing"):
        await (await take()).moveToCompleted({"done": True}, "token", fetchNext=False)
        for _ in range(4):
            await (await take()).moveToFailed(RuntimeError("no luck"), "token", fetchNext=False)
    await worker.rateLimit(1000)
    program.seen["failed"] = [await field_of(queue, number, "tm") for number in range(1, 6)]


async def working(program: TracedProgram) -> None:
    queue = program.queue("worked")
    with program.in_span("ordering"):
        await queue.add("completes", 1)
        await queue.add("fails", 1)
        await queue.upsertJobScheduler("tick", {"every": HOUR}, {"name": "tick", "data": 1})
    silent: dict[str, Any] = {"data": 1, "opts": {"telemetry": {"omitContext": True}}}
    await queue.upsertJobScheduler("silent", {"every": HOUR}, silent)

    async def process(job: Job) -> Any:
        with program.in_span("inside"):
            if job.name == "fails":
                raise RuntimeError("no luck")
            return {"done": job.name}

    worker = program.worker("worked", process, name="hands", autorun=False)
    running = asyncio.create_task(worker.run())
    await program.ended(queue, 4)
    await worker.pause(doNotWaitActive=False)
    await running
    await queue.add("last", 1)
    worker.resume()
    await program.ended(queue, 5)
    await worker.close()
    job_ids = await queue.getRanges(["delayed"], 0, -1)
    program.seen["scheduled"] = sorted(await options_of(queue, job_ids))


async def take_steps(program: TracedProgram) -> None:
    try:
        for step in (adding, refusals, operating, flowing, by_hand, working):
            await step(program)
    finally:
        await program.close()


async def add_one(program: TracedProgram) -> None:
    """Add a job inside a span, for the other client to process."""
    try:
        queue = program.queue("q")
        with program.in_span("request"):
            job = await queue.add("crossing", 1)
        program.seen["options"] = (await options_of(queue, [job.id]))[0]
    finally:
        await program.close()


async def work_one(program: TracedProgram) -> None:
    """Process the job that the other client has added."""

    async def process(_job: Job) -> str:
        with program.in_span("inside"):
            return "done"

    try:
        program.worker("q", process)
        await program.ended(program.queue("q"), 1)
    finally:
        await program.close()
