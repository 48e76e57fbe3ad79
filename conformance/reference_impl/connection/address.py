"""The address of Redis, in each form that the option `connection` accepts."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.credentials import CredentialProvider

from conformance.reference_impl.connection.redis_py_client import facts_of
from conformance.reference_impl.connection.tls import Tls
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.known_names import refuse_unknown_keys

_DEFAULT_HOST: Final = "127.0.0.1"
_DEFAULT_PORT: Final = 6379
_DEFAULT_SENTINEL_PORT: Final = 26379
_LAST_PORT: Final = 65_535

_KEYS: Final = (
    *("url", "host", "port", "path", "nodes", "mode", "db", "username", "password", "tls"),
    *("sentinels", "name", "sentinelUsername", "sentinelPassword", "sentinelTLS", "credentialProvider"),
)
_CALLED_HERE: Final = {
    "ssl": "'tls'",
    **{f"ssl_{name}": "a key of 'tls': {'ca': ..., 'cert': ..., 'key': ...}" for name in ("certfile", "keyfile")},
    "ssl_ca_certs": "{'tls': {'ca': ...}}",
    "ssl_ca_data": "{'tls': {'ca': ...}}",
    "ssl_cert_reqs": "{'tls': {'rejectUnauthorized': False}}",
    "ssl_check_hostname": "{'tls': {'servername': ...}}",
    "unix_socket_path": "'path'",
    "user": "'username'",
    "pass": "'password'",
    "hostname": "'host'",
    "cluster": "{'mode': 'cluster', 'nodes': [...]}",
    "startup_nodes": "{'mode': 'cluster', 'nodes': [...]}",
    "service_name": "'name'",
    "credential_provider": "'credentialProvider'",
    "maxRetriesPerRequest": "nothing: commands are sent once, and workers try again without end",
    "retryStrategy": "the option 'policy' (ReconnectPolicy) of queues and workers",
    "decode_responses": "nothing: replies are read as the client needs them",
}
"""Option names of redis-py and ioredis, each with the name to use here."""

_SCHEMES: Final = ("redis", "rediss", "unix")
Mode = Literal["standalone", "cluster", "sentinel"]


@dataclass(frozen=True)
class SentinelAccess:
    """The name of the master, and the login and TLS settings of the sentinels."""

    master: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | ssl.SSLContext | bool = False


@dataclass(frozen=True)
class Address:
    """The address of Redis. `nodes` are host and port: of Redis, any cluster nodes, or the sentinels.

    `path`: a unix socket instead of `nodes`. `tls`: True to trust the machine's authorities, or `Tls` settings.
    `credentials` is called for user and password whenever a socket is opened.
    """

    nodes: tuple[tuple[str, int], ...] = ((_DEFAULT_HOST, _DEFAULT_PORT),)
    mode: Mode = "standalone"
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | ssl.SSLContext | bool = False
    path: str | None = None
    sentinel: SentinelAccess | None = None
    credentials: CredentialProvider | None = field(default=None, repr=False)

    @classmethod
    def of(cls, connection: Any) -> Address:
        """From the option `connection`.

        That is an Address; a URL: `redis://`, `rediss://` (TLS) or `unix://`; a dict: `host`, `port`, `db`, `username`,
        `password`, `tls` (see `Tls`), or `url`, or `path` of a unix socket, or `nodes` with `mode` "cluster", or
        `sentinels` with the `name` of the master; a `redis.asyncio.Redis` or RedisCluster, whose settings are
        copied; its sockets are not used. Raises InvalidArgument for anything else, and for an unknown key.
        """
        if isinstance(connection, Address):
            return connection
        if isinstance(connection, str):
            return cls(**_of_url(connection))
        if isinstance(connection, Mapping):
            return cls._from_mapping(connection)
        if isinstance(connection, (Redis, RedisCluster)):
            return cls._from_mapping(facts_of(connection))
        if connection is None:
            return cls()
        raise InvalidArgument(
            "connection must be a URL, a dict, an Address or a redis.asyncio.Redis, "
            f"not {type(connection).__module__}.{type(connection).__name__}",
            field="connection",
        )

    @property
    def place(self) -> str:
        """The address as error messages show it."""
        if self.path is not None:
            return self.path
        return ", ".join(f"{host}:{port}" for host, port in self.nodes)

    @classmethod
    def _from_mapping(cls, fields: Mapping[str, Any]) -> Address:
        refuse_unknown_keys(fields, _KEYS, where="connection", called_here=_CALLED_HERE)
        known = {key: value for key, value in fields.items() if value is not None}
        chosen = [key for key in ("url", "path", "nodes", "sentinels", "host") if key in known]
        if len(chosen) > 1:
            raise InvalidArgument(f"connection has {chosen[0]!r} and {chosen[1]!r}: give one of them", field=chosen[1])
        facts = _of_url(known["url"]) if "url" in known else _nodes_of(known)
        facts |= {key: _text(key, known[key]) for key in ("username", "password", "path") if key in known}
        if "db" in known:
            facts["db"] = _number("db", known["db"])
        if "tls" in known:
            facts["tls"] = Tls.of(known["tls"])
        if facts.get("tls") and facts.get("path"):
            raise InvalidArgument("connection.tls is not possible over a unix socket", field="tls")
        if "credentialProvider" in known:
            facts["credentials"] = known["credentialProvider"]
        return cls(**facts)


def _nodes_of(known: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes and mode, and what belongs to the mode."""
    mode = known.get("mode", "sentinel" if "sentinels" in known else "standalone")
    if mode not in {"standalone", "cluster", "sentinel"}:
        raise InvalidArgument(f"connection.mode must be standalone or cluster, not {mode!r}", field="mode")
    if (mode == "sentinel") != ("sentinels" in known):
        raise InvalidArgument("connection.sentinels is for the mode sentinel alone", field="sentinels")
    if mode == "sentinel":
        nodes = tuple(_node("sentinels", node, _DEFAULT_SENTINEL_PORT) for node in _listed(known, "sentinels"))
        return {"nodes": nodes, "mode": mode, "sentinel": _sentinel_access(known)}
    for key in ("name", "sentinelUsername", "sentinelPassword", "sentinelTLS"):
        if key in known:
            raise InvalidArgument(f"connection.{key} needs connection.sentinels", field=key)
    if "nodes" in known:
        return {"nodes": tuple(_node("nodes", node, _DEFAULT_PORT) for node in _listed(known, "nodes")), "mode": mode}
    host = _text("host", known.get("host", _DEFAULT_HOST))
    return {"nodes": ((host, _port("port", known.get("port", _DEFAULT_PORT))),), "mode": mode}


def _sentinel_access(known: Mapping[str, Any]) -> SentinelAccess:
    if "name" not in known:
        raise InvalidArgument("connection.sentinels needs connection.name, the name of the master", field="name")
    return SentinelAccess(
        master=_text("name", known["name"]),
        username=known.get("sentinelUsername"),
        password=known.get("sentinelPassword"),
        tls=Tls.of(known.get("sentinelTLS")),
    )


def _of_url(url: Any) -> dict[str, Any]:
    try:
        parts = urlsplit(_text("url", url))
        port = parts.port
    except ValueError as error:
        raise InvalidArgument(f"the connection URL cannot be read: {error}", field="connection") from None
    if parts.scheme not in _SCHEMES:
        raise _bad_url(parts, "must start with redis://, rediss:// or unix://")
    facts: dict[str, Any] = {
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        **_query(parts),
    }
    if parts.scheme == "unix":
        if not parts.path:
            raise _bad_url(parts, "needs the path of a socket")
        return {**facts, "path": unquote(parts.path)}
    path = parts.path.strip("/")
    if path and not (path.isascii() and path.isdigit()):
        raise _bad_url(parts, f"must end with the number of a database, not {path!r}")
    if path:
        facts["db"] = int(path)
    host = unquote(parts.hostname or _DEFAULT_HOST)
    return {**facts, "nodes": ((host, port or _DEFAULT_PORT),), "tls": parts.scheme == "rediss"}


def _query(parts: SplitResult) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name != "db":
            raise _bad_url(parts, f"may not say {name!r} after the question mark: write a dict with 'url' and 'tls'")
        found["db"] = _number("db", value)
    return found


def _bad_url(parts: SplitResult, why: str) -> InvalidArgument:
    """The error for a bad URL; it shows the URL without the password."""
    place = parts.netloc.rpartition("@")[2]
    shown = f"{parts.scheme}://{place}{parts.path}" if place else f"{parts.scheme}:{parts.path}"
    return InvalidArgument(f"the connection URL {shown!r} {why}", field="connection")


def _listed(known: Mapping[str, Any], key: str) -> list[Any]:
    nodes = known[key]
    if not isinstance(nodes, (list, tuple)) or not nodes:
        raise InvalidArgument(f"connection.{key} must be a list of host:port", field=key)
    return list(nodes)


def _node(key: str, node: Any, default_port: int) -> tuple[str, int]:
    if isinstance(node, Mapping):
        refuse_unknown_keys(node, ("host", "port"), where=f"connection.{key}", called_here={})
        host = _text(f"{key}.host", node.get("host", _DEFAULT_HOST))
        return host, _port(f"{key}.port", node.get("port", default_port))
    if isinstance(node, (list, tuple)) and len(node) == 2:
        return _text(key, node[0]), _port(key, node[1])
    if not isinstance(node, str) or not node:
        raise InvalidArgument(f"connection.{key} must be host:port, not {node!r}", field=key)
    host, separator, port = node.rpartition(":")
    if not separator or port.endswith("]"):
        return node.strip("[]"), default_port
    return host.strip("[]"), _port(key, port)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"connection.{key} must be a text, not {type(value).__name__}", field=key)
    return value


def _number(key: str, value: Any) -> int:
    is_digits = isinstance(value, str) and value.isascii() and value.isdigit()
    if not is_digits and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise InvalidArgument(f"connection.{key} must be a number, not {value!r}", field=key)
    return int(value)


def _port(key: str, value: Any) -> int:
    port = _number(key, value)
    if not 0 < port <= _LAST_PORT:
        raise InvalidArgument(f"connection.{key} must be a port between 1 and {_LAST_PORT}, not {port}", field=key)
    return port
