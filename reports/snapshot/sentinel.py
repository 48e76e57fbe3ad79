"""The Redis that a Sentinel names: `redis+sentinel://[user:password@]host:port[,host:port]/SERVICE[/DB]`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from redis.exceptions import RedisError
from redis.sentinel import Sentinel

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers.connection import CONNECT_TIMEOUT_S
from conformance.servers.setting import from_environment, join_node, parse_setting, split_node

SCHEME = "redis+sentinel://"
_PLAIN = "redis+cluster://"
"""A scheme that allows several hosts, to parse them."""


@lru_cache(maxsize=8)
def resolved(text: str) -> str:
    """The URL of a replica of the service, of its primary if it has none; any other address as it is.

    Asked once, so that all reads go to the same server. The login is for the Redis; the Sentinels get none. Raises
    UsageProblem for an address without a service, EnvironmentProblem if no Sentinel knows it.
    """
    url = from_environment(text).strip()
    if not url.startswith(SCHEME):
        return text
    login, service, database = _parts(url.removeprefix(SCHEME))
    hosts: Any = parse_setting(_PLAIN + login.rpartition("@")[2])
    named: Any = Sentinel  # it is without types
    sentinel = named([split_node(node) for node in hosts.nodes], socket_timeout=CONNECT_TIMEOUT_S)
    try:
        replicas = sorted(sentinel.discover_slaves(service))
        host, port = replicas[0] if replicas else sentinel.discover_master(service)
    except RedisError as error:
        raise EnvironmentProblem(
            f"no Sentinel at {', '.join(hosts.nodes)} knows a server for {service!r} ({error})",
            hint="check the name of the service (SENTINEL MASTERS) and the addresses",
        ) from error
    user = f"{login.rpartition('@')[0]}@" if "@" in login else ""
    return f"redis://{user}{join_node(host, port)}/{database}"


def _parts(rest: str) -> tuple[str, str, str]:
    """Login and hosts, the service, and the database."""
    login, _, path = rest.partition("/")
    service, _, database = path.partition("/")
    if not service or (database and not database.isdigit()):
        raise UsageProblem(
            "the address of the Sentinel names no service",
            hint="as in redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster#bull",
        )
    return login, service, database or "0"
