"""Connecting to a Redis, asking what it is, and saying in one line why that failed."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from conformance.problems import EnvironmentProblem, Problem, UsageProblem
from conformance.servers.binary import OLDEST, read_version, written
from conformance.servers.setting import RedisUrl, split_node

Client = redis.Redis | RedisCluster

_cluster_node: Callable[[str, int], ClusterNode] = ClusterNode  # its own signature is untyped

CONNECT_TIMEOUT_S = 5.0

COMMAND_TIMEOUT_S = 30.0
"""Longer than any blocking read of the kit; a Redis that is silent for so long is gone."""

CLUSTER_HINT = "all slots must be served, and every node be reachable from here at the address that it announces"

# RESP 2: the same replies from every version of the Python package, whatever it prefers today.
_PROTOCOL = 2

POLL_STEP_S = 0.005

REPORTED_SETTINGS = (
    "maxmemory",
    "maxmemory-policy",
    "save",
    "appendonly",
    "lua-time-limit",
    "busy-reply-threshold",
    "notify-keyspace-events",
    "io-threads",
)
"""The CONFIG values that matter to BullMQ. What a version of Redis does not know is left out."""

UNAVAILABLE = "unavailable"
"""Stands for a value when CONFIG is refused, as on managed Redis."""


def connect(address: RedisUrl, *, timeout_s: float = COMMAND_TIMEOUT_S) -> Client:
    """Make a client of that address; replies are bytes. A standalone one connects with its first command.

    `timeout_s`: how long one command may take. Raises redis errors; for a cluster already here, since its nodes are
    asked for the slots.
    """
    if address.mode == "standalone":
        return connect_node(address, address.nodes[0], timeout_s=timeout_s, retries=3)
    return RedisCluster(
        startup_nodes=[_cluster_node(*split_node(node)) for node in address.nodes],
        username=address.username,
        password=address.password,
        ssl=address.tls,
        protocol=_PROTOCOL,
        socket_timeout=timeout_s,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
    )


def connect_node(
    address: RedisUrl, node: str, *, timeout_s: float = COMMAND_TIMEOUT_S, retries: int = 0
) -> redis.Redis:
    """Make a client of one node of the address, which in a cluster answers for its own slots only."""
    host, port = split_node(node)
    return redis.Redis(
        host=host,
        port=port,
        db=address.db,
        username=address.username,
        password=address.password,
        ssl=address.tls,
        protocol=_PROTOCOL,
        socket_timeout=timeout_s,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        retry=Retry(NoBackoff(), retries),
        decode_responses=False,
    )


def send(client: redis.Redis, *words: str | int) -> Any:
    """Send one command as it stands and return its reply. Raises redis errors."""
    untyped: Any = client
    return untyped.execute_command(*words)


def wait_until(condition: Callable[[], bool], *, deadline_s: float, step_s: float = POLL_STEP_S) -> bool:
    """Ask until the condition holds (True) or the deadline has passed (False). The condition is asked at least once."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(step_s)
    return True


@dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """INFO and CONFIG of one node. `version` is the number that clients see (`redis_version`).

    `product` is "Redis", or the name and version of something that is compatible with it. `primary` is the `host:port`
    that this node replicates, or empty.
    """

    version: str
    product: str
    mode: str
    primary: str
    settings: dict[str, str]

    @property
    def eviction_policy(self) -> str:
        """The `maxmemory-policy`, or "unavailable"."""
        return self.settings.get("maxmemory-policy", UNAVAILABLE)


def read_facts(client: redis.Redis) -> ServerFacts:
    """Ask one node about itself. Raises redis errors; a refused CONFIG is no error."""
    info = _info(client)
    replica = info.get("role") == "slave"
    return ServerFacts(
        version=info.get("redis_version", "unknown"),
        product=_product(info),
        mode="cluster" if info.get("cluster_enabled") == "1" else info.get("redis_mode", "standalone"),
        primary=f"{info.get('master_host')}:{info.get('master_port')}" if replica else "",
        settings=_settings(client, info),
    )


def read_cluster_info(client: redis.Redis) -> dict[str, str]:
    """Ask one node of a cluster how it sees the cluster (`cluster_state`, ...). Raises redis errors."""
    reply: dict[str, str] = send(client, "CLUSTER INFO")
    return reply


def insist_on_version(facts: ServerFacts, where: str) -> None:
    """Raise EnvironmentProblem if Redis is older than BullMQ's minimum, or does not say how old it is."""
    version = read_version(facts.version)
    if version is None or version < OLDEST:
        raise EnvironmentProblem(
            f"Redis at {where} is version {facts.version}",
            hint=f"BullMQ 5.62.0 needs Redis {written(OLDEST)} or newer",
        )


@contextmanager
def explained(address: RedisUrl, node: str = "") -> Iterator[None]:
    """Turn the errors of the Redis package inside the block into Problems that name the node (or all of them)."""
    try:
        yield
    except (RedisError, RedisClusterException) as error:
        raise explain(error, address, node or ", ".join(address.nodes)) from error


def explain(error: Exception, address: RedisUrl, where: str) -> Problem:
    """Find the Problem behind an error of the Redis package."""
    what = f"Redis at {where}"
    said = str(error).strip() or type(error).__name__
    if isinstance(error, (AuthenticationError, AuthenticationWrongNumberOfArgsError, AuthorizationError)):
        return EnvironmentProblem(
            f"{what} refused the user or password ({said})", hint="write them as redis://user:password@host:port"
        )
    if isinstance(error, NoPermissionError):
        return EnvironmentProblem(
            f"{what} does not let this user do what BullMQ needs ({said})",
            hint="allow the user all commands on the keys ~bc* ~{bc*, scripts included",
        )
    if isinstance(error, ReadOnlyError):
        return EnvironmentProblem(f"{what} is a read-only replica", hint="give the address of its primary")
    if isinstance(error, OutOfMemoryError):
        return EnvironmentProblem(f"{what} has no memory left ({said})", hint="raise its maxmemory")
    if isinstance(error, BusyLoadingError):
        return EnvironmentProblem(f"{what} is still loading its data", hint="wait for it and run again")
    if "invalid database" in said.lower() or "db index is out of range" in said.lower():
        return UsageProblem(f"{what} has no database {address.db}", hint="its setting `databases` is often 16")
    return _explain_wire(error, address, what, said)


def _explain_wire(error: Exception, address: RedisUrl, what: str, said: str) -> Problem:
    """Find out what went wrong below the protocol: name, route, TLS."""
    if isinstance(error, RedisClusterException):
        return EnvironmentProblem(
            f"the cluster of {what} cannot be used ({said})",
            hint=CLUSTER_HINT,
        )
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return EnvironmentProblem(
                f"{what} has a certificate that is not trusted ({cause.verify_message or said})",
                hint="trust its authority through SSL_CERT_FILE (and NODE_EXTRA_CA_CERTS for Node)",
            )
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return EnvironmentProblem(f"{what} does not speak TLS as expected ({said})", hint="without TLS write redis://")
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return EnvironmentProblem(f"{what}: the host name is not known ({said})", hint="check the host in the URL")
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return EnvironmentProblem(f"{what} cannot be reached ({said})", hint="start it, or check host and port")
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
        tls = "; if it does not speak TLS write redis://" if address.tls else "; if it speaks TLS write rediss://"
        return EnvironmentProblem(f"{what} does not answer ({said})", hint=f"check host, port and firewall{tls}")
    return EnvironmentProblem(f"{what} answered with an error: {said}", hint="BullMQ needs plain commands and EVAL")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _info(client: redis.Redis) -> dict[str, str]:
    # Written as one word, the command escapes the package's reader, which turns the version "7.10" into a number.
    reply: bytes = send(client, "INFO default")
    lines = reply.decode("utf-8", "replace").splitlines()
    pairs = (line.partition(":") for line in lines if ":" in line and not line.startswith("#"))
    return {key: value.strip() for key, _, value in pairs}


def _product(info: dict[str, str]) -> str:
    for name in ("valkey", "dragonfly", "keydb"):
        if f"{name}_version" in info:
            return f"{name} {info[f'{name}_version']}"
    return "Redis"


def _settings(client: redis.Redis, info: dict[str, str]) -> dict[str, str]:
    """Ask for each value by itself: several at once are possible since Redis 7.0 only."""
    settings: dict[str, str] = {}
    for name in REPORTED_SETTINGS:
        try:
            settings.update({str(key): str(value) for key, value in client.config_get(name).items()})
        except ResponseError:
            # INFO has the two most important ones also where CONFIG is refused.
            settings[name] = info.get(name.replace("-", "_"), UNAVAILABLE)
    return settings
