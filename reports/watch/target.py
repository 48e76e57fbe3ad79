"""The store that `watch` reads: an address of a Redis, of a cluster, or of sentinels that know the Redis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from redis.exceptions import RedisError

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers.connection import connect_node, explained, send
from conformance.servers.setting import RedisUrl, from_environment, join_node, parse_setting

SENTINEL_SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
SENTINEL_PORT = 26379
ANSWER_TIMEOUT_S = 5.0
FORMS = (
    "redis://host:port#prefix, redis+cluster://host:port#prefix, redis+sentinel://host:port,host:port/MASTER#prefix, "
    "or env:VARIABLE#prefix with one of these"
)


@dataclass(frozen=True, kw_only=True)
class WatchTarget:
    """A parsed address. `master`: the name by which sentinels know the Redis; empty without sentinels.

    With sentinels, `known` has their addresses, and the login and database of the Redis.
    """

    known: RedisUrl
    prefix: str
    master: str = ""

    @property
    def text(self) -> str:
        """The address for messages, without user and password."""
        name = f"/{self.master}" if self.master else ""
        return f"{'sentinels ' if self.master else ''}{self.known.text}{name}#{self.prefix}"

    def address(self) -> RedisUrl:
        """The address of the Redis now: after a failover the sentinels name another one.

        Raises EnvironmentProblem if no sentinel knows the master.
        """
        if not self.master:
            return self.known
        refusals = []
        for node in self.known.nodes:
            # Sentinels have no database and no login of the Redis.
            sentinel = replace(self.known, nodes=[node], db=0, username=None, password=None)
            try:
                with connect_node(sentinel, node, timeout_s=ANSWER_TIMEOUT_S) as client:
                    reply: Any = send(client, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.master)
            except RedisError as error:
                refusals.append(f"{node}: {error}")
                continue
            if reply:
                host, port = (part.decode() if isinstance(part, bytes) else str(part) for part in reply)
                return replace(self.known, nodes=[join_node(host, int(port))])
            refusals.append(f"{node}: unknown master")
        raise EnvironmentProblem(
            f"no sentinel leads to the master {self.master!r} ({'; '.join(refusals)})",
            hint="check the addresses of the sentinels, and the name of the master",
        )

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
    scheme = place.partition("://")[0]
    if scheme in SENTINEL_SCHEMES:
        return _with_sentinels(place, SENTINEL_SCHEMES[scheme], prefix or "bull")
    setting = parse_setting(place)
    if not isinstance(setting, RedisUrl):
        raise UsageProblem(f"invalid address of a Redis: {text!r}", hint=f"use {FORMS}")
    return WatchTarget(known=setting, prefix=prefix or "bull")


def _with_sentinels(place: str, scheme: str, prefix: str) -> WatchTarget:
    parts = urlsplit(place)
    master, _, database = parts.path.removeprefix("/").partition("/")
    if not master:
        raise UsageProblem("the address of the sentinels names no master", hint=f"use {FORMS}")
    login, at, hosts = parts.netloc.rpartition("@")
    nodes = [host if ":" in host.rpartition("]")[2] else f"{host}:{SENTINEL_PORT}" for host in hosts.split(",")]
    # Parsed one by one, because a plain address has one host.
    parsed = [parse_setting(f"{scheme}://{login}{at}{node}/{database}") for node in nodes]
    urls = [url for url in parsed if isinstance(url, RedisUrl)]
    return WatchTarget(known=replace(urls[0], nodes=[url.nodes[0] for url in urls]), prefix=prefix, master=master)
