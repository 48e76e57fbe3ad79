"""A Redis of the tests' own, and benches on which miniature drivers sit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conformance.environment.clients import Launch
from conformance.environment.drivers import RestartableDriver
from conformance.gate.bench import Bench
from conformance.servers import RedisInstance, open_server

from .miniature_drivers import BenchOf, ChildDriver, InProcessDriver, Mini


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=lambda _line: None) as opened:
        yield opened


@pytest.fixture
def bench_of(server: RedisInstance) -> Iterator[BenchOf]:
    """MiniatureDrivers an oracle and a client; their drivers are ended afterwards."""
    with ExitStack() as stack:

        def make(oracle: RestartableDriver, client: RestartableDriver) -> Bench:
            bench = Bench(server, oracle, client)
            stack.callback(bench.close)
            return bench

        yield make


@pytest.fixture
def child(tmp_path: Path) -> ChildDriver:
    """A driver that is a small program: `body` is what it does with each `call` before it answers."""

    def driver(body: str) -> RestartableDriver:
        path = tmp_path / f"driver{len(list(tmp_path.iterdir()))}.py"
        path.write_text(CHILD.format(body=body), "utf-8")
        return RestartableDriver(Launch("child", [sys.executable, "-I", "-S", str(path)]), seed=1)

    return driver


@pytest.fixture
def mini() -> Callable[..., InProcessDriver]:
    """A driver that is an object in this process."""
    return lambda **settings: InProcessDriver(Mini(**settings))


CHILD = """
import json, os, signal, sys, time

def say(**line):
    os.write(1, json.dumps(line).encode() + b"\\n")

def die(code):
    print("these are my last words", file=sys.stderr, flush=True)
    os._exit(code)

def hang():
    while True:
        signal.pause()

def answer(call):
    op = call["op"]
    {body}
    return {{"count": 1}} if op == "queue.count" else {{}}

for line in sys.stdin:
    heard = json.loads(line)
    if heard["type"] == "hello":
        say(type="ready", protocol=1, client={{"name": "child", "language": "python", "version": "1"}},
            ops=["open", "close", "reset", "queue.count", "queue.pause"], capabilities=[])
    else:
        say(type="result", id=heard["id"], status="ok", value=answer(heard))
os._exit(0)
"""
