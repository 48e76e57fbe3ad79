"""The drivers that are fuzzed, on one Redis: the oracle, the client at its tap, and a partner of the client."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import msgspec

from conformance.driver.messages import Capability
from conformance.environment.drivers import RestartableDriver, TapPoint, place_tap
from conformance.environment.prepare import EnvironmentOptions, prepare
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.protocol.versions import in_range
from conformance.servers.opening import RedisInstance

KEEPS_LAST = ">=5.77.4"
"""Releases in which a job that `keepLastIfActive` keeps back has its own id; 5.72 was the first with the option."""


@dataclass
class FuzzedDrivers:
    """One Redis, the oracle, and the client at its tap. `client` is None if only the oracle takes part.

    `scripts`: the oracle's scripts by name, for the tap. `partner`: the client that takes turns, if it is not the
    oracle. Call `close` at the end. Raises UsageProblem for a Redis cluster.
    """

    server: RedisInstance
    oracle: RestartableDriver
    client: RestartableDriver | None
    scripts: Mapping[str, str] = field(default_factory=dict)
    partner: RestartableDriver | None = None

    def __post_init__(self) -> None:
        if self.server.mode == "cluster":
            raise UsageProblem(
                "fuzz needs a single Redis", hint="give another --redis; a cluster cannot be read at once"
            )
        self.redis = self.server.connect()
        self.address = self.server.for_drivers
        self.client_point = place_tap(self.server, self.scripts) if self.client else TapPoint(self.address, None)

    @property
    def drivers(self) -> list[RestartableDriver]:
        """The drivers that take part."""
        return [driver for driver in (self.oracle, self.client, self.partner) if driver]

    @property
    def frozen(self) -> bool:
        """Whether time is frozen for all clients and only moves by steps of the clock."""
        return self._all_can("clock")

    @property
    def exact_data(self) -> bool:
        """Whether JSON texts reach Redis as they are sent."""
        return self._all_can("raw-data")

    @property
    def breaks_redis(self) -> bool:
        """Whether scripts may be flushed and connections cut: only on a Redis that the kit has started itself."""
        return self.server.own

    @property
    def cuts(self) -> bool:
        """Whether the client's connection can be cut at a command.

        Only if its time is frozen: a client with a running clock may retry unnoticed for a long time.
        """
        return self.client_point.tap is not None and self.frozen

    @property
    def keeps_last(self) -> bool:
        """Whether the oracle knows the deduplication option `keepLastIfActive`."""
        return in_range(self.oracle.handshake().client.version, KEEPS_LAST)

    @property
    def operations(self) -> frozenset[str]:
        """The operations that all clients declare."""
        return frozenset.intersection(*(frozenset(driver.living().ready.ops) for driver in self.drivers))

    def kill_connections(self) -> None:
        """Cut every connection to Redis but the kit's own. Raises EnvironmentProblem on a Redis that others use."""
        if not self.breaks_redis:
            raise EnvironmentProblem("connections are cut on a Redis of the kit's own only", hint="leave --redis away")
        # The kit's own connection is left, because it reads the state.
        self.redis.client_kill_filter(_type="normal", skipme=True)

    def close(self) -> None:
        """End the drivers, the tap and the connection."""
        for driver in self.drivers:
            # Drivers first: a driver whose tap is gone would report lost connections while it closes.
            driver.close()
        self.client_point.close()
        self.redis.close()

    def _all_can(self, capability: Capability) -> bool:
        return all(capability in driver.living().ready.capabilities for driver in self.drivers)


def prepare_drivers(
    options: EnvironmentOptions, stack: ExitStack, *, oracle_alone: bool, takes_turns: bool
) -> FuzzedDrivers:
    """Everything that fuzzing needs; Redis ends with `stack`, the drivers are closed by the caller.

    `oracle_alone`: ignore the client of `options`. `takes_turns`: a partner shares the client's queues.
    Raises a Problem that says what is wrong with the options or the environment.
    """
    if options.partner and not takes_turns:
        raise UsageProblem("--partner needs --mode interop", hint="leave --partner away, or use --mode interop")
    if oracle_alone and options.oracle:
        raise UsageProblem(
            f"the model says what BullMQ {BULLMQ_VERSION} does", hint="leave --oracle away, or use another --mode"
        )
    if oracle_alone:
        options = msgspec.structs.replace(options, client="node", command=())
    environment = stack.enter_context(prepare(options, prove=True))
    oracle = RestartableDriver(environment.oracle, 0)
    client = None if oracle_alone else RestartableDriver(environment.client, 0)
    partner = RestartableDriver(environment.partner, 0) if environment.partner else None
    return FuzzedDrivers(environment.server, oracle, client, environment.scripts, partner)
