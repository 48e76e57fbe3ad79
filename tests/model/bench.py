"""The model and the oracle side by side: the same calls, answers and snapshots compared after each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import OperationFailed, OperationIndeterminate
from conformance.driver.ops import lifecycle, queue
from conformance.fuzz.keyspace import RedisKeyspace
from conformance.model import Model, NameTranslation, Prediction, agreement
from conformance.observe.reader import read_snapshot
from conformance.observe.tables import Snapshot
from conformance.servers import RedisInstance
from conformance.steps.records import step_line
from conformance.steps.shapes import CallStep, ClockStep, OutsideStep, Step

START_MS = 1_700_000_000_000
EVENTUAL = (queue.GetWorkers, queue.GetWorkersCount)
"""Operations whose answers follow connections, which come and go by themselves."""
EVENTUALLY_SECONDS = 3


@dataclass
class Disagreement(Exception):
    """The model and the oracle do not say the same. `history`: all steps up to the one that shows it."""

    history: list[tuple[int, Step]]
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        steps = [f"at {now_ms - START_MS:+}: {step_line(step)}" for now_ms, step in self.history]
        return "\n".join([*steps, *(f"  ! {finding}" for finding in self.findings)])


class Bench:
    """One sequence on the model and on the oracle, under a prefix of its own."""

    def __init__(self, driver: DriverConnection, server: RedisInstance, redis: Any) -> None:
        self.model = Model()
        self.now_ms = START_MS
        self.history: list[tuple[int, Step]] = []
        self._driver = driver
        self._server = server
        self._redis = redis
        self._address = server.for_drivers
        self.prefix = server.fresh_prefix()
        self._names = NameTranslation(self.prefix)

    def do(self, step: Step) -> Any:
        """Take a step on both sides and compare everything. Raises Disagreement; returns the predicted value."""
        self.history.append((self.now_ms, step))
        findings: list[str] = []
        value = None
        if isinstance(step, CallStep):
            prediction = self.model.apply(step, self.now_ms)
            value = prediction.value
            findings += self._compare_answer(step, prediction)
        else:
            self._disturb(step)
        findings += [
            str(difference)
            for difference in agreement.compare_snapshots(self.model, self.snapshot(), names=self._names)
        ]
        if findings:
            raise Disagreement(self.history, findings)
        self._stop_server_clock()
        return value

    def _stop_server_clock(self) -> None:
        """Give every time to live back what the step took: on a loaded machine a sequence may take many seconds."""
        pipeline = self._redis.pipeline(transaction=False)
        expected = self.model.snapshot()
        for lock in expected.locks:
            pipeline.pexpire(self._key(lock.queue, f"{self._names.outward_id(lock.job)}:lock"), int(lock.ttl_ms))
        for owner in expected.deduplications:
            if owner.ttl_ms != -1:
                pipeline.pexpire(self._key(owner.queue, f"de:{owner.id}"), int(owner.ttl_ms))
        for key in (*expected.limiters, *expected.stalled_checks):
            pipeline.pexpire(self._key(key.queue, key.name), int(key.ttl_ms))
        pipeline.execute()

    def _key(self, home: str, name: str) -> str:
        return f"{self.prefix}:{home}:{name}"

    def snapshot(self) -> Snapshot:
        """The state of Redis."""
        return read_snapshot(self._redis, self.prefix)

    def leave(self) -> None:
        """Close the handles, and remove what is left."""
        self._driver.call(lifecycle.Reset(), deadline_ms=15_000)
        self._server.remove_prefix(self.prefix)

    def _compare_answer(self, call: CallStep, prediction: Prediction) -> list[str]:
        """The differences. Redis notices a little later than the client that a connection is closed."""
        deadline = time.monotonic() + EVENTUALLY_SECONDS
        while True:
            found = agreement.compare_answers(prediction, *self._ask(call, prediction.value), names=self._names)
            if not found or not isinstance(call.op, EVENTUAL) or time.monotonic() > deadline:
                return found
            time.sleep(0.01)

    def _ask(self, call: CallStep, predicted: Any) -> tuple[str, Any, str | None]:
        op = self._names.outward(call.op)
        if isinstance(op, lifecycle.Open):
            op = msgspec.structs.replace(op, redis=self._address, prefix=self.prefix)
        try:
            answer = self._driver.call(op, handle=call.handle, deadline_ms=10_000, now_ms=self.now_ms)
        except OperationFailed as failure:
            return "fail", None, failure.error.code
        except OperationIndeterminate as failure:
            return "info", None, failure.error.code
        value = msgspec.to_builtins(answer)
        self._names.learn(predicted, value)
        return "ok", value, None

    def _disturb(self, step: OutsideStep) -> None:
        self.model.endure(step)
        if isinstance(step, ClockStep):
            self.now_ms += step.clock_ms
        elif step.job:
            step = replace(step, job=self._names.outward_id(step.job))
        RedisKeyspace(self._redis).endure([self.prefix], step)
