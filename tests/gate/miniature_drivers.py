"""Drivers of a few operations: what an oracle and a client may do to a trial, without Node and without a client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import redis.asyncio

from conformance.driver.connection import DriverConnection
from conformance.driver.serve import DriverServer, Handler, Json, OpError, Unsupported
from conformance.driver.transports import InProcess
from conformance.environment.clients import Launch
from conformance.environment.drivers import RestartableDriver
from conformance.gate.bench import Bench

BenchOf = Callable[[RestartableDriver, RestartableDriver], Bench]
ChildDriver = Callable[[str], RestartableDriver]


def answers(**value: Any) -> Handler:
    async def handle(_handle: str | None, _args: Json) -> Json:
        return value

    return handle


def fails(code: str = "other", message: str = "it did not work", status: str = "fail") -> Handler:
    async def handle(_handle: str | None, _args: Json) -> Json:
        raise OpError(code, message, status=status)

    return handle


def refuses(reason: str = "not here") -> Handler:
    async def handle(_handle: str | None, _args: Json) -> Json:
        raise Unsupported(reason)

    return handle


@dataclass
class Mini:
    """`count` answers queue.count with `count`; `ops` replaces or adds operations, None takes one away.

    queue.pause really writes: the field `paused` of the queue's meta, so that a snapshot can differ.
    """

    count: int = 1
    capabilities: tuple[str, ...] = ("clock",)
    paused_value: str = "1"
    ops: dict[str, Handler | None] = field(default_factory=dict)
    clock: list[int | None] = field(default_factory=list)

    def server(self) -> DriverServer:
        handles: dict[str | None, Json] = {}

        async def open_handle(handle: str | None, args: Json) -> Json:
            handles[handle] = args
            return {}

        async def pause(handle: str | None, _args: Json) -> Json:
            opened = handles[handle]
            async with redis.asyncio.Redis.from_url(f"redis://{opened['redis']['nodes'][0]}") as client:
                await client.hset(f"{opened['prefix']}:{opened['queue']}:meta", "paused", self.paused_value)
            return {}

        chosen: dict[str, Handler | None] = {
            "open": open_handle,
            "close": answers(),
            "reset": answers(),
            "queue.count": answers(count=self.count),
            "queue.pause": pause,
            "queue.getJobCounts": answers(counts={}),
            "queue.getJobs": answers(jobs=[]),
            **self.ops,
        }
        return DriverServer(
            client={"name": "mini", "language": "python", "version": "1"},
            capabilities=self.capabilities,
            ops={name: handler for name, handler in chosen.items() if handler is not None},
            on_clock=self.clock.append,
        )


class InProcessDriver(RestartableDriver):
    """A driver that is an object in this process; `starts` counts how often it had to be started."""

    def __init__(self, mini: Mini) -> None:
        super().__init__(Launch("mini", []), seed=1)
        self.mini = mini
        self.starts = 0

    def living(self) -> DriverConnection:
        if self.connection is None or not self.connection.alive:
            self.starts += 1
            self.connection = InProcess.start(self.mini.server(), breakdowns=self.breakdowns)
        return self.connection
