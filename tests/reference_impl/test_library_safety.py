"""Connections: what is refused, and TLS with client certificates, users, sentinels and unix sockets on real servers."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.connection.tls import Tls
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_events import QueueEvents
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.workers.worker import Worker
from conformance.servers import RedisInstance
from conformance.servers.binary import any_binary
from tests.conftest import Missing
from tests.reference_impl.conftest import until
from tests.reference_impl.secure_redis import (
    MASTER,
    PASSWORD,
    USER,
    WATCHER,
    WATCHWORD,
    Certificates,
    SecureRedis,
    secure_redis,
    why_no_tls,
)

# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connection", "text"),
    [
        ({"hots": "h"}, "connection has no key 'hots'; did you mean 'host'?"),
        ({"ssl": True}, "connection has no key 'ssl'; here it is 'tls'"),
        ({"sentinel": []}, "connection has no key 'sentinel'; did you mean 'sentinels'?"),
        ({"zzz": 1}, "connection has no key 'zzz'; it knows credentialProvider, db, host, "),
        ({"tls": {"cafile": "x"}}, "connection.tls has no key 'cafile'; here it is 'ca'"),
        ({"tls": {"certs": "x"}}, "connection.tls has no key 'certs'; did you mean 'cert'?"),
        ({"tls": "yes"}, "connection.tls must be True, a dict or an SSLContext, not str"),
        ({"tls": {"ca": "/nowhere.pem"}}, "connection.tls.ca: /nowhere.pem cannot be read: No such file or directory"),
        ({"tls": {"ca": __file__ + "c"}}, "cannot be read"),
        ({"tls": {"key": "k"}}, "connection.tls.key needs connection.tls.cert"),
        ({"tls": True, "path": "/s"}, "connection.tls is not possible over a unix socket"),
        ({"sentinels": ["a:1"]}, "connection.sentinels needs connection.name, the name of the master"),
        ({"sentinels": [], "name": "m"}, "connection.sentinels must be a list of host:port"),
        ({"sentinels": [{"hots": "h"}], "name": "m"}, "connection.sentinels has no key 'hots'; did you mean 'host'?"),
        ({"sentinelPassword": "p"}, "connection.sentinelPassword needs connection.sentinels"),
        ({"mode": "clutser"}, "connection.mode must be standalone or cluster, not 'clutser'"),
        ({"mode": "sentinel"}, "connection.sentinels is for the mode sentinel alone"),
        ({"host": "h", "path": "/s"}, "connection has 'path' and 'host': give one of them"),
        ({"host": 1}, "connection.host must be a text, not int"),
        ({"port": "6379x"}, "connection.port must be a number, not '6379x'"),
        ({"port": 70_000}, "connection.port must be a port between 1 and 65535, not 70000"),
        ({"db": -1}, "connection.db must be a number, not -1"),
        ({"nodes": ["h:p"]}, "connection.nodes must be a number, not 'p'"),
        ({"password": 1}, "connection.password must be a text, not int"),
        ("localhost:6379", "the connection URL 'localhost:6379' must start with redis://, rediss:// or unix://"),
        ("http://h", "the connection URL 'http://h' must start with redis://"),
        ("redis://u:secret@h/x", "the connection URL 'redis://h/x' must end with the number of a database, not 'x'"),
        ("redis://h:port", "the connection URL cannot be read: Port could not be cast to integer value as 'port'"),
        ("redis://[::1", "the connection URL cannot be read: Invalid IPv6 URL"),
        ("rediss://h?ssl_cert_reqs=none", "may not say 'ssl_cert_reqs' after the question mark"),
        ("unix://", "needs the path of a socket"),
        (7, "connection must be a URL, a dict, an Address or a redis.asyncio.Redis, not builtins.int"),
    ],
)
def test_an_invalid_connection_is_refused(connection: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(text)) as caught:
        Queue("q", {"connection": connection}, scripts={})
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_certificates_are_refused(tmp_path: Path) -> None:
    text, empty = tmp_path / "text", tmp_path / "empty.pem"
    text.write_text("hello")
    empty.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    for tls, said in (
        ({"ca": str(text)}, "is not in PEM format"),
        ({"ca": str(empty)}, "holds no certificates"),
        ({"cert": str(empty)}, "are not a certificate and its key"),
        ({"cert": "-----BEGIN CERTIFICATE-----"}, "must be the path of a file"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            Address.of({"tls": tls})


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        (None, Address()),
        ("redis://", Address()),
        ("redis://h", Address((("h", 6379),))),
        ("redis://h?db=4", Address((("h", 6379),), db=4)),
        ("rediss://me:p%40ss@h:7000/3", Address((("h", 7000),), db=3, username="me", password="p@ss", tls=True)),
        ("unix:///run/redis.sock?db=1", Address(path="/run/redis.sock", db=1)),
        ({"url": "rediss://h", "password": "p"}, Address((("h", 6379),), password="p", tls=True)),
        ({"host": "h", "port": "1", "db": None}, Address((("h", 1),))),
        ({"tls": {}}, Address(tls=Tls())),
        ({"tls": False}, Address()),
        (
            {"nodes": ["a", "[::1]:2", ("c", 3)], "mode": "cluster"},
            Address((("a", 6379), ("::1", 2), ("c", 3)), "cluster"),
        ),
    ],
)
def test_the_forms_of_a_connection(connection: Any, address: Address) -> None:
    assert Address.of(connection) == address


def test_tls_options_that_a_cluster_cannot_use_are_refused() -> None:
    for tls, said in (
        ({"servername": "x"}, "tls.servername is not possible in a cluster"),
        (Tls().context(), "cannot be an SSLContext in a cluster"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            Connection(Address.of({"mode": "cluster", "nodes": ["h:1"], "tls": tls}))


# --- no silent fall-back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [b"+PONG\r\n", b"-ERR wrong\r\n"])
def test_an_answer_in_plain_text_is_an_error_of_a_tls_client(answer: bytes) -> None:
    async def steps() -> None:
        received = bytearray()

        async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.extend(await reader.read(5))
            writer.write(answer)
            await writer.drain()
            received.extend(await reader.read())
            writer.close()

        async with await asyncio.start_server(plain, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            choices: list[Any] = [True, {}, {"rejectUnauthorized": False}]
            for tls in choices:
                connection = Connection(Address.of({"port": port, "password": "geheim", "tls": tls}))
                with pytest.raises(RedisConnectionError, match=r"no TLS with 127\.0\.0\.1"):
                    await connection.command("PING")
                await connection.close()
        assert b"geheim" not in received
        assert b"PING" not in received

    asyncio.run(steps())


# --- real servers --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def tls_servers(missing: Missing) -> None:
    """Skip the test if Redis servers with TLS cannot be started here."""
    if reason := why_no_tls():
        missing("redis-tls", reason)


@pytest.fixture(scope="module")
def secure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureRedis]:
    request.getfixturevalue("tls_servers")
    with secure_redis(tmp_path_factory.mktemp("secure")) as started:
        yield started


async def ping(connection: Any) -> Any:
    opened = Connection(Address.of(connection))
    try:
        return await opened.command("PING")
    finally:
        await opened.close()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tls": True}, "the certificate of 127.0.0.1:.* was refused: "),
        ({"tls": {"key": None, "cert": None}}, "Connection lost|no connection"),
        ({"tls": {"servername": "other.test"}}, "was refused: .*other.test"),
        ({"tls": False}, "Connection lost"),
        ({"password": "wrong"}, "invalid username-password pair"),
        ({"username": "nobody"}, "invalid username-password pair"),
        ({"username": None, "password": None}, "Authentication required|NOAUTH"),
    ],
    ids=["own-authorities", "no-certificate", "other-name", "plain-text", "password", "user", "nobody"],
)
def test_a_refused_login_is_an_error(secure: SecureRedis, changed: dict[str, Any], said: str) -> None:
    connection = {**secure.direct, **changed}
    if isinstance(changed.get("tls"), dict):
        connection["tls"] = {**secure.certificates.tls, **changed["tls"]}
    with pytest.raises(RedisError, match=said):
        asyncio.run(ping(connection))


def test_a_client_with_valid_credentials_is_let_in(secure: SecureRedis) -> None:
    tls = secure.certificates.tls
    ca_text = secure.certificates.ca.read_text("utf-8")
    forms: list[Any] = [
        secure.direct,
        {**secure.direct, "tls": {**tls, "servername": "redis.test"}},
        {**secure.direct, "tls": {**tls, "ca": ca_text}},
        {**secure.direct, "tls": {**tls, "ca": None, "rejectUnauthorized": False}},
        {**secure.direct, "tls": Tls(tls["ca"], tls["cert"], tls["key"]).context()},
        {"url": f"rediss://{USER}:{PASSWORD}@127.0.0.1:{secure.master.port}/2", "tls": tls},
        secure.by_sentinel,
        _redis_py(secure),
        _redis_py_sentinel(secure),
    ]
    for form in forms:
        assert asyncio.run(ping(form)) == b"PONG", form


def _settings(secure: SecureRedis) -> dict[str, Any]:
    tls = secure.certificates.tls
    return {"ssl": True, "ssl_ca_certs": tls["ca"], "ssl_certfile": tls["cert"], "ssl_keyfile": tls["key"]}


def _redis_py(secure: SecureRedis) -> Redis:
    return Redis(host="127.0.0.1", port=secure.master.port, username=USER, password=PASSWORD, **_settings(secure))


def _redis_py_sentinel(secure: SecureRedis) -> Redis:
    ask: Any = Sentinel
    asked = ask(
        [("127.0.0.1", secure.sentinel.port)],
        sentinel_kwargs={"username": WATCHER, "password": WATCHWORD, **_settings(secure)},
        **{"username": USER, "password": PASSWORD, **_settings(secure)},
    )
    master: Redis = asked.master_for(MASTER)
    return master


def test_wrong_credentials_for_a_sentinel_are_reported(secure: SecureRedis) -> None:
    for changed, said in (
        ({"name": "other"}, "no sentinel leads to the master 'other': .* it does not know that master"),
        ({"sentinelPassword": "wrong"}, "no sentinel leads to the master 'mymaster': .* invalid username-password"),
        ({"sentinels": ["127.0.0.1:1"]}, "no sentinel leads to the master 'mymaster': .* no connection"),
    ):
        with pytest.raises(RedisConnectionError, match=said):
            asyncio.run(ping({**secure.by_sentinel, **changed}))


async def _added_within(limit_s: float, queue: Queue, name: str, data: int) -> None:
    """Add a job as soon as a master can be reached: on a busy machine a sentinel may not shake hands within its 2 s."""
    deadline = asyncio.get_running_loop().time() + limit_s
    refused = ""
    while asyncio.get_running_loop().time() < deadline:
        try:
            await queue.add(name, data)
        except RedisError as error:
            refused = str(error)
            await asyncio.sleep(0.2)
        else:
            return
    pytest.fail(f"no master within {limit_s:g} s: {refused}")


@pytest.mark.usefixtures("tls_servers")
def test_a_queue_follows_its_master_over_tls_as_a_user(tmp_path: Path, scripts: ScriptTexts) -> None:
    """TLS with client certificates, users and a sentinel together; then the master dies."""

    async def steps(secure: SecureRedis) -> None:
        opts: dict[str, Any] = {"connection": secure.by_sentinel, "drainDelay": 1}
        queue = Queue("q", opts, scripts=scripts)
        events = QueueEvents("q", opts, scripts=scripts)
        done: list[Any] = []
        worker = Worker("q", lambda job, _token: done.append(job.data), opts, scripts=scripts)
        worker.on("error", lambda _error: None)
        await _added_within(90, queue, "before", 1)
        await until(lambda: done == [1], lambda: done, within_s=60)
        await until(lambda: secure.replica.connect().exists("bull:q:1") == 1, lambda: "not replicated", within_s=60)
        secure.master.kill()
        await _added_within(90, queue, "after", 2)
        await until(lambda: done == [1, 2], lambda: done, within_s=60)
        assert secure.replica.connect().info("replication")["role"] == "master"
        await worker.close(force=True)
        await events.close()
        await queue.close()

    with secure_redis(tmp_path) as secure:
        asyncio.run(steps(secure))


@pytest.mark.parametrize("mode", ["standalone", "sentinel"])
def test_a_master_that_became_a_replica_counts_as_lost_where_sentinels_watch(mode: str) -> None:
    """Elsewhere READONLY is the error that it is."""

    async def steps() -> None:
        async with await asyncio.start_server(_deposed_master, "127.0.0.1", 0) as listener:
            host, port = listener.sockets[0].getsockname()[:2]
            by_sentinel = {"sentinels": [(host, port)], "name": "m", "password": str(port)}
            connection = Connection(Address.of({"port": port} if mode == "standalone" else by_sentinel))
            for act in (connection.command("SET", "a", 1), connection.pipeline([("SET", "a", 1)])):
                with pytest.raises(RedisError, match="read only replica") as caught:
                    raise_first(await act)
                assert isinstance(caught.value, RedisConnectionError) is (mode == "sentinel")
            await connection.close()

    asyncio.run(steps())


def raise_first(replies: Any) -> None:
    raise replies[0]


async def _deposed_master(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Simulate a sentinel that names itself as the master, which calls itself one, and then refuses to write."""
    while data := await reader.read(1000):
        port = writer.get_extra_info("sockname")[1]
        if b"GET-MASTER" in data:
            writer.write(b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(port)), port))
        elif b"AUTH" in data:
            writer.write(b"+OK\r\n")
        elif b"replication" in data:
            writer.write(b"+role:master\r\n")
        else:
            writer.write(b"-READONLY You can't write against a read only replica.\r\n")


# --- unix sockets, and clients of redis-py -------------------------------------------------------------------------


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def test_a_unix_socket(tmp_path: Path, scripts: ScriptTexts) -> None:
    async def steps(path: Path) -> None:
        for connection in (f"unix://{path}", {"path": str(path)}, Redis(unix_socket_path=str(path))):
            queue = Queue("q", {"connection": connection}, scripts=scripts)
            assert (await queue.add("a", 1)).id is not None
            await queue.close()

    path = tmp_path / "redis.sock"
    program = any_binary(lambda _text: None).path
    process = subprocess.Popen(
        [program, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
    )
    try:
        # The file is there before Redis listens on it.
        asyncio.run(until(lambda: _listens(path), lambda: f"nothing listens on {path}", within_s=30))
        asyncio.run(steps(path))
    finally:
        process.kill()
        process.wait()


def test_a_client_of_redis_py_is_handed_in_and_stays_open(
    server: RedisInstance, prefix: str, scripts: ScriptTexts
) -> None:
    async def steps() -> None:
        host, port = server.nodes[0].rsplit(":", 1)
        for client in (Redis(host=host, port=int(port)), Redis.from_url(f"redis://{server.nodes[0]}/0")):
            queue = Queue("q", {"connection": client, "prefix": prefix}, scripts=scripts)
            await queue.add("a", 1)
            await queue.close()
            assert await client.ping()
            await client.aclose()

    asyncio.run(steps())


def test_a_cluster_client_of_redis_py_is_handed_in(cluster: RedisInstance, scripts: ScriptTexts) -> None:
    async def steps() -> None:
        host, port = cluster.nodes[0].rsplit(":", 1)
        client = RedisCluster(host=host, port=int(port))
        queue = Queue("q", {"connection": client, "prefix": "{handed-in}"}, scripts=scripts)
        assert queue.address.mode == "cluster"
        await queue.add("a", 1)
        await queue.obliterate({"force": True})
        await queue.close()
        await client.aclose()

    asyncio.run(steps())


def test_a_credential_provider_is_used(server: RedisInstance) -> None:
    class Asked:
        def __init__(self) -> None:
            self.times = 0

        async def get_credentials_async(self) -> tuple[str, str]:
            self.times += 1
            return "nobody", "wrong"

    provider = Asked()
    host, port = server.nodes[0].rsplit(":", 1)
    with pytest.raises(AuthenticationError, match="invalid username-password pair"):
        asyncio.run(ping({"host": host, "port": int(port), "credentialProvider": provider}))
    assert provider.times == 1


@pytest.mark.slow
def test_certificates_are_made(tmp_path: Path, missing: Missing) -> None:
    if not shutil.which("openssl"):
        missing("openssl", "certificates are made with openssl, which is not on PATH")
    assert Certificates.make(tmp_path).cert.read_text().startswith("-----BEGIN")
