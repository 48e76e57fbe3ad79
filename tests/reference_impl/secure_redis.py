"""Real servers that speak TLS alone, know users (ACL), and are watched by a sentinel; certificates made on the spot."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import redis

from conformance.servers.binary import any_binary
from conformance.servers.local import free_port

MASTER = "mymaster"
USER, PASSWORD = "app", "app-secret"
WATCHER, WATCHWORD = "watcher", "watch-secret"
_READY_WITHIN_S = 60

_USERS = f"""
user default off
user {USER} on >{PASSWORD} ~* &* +@all -@admin +client
user replica on >replica-secret +psync +replconf +ping
user sentinel on >sentinel-secret &* +@all
"""
_WATCHERS = f"""
user default off
user {WATCHER} on >{WATCHWORD} &* +@all
"""


@dataclass(frozen=True)
class Certificates:
    """Files: an authority, and a certificate with its key that serves servers and clients."""

    ca: Path
    cert: Path
    key: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        """Let openssl make them, for 127.0.0.1 and the name redis.test."""
        ca, ca_key, cert, key = (folder / name for name in ("ca.pem", "ca-key.pem", "cert.pem", "key.pem"))
        common = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
        _run(*common, "-subj", "/CN=test authority", "-keyout", ca_key, "-out", ca)
        names = ("-addext", "subjectAltName=IP:127.0.0.1,DNS:redis.test", "-addext", "basicConstraints=CA:FALSE")
        signed = ("-CA", ca, "-CAkey", ca_key, "-keyout", key, "-out", cert)
        _run(*common, "-subj", "/CN=redis.test", *names, *signed)
        return cls(ca, cert, key)

    @property
    def tls(self) -> dict[str, str]:
        """The option `tls` of a client that proves who it is."""
        return {"ca": str(self.ca), "cert": str(self.cert), "key": str(self.key)}


def _run(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@cache
def why_no_tls() -> str:
    """The reason why these servers cannot be started here; empty if they can.

    A server built without TLS stops at the first line of the settings, any other one at the second: none is started.
    """
    if shutil.which("openssl") is None:
        return "certificates are made with openssl, which is not on PATH"
    program = any_binary(lambda _text: None)
    settings = "tls-port 0\nno-such-directive 1\n"
    answer = subprocess.run(
        [program.path, "-"], input=settings, capture_output=True, text=True, check=False, timeout=_READY_WITHIN_S
    )
    return "" if "no-such-directive" in answer.stdout + answer.stderr else f"{program.source} is built without TLS"


@dataclass
class SecureServer:
    process: subprocess.Popen[bytes]
    port: int
    certificates: Certificates
    user: str
    password: str

    def connect(self) -> redis.Redis:
        """Return a client of the test's own."""
        return redis.Redis(
            host="127.0.0.1",
            port=self.port,
            username=self.user,
            password=self.password,
            ssl=True,
            ssl_ca_certs=str(self.certificates.ca),
            ssl_certfile=str(self.certificates.cert),
            ssl_keyfile=str(self.certificates.key),
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class SecureRedis:
    """A master, its replica and the sentinel."""

    master: SecureServer
    replica: SecureServer
    sentinel: SecureServer
    certificates: Certificates

    @property
    def by_sentinel(self) -> dict[str, Any]:
        """The option `connection` of a client that asks the sentinel."""
        return {
            "sentinels": [{"host": "127.0.0.1", "port": self.sentinel.port}],
            "name": MASTER,
            "username": USER,
            "password": PASSWORD,
            "tls": self.certificates.tls,
            "sentinelUsername": WATCHER,
            "sentinelPassword": WATCHWORD,
            "sentinelTLS": self.certificates.tls,
        }

    @property
    def direct(self) -> dict[str, Any]:
        """The option `connection` of a client that goes to the first master itself."""
        place = {"host": "127.0.0.1", "port": self.master.port}
        return {**place, "username": USER, "password": PASSWORD, "tls": self.certificates.tls}


@contextmanager
def secure_redis(folder: Path) -> Iterator[SecureRedis]:
    """Start all three, and wait until the sentinel knows the replica."""
    certificates = Certificates.make(folder)
    with ExitStack() as stack:
        master = stack.enter_context(_server(folder / "master", certificates, USER, PASSWORD, _USERS + _AS_REPLICA))
        follows = f"replicaof 127.0.0.1 {master.port}\n"
        replica = stack.enter_context(
            _server(folder / "replica", certificates, USER, PASSWORD, _USERS + _AS_REPLICA + follows)
        )
        watches = _WATCHERS + (
            f"sentinel monitor {MASTER} 127.0.0.1 {master.port} 1\n"
            f"sentinel auth-user {MASTER} sentinel\n"
            f"sentinel auth-pass {MASTER} sentinel-secret\n"
            f"sentinel down-after-milliseconds {MASTER} 1000\n"
            f"sentinel failover-timeout {MASTER} 3000\n"
        )
        sentinel = stack.enter_context(
            _server(folder / "sentinel", certificates, WATCHER, WATCHWORD, watches, "--sentinel")
        )
        _until(lambda: master.connect().info("replication")["connected_slaves"] == 1)
        _until(lambda: _sentinel_says(sentinel, "num-slaves") == "1")
        yield SecureRedis(master, replica, sentinel, certificates)


_AS_REPLICA = "masteruser replica\nmasterauth replica-secret\n"


def _sentinel_says(sentinel: SecureServer, field: str) -> str:
    client: Any = sentinel.connect()
    reply = client.execute_command("SENTINEL MASTER", MASTER)
    facts = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
    return str({_text(name): _text(value) for name, value in facts.items()}[field])


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@contextmanager
def _server(
    folder: Path, certificates: Certificates, user: str, password: str, settings: str, *arguments: str
) -> Iterator[SecureServer]:
    folder.mkdir()
    port = free_port(cluster=False)
    config = folder / "redis.conf"
    config.write_text(
        f"port 0\ntls-port {port}\nbind 127.0.0.1\ndir {folder}\ntls-auth-clients yes\ntls-replication yes\n"
        f"tls-ca-cert-file {certificates.ca}\ntls-cert-file {certificates.cert}\ntls-key-file {certificates.key}\n"
        f"{settings}" + ("" if arguments else 'save ""\n')
    )
    with (folder / "log").open("wb") as log:
        program = any_binary(lambda _text: None).path
        process = subprocess.Popen([program, str(config), *arguments], stdout=log, stderr=log)
    server = SecureServer(process, port, certificates, user, password)
    try:
        _until(lambda: _answers(server), seen=lambda: (folder / "log").read_text("utf-8", "replace")[-2000:])
        yield server
    finally:
        server.kill()


def _answers(server: SecureServer) -> bool:
    try:
        return bool(server.connect().ping())
    except redis.ConnectionError:
        return False


def _until(condition: Callable[[], bool], seen: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, seen()
        time.sleep(0.05)
