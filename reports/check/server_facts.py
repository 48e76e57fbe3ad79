"""Facts about the server of a live store: its memory, its policy and its connections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from redis.exceptions import ResponseError

from conformance.checkers.production import ListedConnection, StoreFacts
from conformance.servers.connection import connect, connect_node, explained, send
from reports.snapshot.plan import RedisSource, nodes_of


def store_facts(source: RedisSource) -> StoreFacts:
    """Ask every node. Facts that the user may not read are left out. Raises EnvironmentProblem."""
    address = source.address
    with explained(address):
        with connect(address) as client:
            nodes = nodes_of(client, address)
        memory: list[Mapping[str, str]] = []
        connections: list[ListedConnection] = []
        for node in nodes:
            with connect_node(address, node) as near:
                memory.append(_memory(near))
                connections += _connections(near)
    fullest = max(memory, key=_share)
    return StoreFacts(
        policy=fullest.get("maxmemory_policy", ""),
        used_bytes=int(fullest.get("used_memory", 0)),
        most_bytes=int(fullest.get("maxmemory", 0)),
        is_cluster=address.mode == "cluster",
        connections=tuple(connections),
    )


def _memory(node: Any) -> Mapping[str, str]:
    reply: bytes = send(node, "INFO memory")
    pairs = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {name: value.strip() for name, _, value in pairs}


def _share(memory: Mapping[str, str]) -> float:
    return int(memory.get("used_memory", 0)) / (int(memory.get("maxmemory", 0)) or float("inf"))


def _connections(node: Any) -> Iterator[ListedConnection]:
    try:
        listed: list[dict[str, str]] = send(node, "CLIENT LIST")
    except ResponseError:  # a hosted service, or a user with few permissions
        return
    for fields in listed:
        yield ListedConnection(name=fields.get("name", ""), command=fields.get("cmd", ""))
