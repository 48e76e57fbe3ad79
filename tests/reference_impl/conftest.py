"""A private Redis, the official scripts, and the same steps through the oracle and through the reference client."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from conformance.driver.connection import DriverConnection, OperationFailed
from conformance.driver.messages import RedisAddress
from conformance.driver.ops import REGISTRY
from conformance.driver.process import ChildProcess
from conformance.reference_impl.scripts.official import official_scripts
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers import Server, open_server
from conformance.upstream.node import find_node
from conformance.upstream.package import driver_command, ensure_package

from .house import House, Scene, Until

NOW = 1_700_000_000_000
"""Where the clocks of both clients stand still."""


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with open_server(None, announce=print) as opened:
        yield opened


@pytest.fixture(scope="session")
def cluster() -> Iterator[Server]:
    with open_server("cluster", announce=print) as opened:
        yield opened


@pytest.fixture(scope="session")
def scripts() -> ScriptTexts:
    return official_scripts()


@pytest.fixture
def connection(server: Server) -> dict[str, Any]:
    """The option `connection` of the client."""
    return {"nodes": list(server.nodes)}


@pytest.fixture
def prefix(server: Server) -> Iterator[str]:
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
class Side:
    """One client in a comparison. `answers` are what its operations answered, `prefix` replaced."""

    driver: DriverConnection
    server: Server
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
        "list": lambda: [_text(each) for each in client.lrange(key, 0, -1)],
        "set": lambda: sorted(_text(each) for each in client.smembers(key)),
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


Story = Callable[[Side], None]
Compare = Callable[[Story], Side]


@pytest.fixture
def compare(server: Server, oracle_driver: DriverConnection, reference_driver: DriverConnection) -> Iterator[Compare]:
    """Run a story on both clients; their answers and what they left in Redis must be the same."""
    opened: list[Side] = []

    def run(story: Story) -> Side:
        oracle = Side(oracle_driver, server, server.fresh_prefix())
        reference = Side(reference_driver, server, server.fresh_prefix())
        opened.extend([oracle, reference])
        for side in (oracle, reference):
            story(side)
        for expected, actual in itertools.zip_longest(oracle.answers, reference.answers):
            assert actual == expected
        assert reference.state() == oracle.state()
        return reference

    yield run
    for side in opened:
        side.driver.call(REGISTRY["reset"]())
        server.remove_prefix(side.prefix)


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
def observer(server: Server, oracle_driver: DriverConnection) -> Iterator[Callable[[], Side]]:
    """Make sides on prefixes of their own, only to see what somebody leaves there."""
    sides: list[Side] = []

    def make() -> Side:
        sides.append(Side(oracle_driver, server, server.fresh_prefix()))
        return sides[-1]

    yield make
    for side in sides:
        server.remove_prefix(side.prefix)


@pytest.fixture
def scene(connection: dict[str, Any], prefix: str, scripts: ScriptTexts, wait_until: Until) -> Scene:
    """Run a coroutine with a house; its workers are closed by force afterwards."""

    @asynccontextmanager
    async def house() -> AsyncIterator[House]:
        built = House({"connection": connection, "prefix": prefix}, scripts, wait_until)
        try:
            yield built
        finally:
            for worker in built.workers:
                await worker.close(force=True)
            await built.queue.close()

    def run(play: Callable[[House], Coroutine[Any, Any, None]]) -> None:
        async def perform() -> None:
            async with asyncio.timeout(15), house() as built:
                await play(built)

        asyncio.run(perform())

    return run
