"""The bench of one process: Redis, the oracle's driver, the client's driver, and the running of scenarios on them."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.driver.connection import (
    DriverBroken,
    DriverConnection,
    OperationFailed,
    OperationIndeterminate,
    OperationUnsupported,
)
from conformance.driver.messages import RedisAddress
from conformance.driver.ops import lifecycle
from conformance.driver.process import ChildProcess
from conformance.gate.participants.clock import Clock, FrozenClock, RunningClock
from conformance.gate.participants.participant import Participant
from conformance.gate.preparing.clients import Launch
from conformance.servers.server import Server


def address_of(server: Server) -> RedisAddress:
    """The address of Redis as drivers get it."""
    return RedisAddress(
        mode=server.mode,
        nodes=list(server.nodes),
        db=server.db,
        username=server.username,
        password=server.password,
        tls=server.tls,
    )


@dataclass
class Seat:
    """The place of one client on the bench: its driver is started when needed and again after it broke."""

    launch: Launch
    seed: int
    connection: DriverConnection | None = None

    def driver(self) -> DriverConnection:
        """A living driver. Raises a DriverBroken problem when it cannot be started."""
        if self.connection is None or not self.connection.alive:
            self.connection = ChildProcess.start(self.launch.command, seed=self.seed, env=self.launch.environment)
        return self.connection

    def reset(self) -> None:
        """Close every handle of the driver, if it lives. One that cannot do that is ended, and started anew later."""
        if self.connection is not None and self.connection.alive:
            try:
                self.connection.call(lifecycle.Reset(), deadline_ms=15_000)
            except (DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported):
                self.connection.kill()

    def is_dead(self) -> bool:
        """Whether the driver that was started last is gone; unlike `driver`, asking starts no other."""
        return self.connection is not None and not self.connection.alive

    def leave(self) -> None:
        """End the driver."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


@dataclass
class Bench:
    """What scenarios run on. One per process; scenarios come one after the other."""

    server: Server
    oracle: Seat
    client: Seat

    def __post_init__(self) -> None:
        self.redis = self.server.connect()
        self.address = address_of(self.server)

    def both_have_clock(self) -> bool:
        """Whether time can stand still for both."""
        return all("clock" in seat.driver().ready.capabilities for seat in (self.oracle, self.client))

    def clock(self, *, frozen: bool) -> Clock:
        """A new clock for one participant."""
        return FrozenClock() if frozen else RunningClock()

    def prefix(self) -> str:
        """A random prefix of the run's own; never from the seed, because processes with equal seeds share one Redis."""
        return self.server.fresh_prefix()

    def participant(self, role: str, seat: Seat, prefix: str, clock: Clock) -> Participant:
        """Seat a client on a prefix."""
        return Participant(role, seat.driver(), redis=self.redis, address=self.address, prefix=prefix, clock=clock)

    def clear(self, prefixes: list[str]) -> None:
        """Remove what a scenario left in Redis."""
        for prefix in prefixes:
            self.server.remove_prefix(prefix)

    def leave(self) -> None:
        """End both drivers and the connection."""
        for seat in (self.oracle, self.client):
            seat.leave()
        self.redis.close()
