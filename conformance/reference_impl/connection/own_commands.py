"""A client of redis-py for the same Redis, for the user's own commands."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.tls import redis_py_arguments


def client_of(address: Address) -> Redis | RedisCluster:
    """Return a client that decodes its replies. Raises InvalidArgument where the address has an SSLContext."""
    access: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "decode_responses": True,
        **redis_py_arguments(address.tls),
    }
    if address.credentials is not None:
        access["credential_provider"] = address.credentials
    if address.mode == "cluster":
        return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in address.nodes], **access)
    access["db"] = address.db
    if address.sentinel is not None:
        return _master_of(address, access)
    if address.path is not None:
        return Redis(unix_socket_path=address.path, **{**access, "ssl": False})
    host, port = address.nodes[0]
    return Redis(host=host, port=port, **access)


def _master_of(address: Address, access: dict[str, Any]) -> Redis:
    assert address.sentinel is not None
    watch = address.sentinel
    asking = {"username": watch.username, "password": watch.password, **redis_py_arguments(watch.tls)}
    untyped: Any = Sentinel
    master: Redis = untyped(list(address.nodes), sentinel_kwargs=asking).master_for(watch.master, **access)
    return master
