"""Sending calls to one driver, on one prefix and one clock, and noting every answer."""

from __future__ import annotations

import json
import time
from itertools import count
from typing import Any, Literal, TypeVar

import msgspec

from conformance.driver.connection import DriverConnection, OperationFailed
from conformance.driver.ops import Op, lifecycle
from conformance.gate.participants.clock import Clock
from conformance.gate.participants.meanwhile import Pending
from conformance.gate.participants.redis_view import RedisView
from conformance.gate.participants.transcript import Transcript
from conformance.gate.taps import TapPoint

Answer = TypeVar("Answer")

Role = Literal["oracle", "client"]


def json_text(value: Any) -> str:
    """A value as compact JSON text, the way scenarios hand it to both clients."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Caller:
    """The calling half of a participant: what handles are built on."""

    def __init__(
        self, role: Role, driver: DriverConnection, *, redis: Any, point: TapPoint, prefix: str, clock: Clock
    ) -> None:
        self.role = role
        self.driver = driver
        self.prefix = prefix
        self.prefixes = [prefix]
        """All under which it may leave keys."""
        self.clock = clock
        self.transcript = Transcript()
        self.busy_seconds = 0.0
        """Time spent waiting for the driver's answers."""
        self.managed = False
        """Whether a worker's own loop ran: then who woke whom depends on the machine."""
        self._redis = redis
        self._point = point
        self._handles = count(1)
        self._pending: list[Pending[Any]] = []

    def share(self, other: Caller) -> None:
        """Speak to the same driver as another: names of handles are not used twice, and answers have one order."""
        self.transcript, self._handles = other.transcript, other._handles

    def redis(self, queue: str = "q") -> RedisView:
        """The queue's keys, read by the kit itself."""
        return RedisView(self._redis, self.prefix, queue)

    def can(self, capability: str) -> bool:
        """Whether the driver declares a capability."""
        return capability in self.driver.ready.capabilities

    def call(self, op: Op[Answer], *, handle: str | None = None, deadline_ms: int = 8000) -> Answer:
        """Send one operation and note the answer.

        Raises OperationFailed, OperationUnsupported, OperationIndeterminate or a DriverBroken problem.
        """
        started = time.perf_counter()
        try:
            answer = self.driver.call(op, handle=handle, deadline_ms=deadline_ms, now_ms=self.clock.call_ms())
        except OperationFailed as failure:
            self.transcript.note(type(op).op, failure.error.code, None)
            raise
        finally:
            self.busy_seconds += time.perf_counter() - started
        self.transcript.note(type(op).op, "ok", msgspec.to_builtins(answer))
        return answer

    def open(self, role: lifecycle.Role, queue: str, *, processor: str | None = None, **settings: Any) -> str:
        """Open a handle and return its name."""
        handle = f"{role}-{next(self._handles)}"
        self.managed = self.managed or processor not in (None, "manual")
        op = lifecycle.Open(
            role=role,
            queue=queue,
            prefix=self.prefix,
            redis=self._point.address,
            processor=processor,  # type: ignore[arg-type]  # the schema refuses what is not a processor
            processor_args=settings.pop("processor_args", {}),
            options=settings,
        )
        self.call(op, handle=handle, deadline_ms=15_000)
        return handle
