"""The address in a redis-py client that is passed as `connection`. The sockets of that client are not used."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis, RedisCluster, SSLConnection
from redis.asyncio.sentinel import SentinelConnectionPool

from conformance.reference_impl.errors import InvalidArgument


def facts_of(client: Redis | RedisCluster) -> dict[str, Any]:
    """Return the settings of a client as the dict that the option `connection` may be.

    Raises InvalidArgument for a replica and for a cluster over TLS, which cannot be converted.
    """
    if isinstance(client, RedisCluster):
        return _of_cluster(client)
    pool: Any = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return _of_sentinels(pool)
    settings = pool.connection_kwargs
    where = ("path",) if settings.get("path") else ("host", "port")
    return {**{key: settings[key] for key in where if key in settings}, **_access(pool)}


def _access(pool: Any) -> dict[str, Any]:
    settings = pool.connection_kwargs
    found = {key: settings.get(key) for key in ("db", "username", "password")}
    found["credentialProvider"] = settings.get("credential_provider")
    if issubclass(pool.connection_class, SSLConnection):
        found["tls"] = pool.make_connection().ssl_context.get()
    return found


def _of_sentinels(pool: Any) -> dict[str, Any]:
    if not pool.is_master:
        raise InvalidArgument("connection must be a client of the master, not of its replicas", field="connection")
    asked = [sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels]
    own = _access(asked[0])
    return {
        **_access(pool),
        "sentinels": [(sentinel.connection_kwargs["host"], sentinel.connection_kwargs["port"]) for sentinel in asked],
        "name": pool.service_name,
        "sentinelUsername": own["username"],
        "sentinelPassword": own["password"],
        "sentinelTLS": own.get("tls"),
    }


def _of_cluster(client: Any) -> dict[str, Any]:
    settings = client.connection_kwargs
    if settings.get("connection_class") is SSLConnection:
        raise InvalidArgument(
            "a RedisCluster over TLS cannot be handed in; give {'mode': 'cluster', 'nodes': [...], 'tls': {...}}",
            field="connection",
        )
    return {
        "mode": "cluster",
        "nodes": [(node.host, node.port) for node in client.nodes_manager.startup_nodes.values()],
        **{key: settings.get(key) for key in ("username", "password")},
    }
