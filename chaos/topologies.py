"""The topologies of Redis servers: a single server, a primary with a replica, sentinels, a cluster."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass

import redis

from chaos.config import TopologyName
from chaos.redis_servers import ContainerServer, Persistence, RedisProcess, RedisServer, Relay
from conformance.environment.prepare import RedisProgram
from conformance.observe.tap.tap import Tap
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.protocol.keys import slot_of
from conformance.servers.binary import ServerBinary
from conformance.servers.connection import Client, connect, send, wait_until
from conformance.servers.local import HOST, slot_ranges
from conformance.servers.setting import RedisUrl
from conformance.upstream.manifest import script_names_by_sha1

LINK_DEADLINE_S = 20.0
SENTINELS = 3
# A majority of the three sentinels, as in production.
QUORUM = 2
GROUP = "chaos"
# Much shorter than a failover, so that clients are sent to the new primary soon.
SENTINEL_LOOK_S = 0.1
PRIMARIES = 3
FORM_DEADLINE_S = 60.0
CLUSTER_LOOK_S = 0.05


@dataclass
class Topology:
    """Servers, and their addresses.

    `nodes`: the addresses that get taps. `primary`: the server that has the data now. `pair`, `cluster_nodes`: for the
    faults of that topology.
    """

    name: TopologyName
    servers: list[RedisServer]
    nodes: list[str]
    primary: Callable[[], RedisServer]
    cluster: bool = False
    pair: ReplicaPair | None = None
    cluster_nodes: ChaosCluster | None = None

    def connect(self, *, timeout_s: float = 10.0) -> Client:
        """A client of the kit that bypasses all taps. Raises redis errors."""
        if self.cluster:
            # Dead nodes are left out, because connecting to them would fail.
            alive = [server.node for server in self.servers if server.running]
            return connect(RedisUrl(mode="cluster", nodes=alive), timeout_s=timeout_s)
        return self.primary().connect(timeout_s=timeout_s)

    def fresh_prefix(self) -> str:
        """An unused key prefix; in a cluster a hash tag, so that all keys of a queue are in one slot."""
        prefix = f"bc{secrets.randbits(32):08x}"
        return f"{{{prefix}}}" if self.cluster else prefix

    def new_tap(self, texts: Mapping[str, str]) -> Tap:
        """A tap for one process. `texts`: the oracle's scripts by name, to recognise changed scripts by similarity."""
        return Tap(*self.nodes, scripts=script_names_by_sha1(texts), texts=texts, cluster=self.cluster)


@contextmanager
def single(server: RedisServer) -> Iterator[Topology]:
    """Run one server for the duration of the block. Raises EnvironmentProblem."""
    try:
        server.start()
        yield Topology("single", [server], [server.node], lambda: server)
    finally:
        server.close()


class ReplicaPair:
    """Two servers, and the relay in front of the current primary."""

    def __init__(self, servers: list[RedisProcess], relay: Relay) -> None:
        self.servers = servers
        self.relay = relay

    @property
    def primary(self) -> RedisProcess:
        """The server that the relay leads to."""
        return next(server for server in self.servers if server.node == self.relay.target)

    @property
    def replica(self) -> RedisProcess:
        """The other one."""
        return next(server for server in self.servers if server is not self.primary)

    def promote(self) -> None:
        """Make the replica the primary, and point the relay at it."""
        chosen = self.replica
        with chosen.connect() as client:
            send(client, "REPLICAOF", "NO", "ONE")
        self.relay.point_at(chosen.node)  # after the promotion: a replica would refuse writes

    def follow(self) -> None:
        """Make the other server a replica of the primary, and wait until it has all of the data."""
        primary, replica = self.primary, self.replica
        with replica.connect() as client:
            send(client, "REPLICAOF", HOST, primary.port)
            # Waited for: a fault that starts before the replica has its data would lose more than it declares.
            wait_for_link(client)


def wait_for_link(client: redis.Redis) -> None:
    """Wait until a replica has the data of its primary. Raises EnvironmentProblem."""

    def linked() -> bool:
        facts = client.info("replication")
        return facts.get("master_link_status") == "up" and not facts.get("master_sync_in_progress")

    if not wait_until(linked, deadline_s=LINK_DEADLINE_S):
        raise EnvironmentProblem(f"a replica did not get its data within {LINK_DEADLINE_S:g} s")


@contextmanager
def replica(binary: ServerBinary, persistence: Persistence) -> Iterator[Topology]:
    """Run both for the duration of the block. Raises EnvironmentProblem."""
    with ExitStack() as stack:
        pair = _pair(binary, persistence, stack)
        yield Topology(
            "replica",
            list(pair.servers),
            [pair.relay.address],
            lambda: pair.primary,
            pair=pair,
        )


@contextmanager
def sentinel(binary: ServerBinary, persistence: Persistence) -> Iterator[Topology]:
    """Run both and three sentinels, which perform failovers. Raises EnvironmentProblem."""
    with ExitStack() as stack:
        pair = _pair(binary, persistence, stack)
        sentinels = [RedisProcess(binary, mode="sentinel") for _ in range(SENTINELS)]
        for process in sentinels:
            stack.callback(process.close)
            (process.folder / "sentinel.conf").write_text(_sentinel_config(pair.primary))
            process.start()
        # The relay follows before the sentinels are ready, so that no failover is missed.
        stack.enter_context(_following(pair, sentinels))
        _wait_until_all_know(sentinels)
        yield Topology(
            "sentinel",
            list(pair.servers),
            [pair.relay.address],
            lambda: pair.primary,
            pair=pair,
        )


def _pair(binary: ServerBinary, persistence: Persistence, stack: ExitStack) -> ReplicaPair:
    servers = [RedisProcess(binary, persistence=persistence) for _ in range(2)]
    for server in servers:
        stack.callback(server.close)
        server.start()
    pair = ReplicaPair(servers, stack.enter_context(Relay(servers[0].node)))
    pair.follow()
    return pair


def _sentinel_config(primary: RedisProcess) -> str:
    return "\n".join(
        (
            f"sentinel monitor {GROUP} {HOST} {primary.port} {QUORUM}",
            # Short, so that a failover takes about a second; production values are tens of seconds.
            f"sentinel down-after-milliseconds {GROUP} 600",
            # Also the time after which a second failover may be tried.
            f"sentinel failover-timeout {GROUP} 3000",
            f"sentinel parallel-syncs {GROUP} 1",
            "",
        )
    )


@contextmanager
def _following(pair: ReplicaPair, sentinels: list[RedisProcess]) -> Iterator[None]:
    """Point the relay at the primary that the sentinels report."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(SENTINEL_LOOK_S):
            for process in sentinels:
                with suppress(redis.RedisError), process.connect(timeout_s=1.0) as client:
                    host, port = send(client, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", GROUP)
                    node = f"{host.decode()}:{port.decode()}"
                    # Only servers of this pair: a sentinel may still report an address that is gone.
                    if node != pair.relay.target and any(node == server.node for server in pair.servers):
                        pair.relay.point_at(node)
                    # The first sentinel that answers is enough.
                    break

    thread = threading.Thread(target=follow, daemon=True, name="sentinel follower")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _wait_until_all_know(sentinels: list[RedisProcess]) -> None:
    """Wait until the sentinels have found each other and the replica; before that they cannot fail over."""

    def knows(process: RedisProcess) -> bool:
        with suppress(redis.RedisError), process.connect(timeout_s=2.0) as client:
            facts = send(client, "SENTINEL", "MASTER", GROUP)
            pairs = dict(zip(facts[::2], facts[1::2], strict=False)) if isinstance(facts, list) else facts
            text = {_text(name): _text(value) for name, value in pairs.items()}
            return int(text["num-other-sentinels"]) == SENTINELS - 1 and int(text["num-slaves"]) >= 1
        return False

    if not wait_until(
        lambda: all(knows(process) for process in sentinels), deadline_s=LINK_DEADLINE_S, step_s=SENTINEL_LOOK_S
    ):
        raise EnvironmentProblem(f"the sentinels did not find each other within {LINK_DEADLINE_S:g} s")


class ChaosCluster:
    """The nodes of a cluster, and the current owners of slots."""

    def __init__(self, servers: list[RedisProcess]) -> None:
        self.servers = servers

    def id_of(self, server: RedisServer) -> str:
        """The node's own id."""
        with server.connect() as client:
            return _text(send(client, "CLUSTER", "MYID"))

    def owner(self, key: str) -> RedisProcess:
        """The primary of a key's slot, as most live nodes see it. Raises EnvironmentProblem if there is none."""
        slot = slot_of(key.encode())
        for server in self.servers:
            try:
                with server.connect(timeout_s=2.0) as client:
                    ranges = send(client, "CLUSTER", "SLOTS")
            except redis.RedisError:
                continue
            for first, last, primary, *_ in ranges:
                found = self._at(int(primary[1]))
                # A dead primary may still be listed until its replica is elected.
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
        """Whether every node sees all slots served, and no node failing."""
        return all(_is_whole(server, len(self.servers)) for server in self.servers)


@contextmanager
def cluster(binary: ServerBinary, persistence: Persistence) -> Iterator[Topology]:
    """Run it for the duration of the block. Raises EnvironmentProblem if it does not come up."""
    with ExitStack() as stack:
        # One replica for each primary.
        servers = [RedisProcess(binary, persistence=persistence, mode="cluster") for _ in range(2 * PRIMARIES)]
        for server in servers:
            stack.callback(server.close)
            server.start()
        nodes = ChaosCluster(servers)
        _form(nodes)
        yield Topology(
            "cluster",
            list(servers),
            [server.node for server in servers],
            lambda: nodes.servers[0],
            cluster=True,
            cluster_nodes=nodes,
        )


def _form(nodes: ChaosCluster) -> None:
    primaries, replicas = nodes.servers[:PRIMARIES], nodes.servers[PRIMARIES:]
    # Distinct epochs, so that the nodes do not have to resolve a conflict first.
    for epoch, (server, slots) in enumerate(zip(primaries, slot_ranges(PRIMARIES), strict=True), 1):
        with server.connect() as client:
            send(client, "CLUSTER ADDSLOTSRANGE", slots.start, slots.stop - 1)
            send(client, "CLUSTER SET-CONFIG-EPOCH", epoch)
    first = nodes.servers[0]
    for server in nodes.servers[1:]:
        with server.connect() as client:
            send(client, "CLUSTER MEET", HOST, first.port)
    # Replicas can only be assigned when every node knows their primary.
    _insist(lambda: all(_known(server) == len(nodes.servers) for server in nodes.servers), "nodes did not meet")
    for primary, replica in zip(primaries, replicas, strict=True):
        with replica.connect() as client:
            send(client, "CLUSTER REPLICATE", nodes.id_of(primary))
    _insist(nodes.healthy, "the cluster did not form")
    # A replica without data would be elected with nothing.
    _insist(lambda: all(_is_linked(replica) for replica in replicas), "the replicas did not get their data")


def _insist(condition: Callable[[], bool], problem: str) -> None:
    if not wait_until(condition, deadline_s=FORM_DEADLINE_S, step_s=CLUSTER_LOOK_S):
        raise EnvironmentProblem(f"{problem} within {FORM_DEADLINE_S:g} s")


def _cluster_info(server: RedisProcess) -> dict[str, str]:
    try:
        with server.connect(timeout_s=2.0) as client:
            reply = send(client, "CLUSTER", "INFO")
    except redis.RedisError:
        return {}
    if isinstance(reply, dict):
        return {_text(name): _text(value) for name, value in reply.items()}
    return dict(line.split(":", 1) for line in _text(reply).splitlines() if ":" in line)


def _known(server: RedisProcess) -> int:
    return int(_cluster_info(server).get("cluster_known_nodes", 0))


def _is_whole(server: RedisProcess, known: int) -> bool:
    # Every node must agree: clients may ask any of them for the slots.
    info = _cluster_info(server)
    whole = info.get("cluster_state") == "ok" and info.get("cluster_slots_fail") == "0"
    return whole and info.get("cluster_slots_pfail") == "0" and info.get("cluster_known_nodes") == str(known)


def _is_linked(server: RedisProcess) -> bool:
    with server.connect(timeout_s=2.0) as client:
        facts = client.info("replication")
    return bool(facts.get("role") == "slave" and facts.get("master_link_status") == "up")


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def open_topology(
    name: TopologyName, program: RedisProgram, persistence: Persistence
) -> AbstractContextManager[Topology]:
    """Run the servers for the duration of the block. Raises a Problem."""
    if not program.image:
        return _on_processes(name, program.binary, persistence)
    if name != "single":
        raise UsageProblem(f"topology {name} runs on local processes only", hint="leave --redis away")
    return single(ContainerServer(program.image, persistence))


def _on_processes(
    name: TopologyName, binary: ServerBinary, persistence: Persistence
) -> AbstractContextManager[Topology]:
    match name:
        case "single":
            return single(RedisProcess(binary, persistence=persistence))
        case "replica":
            return replica(binary, persistence)
        case "sentinel":
            return sentinel(binary, persistence)
        case "cluster":
            return cluster(binary, persistence)
