"""The driver of a participant, restarted if it breaks, and its tap in front of Redis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

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
from conformance.servers.binary import ServerBinary
from conformance.servers.opening import RedisInstance
from conformance.servers.setting import join_node
from conformance.upstream.manifest import script_names_by_sha1


@dataclass
class RestartableDriver:
    """The driver of a client, started when needed and again after it broke."""

    launch: Launch
    seed: int
    connection: DriverConnection | None = None
    log_file: Path | None = None
    """File for its complete stderr, if any."""
    breakdowns: Breakdowns = field(default_factory=Breakdowns)
    """Operations that hung or crashed, remembered across restarts."""

    def living(self) -> DriverConnection:
        """The connection to a running driver. Raises a DriverBroken problem if it cannot be started."""
        # Restarted only when needed: after a crash the next scenario starts it, and a crash at the end costs nothing.
        if self.connection is None or not self.connection.alive:
            self.connection = ChildProcess.start(
                self.launch.command,
                seed=self.seed,
                env=self.launch.environment,
                log_file=self.log_file,
                breakdowns=self.breakdowns,
            )
            self.connection.restrict(self.launch.declares)
        return self.connection

    def handshake(self) -> Ready:
        """The driver's declaration at its last start. Raises DriverBroken if it cannot be started."""
        # A dead driver's declaration stays valid, so no restart just to read it.
        return (self.connection or self.living()).ready

    def pid(self) -> int | None:
        """Id of its running process, if any. Does not start one, unlike `living`."""
        connection = self.connection
        return connection.pid if isinstance(connection, ChildProcess) and connection.alive else None

    def reset(self) -> None:
        """Close all handles of a running driver. If that fails, kill it; `living` starts a new one later."""
        if self.connection is not None and self.connection.alive:
            try:
                self.connection.call(lifecycle.Reset(), deadline_ms=15_000)
            except (DriverBroken, OperationFailed, OperationGivenUp, OperationIndeterminate, OperationUnsupported):
                # A driver that cannot reset may still hold workers, which would take the next scenario's jobs.
                self.connection.kill()

    def is_dead(self) -> bool:
        """Whether the last started driver has ended. Does not start another one, unlike `living`."""
        return self.connection is not None and not self.connection.alive

    def close(self) -> None:
        """End the driver."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def introduced(launch: Launch) -> str:
    """The client's name and versions, and those of its libraries. Starts its driver for the handshake.

    Raises DriverBroken if the driver cannot be started.
    """
    driver = RestartableDriver(launch, seed=0)
    try:
        return client_text(driver.handshake().client)
    finally:
        driver.close()


OVER_TLS = "Redis uses TLS, so a tap cannot read the traffic of the clients"


def reason_for_none(server: RedisInstance) -> str:
    """Why there can be no taps in front of this Redis; empty if there can."""
    return OVER_TLS if server.tls else ""


@dataclass(frozen=True)
class TapPoint:
    """The address of Redis for one participant: its tap, or Redis itself with the `reason` why there is no tap."""

    address: RedisAddress
    tap: Tap | None
    reason: str = ""
    program: ServerBinary | None = None
    """The program for a private Redis of the participant, if there is one."""

    def logging_in(self, user: str, password: str) -> TapPoint:
        """The same point for a participant with a login of its own."""
        return replace(self, address=msgspec.structs.replace(self.address, username=user, password=password))

    def start_scenario(self) -> None:
        """Remove all disturbances and recorded traffic of the last scenario."""
        if self.tap is not None:
            self.tap.heal()
            self.tap.forget()

    def heal(self) -> None:
        """Remove all disturbances that a scenario has left."""
        if self.tap is not None:
            self.tap.heal()

    def traffic(self) -> tuple[CommandRecord, ...]:
        """The commands of the participant in this scenario.

        Raises EnvironmentProblem if the tap itself failed: it may have changed the traffic.
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


def place_tap(server: RedisInstance, texts: Mapping[str, str], *, slows_floods: bool = False) -> TapPoint:
    """Start a tap in front of this Redis, if possible.

    `texts`: the oracle's scripts by name; without them, the tap knows the digests of the pinned scripts.
    `slows_floods`: see `Tap`. Raises
    EnvironmentProblem if it cannot listen, and the redis errors of a cluster.
    """
    address = server.for_drivers
    reason = reason_for_none(server)
    if reason:
        return TapPoint(address, None, reason, server.program)
    names = script_names_by_sha1(texts)
    cluster = server.mode == "cluster"
    tap = Tap(*_every_node(server), scripts=names, texts=texts, cluster=cluster, slows_floods=slows_floods).start()
    return TapPoint(_at(address, tap), tap, program=server.program)


def _at(address: RedisAddress, tap: Tap) -> RedisAddress:
    return RedisAddress(
        mode=address.mode,
        nodes=list(tap.addresses),
        db=address.db,
        username=address.username,
        password=address.password,
    )


def _every_node(server: RedisInstance) -> list[str]:
    """All nodes, including those of a cluster that the user did not list: Redis redirects clients to all of them."""
    if server.mode == "standalone" or server.own:
        return server.nodes
    with server.connect() as client:
        return [join_node(node.host, node.port) for node in client.get_nodes()]
