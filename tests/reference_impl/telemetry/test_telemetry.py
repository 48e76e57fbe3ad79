"""The option `telemetry`: spans and jobs as Node with bullmq-otel has them, and one trace over a queue."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import baggage, context

from conformance.reference_impl import BullMQOtel, FlowProducer, InvalidArgument, Job, Queue, Worker
from conformance.reference_impl.option_types import BulkJob, JobsOptions
from conformance.reference_impl.scripts.runner import ScriptTexts
from tests.reference_impl.telemetry.__main__ import broken_crossings
from tests.reference_impl.telemetry.node_peer import recorded
from tests.reference_impl.telemetry.spans import SeenSpan, compared
from tests.reference_impl.telemetry.steps import TracedProgram, Until, add_one, field_of, take_steps, work_one

NODES_TRACE = "00-ed014725d63a4c42d45eebde4e160c98-83a72cca58adb7fc-01"
WITHIN_S = 120

Traced = Callable[[Callable[[TracedProgram], Awaitable[None]]], TracedProgram]


@pytest.fixture
def traced(connection: dict[str, Any], prefix: str, scripts: ScriptTexts, wait_until: Until) -> Traced:
    """Take steps in a traced program, and return it with its spans."""

    def run(steps: Callable[[TracedProgram], Awaitable[None]]) -> TracedProgram:
        async def program() -> TracedProgram:
            made = TracedProgram(connection, prefix, scripts, wait_until)
            async with asyncio.timeout(WITHIN_S):
                await steps(made)
            return made

        return asyncio.run(program())

    return run


def named(spans: list[SeenSpan], name: str) -> SeenSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


@pytest.mark.slow
def test_spans_and_jobs_are_those_of_node(traced: Traced, prefix: str) -> None:
    program = traced(take_steps)
    found, expected = compared(program.spans, program.seen, prefix), recorded()
    assert found["seen"] == expected["seen"]
    for tree, of_node in zip(found["spans"], expected["spans"], strict=True):
        assert tree == of_node


PAIR = [
    SeenSpan("add q.a", "PRODUCER", "t" * 32, "a" * 16, None, {"bullmq.job.name": "a"}, []),
    SeenSpan("process q", "CONSUMER", "t" * 32, "b" * 16, "a" * 16, {"bullmq.job.id": "1"}, [["job completed", {}]]),
]
DAMAGES: dict[str, list[SeenSpan]] = {
    "a span is missing": PAIR[:1],
    "a span has no parent": [PAIR[0], replace(PAIR[1], parent=None)],
    "a span is of another kind": [PAIR[0], replace(PAIR[1], kind="INTERNAL")],
    "an attribute is missing": [replace(PAIR[0], attributes={}), PAIR[1]],
    "an event is missing": [PAIR[0], replace(PAIR[1], events=[])],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_difference_to_node_would_be_noticed(damage: str) -> None:
    assert compared(DAMAGES[damage], {}, "p") != compared(PAIR, {}, "p")


def test_another_trace_below_a_span_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="another trace"):
        compared([PAIR[0], replace(PAIR[1], trace="u" * 32)], {}, "p")


def test_a_job_that_carries_another_span_would_be_noticed() -> None:
    carried = [f'{{"traceparent":"00-{span.trace}-{span.id}-01"}}' for span in PAIR]
    assert compared(PAIR, {"tm": carried[0]}, "p") != compared(PAIR, {"tm": carried[1]}, "p")


@pytest.mark.slow
def test_a_job_that_node_added_goes_on_in_its_trace(traced: Traced) -> None:
    async def steps(program: TracedProgram) -> None:
        options: JobsOptions = {"telemetry": {"metadata": f'{{"traceparent":"{NODES_TRACE}"}}'}}
        await program.queue("q", telemetry=None).add("a", 1, options)
        await work_one(program)

    spans = traced(steps).spans
    process, inside = named(spans, "process q"), named(spans, "inside")
    assert f"00-{process.trace}-{process.parent}-01" == NODES_TRACE
    assert (inside.trace, inside.parent) == (process.trace, process.id)


def test_one_trace_from_the_request_to_the_processor(traced: Traced) -> None:
    added = traced(add_one).spans
    worked = traced(work_one).spans
    assert broken_crossings(added, worked) == []
    assert broken_crossings(added, [replace(span, trace="u" * 32) for span in worked]) == [
        "process q is not below add q.crossing"
    ]
    assert broken_crossings(added, []) == ["no span process q", "no span inside"]


def test_baggage_crosses_with_the_trace(traced: Traced) -> None:
    heard: list[object] = []

    async def steps(program: TracedProgram) -> None:
        token = context.attach(baggage.set_baggage("customer", "7"))
        await program.queue("q").add("a", 1)
        context.detach(token)
        program.worker("q", lambda _job: heard.append(baggage.get_baggage("customer")))
        await program.ended(program.queue("q"), 1)
        await program.close()

    traced(steps)
    assert heard == ["7"]


UNREADABLE = ("mine", "5", "[]", '{"traceparent":5}', '{"traceparent":"00-00-00-00"}', '{"traceparent"', 7, True)


def test_an_unreadable_trace_does_not_keep_a_job_from_being_processed(traced: Traced) -> None:
    async def steps(program: TracedProgram) -> None:
        jobs: list[BulkJob] = [
            {"name": "a", "data": 1, "opts": {"telemetry": {"metadata": metadata}}} for metadata in UNREADABLE
        ]
        await program.queue("q", telemetry=None).addBulk(jobs)
        program.worker("q", lambda _job: None)
        await program.ended(program.queue("q"), len(UNREADABLE))
        await program.close()

    spans = traced(steps).spans
    assert [span.parent for span in spans if span.name == "process q"] == [None] * len(UNREADABLE)


def test_a_result_that_is_not_json_is_an_error_of_the_span_and_fails_the_job(traced: Traced) -> None:
    async def steps(program: TracedProgram) -> None:
        await program.queue("q").add("a", 1)
        program.worker("q", lambda _job: object()).on("error", lambda _error: None)
        await program.ended(program.queue("q"), 1)
        await program.close()

    spans = traced(steps).spans
    events = [event for event, _ in named(spans, "process q").events]
    assert events == ["exception", "job failed"]
    assert [event for event, _ in named(spans, "complete q").events] == ["exception"]


def test_renewals_and_stalled_jobs_are_spans(traced: Traced, wait_until: Until) -> None:
    async def steps(program: TracedProgram) -> None:
        queue = program.queue("q")
        await queue.add("a", 1)
        lost = program.worker("q", None, autorun=False, lockDuration=1)
        assert await lost.getNextJob("token")
        held = asyncio.Event()

        async def process(_job: Job) -> None:
            await held.wait()

        worker = program.worker("q", process, lockRenewTime=20, stalledInterval=20, autorun=False, name="keeper")
        running = asyncio.create_task(worker.run())
        names: Callable[[], list[str]] = lambda: [span.name for span in program.spans]  # noqa: E731
        await wait_until(lambda: "extendLocks q" in names(), names, within_s=WITHIN_S)
        held.set()
        await program.ended(queue, 1)
        await program.close()
        await running

    spans = traced(steps).spans
    renewal = next(span for span in spans if span.name == "extendLocks q")
    assert renewal.attributes["bullmq.worker.jobs.to.extend.locks"] == ["1"]
    assert renewal.attributes["bullmq.worker.name"] == "keeper"
    stalled = [span for span in spans if span.name == "moveStalledJobsToWait q" and span.events]
    assert [span.events for span in stalled] == [[["job stalled", {"bullmq.job.id": "1"}]]]
    assert stalled[0].attributes["bullmq.worker.stalled.jobs"] == ["1"]


def test_a_failed_attempt_leaves_its_trace_in_the_job_unless_the_job_forbids_it(traced: Traced) -> None:
    async def steps(program: TracedProgram) -> None:
        queue = program.queue("q")
        await queue.addBulk([{"name": "a"}, {"name": "b", "opts": {"telemetry": {"omitContext": True}}}])

        async def process(_job: Job) -> None:
            raise RuntimeError("no luck")

        program.worker("q", process).on("failed", lambda *_: None)
        await program.ended(queue, 2)
        program.seen["tm"] = [await field_of(queue, number, "tm") for number in (1, 2)]
        await program.close()

    program = traced(steps)
    failures = [span for span in program.spans if span.name == "fail q"]
    carried, omitted = program.seen["tm"]
    assert failures[0].id in carried
    assert omitted is None


MISSING = """
import sys
sys.modules["opentelemetry"] = None
from conformance.reference_impl import BullMQError, BullMQOtel
try:
    BullMQOtel("program")
except BullMQError as error:
    print(error)
"""


def test_without_the_package_the_error_says_what_to_install() -> None:
    run = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, timeout=120, check=False)
    message = "telemetry needs it: pip install opentelemetry-api opentelemetry-sdk\n"
    assert (run.returncode, run.stdout, run.stderr) == (0, message, "")


@pytest.mark.parametrize("telemetry", [True, {"tracer": 1}, BullMQOtel])
def test_a_telemetry_that_cannot_trace_is_refused(telemetry: Any) -> None:
    makers: list[Callable[[dict[str, Any]], object]] = [
        lambda opts: Queue("q", opts),
        lambda opts: Worker("q", None, opts),
        FlowProducer,
    ]
    for make in makers:
        with pytest.raises(InvalidArgument, match="telemetry has to have a tracer and a contextManager"):
            make({"telemetry": telemetry})
