"""The driver of the official Python client, in the environment that the gate would make for it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from conformance.driver.ops import Op, lifecycle
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.transports import ChildProcess
from conformance.environment.python_environments import PythonPackages, ensure_python_environment
from conformance.servers import RedisInstance, open_server

Answer = TypeVar("Answer")

FOLDER = Path(str(files("conformance.clients"))) / "python_official"
EVENT_MS = 10_000
DEADLINE_MS = 15_000

_numbers = itertools.count(1)


@dataclass
class Bench:
    """One driver on one prefix: opens handles by role and calls operations on them."""

    driver: ChildProcess
    server: RedisInstance
    prefix: str = field(default_factory=lambda: f"t{next(_numbers)}")

    @property
    def address(self) -> RedisAddress:
        return RedisAddress(mode="standalone", nodes=list(self.server.nodes))

    def open(self, role: lifecycle.Role, handle: str, queue: str = "q", **more: Any) -> None:
        address, deadline_ms = more.pop("redis", self.address), more.pop("deadline_ms", DEADLINE_MS)
        fields = {"role": role, "queue": queue, "prefix": self.prefix, "redis": msgspec.to_builtins(address), **more}
        self.driver.call(msgspec.convert(fields, lifecycle.Open), handle=handle, deadline_ms=deadline_ms)

    def call(self, op: Op[Answer], handle: str | None = "q", *, deadline_ms: int = DEADLINE_MS) -> Answer:
        return self.driver.call(op, handle=handle, deadline_ms=deadline_ms)

    def event(self, handle: str, name: str) -> dict[str, Any]:
        """Arguments of the next event of this name."""
        return self.driver.wait_event(handle, names={name}, deadline_ms=EVENT_MS).args

    def hash(self, name: str) -> dict[str, str]:
        """A hash of queue `q`, read without the driver."""
        with self.server.connect() as client:
            return {key.decode(): value.decode() for key, value in client.hgetall(f"{self.prefix}:q:{name}").items()}


@pytest.fixture(scope="session")
def command() -> list[str]:
    python = ensure_python_environment(
        "python-official", PythonPackages.pinned(FOLDER / "requirements.txt"), announce=print
    )
    return [str(python), str(FOLDER / "driver.py")]


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=print) as server:
        yield server


@pytest.fixture(scope="session")
def driver(command: list[str]) -> Iterator[ChildProcess]:
    driver = ChildProcess.start(command, seed=1)
    yield driver
    driver.close()


@pytest.fixture
def bench(driver: ChildProcess, server: RedisInstance) -> Iterator[Bench]:
    bench = Bench(driver, server)
    bench.open("queue", "q")
    yield bench
    driver.call(lifecycle.Reset(), deadline_ms=DEADLINE_MS)


def eventually(probe: Callable[[], Any], expected: Any) -> None:
    """Poll until the value is there; fail with the last one seen."""
    deadline = time.monotonic() + 10
    while (seen := probe()) != expected:
        assert time.monotonic() < deadline, f"waited for {expected!r}, last seen {seen!r}"
        time.sleep(0.01)
