"""Chooses what comes next, from a seed and the state of the model only, never of the oracle."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from conformance.driver.ops import queue
from conformance.model import Model
from conformance.steps.shapes import CallStep, Step, opening

QUEUES = ("q", "r")
CLOCK_STEPS = (0, 0, 0, 1, 7, 100, 1_000, 10_000, 61_000, 200_000)
JSON_TEXTS = (
    "{}",
    "null",
    "[]",
    '{"a":1}',
    '{"b":[1,null,"x"],"a":{"c":1e21}}',
    '{"2":1,"1":2,"z":-0.0}',
    '"text"',
    "0",
    "1e400",
    '{"__proto__":{"x":1}}',
    '"\\ud83d\\ude00 \\ud800 ü\\u0001"',
    "12345678901234567890",
    "1e-7",
    "[1.5, 2.50]",
)
WORKER_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"name": "w", "lockDuration": 60_000},
    {"limiter": {"max": 2, "duration": 20_000}},
    {"metrics": {"maxDataPoints": 3}, "maxStalledCount": 0, "stalledInterval": 10_000},
    {"removeOnComplete": {"count": 1}, "removeOnFail": {"age": 60}},
    {"removeOnComplete": {"age": 30, "count": 2}, "removeOnFail": {"count": 0}},
)
CHILD_OPTIONS = (
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
)


StepMaker = Callable[["Generator", Model, int], Step | None]
"""Generator, model and the client's time (ms) make a step, or none where such a step cannot come now."""


class Generator:
    """Chooses the next step for a model. `weights`: the kinds of steps; one comes the more often the more it weighs."""

    def __init__(self, seed: int, weights: Mapping[StepMaker, float]) -> None:
        self._weights = weights
        self.rng: random.Random = random.Random(seed)
        self.opened = 0

    def opening(self) -> list[CallStep]:
        """The handles that every sequence starts with."""
        return [
            opening("q1", "queue", "q"),
            opening("r1", "queue", "r", defaultJobOptions={"attempts": 2, "removeOnComplete": 2}),
            opening("w1", "worker", "q", **self.rng.choice(WORKER_OPTIONS)),
            opening("w2", "worker", "q", **self.rng.choice(WORKER_OPTIONS)),
            opening("w3", "worker", "r", **self.rng.choice(WORKER_OPTIONS)),
            opening("f1", "flow", ""),
        ]

    def first_steps(self, model: Model) -> list[CallStep]:
        """A few first jobs."""
        return [
            CallStep(handle, queue.Add(name="first", data_raw=self.data(), opts=self.options(model, "q")))
            for handle in self.rng.choices(("q1", "q1", "r1"), k=self.rng.randint(0, 4))
        ]

    def clock_step(self) -> int:
        """By how much the client's clock goes on before the step (ms)."""
        return self.rng.choice(CLOCK_STEPS)

    def step(self, model: Model, now_ms: int) -> Step:
        """A step whose outcome the model knows."""
        while True:
            make = self.rng.choices(list(self._weights), list(self._weights.values()))[0]
            step = make(self, model, now_ms)
            if step is None:
                continue
            if not isinstance(step, CallStep) or model.is_determined(step, now_ms):
                return step

    def data(self) -> str:
        return self.rng.choice(JSON_TEXTS)

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance

    def queue_handle(self, model: Model) -> tuple[str, str]:
        name, handle = self.rng.choice(list(model.handles("queue").items()))
        return name, handle.queue

    def any_job(self, model: Model, name: str, preferred: tuple[str, ...] = ()) -> str:
        """Any job of a queue, every state with the same chance; sometimes one that does not exist.

        Mostly in one of the preferred states, if there is such a job.
        """
        states = model.jobs_by_state(name)
        wanted = [state for state in preferred if state in states]
        if wanted and self.maybe(0.7):
            return self.rng.choice(states[self.rng.choice(wanted)])
        if not states or self.maybe(0.05):
            return self.rng.choice(("999", "nobody"))
        return self.rng.choice(states[self.rng.choice(sorted(states))])

    def options(self, model: Model, name: str) -> dict[str, Any]:
        """Options of a job; now and then such that are refused."""
        rng, options = self.rng, {}
        choices: dict[str, Callable[[], Any]] = {
            "delay": lambda: rng.choice((0, 1, 50, 1_000, 1_000, 5_000, 60_000, -5, 0.5)),
            "priority": lambda: rng.choice((0, 1, 1, 2, 3, 2_097_152, -1)),
            "attempts": lambda: rng.choice((1, 2, 3, 3, 5)),
            "backoff": lambda: rng.choice(
                (
                    0,
                    100,
                    {"type": "fixed", "delay": 1_000},
                    {"type": "exponential", "delay": 150},
                    {"type": "none"},
                    {"type": "fixed"},
                )
            ),
            "lifo": lambda: rng.choice((True, True, False)),
            "removeOnComplete": lambda: rng.choice(
                (True, False, 0, 1, 2, {"age": 30}, {"age": 0}, {"count": 1, "age": 5})
            ),
            "removeOnFail": lambda: rng.choice((True, False, 1, {"age": 60, "count": 3})),
            "jobId": lambda: rng.choice((model.free_id(name), "custom-0", "custom-1", "a:b:c")),
            "deduplication": self.deduplication,
            "keepLogs": lambda: 2,
            "stackTraceLimit": lambda: rng.choice((0, 1, 2)),
            "timestamp": lambda: rng.choice((1_600_000_000_000, 5, 1_700_000_000_123)),
            "sizeLimit": lambda: rng.choice((5, 1_000)),
            "unknownOption": lambda: rng.choice(([], [None], {"x": None, "y": 1e-7}, 123456789012345678, "a/b")),
            "telemetry": lambda: rng.choice(({"metadata": "m"}, {"omitContext": True})),
        }
        for option in rng.sample(sorted(choices), rng.choice((0, 0, 1, 1, 2, 2, 3, 4))):
            options[option] = choices[option]()
        if self.maybe(0.04):
            options.update(rng.choice(INVALID_OPTIONS))
        if self.maybe(0.1):
            options["parent"] = {"id": self.any_job(model, name), "queue": model.key(name, "").removesuffix(":")}
            options[rng.choice(CHILD_OPTIONS)] = True
        return options

    def deduplication(self) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.rng.choice(("d1", "d1", "d2"))}
        if self.maybe(0.5):
            found["ttl"] = self.rng.choice((10_000, 20_000, 40_000, 0))
        for flag in ("extend", "replace"):
            if self.maybe(0.5):
                found[flag] = self.rng.choice((True, True, False))
        return found


INVALID_OPTIONS: tuple[dict[str, Any], ...] = (
    {"priority": 1.5},
    {"priority": 2_097_153},
    {"priority": "3"},
    {"jobId": "12"},
    {"jobId": "0"},
    {"jobId": "a:b"},
    {"jobId": 5},
    {"deduplication": {"ttl": 5}},
    {"failParentOnFailure": True, "ignoreDependencyOnFailure": True},
    {"backoff": {"type": "fixed", "delay": 5, "jitter": 2}},
    {"delay": True},
    {"attempts": None},
    {"parent": {"id": "gone", "queue": "the-model:q"}},
)
