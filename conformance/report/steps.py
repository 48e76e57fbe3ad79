"""Steps of a scenario as text: one line per step, with both answers if they differ."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from conformance.gate.calls import defaults_of
from conformance.gate.records import ScenarioRecord, StepRecord
from conformance.pages.text import clip, visible

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
    usual = defaults_of(step)
    said = {name: value for name, value in step.args.items() if not _is_nothing(value) and usual.get(name) != value}
    arguments = ", ".join(f"{name}={_value(value)}" for name, value in said.items())
    who = IN_PLACE_OF_CLIENT if step.stand_in else WHO[step.by]
    return f"{step.on}{who}: {step.do}({arguments})" if step.on else f"{step.do}({arguments}){who}"


def _lines(number: int, step: StepRecord) -> Iterator[str]:
    yield visible(f"{number:3} {step_line(step)}", keep_newlines=False)
    if step.by == "both" and step.oracle != step.client:
        yield visible(f"      Node    {clip(step.oracle, ANSWER)}", keep_newlines=False)
        yield visible(f"      client  {clip(step.client, ANSWER)}", keep_newlines=False)
    elif (answer := step.client or step.oracle or step.partner) not in ("", "{}"):
        yield visible(f"      answer  {clip(answer, ANSWER)}", keep_newlines=False)


def _is_nothing(value: Any) -> bool:
    return value is None or value in ({}, [], "")


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
