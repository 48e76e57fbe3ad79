from __future__ import annotations

import pytest

from conformance.problems import UsageProblem
from conformance.servers.setting import (
    Address,
    AnyBinary,
    BinaryAt,
    BundledBinary,
    Container,
    NewCluster,
    Setting,
    parse_setting,
    split_node,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, AnyBinary()),
        ("", AnyBinary()),
        ("  ", AnyBinary()),
        ("bundled", BundledBinary()),
        ("binary:/opt/redis 8/redis-server", BinaryAt("/opt/redis 8/redis-server")),
        ("container", Container("redis:7.4")),
        ("container:valkey/valkey:8", Container("valkey/valkey:8")),
        (
            "container:registry.example:5000/team/redis@sha256:0123",
            Container("registry.example:5000/team/redis@sha256:0123"),
        ),
        ("cluster", NewCluster(3)),
        ("cluster:6", NewCluster(6)),
        ("redis://localhost", Address(mode="standalone", nodes=["localhost:6379"])),
        ("redis://127.0.0.1:7000/", Address(mode="standalone", nodes=["127.0.0.1:7000"])),
        ("redis://[::1]:7000/4", Address(mode="standalone", nodes=["[::1]:7000"], db=4)),
        ("rediss://h:1/2", Address(mode="standalone", nodes=["h:1"], db=2, tls=True)),
        ("redis://:secret@h", Address(mode="standalone", nodes=["h:6379"], password="secret")),
        (
            "redis://us%40er:p%3A%2Fw%40@h/0",
            Address(mode="standalone", nodes=["h:6379"], username="us@er", password="p:/w@"),
        ),
        (
            "redis+cluster://user:pw@a:7000,b:7001,[::1]:7002",
            Address(mode="cluster", nodes=["a:7000", "b:7001", "[::1]:7002"], username="user", password="pw"),
        ),
        ("rediss+cluster://a,b/0", Address(mode="cluster", nodes=["a:6379", "b:6379"], tls=True)),
    ],
)
def test_every_form_is_read(text: str | None, expected: Setting) -> None:
    assert parse_setting(text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("redis", "not understood"),
        ("/usr/bin/redis-server", "not understood"),
        ("localhost:6379", "not understood"),
        ("bundled:7", "not understood"),
        ("binary:", "after the colon"),
        ("container:", "after the colon"),
        ("container:two words", "container image"),
        ("container:--privileged", "container image"),
        ("cluster:", "after the colon"),
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
        ("redis://[::1", "malformed"),
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
    assert isinstance(address, Address)
    assert "hunter" not in repr(address)
    assert address.text == "rediss://h:1/5"
    assert parse_setting(address.url) == address


@pytest.mark.parametrize(
    "text", ["redis://h:1/5", "redis://[::1]:1/0", "redis+cluster://u:p@a:1,b:2", "redis://:p@h:1/0"]
)
def test_the_url_of_an_address_reads_as_the_same_address(text: str) -> None:
    address = parse_setting(text)
    assert isinstance(address, Address)
    assert parse_setting(address.url) == address


def test_nodes_are_split_without_brackets() -> None:
    assert split_node("[::1]:7000") == ("::1", 7000)
    assert split_node("localhost:7000") == ("localhost", 7000)
