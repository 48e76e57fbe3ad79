"""The place where sequences are played: one Redis, the oracle, the client, and a clean corner for each sequence."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from conformance.driver.messages import Capability
from conformance.environment.drivers import RestartableDriver, TapPoint, place_tap
from conformance.fuzz.comparing import Sight
from conformance.fuzz.cutting import TapCutter
from conformance.fuzz.dump import Eyes
from conformance.fuzz.findings import Known
from conformance.fuzz.foresight import ModelSide
from conformance.fuzz.modes import Mode
from conformance.fuzz.play import Play
from conformance.fuzz.sides import DriverSide, Side, TurnsSide
from conformance.participants.clock import FrozenClock, ParticipantClock, RunningClock
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers.server import Server

SHADOW = "alone-"
"""What the handles of the oracle's own prefix are called by, in interop: one driver has all of them."""


@dataclass
class Stage:
    """Plays one sequence after the other. `end` every play before the next begins, and `leave` at last."""

    server: Server
    oracle: RestartableDriver
    client: RestartableDriver
    mode: Mode = "differential"

    def __post_init__(self) -> None:
        if self.server.mode == "cluster":
            raise UsageProblem(
                "fuzz needs a single Redis", hint="give another --redis; a cluster cannot be read at once"
            )
        self._redis = self.server.connect()
        self._eyes = Eyes(self._redis)
        self._address = self.server.for_drivers
        self._point = place_tap(self.server, {}) if self.mode != "model" else TapPoint(self._address, None)
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="fuzz")

    @property
    def frozen(self) -> bool:
        """Whether time stands still for both clients and moves by steps of the clock only."""
        return self._both_can("clock")

    @property
    def exact_data(self) -> bool:
        """Whether JSON texts reach Redis as they are sent."""
        return self._both_can("raw-data")

    @property
    def breaks_redis(self) -> bool:
        """Whether scripts may be forgotten and connections cut: only on a Redis that nobody else uses."""
        return self.server.own

    @property
    def cuts(self) -> bool:
        """Whether the client's connection can be cut at a command.

        Only where its time stands still: a client with a clock of its own may try again behind the kit's back for long.
        """
        return self._point.tap is not None and self.frozen

    @property
    def operations(self) -> frozenset[str]:
        """What both clients declare."""
        return frozenset.intersection(*(frozenset(seat.living().ready.ops) for seat in self._seats()))

    def begin(self, known: Known | None = None) -> Play:
        """A new sequence on fresh prefixes."""
        expected, actual = self._sides()
        prefixes = [expected.prefix] if isinstance(actual, ModelSide) else [expected.prefix, actual.prefix]

        def look() -> tuple[Sight, Sight]:
            seen = self._eyes.look(*prefixes)
            return seen[0], actual.sight() if isinstance(actual, ModelSide) else seen[1]

        clock: ParticipantClock = FrozenClock() if self.frozen else RunningClock()
        self._point.begin()
        cutter = TapCutter(self._point.tap) if self._point.tap is not None else None
        known = known or Known()
        return Play(expected, actual, look, self._eyes, clock, self._pool, prefixes, self._cut, known, cutter=cutter)

    def end(self, play: Play) -> None:
        """Close what the sequence opened and remove what it left."""
        list(self._pool.map(RestartableDriver.reset, self._seats()))
        self._eyes.clear(play.prefixes)

    def leave(self) -> None:
        """End both drivers and the connection."""
        self._pool.shutdown()
        for seat in self._seats():
            seat.close()
        self._point.close()
        self._redis.close()

    def _seats(self) -> list[RestartableDriver]:
        return [self.oracle] if self.mode == "model" else [self.oracle, self.client]

    def _sides(self) -> tuple[Side, Side]:
        alone = DriverSide(self.oracle, self._address, self.server.fresh_prefix(), SHADOW)
        if self.mode == "model":
            return alone, ModelSide()
        client = DriverSide(self.client, self._point.address, self.server.fresh_prefix())
        if self.mode == "differential":
            return alone, client
        return alone, TurnsSide(client, DriverSide(self.oracle, self._address, client.prefix))

    def _cut(self) -> None:
        """Cut every connection to Redis but the kit's own."""
        if not self.breaks_redis:
            raise EnvironmentProblem("connections are cut on a Redis of the kit's own only", hint="leave --redis away")
        self._redis.client_kill_filter(_type="normal", skipme=True)

    def _both_can(self, capability: Capability) -> bool:
        return all(capability in seat.living().ready.capabilities for seat in self._seats())
