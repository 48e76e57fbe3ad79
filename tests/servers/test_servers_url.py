"""Settings of a user for a Redis, and a Redis that belongs to the user: examined first, and never cleared."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
import redis

from conformance.problems import EnvironmentProblem, Problem, UsageProblem
from conformance.servers import RedisInstance, open_server, opening
from conformance.servers.connection import connect_node, send, wait_until
from conformance.servers.setting import (
    AnyBinary,
    BinaryAt,
    BundledBinary,
    ContainerImage,
    NewCluster,
    RedisUrl,
    Setting,
    parse_setting,
    split_node,
)


def test_a_setting_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_REDIS", "redis://:secret@h")
    assert parse_setting("env:SECRET_REDIS") == RedisUrl(mode="standalone", nodes=["h:6379"], password="secret")


@pytest.mark.parametrize("value", [None, "", "env:SECRET_REDIS"])
def test_a_variable_without_an_address_is_refused(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECRET_REDIS", raising=False)
    if value is not None:
        monkeypatch.setenv("SECRET_REDIS", value)
    with pytest.raises(UsageProblem, match="SECRET_REDIS") as caught:
        parse_setting("env:SECRET_REDIS")
    assert "password@host" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, AnyBinary()),
        ("", AnyBinary()),
        ("  ", AnyBinary()),
        ("bundled", BundledBinary()),
        ("binary:/opt/redis 8/redis-server", BinaryAt("/opt/redis 8/redis-server")),
        ("container", ContainerImage("redis:7.4")),
        ("container:valkey/valkey:8", ContainerImage("valkey/valkey:8")),
        (
            "container:registry.example:5000/team/redis@sha256:0123",
            ContainerImage("registry.example:5000/team/redis@sha256:0123"),
        ),
        ("container-cluster", NewCluster(3, "redis:7.4")),
        ("container-cluster:5", NewCluster(5, "redis:7.4")),
        ("container-cluster:3:valkey/valkey:8", NewCluster(3, "valkey/valkey:8")),
        ("cluster", NewCluster(3)),
        ("cluster:6", NewCluster(6)),
        ("redis://localhost", RedisUrl(mode="standalone", nodes=["localhost:6379"])),
        ("redis://127.0.0.1:7000/", RedisUrl(mode="standalone", nodes=["127.0.0.1:7000"])),
        ("redis://[::1]:7000/4", RedisUrl(mode="standalone", nodes=["[::1]:7000"], db=4)),
        ("rediss://h:1/2", RedisUrl(mode="standalone", nodes=["h:1"], db=2, tls=True)),
        ("redis://:secret@h", RedisUrl(mode="standalone", nodes=["h:6379"], password="secret")),
        (
            "redis://us%40er:p%3A%2Fw%40@h/0",
            RedisUrl(mode="standalone", nodes=["h:6379"], username="us@er", password="p:/w@"),
        ),
        (
            "redis+cluster://user:pw@a:7000,b:7001,[::1]:7002",
            RedisUrl(mode="cluster", nodes=["a:7000", "b:7001", "[::1]:7002"], username="user", password="pw"),
        ),
        ("rediss+cluster://a,b/0", RedisUrl(mode="cluster", nodes=["a:6379", "b:6379"], tls=True)),
    ],
)
def test_every_form_is_read(text: str | None, expected: Setting) -> None:
    assert parse_setting(text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("redis", "invalid Redis setting"),
        ("/usr/bin/redis-server", "invalid Redis setting"),
        ("localhost:6379", "invalid Redis setting"),
        ("bundled:7", "invalid Redis setting"),
        ("binary:", "follows the colon"),
        ("container:", "follows the colon"),
        ("container-cluster:", "follows the colon"),
        ("container-cluster:2", "cannot have '2' masters"),
        ("container-cluster:redis", "cannot have 'redis' masters"),
        ("container-cluster:3:two words", "container image"),
        ("container:two words", "container image"),
        ("container:--privileged", "container image"),
        ("cluster:", "follows the colon"),
        ("cluster:2", "'2' masters"),
        ("cluster:33", "'33' masters"),
        ("cluster:many", "'many' masters"),
        ("cluster:٣", "masters"),
        ("http://localhost", "scheme 'http'"),
        ("unix:///run/redis.sock", "scheme 'unix'"),
        ("redis://", "not host:port"),
        ("redis://:6379", "not host:port"),
        ("redis://h:port", "not host:port"),
        ("redis://h:70000", "not host:port"),
        ("redis://h:0", "not host:port"),
        ("redis://[::1", "invalid Redis URL"),
        ("redis://h/one", "'/one'"),
        ("redis://h/-1", "'/-1'"),
        ("redis://h/1/2", "'/1/2'"),
        ("redis://h?db=1", "options"),
        ("redis://a:1,b:2", "several hosts"),
        ("redis+cluster://a:1,,b:2", "not host:port"),
        ("redis+cluster://a:1/3", "no database 3"),
    ],
)
def test_anything_else_is_a_usage_problem(text: str, part: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        parse_setting(text)
    assert part in caught.value.what
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["redis://u:hunter2@h:port", "redis://u:hunter2@h/x", "redis://u:hunter2@h?x=1", "x://u:hunter2@h"]
)
def test_a_password_is_not_repeated_in_a_problem(text: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        parse_setting(text)
    assert "hunter2" not in str(caught.value)


def test_a_password_is_not_shown_but_survives_the_url() -> None:
    address = parse_setting("rediss://us%40er:hunter%2F2@h:1/5")
    assert isinstance(address, RedisUrl)
    assert "hunter" not in repr(address)
    assert address.text == "rediss://h:1/5"
    assert parse_setting(address.url) == address


@pytest.mark.parametrize(
    "text", ["redis://h:1/5", "redis://[::1]:1/0", "redis+cluster://u:p@a:1,b:2", "redis://:p@h:1/0"]
)
def test_the_url_of_an_address_reads_as_the_same_address(text: str) -> None:
    address = parse_setting(text)
    assert isinstance(address, RedisUrl)
    assert parse_setting(address.url) == address


def test_nodes_are_split_without_brackets() -> None:
    assert split_node("[::1]:7000") == ("::1", 7000)
    assert split_node("localhost:7000") == ("localhost", 7000)


Announced = list[str]
Missing = Callable[[str, str], NoReturn]


@pytest.fixture
def client(server: RedisInstance) -> Iterator[redis.Redis]:
    """A client with all rights, unaffected by what the test does to the server."""
    with connect_node(server, server.nodes[0]) as connected:
        connected.ping()
        yield connected


def refuse(setting: str) -> Problem:
    """Open the URL, which must fail."""
    with pytest.raises(Problem) as caught, open_server(setting, announce=print):
        pass
    assert caught.value.hint
    return caught.value


def test_a_url_is_the_users_own(server: RedisInstance, client: redis.Redis, announced: Announced) -> None:
    client.set("precious", "1")
    with open_server(server.url, announce=announced.append) as opened:
        assert not opened.own
        assert opened.nodes == server.nodes
        assert opened.version == server.version
        assert opened.settings == server.settings
        assert opened.source == server.text
    assert client.keys("*") == [b"precious"]
    assert announced == []


def test_the_database_of_the_url_is_used(server: RedisInstance, client: redis.Redis) -> None:
    with open_server(server.url.removesuffix("/0") + "/3", announce=print) as opened, opened.connect() as third:
        third.set("here", "1")
        assert client.exists("here") == 0
        client.select(3)
        assert client.exists("here") == 1


def test_a_database_that_does_not_exist_is_refused(server: RedisInstance) -> None:
    problem = refuse(server.url.removesuffix("/0") + "/99")
    assert isinstance(problem, UsageProblem)
    assert "has no database 99" in problem.what


def test_a_closed_port_at_the_address(closed_port: int) -> None:
    problem = refuse(f"redis://127.0.0.1:{closed_port}")
    assert isinstance(problem, EnvironmentProblem)
    assert f"127.0.0.1:{closed_port}" in problem.what
    assert "cannot be reached" in problem.what


def test_a_host_name_that_does_not_exist() -> None:
    problem = refuse("redis://no-such-host.invalid:6379")
    assert "no-such-host.invalid:6379" in problem.what
    assert "unknown host name" in problem.what


@pytest.mark.parametrize("login", ["", ":wrong@", "somebody:right@"])
def test_a_wrong_login_is_refused(server: RedisInstance, client: redis.Redis, login: str) -> None:
    client.config_set("requirepass", "right")
    problem = refuse(f"redis://{login}{server.nodes[0]}")
    assert isinstance(problem, EnvironmentProblem)
    assert "refused the user or password" in problem.what
    assert "right" not in str(problem)


def test_a_right_login_is_accepted_and_handed_on(server: RedisInstance, client: redis.Redis) -> None:
    client.config_set("requirepass", "right")
    with open_server(f"redis://:right@{server.nodes[0]}", announce=print) as opened, opened.connect() as connected:
        assert connected.ping()
        assert (opened.username, opened.password) == (None, "right")
        assert "right" not in repr(opened)
        assert "right" not in opened.source


def test_a_password_where_none_is_set_is_refused(server: RedisInstance) -> None:
    # Redis without a password refuses any; a client that sends one would fail in every scenario.
    assert "refused the user or password" in refuse(f"redis://:any@{server.nodes[0]}").what


def test_a_user_without_the_right_to_write_is_refused(server: RedisInstance, client: redis.Redis) -> None:
    send(client, "ACL SETUSER", "reader", "on", ">pw", "~*", "+@read", "+info", "+ping")
    assert "does not give this user" in refuse(f"redis://reader:pw@{server.nodes[0]}").what


def test_a_refused_config_is_reported_as_unavailable(server: RedisInstance, client: redis.Redis) -> None:
    send(client, "ACL SETUSER", "tenant", "on", ">pw", "~*", "+@all", "-config")
    with open_server(f"redis://tenant:pw@{server.nodes[0]}", announce=print) as opened:
        assert opened.settings["save"] == "unavailable"
        assert opened.settings["notify-keyspace-events"] == "unavailable"
        # The facts of INFO are known anyway.
        assert opened.settings["maxmemory-policy"] == "noeviction"


def test_an_eviction_policy_is_announced(server: RedisInstance, client: redis.Redis, announced: Announced) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    with open_server(server.url, announce=announced.append) as opened:
        assert opened.settings["maxmemory-policy"] == "allkeys-lru"
    assert len(announced) == 1
    assert "allkeys-lru" in announced[0]
    assert server.nodes[0] in announced[0]


def test_a_full_redis_is_refused(server: RedisInstance, client: redis.Redis) -> None:
    client.config_set("maxmemory", "1")
    assert "has no memory left" in refuse(server.url).what


@pytest.mark.parametrize("read_only", ["yes", "no"])
def test_a_replica_is_refused(server: RedisInstance, client: redis.Redis, closed_port: int, read_only: str) -> None:
    client.config_set("replica-read-only", read_only)
    send(client, "REPLICAOF", "127.0.0.1", closed_port)
    problem = refuse(server.url)
    assert "is a replica" in problem.what
    assert f"127.0.0.1:{closed_port}" in problem.hint


@pytest.mark.parametrize("version", ["6.0.9", "5.0.14", "unstable"])
def test_an_old_or_unknown_version_is_refused(pretended_version: Callable[[str], int], version: str) -> None:
    port = pretended_version(version)
    problem = refuse(f"redis://127.0.0.1:{port}")
    assert isinstance(problem, EnvironmentProblem)
    assert f"127.0.0.1:{port} is version {version}" in problem.what
    assert "6.2.0" in problem.hint


def test_a_server_that_does_not_keep_a_write_is_refused(pretended_version: Callable[[str], int]) -> None:
    problem = refuse(f"redis://127.0.0.1:{pretended_version('7.2.0')}")
    assert "did not return what was written" in problem.what


def test_a_single_server_is_not_a_cluster(server: RedisInstance) -> None:
    problem = refuse(f"redis+cluster://{server.nodes[0]}")
    assert isinstance(problem, UsageProblem)
    assert "is not a cluster" in problem.what


@dataclass(frozen=True)
class TlsPort:
    port: int
    certificate: Path


@pytest.fixture
def tls_port(server: RedisInstance, client: redis.Redis, closed_port: int, tmp_path: Path, missing: Missing) -> TlsPort:
    """A second, TLS-only port of the server, with an unsigned certificate."""
    openssl = shutil.which("openssl") or missing("openssl", "openssl is not on PATH")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    try:
        client.config_set("tls-auth-clients", "no")
        client.config_set("tls-key-file", str(key))
        client.config_set("tls-cert-file", str(certificate))
        client.config_set("tls-ca-cert-file", str(certificate))
        client.config_set("tls-port", closed_port)
    except redis.ResponseError as error:
        missing("redis-tls", f"{server.source} is built without TLS ({error})")
    return TlsPort(closed_port, certificate)


def test_tls_with_a_trusted_certificate(tls_port: TlsPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tls_port.certificate))
    with open_server(f"rediss://127.0.0.1:{tls_port.port}", announce=print) as opened, opened.connect() as connected:
        assert opened.tls
        assert connected.ping()


def test_tls_with_a_certificate_that_is_not_trusted(tls_port: TlsPort) -> None:
    problem = refuse(f"rediss://127.0.0.1:{tls_port.port}")
    assert "untrusted" in problem.what
    assert "SSL_CERT_FILE" in problem.hint


def test_tls_is_spoken_to_a_plain_port(server: RedisInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    # Redis waits for the rest of what it takes for a command, so only a timeout shows it.
    monkeypatch.setattr(opening, "ANSWER_TIMEOUT_S", 0.3)
    problem = refuse(f"rediss://{server.nodes[0]}")
    assert "does not answer" in problem.what
    assert "if it does not use TLS, write redis://" in problem.hint


def test_tls_is_spoken_to_something_that_answers_in_plain_text(pretended_version: Callable[[str], int]) -> None:
    assert "the TLS connection to" in refuse(f"rediss://127.0.0.1:{pretended_version('7.2.0')}").what


def test_plain_text_is_spoken_to_a_tls_port(tls_port: TlsPort) -> None:
    assert "rediss://" in refuse(f"redis://127.0.0.1:{tls_port.port}").hint


def test_a_server_that_goes_away_is_a_problem_afterwards(server: RedisInstance, client: redis.Redis) -> None:
    setting = server.url
    with suppress(redis.ConnectionError):
        client.shutdown(nosave=True)

    def is_refused() -> bool:
        try:
            with open_server(setting, announce=print):
                return False
        except EnvironmentProblem:
            return True

    assert wait_until(is_refused, deadline_s=5)
