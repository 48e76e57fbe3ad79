"""What a run knows of its Redis, however many servers that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import redis

from conformance.servers.connection import Client, connect
from conformance.servers.setting import Address

TopologyName: TypeAlias = Literal["single", "replica", "sentinel", "cluster"]


class RedisServer(Protocol):
    """One server, in a process or in a container."""

    @property
    def node(self) -> str:
        """`host:port` for this machine."""
        ...

    @property
    def running(self) -> bool:
        """Whether it is there, frozen or not."""
        ...

    def connect(self, *, timeout_s: float = 10.0) -> redis.Redis:
        """A client of this one server."""
        ...

    def start(self, *, wait: bool = True) -> None:
        """Start it with the data that it has."""
        ...

    def wait_until_ready(self) -> None:
        """Wait until it serves commands."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...

    def freeze(self) -> None:
        """Let it stand still."""
        ...

    def thaw(self) -> None:
        """Let it go on."""
        ...


class ClusterNodes(Protocol):
    """The nodes of a cluster."""

    def owner(self, key: str) -> RedisServer:
        """The primary of a key's slot."""
        ...

    def replica_of(self, server: Any) -> RedisServer:
        """A replica of a primary."""
        ...

    def id_of(self, server: Any) -> str:
        """The node's own id."""
        ...

    def healthy(self) -> bool:
        """Whether every node sees all slots served, and nobody failing."""
        ...


class FailOver(Protocol):
    """A primary with a replica."""

    def promote(self) -> None:
        """Make the replica the primary, and lead everybody there."""
        ...

    def follow(self) -> None:
        """Make the other server a replica of the primary, and wait until it has the data."""
        ...

    @property
    def replica(self) -> RedisServer:
        """The one that has no writes of its own."""
        ...


@dataclass
class Topology:
    """Servers, and where clients find them.

    `nodes`: what taps are put in front of. `primary`: where a client of one server finds the data now. `pair`,
    `nodes_of_cluster`: what faults of that topology need.
    """

    name: TopologyName
    servers: list[RedisServer]
    nodes: list[str]
    primary: Callable[[], RedisServer]
    cluster: bool = False
    pair: FailOver | None = None
    nodes_of_cluster: ClusterNodes | None = None

    def connect(self, *, timeout_s: float = 10.0) -> Client:
        """A client of the kit's own, past all taps. Raises redis errors."""
        if self.cluster:
            alive = [server.node for server in self.servers if server.running]
            return connect(Address(mode="cluster", nodes=alive), timeout_s=timeout_s)
        return self.primary().connect(timeout_s=timeout_s)
