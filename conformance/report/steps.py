"""Steps of a scenario as text: one line per step, with both answers if they differ."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from conformance.driver.ops import REGISTRY, worker
from conformance.gate.records import Party, ScenarioRecord, StepRecord
from conformance.pages.text import clip, visible
from conformance.participants.loop_worker import LOOP_OPERATIONS

WHO = {"both": "", "client": " (client alone)", "oracle": " (Node alone)", "partner": " (its partner)", "kit": ""}
IN_PLACE_OF_CLIENT = " (Node in place of the client)"
ANSWER = 160
"""Characters shown of an answer."""


def step_lines(scenario: ScenarioRecord) -> list[str]:
    """Return the steps as `replay` prints them: `2 queue-1: queue.pause()`."""
    return [line for number, step in enumerate(scenario.steps, start=1) for line in _lines(number, step)]


def steps_of_client(scenario: ScenarioRecord) -> list[StepRecord]:
    """Return the steps up to where the client stopped, without those of Node alone on its own prefix.

    If both shared a prefix, Node's steps are included.
    """
    compared = any(step.by == "both" for step in scenario.steps)
    return [step for step in scenario.steps if not (compared and step.by == "oracle")]


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


def with_defaults(step: StepRecord) -> dict[str, Any]:
    """Return the arguments of a step, with those that it leaves at their defaults."""
    return {**_defaults(step), **step.args}


def _defaults(step: StepRecord) -> dict[str, Any]:
    if step.do not in REGISTRY:
        return {}
    fields = msgspec.structs.fields(REGISTRY[step.do])
    made = {field.name: field.default_factory() for field in fields if field.default_factory is not msgspec.NODEFAULT}
    return made | {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}


def step_line(step: StepRecord) -> str:
    """Return one step as one line, without its answer."""
    if step.do == "clock":
        return f"{step.args['ms']} ms pass"
    if step.do == "wait":
        return f"wait until {step.args['what']}"
    if step.do == "network":
        return f"between the client and Redis: {step.args['what']}"
    if step.do == "redis":
        return f"the kit sends: {shlex.join(map(str, step.args['words']))}"
    usual = _defaults(step)
    said = {name: value for name, value in step.args.items() if not _is_nothing(value) and usual.get(name) != value}
    arguments = ", ".join(f"{name}={_value(value)}" for name, value in said.items())
    who = IN_PLACE_OF_CLIENT if step.stand_in else WHO[step.by]
    return f"{step.on}{who}: {step.do}({arguments})" if step.on else f"{step.do}({arguments}){who}"


def _lines(number: int, step: StepRecord) -> Iterator[str]:
    yield visible(f"{number:3} {step_line(step)}", keep_newlines=False)
    if step.by == "both" and step.oracle != step.client:
        yield visible(f"      Node    {clip(step.oracle, ANSWER)}", keep_newlines=False)
        yield visible(f"      client  {clip(step.client, ANSWER)}", keep_newlines=False)
    elif _has_content(answer := step.client or step.oracle or step.partner):
        yield visible(f"      answer  {clip(answer, ANSWER)}", keep_newlines=False)


def _has_content(answer: str) -> bool:
    return answer not in ("", "{}")


def _is_nothing(value: Any) -> bool:
    return value is None or value in ({}, [], "")


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
