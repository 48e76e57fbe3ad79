"""The data moves to another server: promotion, failover, slot migration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis

from chaos.faults.base import ChaosSystem, fault
from chaos.redis_servers import RedisServer
from chaos.topologies import ChaosCluster, ReplicaPair
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.protocol.keys import slot_of
from conformance.servers.connection import send, wait_until
from conformance.servers.setting import split_node

MOVE_DEADLINE_S = 40.0
REPLICATION_LAG_MS = 1000
"""Replication is asynchronous: writes that were acknowledged shortly before the primary's death may be lost."""
BETWEEN_NODES_MS = 3500
"""Each worker checks for stalled jobs once a second: all of these calls are redirected."""
FAIL_OVER_MS = 9000
"""Time to detect a failure and elect a new primary, and until stalled jobs are recovered."""


@fault("replica.promote", group="topology", hold_ms=1500, times=2, topologies=("replica",))
@contextmanager
def promote(system: ChaosSystem) -> Iterator[None]:
    """The replica is promoted as planned: writes wait, nothing is lost, the old primary becomes a replica."""
    pair, old = _pair(system), system.primary
    with system.window(resume_ms=FAIL_OVER_MS):
        with old.connect() as client:
            # Writes wait, so that the replica can catch up with everything that was acknowledged.
            send(client, "CLIENT", "PAUSE", 5000, "WRITE")
            # Promoted earlier, it would lose acknowledged writes, which a planned failover must not.
            _insist(lambda: _offset(old) == _offset(pair.replica), "the replica did not catch up")
            pair.promote()
            pair.follow()  # before writes continue: the old primary must not accept any
            send(client, "CLIENT", "UNPAUSE")
        yield


@fault("replica.kill-primary", group="topology", hold_ms=300, times=2, topologies=("replica",))
@contextmanager
def kill_primary(system: ChaosSystem) -> Iterator[None]:
    """The primary dies and the replica is promoted: unreplicated writes are lost. The old primary comes back."""
    pair, old = _pair(system), system.primary
    with system.window(resume_ms=FAIL_OVER_MS) as window:
        # Writes of the last second may not have reached the replica.
        window.lost_since_ms = system.recorder.now_ms() - REPLICATION_LAG_MS
        old.kill()
        pair.promote()
        try:
            yield
        finally:
            # It comes back before it follows: only a running server can be made a replica.
            old.start()
            pair.follow()


@fault("replica.cut-link", group="topology", hold_ms=300, times=2, topologies=("replica",))
@contextmanager
def cut_link(system: ChaosSystem) -> Iterator[None]:
    """The link between the servers is killed at both ends (CLIENT KILL TYPE master, replica), and comes back."""
    pair = _pair(system)
    with system.window():
        with system.primary.connect() as primary, pair.replica.connect() as replica:
            killed = send(replica, "CLIENT", "KILL", "TYPE", "master")
            killed += send(primary, "CLIENT", "KILL", "TYPE", "replica")
        if not killed:
            raise EnvironmentProblem("there was no link between the servers to kill")
        try:
            yield
        finally:
            pair.follow()


@fault("sentinel.failover", group="topology", hold_ms=300, times=1, topologies=("sentinel",))
@contextmanager
def sentinel_failover(system: ChaosSystem) -> Iterator[None]:
    """The primary dies and the sentinels promote the replica. The old primary comes back as a replica."""
    old = system.primary
    with system.window(resume_ms=FAIL_OVER_MS) as window:
        window.lost_since_ms = system.recorder.now_ms() - REPLICATION_LAG_MS
        old.kill()
        try:
            # Held only from here on: the time of the election is part of the fault.
            _insist(lambda: system.primary is not old, "the sentinels did not fail over")
            yield
        finally:
            old.start()
            _insist(lambda: _role(old) == "slave", "the old primary did not become a replica")


@fault("cluster.failover", group="topology", hold_ms=500, times=2, topologies=("cluster",))
@contextmanager
def cluster_failover(system: ChaosSystem) -> Iterator[None]:
    """The replica takes over from its primary as planned (CLUSTER FAILOVER): nothing is lost."""
    nodes = _nodes(system)
    old = nodes.owner(_some_key(system))
    chosen = nodes.replica_of(old)
    with system.window(resume_ms=FAIL_OVER_MS):
        with chosen.connect() as client:
            send(client, "CLUSTER", "FAILOVER")
        # Only the new owner shows that the failover is over; the command returns at once.
        _insist(lambda: nodes.owner(_some_key(system)) is chosen, "the replica did not take over")
        _insist(nodes.healthy, "the cluster is not whole again")
        yield


@fault("cluster.kill-primary", group="topology", hold_ms=300, times=1, topologies=("cluster",))
@contextmanager
def cluster_kill_primary(system: ChaosSystem) -> Iterator[None]:
    """The primary of the queues' slot dies, its replica is elected; the old one comes back as a replica."""
    nodes = _nodes(system)
    old = nodes.owner(_some_key(system))
    with system.window(resume_ms=FAIL_OVER_MS) as window:
        window.lost_since_ms = system.recorder.now_ms() - REPLICATION_LAG_MS
        old.kill()
        try:
            _insist(lambda: _is_served_elsewhere(system, nodes, old), "no replica was elected")
            yield
        finally:
            old.start()
            _insist(nodes.healthy, "the cluster is not whole again")


# Once: a second migration could bring the slot back, where a client that ignores MOVED still looks for it.
@fault("cluster.migrate-slot", group="topology", hold_ms=300, times=1, topologies=("cluster",))
@contextmanager
def migrate_slot(system: ChaosSystem) -> Iterator[None]:
    """The slot of the queues is moved to another primary while scripts run; for a while it is between both (ASK)."""
    nodes = _nodes(system)
    source = nodes.owner(_some_key(system))
    others = [server for server in system.topology.servers if server is not source and _role(server) == "master"]
    target = system.random.choice(others)
    with system.window(resume_ms=system.stall_ms):
        _migrate(system, source, target, slot_of(_some_key(system).encode()))
        _insist(nodes.healthy, "the cluster is not whole again")
        yield


def _is_served_elsewhere(system: ChaosSystem, nodes: ChaosCluster, old: RedisServer) -> bool:
    try:
        return nodes.owner(_some_key(system)) is not old
    except EnvironmentProblem:
        return False


def _migrate(system: ChaosSystem, source: RedisServer, target: RedisServer, slot: int) -> None:
    """Migrate as documented: importing, migrating, all keys, then announce the new owner to all nodes."""
    nodes = _nodes(system)
    host, port = split_node(target.node)
    with source.connect() as old, target.connect() as new:
        # First importing, then migrating: in the other order a client could be sent to a node that refuses the key.
        send(new, "CLUSTER", "SETSLOT", slot, "IMPORTING", nodes.id_of(source))
        send(old, "CLUSTER", "SETSLOT", slot, "MIGRATING", nodes.id_of(target))
        while keys := send(old, "CLUSTER", "GETKEYSINSLOT", slot, 100):
            send(old, "MIGRATE", host, port, "", 0, 5000, "KEYS", *keys)
        # Now the old node answers ASK, and the new one serves only commands that follow ASKING.
        system.pause(BETWEEN_NODES_MS)
        # The new owner first, so that no client is redirected to a node that denies the slot.
        for client in (new, old):
            send(client, "CLUSTER", "SETSLOT", slot, "NODE", nodes.id_of(target))


def _pair(system: ChaosSystem) -> ReplicaPair:
    if system.topology.pair is None:
        raise UsageProblem("this fault needs a replica", hint="use --topology replica")
    return system.topology.pair


def _nodes(system: ChaosSystem) -> ChaosCluster:
    if system.topology.cluster_nodes is None:
        raise UsageProblem("this fault needs a cluster", hint="use --topology cluster")
    return system.topology.cluster_nodes


def _some_key(system: ChaosSystem) -> str:
    """The prefix is a hash tag: all keys are in one slot."""
    return f"{system.prefix}:main:meta"


def _offset(server: RedisServer) -> int:
    with server.connect() as client:
        facts = client.info("replication")
    # A replica reports its own offset under another name than a primary.
    return int(facts.get("slave_repl_offset", facts["master_repl_offset"]))


def _role(server: RedisServer) -> str:
    try:
        # Short: a server that is just starting or dying must not hold the wait.
        with server.connect(timeout_s=2.0) as client:
            return str(client.info("replication")["role"])
    except redis.RedisError:
        return ""


def _insist(condition: Callable[[], bool], problem: str) -> None:
    if not wait_until(condition, deadline_s=MOVE_DEADLINE_S, step_s=0.05):
        raise EnvironmentProblem(f"{problem} within {MOVE_DEADLINE_S:g} s")
