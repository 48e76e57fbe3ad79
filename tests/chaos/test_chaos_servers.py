"""Servers and clients that are killed, frozen and started again, the address that follows the data, a queue at rest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

from chaos.observers import Quiescence, wait_for_quiescence
from chaos.processes import ClientProcess
from chaos.redis_servers import RedisProcess, Relay
from conformance.environment.clients import Launch
from conformance.environment.prepare import EnvironmentOptions, prepare
from conformance.problems import UsageProblem
from conformance.servers.binary import any_binary, bundled_binary


@pytest.fixture
def server() -> Iterator[RedisProcess]:
    made = RedisProcess(any_binary(lambda _text: None), persistence="aof-always")
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_data_and_address_survive_a_kill(server: RedisProcess) -> None:
    node = server.node
    with server.connect() as client:
        client.set("k", "v")
    server.kill()
    assert not server.running
    server.start()
    with server.connect() as client:
        assert (client.get("k"), server.node) == (b"v", node)


def test_children_that_outlive_a_killed_client_are_ended_with_it_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a kill from outside: in a session of their own they go on, although another process takes its place."""
    made: list[Any] = []
    did: list[tuple[int, str]] = []

    def start(*_words: object, **_settings: object) -> Any:
        number = len(made)
        steps = {name: lambda name=name: did.append((number, name)) for name in ("kill_group", "kill")}
        made.append(SimpleNamespace(pid=2**22 + 1, **steps))
        return made[-1]

    monkeypatch.setattr("chaos.processes.ChildProcess", SimpleNamespace(start=start))
    tap = cast("Any", SimpleNamespace(addresses=[]))
    process = ClientProcess("worker-1", Launch("client", ["client"]), tap, mode="single", seed=0)
    process.start()
    process.kill()
    process.start()
    process.close()
    assert did == [(0, "kill_group"), (0, "kill"), (1, "kill")]


def test_a_frozen_server_does_not_answer_and_goes_on(server: RedisProcess) -> None:
    server.freeze()
    try:
        with pytest.raises(redis.RedisError), server.connect(timeout_s=0.3) as client:
            client.ping()
    finally:
        server.thaw()
    with server.connect() as client:
        assert client.ping()


@pytest.mark.parametrize("state", ["running", "frozen", "killed"])
def test_nothing_is_left_from_any_state(server: RedisProcess, state: str) -> None:
    if state == "frozen":
        server.freeze()
    elif state == "killed":
        server.kill()
    server.close()
    assert not server.running
    assert not server.folder.exists()
    server.close()


def test_a_relay_leads_to_another_server(server: RedisProcess) -> None:
    other = RedisProcess(server.binary)
    try:
        other.start()
        with other.connect() as client:
            client.set("who", "other")
        with Relay(server.node) as relay, redis.Redis.from_url(f"redis://{relay.address}") as client:
            assert client.get("who") is None
            relay.point_at(other.node)
            assert redis.Redis.from_url(f"redis://{relay.address}").get("who") == b"other"
    finally:
        other.close()


def test_a_relay_to_nowhere_refuses() -> None:
    with Relay("127.0.0.1:1") as relay, pytest.raises(redis.RedisError):
        redis.Redis.from_url(f"redis://{relay.address}").ping()


def test_chaos_runs_on_the_program_that_is_chosen() -> None:
    bundled = bundled_binary()
    for setting in (f"binary:{bundled.path}", "bundled"):
        with prepare(EnvironmentOptions(redis=setting), print, redis="program") as environment:
            assert environment.redis_program.binary.path == bundled.path
            assert environment.redis_program.source == environment.redis_program.binary.source
    with prepare(EnvironmentOptions(redis="container:some/redis"), print, redis="program") as environment:
        assert environment.redis_program.source.startswith("container some/redis; crash points: ")
    with (
        pytest.raises(UsageProblem, match="cannot start a Redis from 'redis://here:6379/0'"),
        prepare(EnvironmentOptions(redis="redis://here"), print, redis="program"),
    ):
        pytest.fail("the block must not be entered")


def rest_of(server: RedisProcess, deadline_s: float) -> Quiescence:
    return wait_for_quiescence(cast("Any", server), "p", ("main",), lambda: 0, deadline_s=deadline_s)


def test_a_parent_that_waits_for_a_failed_child_is_at_rest_and_other_parents_are_not() -> None:
    server = RedisProcess(any_binary(lambda _text: None))
    try:
        server.start()
        with server.connect() as client:
            client.zadd("p:main:waiting-children", {"1": 1})
            client.hset("p:main:1", mapping={"name": "parent"})
            client.sadd("p:main:1:dependencies", "p:main:2")
            assert rest_of(server, 0.3) == Quiescence(reached=False, seen="waiting-children 1")
            client.zadd("p:main:failed", {"2": 1})
            assert rest_of(server, 10) == Quiescence(reached=True)
            client.rpush("p:main:wait", "3")
            assert not rest_of(server, 0.3).reached
    finally:
        server.close()


INTERRUPTED_START = """
import os, signal, sys, tempfile
from conformance.interruption import handled
from conformance.servers.binary import any_binary

binary = any_binary(print)
made = tempfile.mkdtemp
def interrupted(**options):
    folder = made(**options)
    os.kill(os.getpid(), signal.SIGTERM)
    return folder
tempfile.mkdtemp = interrupted
with handled():
    {start}
"""
"""A program that is interrupted right after a folder was made, before any object owns it."""


@pytest.mark.parametrize(
    "start",
    [
        "from chaos.redis_servers import RedisProcess; RedisProcess(binary)",
        "from chaos.redis_servers import ContainerServer; ContainerServer('none', 'none')",
        "from conformance.servers.local import LocalProcess; LocalProcess(binary, 7999, cluster=False)",
    ],
)
def test_no_folder_is_left_of_a_server_that_is_interrupted_during_its_start(start: str, tmp_path: Path) -> None:
    program = [sys.executable, "-c", INTERRUPTED_START.format(start=start)]
    done = subprocess.run(
        program, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60
    )
    assert "KeyboardInterrupt" in done.stderr
    assert list(tmp_path.glob("bullmq-*")) == []


def test_a_client_that_works_off_slowly_is_not_a_stuck_one() -> None:
    server = RedisProcess(any_binary(lambda _text: None))
    try:
        server.start()
        with server.connect() as client:
            client.rpush("p:main:wait", *range(120))

            def work_one_off() -> int:
                client.lpop("p:main:wait")
                return 0

            # The check runs twenty times a second: 120 jobs take longer than the deadline.
            rest = wait_for_quiescence(cast("Any", server), "p", ("main",), work_one_off, deadline_s=4)
            assert rest == Quiescence(reached=True)
            client.rpush("p:main:wait", *range(12))
            assert rest_of(server, 0.3) == Quiescence(reached=False, seen="wait 12")
    finally:
        server.close()
