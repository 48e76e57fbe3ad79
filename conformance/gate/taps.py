"""The taps of a bench: one in front of Redis for each participant, for as long as the bench is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.driver.messages import RedisAddress
from conformance.observe.tap.records import CommandRecord
from conformance.observe.tap.tap import Tap
from conformance.problems import EnvironmentProblem
from conformance.servers.server import Server
from conformance.servers.setting import join_node
from conformance.upstream.manifest import load_manifest

OVER_TLS = "Redis is reached over TLS: the client itself has to speak it, and what it says cannot be read in between"


def reason_for_none(server: Server) -> str:
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


def place_tap(server: Server, texts: Mapping[str, str]) -> TapPoint:
    """Start a tap in front of this Redis, where one can be.

    `texts`: the official scripts by name. Raises EnvironmentProblem if it cannot listen, redis errors of a cluster.
    """
    address = server.for_drivers
    reason = reason_for_none(server)
    if reason:
        return TapPoint(address, None, reason)
    names = {entry.sha1: name for name, entry in load_manifest().scripts.items()}
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


def _every_node(server: Server) -> list[str]:
    """All nodes, also those of a cluster that the user has not named: a client will be sent to each of them."""
    if server.mode == "standalone" or server.own:
        return server.nodes
    with server.connect() as client:
        return [join_node(node.host, node.port) for node in client.get_nodes()]
