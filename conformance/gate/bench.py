"""The bench of one process: Redis, the oracle's driver and the client's, each behind a tap of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from conformance.driver.messages import Ready
from conformance.environment.clients import Launch
from conformance.environment.drivers import RestartableDriver, place_tap
from conformance.environment.prepare import Environment
from conformance.observe.tap.recording import CommandRecord
from conformance.participants.caller import Role
from conformance.participants.cancellation import Cancellation
from conformance.participants.clock import FrozenClock, ParticipantClock, RunningClock
from conformance.participants.names import Names
from conformance.participants.participant import Participant
from conformance.participants.stand_in import StandIn
from conformance.participants.wait_limits import WaitHistory
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.servers.opening import RedisInstance, unlink_matching


@dataclass
class Bench:
    """What scenarios run on. One per process; scenarios come one after the other.

    Each participant has a tap of its own in front of Redis. `stand_in`: another driver of the oracle, which does on the
    client's keys what the client's driver cannot do; started when that is needed. `scripts`: texts of the official
    scripts by name; with them the taps also know scripts that are only like official ones. `waits`: what became of the
    waits of all its scenarios. `oracle_version`: what the scenarios, and the checks of calls of scripts, have to fit.
    `partner`: who takes the oracle's place in hand-overs, if somebody does.
    """

    server: RedisInstance
    oracle: RestartableDriver
    client: RestartableDriver
    scripts: Mapping[str, str] = field(default_factory=dict)
    stand_in: RestartableDriver | None = None
    waits: WaitHistory = field(default_factory=WaitHistory)
    oracle_version: str = BULLMQ_VERSION
    partner: RestartableDriver | None = None

    def __post_init__(self) -> None:
        self.redis = self.server.connect()
        self.taps = {role: place_tap(self.server, self.scripts) for role in self._by_role}

    @property
    def _by_role(self) -> dict[Role, RestartableDriver]:
        found: dict[Role, RestartableDriver] = {"oracle": self.oracle, "client": self.client}
        return {**found, **({"partner": self.partner} if self.partner else {})}

    @property
    def second(self) -> Role:
        """Who is the other client where two share a queue."""
        return "partner" if self.partner else "oracle"

    def driver_of(self, role: Role) -> RestartableDriver:
        """The driver of a participant."""
        return self._by_role[role]

    @property
    def drivers(self) -> tuple[RestartableDriver, ...]:
        """The oracle's, the client's, and that of a partner."""
        return tuple(self._by_role.values())

    @property
    def every_driver(self) -> tuple[RestartableDriver, ...]:
        """These, and that of the stand-in."""
        return (*self.drivers, *([self.stand_in] if self.stand_in else []))

    def processes(self) -> dict[str, int]:
        """The ids of the drivers that run, by whose they are."""
        pids = {f"the {role}'s driver": driver.pid() for role, driver in self._by_role.items()}
        return {name: pid for name, pid in pids.items() if pid is not None}

    def both_have_clock(self) -> bool:
        """Whether time can stand still for the oracle and the client."""
        return all("clock" in driver.living().ready.capabilities for driver in (self.oracle, self.client))

    def clock(self, *, frozen: bool, cancellation: Cancellation | None = None) -> ParticipantClock:
        """A new clock for one participant."""
        return FrozenClock() if frozen else RunningClock((cancellation or Cancellation()).sleep)

    def prefix(self) -> str:
        """A random prefix of the run's own; never from the seed, because processes with equal seeds share one Redis."""
        return self.server.fresh_prefix()

    def names(self, role: Role | None = None) -> Names:
        """A fresh prefix for one participant; without a role, for the client and whoever shares its queue."""
        there: tuple[Role, ...] = (role,) if role else ("client", self.second)
        fixed = [self.driver_of(each).handshake().fixed_prefix for each in there if each != "oracle"]
        return Names(self.prefix(), fixed_prefix=next(filter(None, fixed), None))

    def participant(
        self,
        role: Role,
        names: Names,
        clock: ParticipantClock,
        cancellation: Cancellation | None = None,
        *,
        uses_loop_workers: bool = False,
    ) -> Participant:
        """A client on a prefix, behind the tap of its role. `uses_loop_workers`: loops play its manual workers."""
        made = Participant(
            role,
            self.driver_of(role).living(),
            redis=self.redis,
            point=self.taps[role],
            names=names,
            clock=clock,
            cancellation=cancellation,
            stand_in=self._in_place_of(role, uses_loop_workers=uses_loop_workers),
        )
        made.uses_loop_workers = uses_loop_workers
        return made

    def oracle_in_place_of_client(
        self, names: Names, clock: ParticipantClock, cancellation: Cancellation
    ) -> Participant:
        """The oracle in the client's role, with loops that play its manual workers: shows what such a client can do."""
        assert self.stand_in is not None
        address = self.taps["client"].address
        made = Participant(
            "client",
            self.stand_in.living(),
            redis=self.redis,
            point=self.taps["client"],
            names=names,
            clock=clock,
            cancellation=cancellation,
            stand_in=StandIn(self.stand_in.living, address),
        )
        made.uses_loop_workers = True
        return made

    def uses_loop_workers(self) -> bool:
        """Whether loops have to play the manual workers of both sides, because the client has no others."""
        if self.stand_in is None:
            return False
        ready = self.client.handshake()
        can = "managed-worker" in ready.capabilities and "resolve" in ready.ops
        return can and "manual-worker" not in ready.capabilities

    def _in_place_of(self, role: Role, *, uses_loop_workers: bool) -> StandIn | None:
        """Who does what this client cannot do. For the second one, only what a loop cannot play is done so."""
        if self.stand_in is None or (role != "client" and not uses_loop_workers):
            return None
        if role != "client":
            return StandIn(self.oracle.living, self.taps[role].address)
        if lacks_a_worker(self.client.handshake()):
            # Needed in most scenarios: started inside of the first, it would let the other side run ahead.
            self.stand_in.living()
        return StandIn(self.stand_in.living, self.server.for_drivers)

    @contextmanager
    def oracle_in_place_of_the_client(self) -> Iterator[None]:
        """Inside the block two drivers of the oracle play client and partner: they show what its version does."""
        client, partner = self.client, self.partner
        if self.stand_in is None:
            raise AssertionError("a bench without a stand-in has one version of the oracle, which is prepared")
        self.client, self.partner = self.stand_in, None
        try:
            yield
        finally:
            self.client, self.partner = client, partner

    def begin(self) -> None:
        """Start a scenario: nothing is in force at the taps, and nothing recorded."""
        for point in self.taps.values():
            point.start_scenario()

    def heal(self) -> None:
        """Let go of everything that a scenario has left in force at the taps."""
        for point in self.taps.values():
            point.heal()

    def traffic(self, role: Role) -> tuple[CommandRecord, ...]:
        """What a participant has sent since `begin`; nothing where it has no tap.

        Raises EnvironmentProblem if its tap has a defect.
        """
        return self.taps[role].traffic()

    def clear(self, places: Iterable[Names]) -> None:
        """Remove what a scenario left in Redis. Handles have to be closed: a worker would write some of it again."""
        for pattern in sorted({names.pattern for names in places}):
            unlink_matching(self.redis, pattern)

    def close(self) -> None:
        """End both drivers, the taps and the connection."""
        for driver in self.every_driver:
            driver.close()
        for point in self.taps.values():
            point.close()
        self.redis.close()


def lacks_a_worker(ready: Ready) -> bool:
    """Whether there is a style of worker that a driver does not declare."""
    return not {"manual-worker", "managed-worker"} <= {*ready.capabilities}


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
    oracle_version: str = BULLMQ_VERSION
    partner: Launch | None = None

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
            oracle_version=environment.toolchain.package.version,
            partner=environment.partner,
        )

    def encode(self) -> str:
        """As JSON text."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def decode(text: str) -> BenchPlan:
        """From JSON text."""
        return msgspec.json.decode(text, type=BenchPlan)

    def open(self, drivers: Mapping[str, RestartableDriver] | None = None) -> Bench:
        """A bench for this process; its drivers start with the first scenario, but for those that are given."""
        given = drivers or {}
        partner = RestartableDriver(self.partner, self.seed) if self.partner else None
        return Bench(
            self.server,
            given.get("oracle") or RestartableDriver(self.oracle, self.seed),
            given.get("client") or RestartableDriver(self.client, self.seed, log_file=client_log(self.logs)),
            self.scripts,
            RestartableDriver(self.oracle, self.seed),
            oracle_version=self.oracle_version,
            partner=given.get("partner") or partner,
        )


def client_log(logs: str) -> Path | None:
    """Where this process keeps what the client's driver writes to stderr. `logs`: the folder; empty: nowhere."""
    return Path(logs) / f"client-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.log" if logs else None
