"""A cluster of three primaries, each with a replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import redis

from chaos.redis_process import Persistence, RedisProcess
from chaos.topologies.base import Topology
from conformance.problems import EnvironmentProblem
from conformance.protocol.slots import slot_of
from conformance.servers.binary import Binary
from conformance.servers.cluster import slot_ranges
from conformance.servers.connection import send
from conformance.servers.ports import HOST
from conformance.servers.waiting import wait_until

PRIMARIES = 3
FORM_DEADLINE_S = 60.0
LOOK_S = 0.05


class Nodes:
    """The nodes of a cluster, and who owns what now."""

    def __init__(self, servers: list[RedisProcess]) -> None:
        self.servers = servers

    def id_of(self, server: RedisProcess) -> str:
        """The node's own id."""
        with server.connect() as client:
            return _text(send(client, "CLUSTER", "MYID"))

    def owner(self, key: str) -> RedisProcess:
        """The primary of a key's slot, as most living nodes see it. Raises EnvironmentProblem if nobody is."""
        slot = slot_of(key.encode())
        for server in self.servers:
            try:
                with server.connect(timeout_s=2.0) as client:
                    ranges = send(client, "CLUSTER", "SLOTS")
            except redis.RedisError:
                continue
            for first, last, primary, *_ in ranges:
                found = self._at(int(primary[1]))
                if int(first) <= slot <= int(last) and found is not None and found.running:
                    return found
        raise EnvironmentProblem(f"no node of the cluster owns slot {slot}")

    def replica_of(self, server: RedisProcess) -> RedisProcess:
        """A replica of a primary. Raises EnvironmentProblem if it has none."""
        own = self.id_of(server)
        with server.connect() as client:
            lines = [_text(line) for line in send(client, "CLUSTER", "REPLICAS", own)]
        ports = [int(line.split()[1].split("@")[0].rpartition(":")[2]) for line in lines]
        for port in ports:
            found = self._at(port)
            if found is not None and found.running:
                return found
        raise EnvironmentProblem(f"the node at port {server.port} has no replica")

    def _at(self, port: int) -> RedisProcess | None:
        return next((server for server in self.servers if server.port == port), None)

    def healthy(self) -> bool:
        """Whether every node sees all slots served, and nobody failing."""
        return all(_is_whole(server, len(self.servers)) for server in self.servers)


@contextmanager
def cluster(binary: Binary, persistence: Persistence) -> Iterator[Topology]:
    """Run it for the duration of the block. Raises EnvironmentProblem if it does not come up."""
    with ExitStack() as stack:
        servers = [RedisProcess(binary, persistence=persistence, mode="cluster") for _ in range(2 * PRIMARIES)]
        for server in servers:
            stack.callback(server.close)
            server.start()
        nodes = Nodes(servers)
        _form(nodes)
        yield Topology(
            "cluster",
            list(servers),
            [server.node for server in servers],
            lambda: nodes.servers[0],
            cluster=True,
            nodes_of_cluster=nodes,
        )


def _form(nodes: Nodes) -> None:
    primaries, replicas = nodes.servers[:PRIMARIES], nodes.servers[PRIMARIES:]
    for epoch, (server, slots) in enumerate(zip(primaries, slot_ranges(PRIMARIES), strict=True), 1):
        with server.connect() as client:
            send(client, "CLUSTER ADDSLOTSRANGE", slots.start, slots.stop - 1)
            send(client, "CLUSTER SET-CONFIG-EPOCH", epoch)
    first = nodes.servers[0]
    for server in nodes.servers[1:]:
        with server.connect() as client:
            send(client, "CLUSTER MEET", HOST, first.port)
    _insist(lambda: all(_known(server) == len(nodes.servers) for server in nodes.servers), "nodes did not meet")
    for primary, replica in zip(primaries, replicas, strict=True):
        with replica.connect() as client:
            send(client, "CLUSTER REPLICATE", nodes.id_of(primary))
    _insist(nodes.healthy, "the cluster did not form")
    _insist(lambda: all(_is_linked(replica) for replica in replicas), "the replicas did not get their data")


def _insist(condition: Callable[[], bool], problem: str) -> None:
    if not wait_until(condition, deadline_s=FORM_DEADLINE_S, step_s=LOOK_S):
        raise EnvironmentProblem(f"{problem} within {FORM_DEADLINE_S:g} s")


def _info(server: RedisProcess) -> dict[str, str]:
    try:
        with server.connect(timeout_s=2.0) as client:
            reply = send(client, "CLUSTER", "INFO")
    except redis.RedisError:
        return {}
    if isinstance(reply, dict):
        return {_text(name): _text(value) for name, value in reply.items()}
    return dict(line.split(":", 1) for line in _text(reply).splitlines() if ":" in line)


def _known(server: RedisProcess) -> int:
    return int(_info(server).get("cluster_known_nodes", 0))


def _is_whole(server: RedisProcess, known: int) -> bool:
    info = _info(server)
    whole = info.get("cluster_state") == "ok" and info.get("cluster_slots_fail") == "0"
    return whole and info.get("cluster_slots_pfail") == "0" and info.get("cluster_known_nodes") == str(known)


def _is_linked(server: RedisProcess) -> bool:
    with server.connect(timeout_s=2.0) as client:
        facts = client.info("replication")
    return bool(facts.get("role") == "slave" and facts.get("master_link_status") == "up")


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
