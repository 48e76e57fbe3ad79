"""The bench of one process: Redis, and the drivers of oracle and client, each behind its own tap."""

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
from conformance.environment.starvation import CpuTimes
from conformance.gate.endless_scripts import EndlessScripts
from conformance.observe.tap.recording import CommandRecord
from conformance.participants.caller import Role
from conformance.participants.cancellation import Cancellation
from conformance.participants.clock import FrozenClock, ParticipantClock, RunningClock
from conformance.participants.names import Names
from conformance.participants.participant import Participant
from conformance.participants.stand_in import StandIn
from conformance.participants.wait_limits import WaitHistory
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.servers.connection import wait_until
from conformance.servers.opening import RedisInstance, unlink_matching

FLOOD_GOES_ON = 100
FLOOD_ENDS_S = 1.0
"""A client that sends this many commands within this time after its reset does not stop by itself."""


@dataclass
class Bench:
    """Runs the scenarios of one process, one after the other.

    Each participant has its own tap in front of Redis. `stand_in`: a second driver of the oracle; on the client's keys
    it performs operations that the client's driver lacks; started on demand. `scripts`: texts of the official scripts
    by name, by which the taps recognise similar scripts. `waits`: outcomes of the waits of all scenarios.
    `oracle_version`: the version that scenarios and script calls are checked against. `partner`: replaces the oracle as
    second client in hand-overs, if given. `client_login`: user and password of the client under test alone, if it has
    its own.
    """

    server: RedisInstance
    oracle: RestartableDriver
    client: RestartableDriver
    scripts: Mapping[str, str] = field(default_factory=dict)
    stand_in: RestartableDriver | None = None
    waits: WaitHistory = field(default_factory=WaitHistory)
    oracle_version: str = BULLMQ_VERSION
    partner: RestartableDriver | None = None
    client_login: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        # The kit's own connection passes no tap, so that disturbances of a scenario never hurt the observer.
        self.redis = self.server.connect()
        self.taps = {role: place_tap(self.server, self.scripts, slows_floods=True) for role in self._by_role}
        if self.client_login is not None:
            self.taps["client"] = self.taps["client"].logging_in(*self.client_login)
        self._cpu = CpuTimes()
        self.scripts_of_client = EndlessScripts(self.server, self.redis, self.taps["client"], self.taps.values())

    @property
    def _by_role(self) -> dict[Role, RestartableDriver]:
        found: dict[Role, RestartableDriver] = {"oracle": self.oracle, "client": self.client}
        return {**found, **({"partner": self.partner} if self.partner else {})}

    @property
    def second(self) -> Role:
        """The role of the second client on a shared queue."""
        return "partner" if self.partner else "oracle"

    def driver_of(self, role: Role) -> RestartableDriver:
        """Return the driver of a participant."""
        return self._by_role[role]

    @property
    def drivers(self) -> tuple[RestartableDriver, ...]:
        """The drivers of the oracle, the client, and the partner if there is one."""
        return tuple(self._by_role.values())

    @property
    def every_driver(self) -> tuple[RestartableDriver, ...]:
        """All drivers, including the stand-in."""
        return (*self.drivers, *([self.stand_in] if self.stand_in else []))

    def processes(self) -> dict[str, int]:
        """Return the process ids of the running drivers, by owner."""
        drivers: dict[str, RestartableDriver] = dict(self._by_role.items())
        if self.stand_in is not None:
            drivers["stand-in"] = self.stand_in
        pids = {f"the {role}'s driver": driver.pid() for role, driver in drivers.items()}
        return {name: pid for name, pid in pids.items() if pid is not None}

    def cpu_ms(self) -> dict[str, float]:
        """Return the CPU time (ms) that the drivers of oracle and client have used since the last question."""
        drivers = {"oracle": self.oracle, "client": self.client}
        return {role: self._cpu.newly_used_ms(driver.pid()) for role, driver in drivers.items()}

    def both_have_clock(self) -> bool:
        """Whether both oracle and client can run on a frozen clock."""
        return all("clock" in driver.living().ready.capabilities for driver in (self.oracle, self.client))

    def clock(
        self, *, frozen: bool, ages_data: bool = False, cancellation: Cancellation | None = None
    ) -> ParticipantClock:
        """Return a new clock for one participant."""
        return FrozenClock() if frozen else RunningClock((cancellation or Cancellation()).sleep, ages_data=ages_data)

    def prefix(self) -> str:
        """Return a random prefix, independent of the seed because processes with equal seeds share one Redis."""
        return self.server.fresh_prefix()

    def names(self, role: Role | None = None) -> Names:
        """Return a fresh prefix for one participant; without a role, for client and partner on a shared queue."""
        roles: tuple[Role, ...] = (role,) if role else ("client", self.second)
        fixed = [self.driver_of(name).handshake().fixed_prefix for name in roles if name != "oracle"]
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
        """Return a client on a prefix, behind its role's tap. `uses_loop_workers`: loops emulate its manual workers."""
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
        return self._with_loops(made) if uses_loop_workers else made

    def oracle_in_place_of_client(
        self, names: Names, clock: ParticipantClock, cancellation: Cancellation
    ) -> Participant:
        """Return the oracle in the client's role, with loops for its manual workers: a control for such clients."""
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
        return self._with_loops(made)

    def _with_loops(self, participant: Participant) -> Participant:
        """Return the participant, whose manual workers are loops that are held back in the way of the client's."""
        participant.uses_loop_workers = True
        participant.pauses_loops = "worker.pause" in self.client.handshake().ops
        return participant

    def uses_loop_workers(self) -> bool:
        """Whether loops emulate the manual workers of both sides, because the client only has loops."""
        if self.stand_in is None:
            return False
        ready = self.client.handshake()
        can = "managed-worker" in ready.capabilities and "resolve" in ready.ops
        return can and "manual-worker" not in ready.capabilities

    def _in_place_of(self, role: Role, *, uses_loop_workers: bool) -> StandIn | None:
        """Return the stand-in for operations that this client lacks; the second client needs one only for its loops."""
        if self.stand_in is None or (role != "client" and not uses_loop_workers):
            return None
        if role != "client":
            return StandIn(self.oracle.living, self.taps[role].address)
        if lacks_a_worker(self.client.handshake()):
            # Most scenarios need it. If it started inside the first one, the other side would run ahead meanwhile.
            self.stand_in.living()
        return StandIn(self.stand_in.living, self.server.for_drivers)

    @contextmanager
    def oracle_in_place_of_the_client(self) -> Iterator[None]:
        """Use two drivers of the oracle as client and partner inside the block: this shows what its version does."""
        client, partner = self.client, self.partner
        if self.stand_in is None:
            raise AssertionError("a bench without a stand-in has one version of the oracle, which is prepared")
        self.client, self.partner = self.stand_in, None
        try:
            yield
        finally:
            self.client, self.partner = client, partner

    def begin(self) -> None:
        """Reset the taps for a new scenario: no rules, and no recorded traffic."""
        for point in self.taps.values():
            point.start_scenario()
        self.scripts_of_client.begin()

    def heal(self) -> None:
        """Lift all rules that a scenario left in force at the taps."""
        for point in self.taps.values():
            point.heal()
        self.scripts_of_client.refuse()

    def traffic(self, role: Role) -> tuple[CommandRecord, ...]:
        """Return the commands that a participant has sent since `begin`; nothing if it has no tap.

        Raises EnvironmentProblem if its tap has a defect.
        """
        return self.taps[role].traffic()

    def ends_flood(self) -> tuple[CommandRecord, ...]:
        """End the client if it still sends commands although everything is closed. Returns these commands."""
        tap = self.taps["client"].tap
        if tap is None or not tap.has_floods:
            return ()
        since = tap.recording.mark()
        if not wait_until(lambda: tap.recording.mark() - since >= FLOOD_GOES_ON, deadline_s=FLOOD_ENDS_S):
            return ()
        if self.client.connection is not None:
            self.client.breakdowns.flooded()
            self.client.connection.kill()
        return tap.recording.commands(after=since)

    def clear(self, places: Iterable[Names]) -> None:
        """Remove a scenario's keys from Redis. Close handles first: an open worker would write some keys again."""
        # Sorted and without duplicates: two participants of a shared queue have the same pattern.
        for pattern in sorted({names.pattern for names in places}):
            unlink_matching(self.redis, pattern)

    def close(self) -> None:
        """Close the drivers, the taps and the connection."""
        # Drivers before taps: a driver whose tap is gone would report a lost connection while it closes.
        for driver in self.every_driver:
            driver.close()
        for point in self.taps.values():
            point.close()
        self.redis.close()


def lacks_a_worker(ready: Ready) -> bool:
    """Whether a driver lacks one of the two styles of worker."""
    return not {"manual-worker", "managed-worker"} <= {*ready.capabilities}


@dataclass(frozen=True)
class BenchPlan:
    """Everything that a process needs to open a bench; sent to xdist workers as JSON.

    `logs`: folder for the stderr of the client's drivers; empty: not kept.
    """

    server: RedisInstance
    oracle: Launch
    client: Launch
    seed: int
    scripts: dict[str, str]
    logs: str = ""
    oracle_version: str = BULLMQ_VERSION
    partner: Launch | None = None
    client_login: tuple[str, str] | None = None

    @staticmethod
    def of(environment: Environment, logs: str = "", client_login: tuple[str, str] | None = None) -> BenchPlan:
        """Return the plan for a prepared environment."""
        return BenchPlan(
            server=environment.server,
            oracle=environment.oracle,
            client=environment.client,
            seed=environment.seed,
            scripts=dict(environment.scripts),
            logs=logs,
            oracle_version=environment.toolchain.package.version,
            partner=environment.partner,
            client_login=client_login,
        )

    def encode(self) -> str:
        """Encode as JSON."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def decode(text: str) -> BenchPlan:
        """Decode from JSON."""
        return msgspec.json.decode(text, type=BenchPlan)

    def open(self, drivers: Mapping[str, RestartableDriver] | None = None) -> Bench:
        """Open a bench for this process. Drivers start with the first scenario, unless they are given."""
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
            client_login=self.client_login,
        )


def client_log(logs: str) -> Path | None:
    """Return the file for the stderr of this process's client driver. `logs`: the folder; empty: not kept."""
    return Path(logs) / f"client-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.log" if logs else None
