"""The model and the oracle side by side: the same steps, with answers and states compared after each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from conformance.driver.ops import Op
from conformance.fuzz.comparison import Completion
from conformance.fuzz.target import FuzzTarget
from conformance.steps.records import step_line
from conformance.steps.shapes import HELD, CallStep, Step, opening


class Disagreement(AssertionError):
    """The model and the oracle do not say the same; the message has all steps up to the one that shows it."""


class Bench:
    """Two queues `q` and `r` with a worker each (`wq`, `wr`) and a flow producer (`f`), of the model and the oracle."""

    def __init__(self, target: FuzzTarget) -> None:
        self.runner = target.start()
        self._history: list[Step] = []
        self._held: dict[str, str] = {}
        self._completion = Completion("ok")
        perform = self.runner.actual.perform

        def noted(step: CallStep, now_ms: int | None) -> Completion:
            self._completion = perform(step, now_ms)
            return self._completion

        self.runner.actual.perform = noted  # type: ignore[method-assign]

    def open(self, **worker_options: Any) -> None:
        for name in ("q", "r"):
            self.take(opening(name, "queue", name), opening(f"w{name}", "worker", name, **worker_options))
        self.take(opening("f", "flow", ""))

    def do(self, handle: str, op: Op[Any]) -> Any:
        return self.take(CallStep(handle, op))

    def take(self, *steps: Step) -> Any:
        """Take steps on both sides and compare everything. Raises Disagreement; returns the last answer."""
        for step in steps:
            self._history.append(step)
            if isinstance(step, CallStep) and getattr(step.op, "job", "") == HELD + step.handle:
                step = replace(step, op=msgspec.structs.replace(step.op, job=self._held.get(step.handle, "")))  # noqa: PLW2901
            differences = self.runner.perform(step)
            if differences or not self.runner.live:
                findings = [*map(str, differences), self.runner.why_over]
                raise Disagreement("\n".join([*map(step_line, self._history), *(f"  ! {text}" for text in findings)]))
            value = self._completion.value
            if isinstance(step, CallStep) and isinstance(value, dict) and isinstance(value.get("job"), dict):
                self._held[step.handle] = value["job"]["id"]
        return self._completion.value
