"""A Redis cluster of local processes, put together without redis-cli."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import redis

from conformance.problems import EnvironmentProblem
from conformance.servers.binary import Binary
from conformance.servers.connection import connect_node, explained, send
from conformance.servers.local import HOST, LocalProcess, local_process
from conformance.servers.setting import Address
from conformance.servers.waiting import wait_until

SLOTS = 16384
FORM_DEADLINE_S = 60.0
"""Redis itself takes 2 s: a master accepts no writes so soon after its start."""

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


def _introduce(clients: list[redis.Redis], nodes: list[LocalProcess]) -> None:
    """Every node meets the next one; gossip does the rest.

    In a chain no node is in many handshakes at once. Introducing all to all, or all to the first, looks quicker but now
    and then crosses two handshakes of one pair, which then waits many seconds for one of them to time out.
    """
    for client, following in zip(clients, nodes[1:], strict=False):
        send(client, "CLUSTER MEET", HOST, following.port)


def _wait_for_all(clients: list[redis.Redis], nodes: list[LocalProcess]) -> None:
    if wait_until(lambda: all(_is_complete(client, len(nodes)) for client in clients), deadline_s=FORM_DEADLINE_S):
        return
    seen = "; ".join(f"port {node.port}: {_cluster_info(client)}" for client, node in zip(clients, nodes, strict=True))
    raise EnvironmentProblem(
        f"the cluster of {nodes[0].binary.source} did not form within {FORM_DEADLINE_S:g} s ({seen})",
        hint="nodes also need their port + 10000 on 127.0.0.1",
    )


def _is_complete(client: redis.Redis, masters: int) -> bool:
    info = _cluster_info(client)
    return (
        info.get("cluster_state") == "ok"
        and info.get("cluster_slots_ok") == str(SLOTS)
        and info.get("cluster_known_nodes") == str(masters)
    )


def _cluster_info(client: redis.Redis) -> dict[str, str]:
    reply: dict[str, str] = send(client, "CLUSTER INFO")
    return reply
