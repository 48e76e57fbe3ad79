"""The bench of one process: Redis, the oracle's driver and the client's, each behind a tap of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from conformance.environment.clients import Launch
from conformance.environment.drivers import RestartableDriver, place_tap
from conformance.environment.prepare import Environment
from conformance.observe.tap.recording import CommandRecord
from conformance.participants.caller import Role
from conformance.participants.clock import FrozenClock, ParticipantClock, RunningClock
from conformance.participants.participant import Participant
from conformance.servers.opening import RedisInstance

ROLES: tuple[Role, ...] = ("oracle", "client")


@dataclass
class Bench:
    """What scenarios run on. One per process; scenarios come one after the other.

    Each participant has a tap of its own in front of Redis. `scripts`: texts of the official scripts by name; with them
    the taps also know scripts that are only like official ones.
    """

    server: RedisInstance
    oracle: RestartableDriver
    client: RestartableDriver
    scripts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.redis = self.server.connect()
        self.taps = {role: place_tap(self.server, self.scripts) for role in ROLES}

    @property
    def drivers(self) -> tuple[RestartableDriver, RestartableDriver]:
        """The oracle's and the client's."""
        return self.oracle, self.client

    def processes(self) -> dict[str, int]:
        """The ids of the drivers that run, by whose they are."""
        pids = {f"the {role}'s driver": driver.pid() for role, driver in zip(ROLES, self.drivers, strict=True)}
        return {name: pid for name, pid in pids.items() if pid is not None}

    def both_have_clock(self) -> bool:
        """Whether time can stand still for both."""
        return all("clock" in driver.living().ready.capabilities for driver in self.drivers)

    def clock(self, *, frozen: bool) -> ParticipantClock:
        """A new clock for one participant."""
        return FrozenClock() if frozen else RunningClock()

    def prefix(self) -> str:
        """A random prefix of the run's own; never from the seed, because processes with equal seeds share one Redis."""
        return self.server.fresh_prefix()

    def participant(self, role: Role, prefix: str, clock: ParticipantClock) -> Participant:
        """A client on a prefix, behind the tap of its role."""
        driver = self.oracle if role == "oracle" else self.client
        return Participant(role, driver.living(), redis=self.redis, point=self.taps[role], prefix=prefix, clock=clock)

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
        """Remove what a scenario left in Redis. Handles have to be closed: a worker would write some of it again."""
        for prefix in prefixes:
            self.server.remove_prefix(prefix)

    def close(self) -> None:
        """End both drivers, the taps and the connection."""
        for driver in self.drivers:
            driver.close()
        for point in self.taps.values():
            point.close()
        self.redis.close()


@dataclass(frozen=True)
class BenchPlan:
    """What a process needs to open a bench; crosses to xdist workers as JSON.

    `logs`: folder for what the client's drivers write to stderr; empty: nowhere.
    """

    server: RedisInstance
    oracle: Launch
    client: Launch
    seed: int
    scripts: dict[str, str]
    logs: str = ""

    @staticmethod
    def of(environment: Environment, logs: str = "") -> BenchPlan:
        """The bench of a prepared environment."""
        return BenchPlan(
            server=environment.server,
            oracle=environment.oracle,
            client=environment.client,
            seed=environment.seed,
            scripts=dict(environment.scripts),
            logs=logs,
        )

    def encode(self) -> str:
        """As JSON text."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def decode(text: str) -> BenchPlan:
        """From JSON text."""
        return msgspec.json.decode(text, type=BenchPlan)

    def open(self) -> Bench:
        """A bench for this process; its drivers start with the first scenario."""
        log_file = (
            Path(self.logs) / f"client-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.log" if self.logs else None
        )
        oracle = RestartableDriver(self.oracle, self.seed)
        client = RestartableDriver(self.client, self.seed, log_file=log_file)
        return Bench(self.server, oracle, client, self.scripts)
