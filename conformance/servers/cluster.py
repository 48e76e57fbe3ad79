"""A Redis cluster of local processes, put together without redis-cli."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import redis

from conformance.problems import EnvironmentProblem
from conformance.servers.binary import Binary
from conformance.servers.connection import connect_node, explained, send
from conformance.servers.facts import read_cluster_info
from conformance.servers.local import LocalProcess, local_process
from conformance.servers.ports import HOST
from conformance.servers.setting import Address
from conformance.servers.waiting import wait_until

SLOTS = 16384
FORM_DEADLINE_S = 60.0
"""Redis itself takes 2 s: a master accepts no writes so soon after its start."""

NODE_TIMEOUT_MS = 15_000
"""Redis's own default: a node that is silent for so long counts as failed."""

FORMING_NODE_TIMEOUT_MS = 1_000

_NODE_TIMEOUT = "cluster-node-timeout"
_RANGES_SINCE = (7, 0, 0)


@contextmanager
def local_cluster(binary: Binary, masters: int) -> Iterator[Address]:
    """Run a cluster for the duration of the block. Raises EnvironmentProblem if it does not come up."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(local_process(binary, cluster=True)) for _ in range(masters)]
        address = Address(mode="cluster", nodes=[f"{HOST}:{node.port}" for node in nodes])
        with explained(address):
            clients = [stack.enter_context(connect_node(address, node)) for node in address.nodes]
            _share_slots(clients, by_range=binary.version >= _RANGES_SINCE)
            with _brief_handshakes(clients):
                _introduce(clients, nodes)
                _wait_for_all(clients, nodes)
        yield address


def slot_ranges(masters: int) -> list[range]:
    """Cut all slots into as many runs of (almost) equal length."""
    edges = [SLOTS * index // masters for index in range(masters + 1)]
    return [range(start, end) for start, end in pairwise(edges)]


def _share_slots(clients: list[redis.Redis], *, by_range: bool) -> None:
    """Give every slot to one node. Different epochs, as if elected: equal ones would first have to be fought out."""
    for epoch, (client, slots) in enumerate(zip(clients, slot_ranges(len(clients)), strict=True), start=1):
        if by_range:
            send(client, "CLUSTER ADDSLOTSRANGE", slots.start, slots.stop - 1)
        else:
            send(client, "CLUSTER ADDSLOTS", *slots)
        send(client, "CLUSTER SET-CONFIG-EPOCH", epoch)


@contextmanager
def _brief_handshakes(clients: list[redis.Redis]) -> Iterator[None]:
    """Let nodes give up a handshake soon for the duration of the block.

    Two nodes that meet each other at the same moment may both get stuck in it until the node timeout, 15 s by default.
    """
    for client in clients:
        client.config_set(_NODE_TIMEOUT, FORMING_NODE_TIMEOUT_MS)
    yield
    for client in clients:
        client.config_set(_NODE_TIMEOUT, NODE_TIMEOUT_MS)


def _introduce(clients: list[redis.Redis], nodes: list[LocalProcess]) -> None:
    """Every node meets every other, so that nobody has to wait for gossip."""
    for index, client in enumerate(clients):
        for other in nodes[index + 1 :]:
            send(client, "CLUSTER MEET", HOST, other.port)


def _wait_for_all(clients: list[redis.Redis], nodes: list[LocalProcess]) -> None:
    if wait_until(lambda: all(_is_complete(client, len(nodes)) for client in clients), deadline_s=FORM_DEADLINE_S):
        return
    seen = "; ".join(
        f"port {node.port}: {read_cluster_info(client)}" for client, node in zip(clients, nodes, strict=True)
    )
    raise EnvironmentProblem(
        f"the cluster of {nodes[0].binary.source} did not form within {FORM_DEADLINE_S:g} s ({seen})",
        hint="nodes also need their port + 10000 on 127.0.0.1",
    )


def _is_complete(client: redis.Redis, masters: int) -> bool:
    info = read_cluster_info(client)
    return (
        info.get("cluster_state") == "ok"
        and info.get("cluster_slots_ok") == str(SLOTS)
        and info.get("cluster_known_nodes") == str(masters)
    )
