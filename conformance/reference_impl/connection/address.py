"""Where Redis is, in the forms that the option `connection` may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from conformance.reference_impl.errors import BullMQError

_DEFAULT_PORT: Final = 6379


@dataclass(frozen=True)
class Address:
    """Where Redis is. `nodes` are host and port; more than one only in mode `cluster`."""

    nodes: tuple[tuple[str, int], ...] = (("127.0.0.1", _DEFAULT_PORT),)
    mode: Literal["standalone", "cluster"] = "standalone"
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    @classmethod
    def of(cls, connection: Any) -> Address:
        """From the option `connection`: an Address, a `redis://` or `rediss://` URL, or a dict of its fields."""
        if isinstance(connection, Address):
            return connection
        if isinstance(connection, str):
            return cls._from_url(connection)
        if isinstance(connection, Mapping):
            return cls._from_mapping(connection)
        if connection is None:
            return cls()
        raise BullMQError(f"connection must be a URL, a dict or an Address, not {type(connection).__name__}")

    @classmethod
    def _from_url(cls, url: str) -> Address:
        parts = urlsplit(url)
        return cls(
            nodes=((parts.hostname or "127.0.0.1", parts.port or _DEFAULT_PORT),),
            db=int(parts.path.strip("/") or 0),
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            tls=parts.scheme == "rediss",
        )

    @classmethod
    def _from_mapping(cls, fields: Mapping[str, Any]) -> Address:
        host, port = fields.get("host", "127.0.0.1"), fields.get("port", _DEFAULT_PORT)
        nodes = fields.get("nodes") or [f"{host}:{port}"]
        return cls(
            nodes=tuple(_host_and_port(node) for node in nodes),
            mode=fields.get("mode", "standalone"),
            db=fields.get("db") or 0,
            username=fields.get("username"),
            password=fields.get("password"),
            tls=bool(fields.get("tls", False)),
        )


def _host_and_port(node: str) -> tuple[str, int]:
    host, _, port = node.rpartition(":")
    return host.strip("[]"), int(port)
