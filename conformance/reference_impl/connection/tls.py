"""Encryption of a connection, and the certificates of server and client."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.known_names import refuse_unknown_keys

_KEYS: Final = ("ca", "cert", "key", "passphrase", "servername", "rejectUnauthorized")
_CALLED_HERE: Final = {
    "ca_certs": "'ca'",
    "cafile": "'ca'",
    "certfile": "'cert'",
    "keyfile": "'key'",
    "password": "'passphrase'",
    "check_hostname": "'servername', the name that the certificate is for",
    "cert_reqs": "'rejectUnauthorized': False",
}
_PEM: Final = "-----BEGIN"


@dataclass(frozen=True)
class Tls:
    """The option `connection.tls`, under Node's names.

    `ca`: file or text (PEM) of the trusted authorities; default: those of the machine. `cert`
    and `key`: files with the client's certificate and its key, `passphrase` that of the key. `servername`: the name
    that the server's certificate must be for, if it is not the host. `rejectUnauthorized` False trusts any server.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    passphrase: str | None = field(default=None, repr=False)
    servername: str | None = None
    rejectUnauthorized: bool = True

    @classmethod
    def of(cls, given: Any) -> Tls | ssl.SSLContext | bool:
        """From the option `tls`: True, False or None, a dict of the fields (an empty one is True), an SSLContext.

        Raises InvalidArgument for anything else, and for files that cannot be read.
        """
        if given is None or isinstance(given, bool):
            return bool(given)
        if isinstance(given, ssl.SSLContext):
            return given
        if isinstance(given, Mapping):
            refuse_unknown_keys(given, _KEYS, where="connection.tls", called_here=_CALLED_HERE)
            given = cls(**given)
        if not isinstance(given, cls):
            raise InvalidArgument(
                f"connection.tls must be True, a dict or an SSLContext, not {type(given).__name__}", field="tls"
            )
        # Made and dropped: a wrong file must fail the constructor, not the first command much later.
        given.context()
        return given

    def context(self) -> ssl.SSLContext:
        """Make the SSLContext. Raises InvalidArgument if a file is missing or invalid."""
        file, text = self._authorities()
        try:
            context = ssl.create_default_context(cafile=file, cadata=text)
        except ssl.SSLError as error:
            raise InvalidArgument(f"connection.tls.ca holds no certificates: {error}", field="tls.ca") from None
        if not self.rejectUnauthorized:
            # Before verify_mode: Python refuses CERT_NONE while the host name is checked.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert is not None:
            self._prove_client(context, self.cert)
        elif self.key is not None:
            raise InvalidArgument("connection.tls.key needs connection.tls.cert", field="tls.cert")
        return context

    def for_redis_py(self) -> dict[str, Any]:
        """Return arguments of redis-py's cluster client. Raises InvalidArgument for unsupported settings."""
        for name in ("servername", "passphrase"):
            if getattr(self, name) is not None:
                raise InvalidArgument(f"connection.tls.{name} is not possible in a cluster", field=f"tls.{name}")
        arguments: dict[str, Any] = {"ssl_certfile": self.cert, "ssl_keyfile": self.key}
        if self.ca is not None:
            arguments["ssl_ca_data" if self.ca.startswith(_PEM) else "ssl_ca_certs"] = self.ca
        if not self.rejectUnauthorized:
            arguments |= {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
        return arguments

    def _authorities(self) -> tuple[str | None, str | None]:
        """Return a file of authorities, or their text."""
        if self.ca is None:
            return None, None
        if isinstance(self.ca, str) and self.ca.startswith(_PEM):
            return None, self.ca
        return _readable("ca", self.ca), None

    def _prove_client(self, context: ssl.SSLContext, cert: str) -> None:
        key = None if self.key is None else _readable("key", self.key)
        # Without a passphrase OpenSSL would ask for it on the terminal.
        passphrase = self.passphrase or ""
        try:
            context.load_cert_chain(_readable("cert", cert), key, passphrase)
        except (ssl.SSLError, OSError) as error:
            raise InvalidArgument(
                f"connection.tls: {cert} and {self.key or cert} are not a certificate and its key: {error}",
                field="tls.cert",
            ) from None


def context_of(tls: Tls | ssl.SSLContext | bool) -> ssl.SSLContext | None:
    """Return the SSLContext of the sockets; None for plain text."""
    if isinstance(tls, bool):
        return ssl.create_default_context() if tls else None
    return tls.context() if isinstance(tls, Tls) else tls


def server_name_of(tls: Tls | ssl.SSLContext | bool) -> str | None:
    """Return the name that the server's certificate must be for, if it is not the host."""
    return tls.servername if isinstance(tls, Tls) else None


def redis_py_arguments(tls: Tls | ssl.SSLContext | bool) -> dict[str, Any]:
    """Return arguments of redis-py's cluster client. Raises InvalidArgument for an SSLContext."""
    if isinstance(tls, bool):
        return {"ssl": tls}
    if isinstance(tls, Tls):
        return {"ssl": True, **tls.for_redis_py()}
    raise InvalidArgument(
        "connection.tls cannot be an SSLContext in a cluster; give ca, cert and key", field="tls", constraint="a dict"
    )


def _readable(key: str, name: str) -> str:
    if not isinstance(name, str) or name.startswith(_PEM):
        raise InvalidArgument(f"connection.tls.{key} must be the path of a file", field=f"tls.{key}")
    path = Path(name).expanduser()
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"connection.tls.{key}: {name} cannot be read: {error.strerror}", field=f"tls.{key}"
        ) from None
    if _PEM.encode() not in text:
        raise InvalidArgument(f"connection.tls.{key}: {name} is not in PEM format", field=f"tls.{key}")
    return str(path)
