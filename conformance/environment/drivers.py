"""The two ends of a participant: its driver, started again after it broke, and the tap in front of Redis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conformance.driver.breakdowns import Breakdowns
from conformance.driver.connection import DriverConnection
from conformance.driver.errors import (
    DriverBroken,
    OperationFailed,
    OperationGivenUp,
    OperationIndeterminate,
    OperationUnsupported,
)
from conformance.driver.messages import Ready, client_text
from conformance.driver.ops import lifecycle
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.transports import ChildProcess
from conformance.environment.clients import Launch
from conformance.observe.tap.recording import CommandRecord
from conformance.observe.tap.tap import Tap
from conformance.problems import EnvironmentProblem
from conformance.servers.opening import RedisInstance
from conformance.servers.setting import join_node
from conformance.upstream.manifest import script_names_by_sha1


@dataclass
class RestartableDriver:
    """One client's driver: started when it is needed, and again after it broke. `log_file` gets all of its stderr."""

    launch: Launch
    seed: int
    connection: DriverConnection | None = None
    log_file: Path | None = None
    """Where all that it writes to stderr is kept; None: nowhere."""
    breakdowns: Breakdowns = field(default_factory=Breakdowns)
    """Which of its operations have hung: what was found out once is not found out again after every start."""

    def living(self) -> DriverConnection:
        """The connection to a living driver. Raises a DriverBroken problem when it cannot be started."""
        if self.connection is None or not self.connection.alive:
            self.connection = ChildProcess.start(
                self.launch.command,
                seed=self.seed,
                env=self.launch.environment,
                log_file=self.log_file,
                breakdowns=self.breakdowns,
            )
        return self.connection

    def handshake(self) -> Ready:
        """What the driver said of itself when it was started last. Raises DriverBroken if that cannot be done."""
        return (self.connection or self.living()).ready

    def pid(self) -> int | None:
        """Id of its process, while one runs; unlike `living`, asking starts none."""
        connection = self.connection
        return connection.pid if isinstance(connection, ChildProcess) and connection.alive else None

    def reset(self) -> None:
        """Close every handle of the driver, if it lives. One that cannot do that is ended, and started anew later."""
        if self.connection is not None and self.connection.alive:
            try:
                self.connection.call(lifecycle.Reset(), deadline_ms=15_000)
            except (DriverBroken, OperationFailed, OperationGivenUp, OperationIndeterminate, OperationUnsupported):
                self.connection.kill()

    def is_dead(self) -> bool:
        """Whether the driver that was started last is gone; unlike `living`, asking starts no other."""
        return self.connection is not None and not self.connection.alive

    def close(self) -> None:
        """End the driver."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def introduced(launch: Launch) -> str:
    """What a client says of itself and of what it stands on; its driver is started once to be asked.

    Raises DriverBroken if that cannot be done.
    """
    driver = RestartableDriver(launch, seed=0)
    try:
        return client_text(driver.handshake().client)
    finally:
        driver.close()


OVER_TLS = "Redis is reached over TLS: the client itself has to speak it, and what it says cannot be read in between"


def reason_for_none(server: RedisInstance) -> str:
    """Why there can be no taps in front of this Redis; empty where there can."""
    return OVER_TLS if server.tls else ""


@dataclass(frozen=True)
class TapPoint:
    """Where one participant finds Redis: at its tap, or, for a reason, at Redis itself."""

    address: RedisAddress
    tap: Tap | None
    reason: str = ""

    def begin(self) -> None:
        """Nothing is in force and nothing is recorded: a scenario starts."""
        if self.tap is not None:
            self.tap.heal()
            self.tap.forget()

    def heal(self) -> None:
        """Let go of everything that a scenario has left in force."""
        if self.tap is not None:
            self.tap.heal()

    def traffic(self) -> tuple[CommandRecord, ...]:
        """What the participant has sent in this scenario.

        Raises EnvironmentProblem if the tap itself has a defect: then it may have changed what was sent.
        """
        if self.tap is None:
            return ()
        if self.tap.failures:
            raise EnvironmentProblem("the tap failed: " + "; ".join(self.tap.failures))
        return self.tap.recording.commands()

    def close(self) -> None:
        """End the tap."""
        if self.tap is not None:
            self.tap.close()


def place_tap(server: RedisInstance, texts: Mapping[str, str]) -> TapPoint:
    """Start a tap in front of this Redis, where one can be.

    `texts`: the oracle's scripts by name; without them, the pinned ones are known by their digests. Raises
    EnvironmentProblem if it cannot listen, redis errors of a cluster.
    """
    address = server.for_drivers
    reason = reason_for_none(server)
    if reason:
        return TapPoint(address, None, reason)
    names = script_names_by_sha1(texts)
    tap = Tap(*_every_node(server), scripts=names, texts=texts, cluster=server.mode == "cluster").start()
    return TapPoint(_at(address, tap), tap)


def _at(address: RedisAddress, tap: Tap) -> RedisAddress:
    return RedisAddress(
        mode=address.mode,
        nodes=list(tap.addresses),
        db=address.db,
        username=address.username,
        password=address.password,
    )


def _every_node(server: RedisInstance) -> list[str]:
    """All nodes, also those of a cluster that the user has not named: a client will be sent to each of them."""
    if server.mode == "standalone" or server.own:
        return server.nodes
    with server.connect() as client:
        return [join_node(node.host, node.port) for node in client.get_nodes()]
