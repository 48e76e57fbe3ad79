"""The store that `watch` reads: an address of a Redis, of a cluster, or of sentinels that know the Redis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conformance.problems import UsageProblem
from conformance.servers.connection import connect_node, explained
from conformance.servers.sentinel import FORM, SentinelUrl, sentinel_url
from conformance.servers.setting import RedisUrl, from_environment, join_node, parse_setting

ANSWER_TIMEOUT_S = 5.0
FORMS = (
    f"redis://host:port#prefix, redis+cluster://host:port#prefix, {FORM}#prefix, "
    "or env:VARIABLE#prefix with one of these"
)


@dataclass(frozen=True, kw_only=True)
class WatchTarget:
    """A parsed address."""

    known: RedisUrl | SentinelUrl
    prefix: str

    @property
    def text(self) -> str:
        """The address for messages, without user and password."""
        return f"{self.known.text}#{self.prefix}"

    def address(self) -> RedisUrl:
        """The address of the Redis now: after a failover the sentinels name another one.

        Raises EnvironmentProblem if no sentinel knows the master.
        """
        return self.known.primary() if isinstance(self.known, SentinelUrl) else self.known

    def prove(self) -> None:
        """Raise a Problem that is known at the start: no answer, a cluster by the address of one Redis, a replica."""
        address = self.address()
        node = address.nodes[0]
        with explained(address, node), connect_node(address, node, timeout_s=ANSWER_TIMEOUT_S) as client:
            untyped: Any = client
            info = untyped.info("default")
        mode = "cluster" if info.get("cluster_enabled") else str(info.get("redis_mode", "standalone"))
        if mode == "sentinel":
            raise UsageProblem(f"{node} is a Redis Sentinel", hint=f"write redis+sentinel://{node}/MASTER")
        if mode != address.mode:
            scheme = "redis+cluster" if mode == "cluster" else "redis"
            raise UsageProblem(f"the mode of Redis at {node} is {mode}", hint=f"write {scheme}://{node}")
        if mode == "standalone" and info.get("role") == "slave":
            primary = join_node(str(info.get("master_host")), int(info.get("master_port", 0)))
            raise UsageProblem(
                f"Redis at {node} is a replica, which no worker is connected to", hint=f"give its primary, {primary}"
            )


def watch_target(text: str) -> WatchTarget:
    """Parse an address with the prefix after `#` (`bull` by default). Raises UsageProblem for other texts."""
    place, _, prefix = text.partition("#")
    place = from_environment(place)
    known = sentinel_url(place) or parse_setting(place)
    if not isinstance(known, RedisUrl | SentinelUrl):
        raise UsageProblem(f"invalid address of a Redis: {text!r}", hint=f"use {FORMS}")
    return WatchTarget(known=known, prefix=prefix or "bull")
