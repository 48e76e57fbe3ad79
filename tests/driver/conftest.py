"""Miniature drivers: scripts of a few lines on a common prelude, and the private Redis that checks look into."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.serve import DriverServer, Handler
from conformance.driver.transports import ChildProcess, InProcess
from conformance.servers import RedisInstance, open_server

PRELUDE = """
import json, os, signal, sys

def say(**line):
    os.write(1, json.dumps(line).encode() + b"\\n")

def hear():
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return json.loads(line)

def ready(*ops, **more):
    hear()
    say_ready(*ops, **more)

def say_ready(*ops, protocol=1, capabilities=()):
    say(type="ready", protocol=protocol, client={"name": "mini", "language": "python", "version": "1"},
        ops=list(ops or ("open", "close", "reset", "queue.add")), capabilities=list(capabilities))

def ok(call, **value):
    say(type="result", id=call["id"], status="ok", value=value)

def unsupported(call):
    say(type="result", id=call["id"], status="unsupported", reason="no such operation")

def hang():
    while True:
        signal.pause()
"""

Mini = Callable[..., ChildProcess]
Serve = Callable[..., InProcess]


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], list[str]]:
    """The command that runs a script body on the prelude, fast and without the kit."""

    def command(body: str) -> list[str]:
        path = tmp_path / f"mini{len(list(tmp_path.iterdir()))}.py"
        path.write_text(PRELUDE + body, "utf-8")
        return [sys.executable, "-I", "-S", str(path)]

    return command


@pytest.fixture
def mini(script: Callable[[str], list[str]]) -> Iterator[Mini]:
    """Starts a script body as a driver; everything that was started is ended."""
    with ExitStack() as stack:

        def start(body: str, **settings: Any) -> ChildProcess:
            connection = ChildProcess.start(script(body), seed=1, **settings)
            stack.callback(connection.kill)
            return connection

        yield start


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts an ops mapping as a driver in this process."""
    with ExitStack() as stack:

        def start(ops: dict[str, Handler], capabilities: tuple[str, ...] = (), **settings: Any) -> InProcess:
            client = {"name": "mini", "language": "python", "version": "1"}
            server = DriverServer(client=client, capabilities=capabilities, ops=ops, **settings)
            connection = InProcess.start(server)
            stack.callback(connection.kill)
            return connection

        yield start


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    """A Redis of our own."""
    with open_server(None, announce=lambda _line: None) as opened:
        yield opened


@pytest.fixture
def redis(server: RedisInstance) -> Iterator[Any]:
    with server.connect() as client:
        yield client


@pytest.fixture
def address(server: RedisInstance) -> RedisAddress:
    return RedisAddress(mode="standalone", nodes=list(server.nodes))


@pytest.fixture
def prefix(server: RedisInstance) -> Iterator[str]:
    fresh = server.fresh_prefix()
    yield fresh
    server.remove_prefix(fresh)


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until a condition holds; says what was seen when it does not within the deadline (s)."""

    def wait(condition: Callable[[], bool], *, seen: Callable[[], object], within: float = 10.0) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"not within {within} s; seen: {seen()}"
            time.sleep(0.005)

    return wait
