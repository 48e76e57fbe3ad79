"""A private Redis, the official scripts, and the same steps through the oracle and through the reference client."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import OperationFailed
from conformance.driver.ops import REGISTRY
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.transports import ChildProcess
from conformance.reference_impl.scripts.runner import ScriptTexts, official_scripts
from conformance.servers import RedisInstance, open_server
from conformance.upstream.node import find_node
from conformance.upstream.package import driver_command, ensure_package
from tests.reference_impl.queue_under_test import OUTCOME_EVENTS, Steps, Until, WithQueue, run_with_queue

NOW = 1_700_000_000_000
"""The fixed time of both clients' clocks."""


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


@dataclass
class ComparedClient:
    """One client in a comparison. `answers` are what its operations answered, `prefix` replaced."""

    driver: DriverConnection
    server: RedisInstance
    prefix: str
    now: int = NOW
    answers: list[Any] = field(default_factory=list)

    def open(self, handle: str, role: str, queue: str = "q", **more: Any) -> None:
        redis = msgspec.to_builtins(RedisAddress(mode=self.server.mode, nodes=list(self.server.nodes)))
        self.do("open", handle, role=role, queue=queue, prefix=self.prefix, redis=redis, **more)

    def do(self, op: str, handle: str = "q", **args: Any) -> Any:
        """Carry out an operation; a refusal is an answer too."""
        request = msgspec.convert(args, REGISTRY[op])
        try:
            answer = msgspec.to_builtins(self.driver.call(request, handle=handle, now_ms=self.now))
        except OperationFailed as failed:
            answer = {"refused": failed.error.code, "text": failed.error.message}
        self.answers.append([op, self._without_prefix(answer)])
        return answer

    def wait(self, handle: str, *names: str) -> dict[str, Any]:
        """Wait for the next event of one of these names."""
        return self.driver.wait_event(handle, names=set(names), deadline_ms=5000).args

    def wait_until_idle(self, queue: str = "q") -> None:
        """Wait until the worker has taken the last wake-up token: then it has nothing left to do."""
        client = self.server.connect()
        deadline = time.monotonic() + 5
        while client.exists(f"{self.prefix}:{queue}:marker") or client.exists(f"{self.prefix}:{queue}:active"):
            assert time.monotonic() < deadline, f"still busy: {self.state()}"
            time.sleep(0.005)

    def state(self) -> dict[str, Any]:
        """Everything under the prefix, exactly as it is; tokens of generated uuids and stack traces aside."""
        client = self.server.connect()
        keys = sorted(client.scan_iter(match=f"{self.prefix}*", count=1000))
        return {self._name(key): self._without_prefix(_value(client, key)) for key in keys}

    def _name(self, key: bytes) -> str:
        return key.decode().replace(self.prefix, "P")

    def _without_prefix(self, value: Any) -> Any:
        return json.loads(json.dumps(value).replace(self.prefix, "P"))


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


ComparedSteps = Callable[[ComparedClient], None]
Compare = Callable[[ComparedSteps], ComparedClient]


@pytest.fixture
def compare(
    server: RedisInstance, oracle_driver: DriverConnection, reference_driver: DriverConnection
) -> Iterator[Compare]:
    """Take the same steps with both clients; their answers and what they left in Redis must be the same."""
    opened: list[ComparedClient] = []

    def run(steps: ComparedSteps) -> ComparedClient:
        oracle = ComparedClient(oracle_driver, server, server.fresh_prefix())
        reference = ComparedClient(reference_driver, server, server.fresh_prefix())
        opened.extend([oracle, reference])
        for client in (oracle, reference):
            steps(client)
        for expected, actual in itertools.zip_longest(oracle.answers, reference.answers):
            assert actual == expected
        assert reference.state() == oracle.state()
        return reference

    yield run
    for client in opened:
        client.driver.call(REGISTRY["reset"]())
        server.remove_prefix(client.prefix)


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
def observer(server: RedisInstance, oracle_driver: DriverConnection) -> Iterator[Callable[[], ComparedClient]]:
    """Make clients on prefixes of their own, only to see what they leave there."""
    clients: list[ComparedClient] = []

    def make() -> ComparedClient:
        clients.append(ComparedClient(oracle_driver, server, server.fresh_prefix()))
        return clients[-1]

    yield make
    for client in clients:
        server.remove_prefix(client.prefix)


@pytest.fixture
def with_queue(connection: dict[str, Any], prefix: str, scripts: ScriptTexts, wait_until: Until) -> WithQueue:
    """Take steps with a queue and its workers."""

    def run(steps: Steps) -> None:
        opts = {"connection": connection, "prefix": prefix}
        run_with_queue(opts, scripts, wait_until, steps, within_s=15, events=OUTCOME_EVENTS)

    return run
