"""Connections to a Redis, facts about it, and explanations of connection errors."""

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
"""Longer than any blocking read of the kit, so a Redis that is silent for this time is gone."""

CLUSTER_HINT = "all slots must be served, and every node must be reachable at the address that it announces"

# RESP 2: its replies do not depend on the version of the Python package.
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
"""The CONFIG values that matter to BullMQ. Values that a version of Redis does not have are left out."""

UNAVAILABLE = "unavailable"
"""In place of a value if CONFIG is refused, as on managed Redis."""


def connect(address: RedisUrl, *, timeout_s: float = COMMAND_TIMEOUT_S) -> Client:
    """Create a client of the address; replies are bytes.

    `timeout_s`: limit of one command. Raises redis errors: for a cluster already here, because the client asks the
    nodes for their slots; a standalone client connects at its first command.
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
    """Create a client of one node of the address; in a cluster it can only use the slots of that node."""
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
        # No retries by default: `answers` polls by itself, and a hidden retry would stretch its deadline.
        retry=Retry(NoBackoff(), retries),
        decode_responses=False,
    )


def send(client: redis.Redis, *words: str | int) -> Any:
    """Send one command unchanged and return its reply. Raises redis errors."""
    untyped: Any = client
    return untyped.execute_command(*words)


def wait_until(condition: Callable[[], bool], *, deadline_s: float, step_s: float = POLL_STEP_S) -> bool:
    """Poll until the condition holds (True) or the deadline has passed (False). Checks the condition at least once."""
    end = time.monotonic() + deadline_s
    while not condition():
        # After the condition: a machine that stalls past the deadline still gets a last look.
        if time.monotonic() >= end:
            return False
        time.sleep(step_s)
    return True


@dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """INFO and CONFIG of one node. `version` is the number that clients see (`redis_version`).

    `product` is "Redis", or the name and version of a compatible product. `primary` is the `host:port`
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
    """Read the facts of one node. Raises redis errors, but not if CONFIG is refused."""
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
    """Read the state of the cluster from one node (`cluster_state`, ...). Raises redis errors."""
    reply: dict[str, str] = send(client, "CLUSTER INFO")
    return reply


def insist_on_version(facts: ServerFacts, where: str) -> None:
    """Raises EnvironmentProblem if Redis is older than BullMQ's minimum, or if its version is unknown."""
    version = read_version(facts.version)
    if version is None or version < OLDEST:
        raise EnvironmentProblem(
            f"Redis at {where} is version {facts.version}",
            hint=f"BullMQ 5.62.0 needs Redis {written(OLDEST)} or newer",
        )


@contextmanager
def explained(address: RedisUrl, node: str = "") -> Iterator[None]:
    """Convert errors of the Redis package inside the block to Problems that name the node (or all nodes)."""
    try:
        yield
    except (RedisError, RedisClusterException) as error:
        raise explain(error, address, node or ", ".join(address.nodes)) from error


def explain(error: Exception, address: RedisUrl, where: str) -> Problem:
    """The Problem for an error of the Redis package."""
    what = f"Redis at {where}"
    said = str(error).strip() or type(error).__name__
    # Before the general connection errors, of which these are subclasses.
    if isinstance(error, (AuthenticationError, AuthenticationWrongNumberOfArgsError, AuthorizationError)):
        return EnvironmentProblem(
            f"{what} refused the user or password ({said})", hint="write them as redis://user:password@host:port"
        )
    if isinstance(error, NoPermissionError):
        return EnvironmentProblem(
            f"{what} does not give this user the permissions that BullMQ needs ({said})",
            hint="allow the user all commands, including scripts, on the keys ~bc* ~{bc*",
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
    """The Problem for an error below the protocol: name, route, TLS."""
    if isinstance(error, RedisClusterException):
        return EnvironmentProblem(
            f"the cluster of {what} cannot be used ({said})",
            hint=CLUSTER_HINT,
        )
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return EnvironmentProblem(
                f"{what} has an untrusted certificate ({cause.verify_message or said})",
                hint="trust its authority through SSL_CERT_FILE (and NODE_EXTRA_CA_CERTS for Node)",
            )
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return EnvironmentProblem(
            f"the TLS connection to {what} failed ({said})", hint="if it does not use TLS, write redis://"
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return EnvironmentProblem(f"{what}: unknown host name ({said})", hint="check the host in the URL")
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return EnvironmentProblem(f"{what} cannot be reached ({said})", hint="start it, or check host and port")
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
        tls = "; if it does not use TLS, write redis://" if address.tls else "; if it uses TLS, write rediss://"
        return EnvironmentProblem(f"{what} does not answer ({said})", hint=f"check host, port and firewall{tls}")
    return EnvironmentProblem(f"{what} answered with an error: {said}", hint="BullMQ needs plain commands and EVAL")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        # redis-py raises its own errors while it handles those of the socket, so these are mostly the context.
        error = error.__cause__ or error.__context__


def _info(client: redis.Redis) -> dict[str, str]:
    # As one word, because the Redis package parses the reply of `INFO`, and turns the version "7.10" into a number.
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
    """Read each value with its own command: one command for several values needs Redis 7.0."""
    settings: dict[str, str] = {}
    for name in REPORTED_SETTINGS:
        try:
            settings.update({str(key): str(value) for key, value in client.config_get(name).items()})
        except ResponseError:
            # INFO has the two most important values even if CONFIG is refused.
            settings[name] = info.get(name.replace("-", "_"), UNAVAILABLE)
    return settings
