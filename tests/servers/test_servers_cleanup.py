"""Traces of the kit in Redis and on the machine: nothing of its own, and everything of others.

However the kit ends, its Redis and the folder end with it: those tests run a kit of their own in a child process.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from conformance.servers import RedisInstance
from conformance.servers.connection import connect_node, wait_until
from conformance.servers.opening import escape_glob

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 15.0

KIT = """
import json, sys
from pathlib import Path
from conformance.servers import open_server
from conformance.servers.connection import connect_node

setting, ending = sys.argv[1:]
context = open_server(setting, announce=print)
with context if ending != "abandon" else __import__("contextlib").nullcontext() as server:
    server = server or context.__enter__()
    folders = []
    for node in server.nodes:
        with connect_node(server, node) as client:
            folders.append(client.config_get("dir")["dir"])
    ports = [int(node.rpartition(":")[2]) for node in server.nodes]
    try:
        print(json.dumps({"ports": ports, "folders": folders}), flush=True)
        if ending == "raise":
            raise RuntimeError("the kit fails")
        if ending == "wait":
            sys.stdin.read()
    finally:
        with server.connect() as client:
            print("redis is still there" if client.ping() else "", flush=True)
"""


@dataclass
class Kit:
    """A child process with a Redis: the ports and folders that must be gone when it is."""

    process: subprocess.Popen[str]
    ports: list[int]
    folders: list[Path]

    def remains(self) -> list[str]:
        listening = [f"port {port}" for port in self.ports if is_open(port)]
        return listening + [str(folder) for folder in self.folders if folder.exists()]

    def expect_nothing_left(self) -> None:
        gone = wait_until(lambda: not self.remains(), deadline_s=DEADLINE_S, step_s=0.02)
        assert gone, f"left {DEADLINE_S:g} s after the end: {self.remains()}"


def is_open(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start_kit(setting: str, ending: str) -> Kit:
    process = subprocess.Popen(
        [sys.executable, "-c", KIT, setting, ending],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    started = json.loads(line)
    return Kit(process, started["ports"], [Path(folder) for folder in started["folders"]])


@pytest.fixture(params=["bundled", "cluster:3"])
def waiting_kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    kit = start_kit(request.param, "wait")
    # Without this, a test that finds nothing left would prove nothing.
    assert kit.remains() == [f"port {port}" for port in kit.ports] + [str(folder) for folder in kit.folders]
    yield kit
    kit.process.kill()
    kit.process.communicate()


def test_a_killed_kit_leaves_nothing(waiting_kit: Kit) -> None:
    waiting_kit.process.kill()
    waiting_kit.expect_nothing_left()


def test_a_terminated_kit_leaves_nothing(waiting_kit: Kit) -> None:
    waiting_kit.process.terminate()
    waiting_kit.expect_nothing_left()


def test_ctrl_c_reaches_the_kit_only_and_leaves_nothing(waiting_kit: Kit) -> None:
    # As a terminal does it: the signal goes to the whole process group.
    os.killpg(waiting_kit.process.pid, signal.SIGINT)
    out, err = waiting_kit.process.communicate(timeout=DEADLINE_S)
    assert "KeyboardInterrupt" in err
    assert "redis is still there" in out
    waiting_kit.expect_nothing_left()


def test_a_kit_that_ends_well_leaves_nothing() -> None:
    kit = start_kit("bundled", "return")
    kit.process.communicate(timeout=DEADLINE_S)
    assert kit.process.returncode == 0
    assert kit.remains() == []


def test_a_failing_kit_leaves_nothing() -> None:
    kit = start_kit("bundled", "raise")
    _, err = kit.process.communicate(timeout=DEADLINE_S)
    assert "the kit fails" in err
    assert kit.remains() == []


def test_a_kit_that_forgets_to_close_leaves_nothing() -> None:
    kit = start_kit("bundled", "abandon")
    kit.process.communicate(timeout=DEADLINE_S)
    kit.expect_nothing_left()


def test_a_terminated_guard_takes_its_server_along(tmp_path: Path) -> None:
    """If a user ends the guard by hand, the server must not stay behind."""
    folder = tmp_path / "folder"
    folder.mkdir()
    guard = ROOT / "conformance" / "servers" / "guard.py"
    program = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(1000)"]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(guard), str(folder), *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.terminate()
    # The pipe reaches its end when both have closed it: the guard and its server.
    assert process.communicate(timeout=DEADLINE_S)[0] == b""
    assert process.returncode == 128 + signal.SIGTERM
    assert not folder.exists()


@pytest.mark.parametrize(
    ("program", "code"),
    [(["/bin/sh", "-c", "exit 7"], 7), (["/bin/sh", "-c", "kill -9 $$"], 137), (["/nowhere/x"], 127)],
)
def test_the_guard_ends_with_its_server_and_says_how(tmp_path: Path, program: list[str], code: int) -> None:
    guard = ROOT / "conformance" / "servers" / "guard.py"
    process = subprocess.Popen([sys.executable, "-I", "-S", str(guard), str(tmp_path), *program], stdin=subprocess.PIPE)
    assert process.wait(DEADLINE_S) == code
    assert tmp_path.exists()


@pytest.fixture
def client(server: RedisInstance) -> Iterator[redis.Redis]:
    with connect_node(server, server.nodes[0]) as connected:
        yield connected


def test_fresh_prefixes_differ(server: RedisInstance) -> None:
    prefixes = {server.fresh_prefix() for _ in range(100)}
    assert len(prefixes) == 100
    assert all(re.fullmatch(r"bc[0-9a-f]{8}", prefix) for prefix in prefixes)


def test_a_given_generator_decides(server: RedisInstance) -> None:
    assert server.fresh_prefix(random.Random(7)) == server.fresh_prefix(random.Random(7))


def test_only_the_prefix_is_removed(server: RedisInstance, client: redis.Redis) -> None:
    prefix = server.fresh_prefix()
    neighbours = [
        prefix,
        f"{prefix}0:q:id",
        f"x{prefix}:q:id",
        prefix[:-1] + ":q:id",
        f"{{{prefix}}}:q:id",
        "bull:q:id",
    ]
    for key in [*neighbours, f"{prefix}:q:id", f"{prefix}:q:*", f"{prefix}::"]:
        client.set(key, 1)
    assert server.remove_prefix(prefix) == 3
    assert set(client.keys("*")) == {key.encode() for key in neighbours}


@pytest.mark.parametrize("prefix", ["a*", "a?c", "[ab]", "a\\b", "{a}", "a^-]"])
def test_signs_of_a_pattern_in_a_prefix_are_literal(server: RedisInstance, client: redis.Redis, prefix: str) -> None:
    neighbours = {"a:1", "abc:1", "axc:1", "b:1", "ab:1", "a*b:1"}
    for key in [*neighbours, f"{prefix}:1"]:
        client.set(key, 1)
    assert server.remove_prefix(prefix) == 1
    assert set(client.keys("*")) == {key.encode() for key in neighbours}


def test_without_escaping_neighbours_would_be_hit(client: redis.Redis) -> None:
    """The test above can fail: the bare prefix is a pattern to Redis."""
    client.set("abc:1", 1)
    assert list(client.scan_iter(match="a?c:*")) == [b"abc:1"]
    assert list(client.scan_iter(match=f"{escape_glob('a?c')}:*")) == []


def test_other_databases_are_left_alone(server: RedisInstance, client: redis.Redis) -> None:
    client.select(1)
    client.set("bc00000000:q:id", 1)
    assert server.remove_prefix("bc00000000") == 0


def test_more_keys_than_one_batch(server: RedisInstance, client: redis.Redis) -> None:
    prefix = server.fresh_prefix()
    client.mset({f"{prefix}:{number}": 1 for number in range(2501)})
    assert server.remove_prefix(prefix) == 2501
    assert client.dbsize() == 0


def test_nothing_to_remove_is_fine(server: RedisInstance) -> None:
    assert server.remove_prefix(server.fresh_prefix()) == 0


def test_an_empty_prefix_is_a_mistake_of_the_kit(server: RedisInstance) -> None:
    with pytest.raises(ValueError, match="everything"):
        server.remove_prefix("")
