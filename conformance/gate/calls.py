"""Recorded steps as calls of the driver protocol: their default arguments, and what a loop does for a manual worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from conformance.driver.ops import REGISTRY, worker
from conformance.gate.records import Party, StepRecord
from conformance.participants.loop_worker import LOOP_OPERATIONS


def calls_of_loops(steps: list[StepRecord], client: Party) -> list[StepRecord]:
    """Replace operations of a manual worker that the client's loop did by the calls of the loop.

    Each claim opens a worker with the processor `ask`, and the end of a job resolves it (`LoopWorker`).
    """
    if "resolve" not in client.ops:
        return steps
    queues = {step.args["queue"] for step in steps if step.do == "open" and "queue" in step.args}
    return [call for number, step in enumerate(steps) for call in _calls_of_loop(number, step, steps, client, queues)]


def _calls_of_loop(
    number: int, step: StepRecord, steps: list[StepRecord], client: Party, queues: set[str]
) -> Iterator[StepRecord]:
    if step.do not in LOOP_OPERATIONS - set(client.ops) or step.stand_in:
        yield step
        return
    claims = [position for position in range(number + 1) if steps[position].do == worker.GetNextJob.op]
    loop = f"loop-{len(claims)}"
    if step.do == worker.GetNextJob.op:
        # Run files of older versions do not name the queue.
        queue = step.args.get("queue") or (next(iter(queues)) if len(queues) == 1 else None)
        opening = {"role": "worker", "queue": queue, "processor": "ask", "options": step.args.get("options", {})}
        yield StepRecord(by=step.by, do="open", on=loop, args=opening, client=step.client)
        yield StepRecord(by="kit", do="wait", args={"what": "the worker has taken what it can"})
        if '"job": null' in step.client:
            yield StepRecord(by=step.by, do="close", on=loop)
        return
    outcome = _OUTCOMES.get(step.do, "fail")
    if step.args.get("unrecoverable"):
        outcome = "unrecoverable"
    args = {"job": step.args["job"], "outcome": outcome, **{name: step.args.get(name, "") for name in _RESULTS}}
    yield StepRecord(by=step.by, do="resolve", on=loop, args=args, oracle=step.oracle, client=step.client)


_RESULTS = ("value_raw", "message")
_OUTCOMES = {
    worker.MoveToCompleted.op: "complete",
    worker.MoveToDelayed.op: "delay",
    worker.MoveToWait.op: "wait",
    worker.MoveToWaitingChildren.op: "waiting-children",
}
"""The outcome of a loop's processor for each operation but a failure."""


def defaults_of(step: StepRecord) -> dict[str, Any]:
    """Return the default values of the arguments of a step."""
    if step.do not in REGISTRY:
        return {}
    fields = msgspec.structs.fields(REGISTRY[step.do])
    made = {field.name: field.default_factory() for field in fields if field.default_factory is not msgspec.NODEFAULT}
    return made | {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}
