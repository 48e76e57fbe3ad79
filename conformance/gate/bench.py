"""The bench of one process: Redis, the oracle's driver, the client's driver, and the running of scenarios on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.driver.connection import (
    DriverBroken,
    DriverConnection,
    OperationFailed,
    OperationIndeterminate,
    OperationUnsupported,
)
from conformance.driver.ops import lifecycle
from conformance.driver.process import ChildProcess
from conformance.gate.participants.caller import Role
from conformance.gate.participants.clock import Clock, FrozenClock, RunningClock
from conformance.gate.participants.participant import Participant
from conformance.gate.preparing.clients import Launch
from conformance.gate.taps import place_tap
from conformance.observe.tap.records import CommandRecord
from conformance.servers.server import Server

ROLES: tuple[Role, ...] = ("oracle", "client")


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
    """What scenarios run on. One per process; scenarios come one after the other.

    Each participant has a tap of its own in front of Redis. `scripts`: texts of the official scripts by name; with them
    the taps also know scripts that are only like official ones.
    """

    server: Server
    oracle: Seat
    client: Seat
    scripts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.redis = self.server.connect()
        self.taps = {role: place_tap(self.server, self.scripts) for role in ROLES}

    def both_have_clock(self) -> bool:
        """Whether time can stand still for both."""
        return all("clock" in seat.driver().ready.capabilities for seat in (self.oracle, self.client))

    def clock(self, *, frozen: bool) -> Clock:
        """A new clock for one participant."""
        return FrozenClock() if frozen else RunningClock()

    def prefix(self) -> str:
        """A random prefix of the run's own; never from the seed, because processes with equal seeds share one Redis."""
        return self.server.fresh_prefix()

    def participant(self, role: Role, seat: Seat, prefix: str, clock: Clock) -> Participant:
        """Seat a client on a prefix, behind the tap of its role."""
        return Participant(role, seat.driver(), redis=self.redis, point=self.taps[role], prefix=prefix, clock=clock)

    def begin(self) -> None:
        """Start a scenario: nothing is in force at the taps, and nothing recorded."""
        for point in self.taps.values():
            point.begin()

    def heal(self) -> None:
        """Let go of everything that a scenario has left in force at the taps."""
        for point in self.taps.values():
            point.heal()

    def traffic(self, role: Role) -> tuple[CommandRecord, ...]:
        """What a participant has sent since `begin`; nothing where it has no tap.

        Raises EnvironmentProblem if its tap has a defect.
        """
        return self.taps[role].traffic()

    def clear(self, prefixes: list[str]) -> None:
        """Remove what a scenario left in Redis."""
        for prefix in prefixes:
            self.server.remove_prefix(prefix)

    def leave(self) -> None:
        """End both drivers, the taps and the connection."""
        for seat in (self.oracle, self.client):
            seat.leave()
        for point in self.taps.values():
            point.close()
        self.redis.close()
