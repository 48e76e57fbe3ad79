"""A Redis that belongs to the user: examined before anything relies on it, and never cleared."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import redis

from conformance.problems import EnvironmentProblem, Problem, UsageProblem
from conformance.servers.connection import CLUSTER_HINT, Client, connect_node, explained
from conformance.servers.facts import UNAVAILABLE, Facts, insist_on_version, read_cluster_info, read_facts
from conformance.servers.server import Server
from conformance.servers.setting import Address, join_node

ANSWER_TIMEOUT_S = 5.0
"""How long a node may take for its first answers."""

_PROOF_LIFETIME_S = 60
"""Should the kit die in the middle of the write test, Redis itself removes the key."""

_TAKE = "local value = redis.call('GET', KEYS[1]); redis.call('DEL', KEYS[1]); return value"


def examine(address: Address, announce: Callable[[str], None]) -> Server:
    """Find out what answers at an address that the user gave, and whether BullMQ can work with it.

    Raises EnvironmentProblem when it cannot be reached, refuses the login, is too old, is a replica or does not write;
    UsageProblem when it is a cluster and the address does not say so, or the other way round.
    """
    facts = _first_answer(address)
    _insist_on_mode(facts, address)
    if facts.primary and address.mode == "standalone":
        raise EnvironmentProblem(f"Redis at {address.nodes[0]} is a replica", hint=f"give its primary, {facts.primary}")
    server = Server(
        mode=address.mode,
        nodes=address.nodes,
        db=address.db,
        username=address.username,
        password=address.password,
        tls=address.tls,
        source=_source(address, facts),
        version=facts.version,
        settings=facts.settings,
        own=False,
    )
    with explained(address), server.connect() as client:
        for node in _primaries(client) or address.nodes:
            _examine_node(address, node, announce)
        _prove_writable(client, server)
    return server


def _primaries(client: Client) -> list[str]:
    """Every node of a cluster that may hold a queue; nothing for a single server."""
    if isinstance(client, redis.Redis):
        return []
    untyped: Any = client
    return [join_node(node.host, node.port) for node in untyped.get_primaries()]


def _examine_node(address: Address, node: str, announce: Callable[[str], None]) -> None:
    with explained(address, node), connect_node(address, node, timeout_s=ANSWER_TIMEOUT_S) as client:
        facts = read_facts(client)
        insist_on_version(facts, node)
        _warn_of_eviction(facts, node, announce)
        state = read_cluster_info(client).get("cluster_state") if address.mode == "cluster" else "ok"
    if state != "ok":
        raise EnvironmentProblem(
            f"the cluster of Redis at {node} cannot be used (cluster_state {state})", hint=CLUSTER_HINT
        )


def _warn_of_eviction(facts: Facts, where: str, announce: Callable[[str], None]) -> None:
    """BullMQ loses jobs when Redis evicts keys: say so, as BullMQ itself does."""
    policy = facts.eviction_policy
    if policy not in {"noeviction", UNAVAILABLE}:
        announce(f"Redis at {where} has maxmemory-policy {policy}: it may evict queues; BullMQ wants noeviction")


def _first_answer(address: Address) -> Facts:
    """Ask the nodes in turn; only one of them has to be there. Raises the Problem of the first when none answers."""
    first: Problem | None = None
    for node in address.nodes:
        try:
            with explained(address, node), connect_node(address, node, timeout_s=ANSWER_TIMEOUT_S) as client:
                return read_facts(client)
        except Problem as problem:
            first = first or problem
    assert first is not None  # an address has at least one node
    raise first


def _insist_on_mode(facts: Facts, address: Address) -> None:
    where = ", ".join(address.nodes)
    if facts.mode == "sentinel":
        raise UsageProblem(f"{where} is a Redis Sentinel", hint="give the address of the primary that it watches")
    if facts.mode == address.mode:
        return
    if facts.mode == "cluster":
        raise UsageProblem(f"Redis at {where} is part of a cluster", hint=f"write redis+cluster://{where}")
    raise UsageProblem(f"Redis at {where} is no cluster", hint=f"write redis://{address.nodes[0]}")


def _source(address: Address, facts: Facts) -> str:
    return address.text if facts.product == "Redis" else f"{address.text} ({facts.product})"


def _prove_writable(client: Client, server: Server) -> None:
    """Write a key under a prefix of our own and take it away again by a script. Raises redis errors."""
    key = f"{server.fresh_prefix()}:write-test"
    proof = secrets.token_hex(8)
    client.set(key, proof, ex=_PROOF_LIFETIME_S)
    if client.eval(_TAKE, 1, key) != proof.encode():
        raise EnvironmentProblem(
            f"Redis at {', '.join(server.nodes)} did not return what was written", hint="is a proxy in between?"
        )
