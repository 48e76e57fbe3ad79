"""Permissions: read from MONITOR, written as rules, proven by runs, and each of them needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.cli import main as cli_main
from conformance.permissions import session as session_module
from conformance.permissions.monitor import MonitorLines, UsedCommand, monitored
from conformance.permissions.options import PermissionConfig, declared_for
from conformance.permissions.rules import PREFIX, PermissionSet, PermissionUses, key_pattern, set_of
from conformance.permissions.session import Outcome, PermissionSession, Selection
from conformance.problems import UsageProblem
from conformance.servers import RedisInstance, open_server
from conformance.servers.connection import connect_node, send


@pytest.fixture(scope="module")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=lambda _: None) as opened:
        yield opened


def login(server: RedisInstance, *rules: str) -> Any:
    """A connection of the user `kit-client`, who has these permissions."""
    with connect_node(server, server.nodes[0]) as admin:
        send(admin, "ACL", "SETUSER", "kit-client", "reset", "on", ">secret", *rules)
    host, port = server.nodes[0].split(":")
    from redis import Redis

    return Redis(host=host, port=int(port), username="kit-client", password="secret")


def knows_subcommands(server: RedisInstance) -> bool:
    """Redis 6.2 hides CLIENT from MONITOR, and logs its denials without the word after it."""
    with server.connect() as client:
        version: Any = client.info("server")
    return int(version["redis_version"].partition(".")[0]) >= 7


def test_only_the_client_that_logs_in_is_noted_with_what_its_scripts_call(server: RedisInstance) -> None:
    uses = PermissionUses()
    with monitored(server, uses.note):
        with server.connect() as other:
            other.set("bc00000000:q:x", "1")
            other.eval("return redis.call('GET', KEYS[1])", 1, "bc00000000:q:x")
        with login(server, "~*", "&*", "+@all") as client:
            client.eval("redis.call('HSET', KEYS[1], 'a', ARGV[1])", 1, "bc0123abcd:q:1", 'a"b\r\n\\\x00')
            client.execute_command("CLIENT", "SETNAME", "n")
            client.zadd("other:key", {"m": 1})
            client.publish("news", "text")
    assert set(uses.permissions.permissions) >= {
        *("+eval", "+hset", "+zadd", "+publish", f"~{PREFIX}:*", "~other:*", "&news"),
        *(["+client|setname"] if knows_subcommands(server) else []),
    }
    assert not {"+set", "+get", "+auth", "+hello"} & set(uses.permissions.permissions)


@pytest.mark.parametrize("words", ['"AUTH" "(redacted)" "(redacted)"', '"hello" "3" "AUTH" "(redacted)" "(redacted)"'])
def test_both_ways_to_log_in_mark_the_client(words: str) -> None:
    lines = MonitorLines()
    assert lines.use(b'+1.5 [0 127.0.0.1:1] "get" "a"') is None
    assert lines.use(f"+1.5 [0 127.0.0.1:2] {words}".encode()) is None
    assert lines.use(rb'+1.5 [0 127.0.0.1:2] "evalsha" "d" "1" "k\n\x01\"" "v"') == UsedCommand(
        at_s=1.5, name="evalsha", keys=(b'k\n\x01"',)
    )
    assert lines.use(b'+1.6 [0 lua] "GET" "a"') == UsedCommand(at_s=1.6, name="get", keys=(b"a",))
    assert lines.use(b'+1.7 [0 127.0.0.1:1] "evalsha" "d" "0"') is None
    assert lines.use(b'+1.7 [0 lua] "GET" "a"') is None
    assert lines.use(b"+OK") is None


def test_rules_allow_exactly_what_was_used(server: RedisInstance) -> None:
    allowed = PermissionSet(commands=frozenset({"eval", "set", "client|setname"}), keys=frozenset({f"{PREFIX}:*"}))
    with login(server, *allowed.rules("secret")[3:]) as client:
        client.execute_command("CLIENT", "SETNAME", "n")
        client.eval("return redis.call('SET', KEYS[1], '1')", 1, "bc0123abcd:q:1")
        client.set("{bc0123abcd}:q:1", "1")
        for words in (["GET", "bc0123abcd:q:1"], ["SET", "other", "1"], ["CLIENT", "ID"], ["PUBLISH", "c", "m"]):
            with pytest.raises(Exception, match=r"(?i)permission"):
                client.execute_command(*words)
    assert allowed.line("me", "bull") == ("ACL SETUSER me reset on >PASSWORD -@all ~bull:* +client|setname +eval +set")


def test_denials_of_the_client_are_read_from_the_log(server: RedisInstance) -> None:
    """The names of BullMQ's connections contain `=`, at which the parser of redis-py fails."""
    with connect_node(server, server.nodes[0]) as admin:
        send(admin, "ACL", "LOG", "RESET")
        with login(server, "~a:*", "+get", "+client|setname") as client:
            client.execute_command("CLIENT", "SETNAME", "b:bWFpbA==")
            for words in (["GET", "bc0123abcd:q:1"], ["SET", "a:1", "1"], ["CLIENT", "LIST"]):
                with pytest.raises(Exception, match=r"(?i)permission"):
                    client.execute_command(*words)
        denied = session_module._denied(send(admin, "ACL", "LOG"))
    assert denied == ["+client|list" if knows_subcommands(server) else "+client", "+set", f"~{PREFIX}:*"]


def test_sets_of_permissions() -> None:
    permissions = set_of(["+get", "~a:*", "&c"])
    assert permissions.permissions == ["~a:*", "&c", "+get"]
    assert [permissions.without(each).permissions for each in permissions.permissions] == [
        ["&c", "+get"],
        ["~a:*", "+get"],
        ["~a:*", "&c"],
    ]
    assert [key_pattern(key) for key in (b"bc0123abcd:q", b"{bc0123abcd}:q", b"bull:q-bc0123abcd:id", b"x")] == [
        *(f"{PREFIX}:*", f"{PREFIX}:*", "bull:*", "x"),
    ]


def test_worse_is_a_new_failure_or_a_lost_pass() -> None:
    before = Outcome(verdicts={"a": "pass", "b": "fail", "c": "unsupported", "d": "pass"})
    assert Outcome(verdicts={"a": "pass", "b": "fail", "c": "unsupported"}).worse_than(before) == []
    assert Outcome(verdicts={"a": "inconclusive", "b": "pass", "c": "fail"}).worse_than(before) == ["a", "c"]


def test_a_profile_counts_only_its_own_operations() -> None:
    assert declared_for("bulk") == ["queue.add", "queue.addBulk"]
    assert declared_for("client") == []


@pytest.mark.long(9, processes=1)
@pytest.mark.slow
def test_each_learned_permission_is_sufficient_and_needed(tmp_path: Path) -> None:
    """The producer alone: the oracle does everything else under a login of its own."""
    config = PermissionConfig(client="reference", tier="smoke", select=["add/a_plain_job*"], jobs=1)
    session = PermissionSession(config.selection("producer"), tmp_path, lambda _line: None)
    learned = session.learn()
    permissions, outcome = session.prove(learned.uses.permissions, learned.outcome)
    assert outcome.worse_than(learned.outcome) == []
    assert permissions == PermissionSet(
        commands=frozenset({"eval", "evalsha", "info", "hget", "hmget", "hmset", "incr", "lpush", "xadd", "zadd"}),
        keys=frozenset({f"{PREFIX}:*"}),
    )
    for needed in ("+xadd", f"~{PREFIX}:*"):
        assert session.is_needed(needed, permissions, learned)
    # Denied permissions are found again, from the log of Redis.
    again, outcome = session.prove(permissions.without("+xadd").without("+lpush"), learned.outcome)
    assert (again, outcome.worse_than(learned.outcome)) == (permissions, [])


@pytest.mark.slow
def test_a_client_that_ignores_the_login_is_reported(tmp_path: Path) -> None:
    driver = [sys.executable, "-m", "tests.permissions.without_login"]
    session = PermissionSession(
        Selection(words=["--tier", "smoke", "--select", "add/a_plain_job*", "--jobs", "1"], command=driver),
        tmp_path,
        lambda _line: None,
    )
    with pytest.raises(Exception, match="the client never logged in"):
        session.learn()


def test_mistakes(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageProblem, match="unknown profile 'nobody'"):
        PermissionConfig(profile=["nobody"]).check()
    with pytest.raises(UsageProblem, match="starts a Redis of its own"):
        PermissionConfig(redis="redis://127.0.0.1:6379").check()
    monkeypatch.setattr(sys, "argv", ["bullmq-conformance", "run", "--client-user", "nobody", "--tier", "smoke"])
    assert cli_main.run() == 2
    assert "invalid --client-user" in capfd.readouterr().err


@pytest.mark.slow
def test_the_command_writes_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--tier", "smoke", "--select", "add/a_plain_job*", "--jobs", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["bullmq-conformance", "permissions", *words])
    assert cli_main.run() == 0
    line = (tmp_path / "permissions.acl").read_text("utf-8")
    assert line in capfd.readouterr().out
    assert line.startswith("ACL SETUSER bull-client reset on >PASSWORD -@all ~bull:* ")
    (user,) = json.loads((tmp_path / "permissions.json").read_text("utf-8"))["users"]
    assert user["worse"] is None
    assert user["uses"]["+xadd"] > 0
