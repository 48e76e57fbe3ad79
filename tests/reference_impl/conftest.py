"""A private Redis, the official scripts, and the drivers of the oracle and of the reference client."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.driver.connection import DriverConnection
from conformance.driver.transports import ChildProcess
from conformance.reference_impl.scripts.runner import ScriptTexts, official_scripts
from conformance.servers import RedisInstance, open_server
from conformance.upstream.node import find_node
from conformance.upstream.package import driver_command, ensure_package
from tests.reference_impl.queue_under_test import Steps, Until, WithQueue, run_with_queue


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=print) as opened:
        yield opened


@pytest.fixture(scope="session")
def cluster() -> Iterator[RedisInstance]:
    with open_server("cluster", announce=print) as opened:
        yield opened


@pytest.fixture(autouse=True)
def own_lines(caplog: pytest.LogCaptureFixture) -> None:
    """The lines of this test alone: Python may collect now what an earlier one has left, and redis-py logs that."""
    caplog.handler.addFilter(lambda record: not record.getMessage().startswith("Unclosed "))


@pytest.fixture(scope="session")
def scripts() -> ScriptTexts:
    return official_scripts()


@pytest.fixture
def connection(server: RedisInstance) -> dict[str, Any]:
    """The option `connection` of the client."""
    return {"nodes": list(server.nodes)}


@pytest.fixture
def prefix(server: RedisInstance) -> Iterator[str]:
    fresh = server.fresh_prefix()
    yield fresh
    server.remove_prefix(fresh)


@pytest.fixture(scope="session")
def oracle_driver() -> Iterator[DriverConnection]:
    node = find_node(None)
    command, env = driver_command(node, ensure_package(node, announce=print))
    driver = ChildProcess.start(command, seed=1, env=env)
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def reference_driver() -> Iterator[DriverConnection]:
    driver = ChildProcess.start([sys.executable, "-m", "conformance.reference_impl.driver"], seed=1)
    yield driver
    driver.close()


def state_of(server: RedisInstance, prefix: str) -> dict[str, Any]:
    """Everything under a prefix, exactly as it is; the prefix itself and stack traces aside."""
    client = server.connect()
    keys = sorted(client.scan_iter(match=f"{prefix}*", count=1000))
    values = {key.decode(): _value(client, key) for key in keys}
    state: dict[str, Any] = json.loads(json.dumps(values).replace(prefix, "P"))
    return state


def _value(client: Any, key: bytes) -> Any:
    kind = client.type(key).decode()
    readers: dict[str, Callable[[], Any]] = {
        "string": lambda: [_text(client.get(key)), client.pttl(key) > 0],
        "list": lambda: [_text(element) for element in client.lrange(key, 0, -1)],
        "set": lambda: sorted(_text(element) for element in client.smembers(key)),
        "zset": lambda: [[_text(member), repr(score)] for member, score in client.zrange(key, 0, -1, withscores=True)],
        "hash": lambda: {_text(name): _field(name, value) for name, value in client.hgetall(key).items()},
        "stream": lambda: [{_text(k): _text(v) for k, v in fields.items()} for _, fields in client.xrange(key)],
    }
    return [kind, readers[kind]()]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _field(name: bytes, value: bytes) -> str:
    if name == b"stacktrace":
        return f"{len(json.loads(value))} traces"
    return _text(value)


async def until(condition: Callable[[], bool], seen: Callable[[], Any], *, within_s: float = 5) -> None:
    """Wait for a condition; on expiry the failure shows what was seen instead."""
    deadline = asyncio.get_running_loop().time() + within_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited {within_s} s in vain; seen: {seen()}"
        await asyncio.sleep(0.005)


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    return until


@pytest.fixture
def with_queue(connection: dict[str, Any], prefix: str, scripts: ScriptTexts, wait_until: Until) -> WithQueue:
    """Take steps with a queue; further options are those of it and its workers."""

    def run(steps: Steps, **opts: Any) -> None:
        run_with_queue({"connection": connection, "prefix": prefix, **opts}, scripts, wait_until, steps)

    return run
