"""Who plays a sequence: one client on its own prefix, or two clients that take turns on one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from conformance.driver.connection import (
    DriverBroken,
    OperationFailed,
    OperationIndeterminate,
    OperationUnsupported,
)
from conformance.driver.messages import RedisAddress
from conformance.driver.ops import Op, lifecycle, queue
from conformance.environment.drivers import RestartableDriver
from conformance.fuzz.answers import Answer
from conformance.fuzz.steps import CallStep, ClockStep, FaultStep

CALL_DEADLINE_MS = 10_000

PREFIX = "<prefix>"
"""Stands in a step for the participant's own prefix."""


class Side(Protocol):
    """One of the two that are compared."""

    @property
    def prefix(self) -> str:
        """The prefix of its keys."""
        ...

    def perform(self, step: CallStep, now_ms: int | None) -> Answer:
        """Make one call; never raises for what a client does."""
        ...

    def endure(self, step: ClockStep | FaultStep) -> None:
        """Let a step of the clock or a fault happen to whatever state this side has outside Redis."""
        ...


def placed(op: Op[Any], prefix: str, address: RedisAddress) -> Op[Any]:
    """The operation as one participant sends it: with its own address, and its own prefix wherever one is meant."""
    if isinstance(op, lifecycle.Open):
        return msgspec.structs.replace(op, prefix=prefix, redis=address)
    if isinstance(op, queue.Add) and "parent" in op.opts:
        return msgspec.structs.replace(op, opts=_with_prefix(op.opts, prefix))
    if isinstance(op, queue.AddBulk):
        jobs = [msgspec.structs.replace(job, opts=_with_prefix(job.opts, prefix)) for job in op.jobs]
        return msgspec.structs.replace(op, jobs=jobs)
    return op


def _with_prefix(opts: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The option `parent` names its queue by the full name, prefix included."""
    parent = opts.get("parent")
    if not isinstance(parent, dict):
        return opts
    return {**opts, "parent": {**parent, "queue": str(parent.get("queue", "")).replace(PREFIX, prefix)}}


@dataclass
class DriverSide:
    """A client behind its driver, on one prefix. `handles` tells apart two sides that share one driver."""

    seat: RestartableDriver
    address: RedisAddress
    prefix: str
    handles: str = ""

    def perform(self, step: CallStep, now_ms: int | None) -> Answer:
        """Make one call; never raises for what a client does."""
        op, handle = placed(step.op, self.prefix, self.address), self.handles + step.handle
        try:
            value = self.seat.living().call(op, handle=handle, deadline_ms=CALL_DEADLINE_MS, now_ms=now_ms)
        except OperationFailed as failure:
            return Answer("fail", code=failure.error.code, message=failure.error.message)
        except OperationIndeterminate as unknown:
            return Answer("info", code=unknown.error.code, message=unknown.error.message)
        except OperationUnsupported as refusal:
            return Answer("unsupported", message=str(refusal))
        except DriverBroken as broken:
            return Answer("broken", message=str(broken))
        return Answer("ok", msgspec.to_builtins(value))

    def endure(self, step: ClockStep | FaultStep) -> None:
        """Nothing: all that a driver's client has is in Redis, or lives on."""


@dataclass
class TurnsSide:
    """Client and oracle on one prefix; each step says whose turn it is."""

    client: DriverSide
    oracle: DriverSide

    @property
    def prefix(self) -> str:
        """The shared prefix."""
        return self.client.prefix

    def perform(self, step: CallStep, now_ms: int | None) -> Answer:
        """Let the client make the call whose turn it is. Both make every client object, for when their turn comes."""
        if step.opens or isinstance(step.op, lifecycle.Close):
            answers = [side.perform(step, now_ms) for side in (self.oracle, self.client)]
            return next((answer for answer in answers if answer.status != "ok"), answers[0])
        return (self.client if step.by == "client" else self.oracle).perform(step, now_ms)

    def endure(self, step: ClockStep | FaultStep) -> None:
        """Nothing, as for each of the two."""
