"""What a running Redis says about itself, and what the kit insists on."""

from __future__ import annotations

from dataclasses import dataclass

import redis
from redis.exceptions import ResponseError

from conformance.problems import EnvironmentProblem
from conformance.servers.connection import send
from conformance.servers.versions import OLDEST, read_version, written

SETTINGS = (
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


@dataclass(frozen=True, kw_only=True)
class Facts:
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


def read_facts(client: redis.Redis) -> Facts:
    """Ask one node about itself. Raises redis errors; a refused CONFIG is no error."""
    info = _info(client)
    replica = info.get("role") == "slave"
    return Facts(
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


def insist_on_version(facts: Facts, where: str) -> None:
    """Raise EnvironmentProblem if Redis is older than BullMQ's minimum, or does not say how old it is."""
    version = read_version(facts.version)
    if version is None or version < OLDEST:
        raise EnvironmentProblem(
            f"Redis at {where} is version {facts.version}",
            hint=f"BullMQ 5.62.0 needs Redis {written(OLDEST)} or newer",
        )


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
    for name in SETTINGS:
        try:
            settings.update({str(key): str(value) for key, value in client.config_get(name).items()})
        except ResponseError:
            # INFO tells the two most important ones also where CONFIG is refused.
            settings[name] = info.get(name.replace("-", "_"), UNAVAILABLE)
    return settings
