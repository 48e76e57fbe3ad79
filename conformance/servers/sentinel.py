"""The Redis that sentinels know: `redis+sentinel://[user:password@]host[:port],host[:port]/MASTER[/database]`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.exceptions import RedisError

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers.connection import CONNECT_TIMEOUT_S, connect_node, send
from conformance.servers.setting import RedisUrl, join_node, parse_setting

SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
"""With and without TLS; the scheme of the Redis itself."""

PORT = 26379
FORM = "redis+sentinel://host:port,host:port/MASTER"

_UNUSABLE = frozenset({"s_down", "o_down", "disconnected"})
"""Flags of a replica that cannot be read now."""


@dataclass(frozen=True, kw_only=True)
class SentinelUrl:
    """An address of sentinels. `known`: where they are, and the login and database of the Redis.

    `master`: the name by which they know the Redis.
    """

    known: RedisUrl
    master: str

    @property
    def text(self) -> str:
        """The address for messages, without user and password."""
        scheme = next(name for name, plain in SCHEMES.items() if plain == ("rediss" if self.known.tls else "redis"))
        return f"{scheme}://{','.join(self.known.nodes)}/{self.master}{f'/{self.known.db}' if self.known.db else ''}"

    def primary(self) -> RedisUrl:
        """The address of the primary now: after a failover it is another one. Raises EnvironmentProblem."""
        return self._first_of([("GET-MASTER-ADDR-BY-NAME", _primary)])

    def replica(self) -> RedisUrl:
        """The address of a replica, or of the primary if there is none. Raises EnvironmentProblem."""
        return self._first_of([("REPLICAS", _replica), ("GET-MASTER-ADDR-BY-NAME", _primary)])

    def _first_of(self, questions: Sequence[tuple[str, Any]]) -> RedisUrl:
        """Return the address that the first answering sentinel gives. Raises EnvironmentProblem."""
        refusals = []
        for node in self.known.nodes:
            # Sentinels have no database and no login of the Redis.
            sentinel = replace(self.known, nodes=[node], db=0, username=None, password=None)
            try:
                with connect_node(sentinel, node, timeout_s=CONNECT_TIMEOUT_S) as client:
                    found = next(self._answers(client, questions), None)
            except RedisError as error:
                refusals.append(f"{node}: {error}")
                continue
            if found is not None:
                return replace(self.known, nodes=[found])
            refusals.append(f"{node}: unknown master")
        raise EnvironmentProblem(
            f"no sentinel leads to the master {self.master!r} ({'; '.join(refusals)})",
            hint="check the addresses of the sentinels, and the name of the master (SENTINEL MASTERS)",
        )

    def _answers(self, client: redis.Redis, questions: Sequence[tuple[str, Any]]) -> Iterator[str]:
        for question, node_in in questions:
            node = node_in(send(client, "SENTINEL", question, self.master))
            if node:
                yield node


def _primary(reply: Any) -> str:
    return join_node(_text(reply[0]), int(reply[1])) if reply else ""


def _replica(reply: Any) -> str:
    """The first by its address, so that several readings of a store are of the same one."""
    listed: list[Mapping[str, str]] = [
        dict(zip(map(_text, flat[0::2]), map(_text, flat[1::2]), strict=True)) for flat in reply or ()
    ]
    usable = [found for found in listed if not _UNUSABLE.intersection(found["flags"].split(","))]
    return min((join_node(found["ip"], int(found["port"])) for found in usable), default="")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def sentinel_url(text: str) -> SentinelUrl | None:
    """Parse an address of sentinels; None for any other text. Raises UsageProblem for one that is incomplete."""
    scheme = text.strip().partition("://")[0]
    if scheme not in SCHEMES:
        return None
    parts = urlsplit(text.strip())
    master, _, database = parts.path.removeprefix("/").partition("/")
    if not master:
        raise UsageProblem("the address of the sentinels names no master", hint=f"use {FORM}")
    login, at, hosts = parts.netloc.rpartition("@")
    nodes = [host if ":" in host.rpartition("]")[2] else f"{host}:{PORT}" for host in hosts.split(",")]
    # Parsed one by one, because a plain address has one host.
    parsed = [parse_setting(f"{SCHEMES[scheme]}://{login}{at}{node}/{database}") for node in nodes]
    urls = [url for url in parsed if isinstance(url, RedisUrl)]
    return SentinelUrl(known=replace(urls[0], nodes=[url.nodes[0] for url in urls]), master=master)
