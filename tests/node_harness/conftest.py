"""The smallest kit that can talk to a driver: one JSON line out, one JSON line back, and events kept aside."""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis

from conformance.driver.ops import REGISTRY
from conformance.servers.binary import any_binary
from conformance.servers.local import local_process
from conformance.upstream.node import NodeBinary, find_node
from conformance.upstream.package import BullMQPackage, driver_command, ensure_package

Line = dict[str, Any]
DEADLINE_S = 10.0


class LineClient:
    """A started driver. Every wait has a deadline, and reports on expiry what came instead."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.events: list[Line] = []
        self.log = b""
        self._logged = threading.Condition()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._results: dict[int, Line] = {}
        self._last_id = 0
        for work in (self._read_stdout, self._read_stderr):
            threading.Thread(target=work, daemon=True).start()

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._logged:
                self.log += line
                self._logged.notify_all()

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def hello(self, *, seed: int = 1, within_s: float = DEADLINE_S) -> Line:
        self.write(json.dumps({"type": "hello", "protocol": 1, "seed": seed}).encode())
        return self._next_line(time.monotonic() + within_s)

    def start(self, op: str, handle: str | None = None, *, now_ms: int | None = None, **args: Any) -> int:
        """Send a call without waiting for its result; answers its id."""
        self._last_id += 1
        call: Line = {"type": "call", "id": self._last_id, "op": op, "args": args}
        if handle is not None:
            call["handle"] = handle
        if now_ms is not None:
            call["now_ms"] = now_ms
        self.write(json.dumps(call).encode())
        return self._last_id

    def result(self, call_id: int) -> Line:
        deadline = time.monotonic() + DEADLINE_S
        while call_id not in self._results:
            self._sort(self._next_line(deadline))
        return self._results.pop(call_id)

    def call(self, op: str, handle: str | None = None, *, now_ms: int | None = None, **args: Any) -> Line:
        return self.result(self.start(op, handle, now_ms=now_ms, **args))

    def ok(self, op: str, handle: str | None = None, *, now_ms: int | None = None, **args: Any) -> Any:
        """Call, and answer the value; anything but `ok` and an answer of the right type fails the test."""
        result = self.call(op, handle, now_ms=now_ms, **args)
        assert result["status"] == "ok", result
        msgspec.convert(result["value"], REGISTRY[op].answer)
        return result["value"]

    def error(self, op: str, handle: str | None = None, **args: Any) -> Line:
        """Call, and answer the error; anything but `fail` fails the test."""
        result = self.call(op, handle, **args)
        assert result["status"] == "fail", result
        error: Line = result["error"]
        return error

    def event(self, handle: str, name: str, /, **expected: Any) -> Line:
        """Wait for an event and take it out; `expected` are arguments that it must have. Answers its arguments."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for event in self.events:
                args: Line = event["args"]
                if (event["handle"], event["name"]) == (handle, name) and expected.items() <= args.items():
                    self.events.remove(event)
                    return args
            self._sort(self._next_line(deadline, f"no {name} {expected} of {handle}"))

    def wait_for_log(self, text: str) -> None:
        """Wait until the driver has written this on stderr."""
        deadline = time.monotonic() + DEADLINE_S
        with self._logged:
            while text.encode() not in self.log:
                assert self._logged.wait(deadline - time.monotonic()), f"no {text!r} in the log: {self.log.decode()}"

    def end(self) -> int:
        """Close stdin and answer the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DEADLINE_S)

    def _sort(self, line: Line) -> None:
        if line["type"] == "event":
            self.events.append(line)
        else:
            self._results[line["id"]] = line

    def _next_line(self, deadline: float, waiting_for: str = "no line") -> Line:
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"{waiting_for}; events: {self.events}; log: {self.log.decode()}") from None
        parsed: Line = json.loads(line.decode("utf-8", errors="strict"))
        return parsed


_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def redis_port() -> Iterator[int]:
    with local_process(any_binary(print)) as server:
        yield server.port


@pytest.fixture
def store(redis_port: int) -> Iterator[redis.Redis]:
    """The state that the driver left in Redis, as bytes."""
    with redis.Redis(port=redis_port) as client:
        yield client


@pytest.fixture(scope="session")
def node() -> NodeBinary:
    return find_node(None)


@pytest.fixture(scope="session")
def package(node: NodeBinary) -> BullMQPackage:
    return ensure_package(node, announce=print)


@pytest.fixture
def start_driver(package: BullMQPackage, node: NodeBinary) -> Iterator[Callable[..., LineClient]]:
    started: list[LineClient] = []

    def start(with_node: NodeBinary = node) -> LineClient:
        client = LineClient(*driver_command(with_node, package))
        started.append(client)
        return client

    yield start
    for client in started:
        client.process.kill()
        client.process.wait()


@pytest.fixture
def driver(start_driver: Callable[..., LineClient]) -> LineClient:
    client = start_driver()
    client.hello()
    return client


@pytest.fixture(scope="session")
def kept_driver(package: BullMQPackage, node: NodeBinary) -> Iterator[LineClient]:
    """One process for all tests that ask what operations do: `reset` puts everything back between them."""
    client = LineClient(*driver_command(node, package))
    client.hello()
    yield client
    client.process.kill()
    client.process.wait()


@pytest.fixture
def operating(kept_driver: LineClient) -> Iterator[LineClient]:
    """The driver for one test."""
    yield kept_driver
    kept_driver.ok("reset")
    kept_driver.events.clear()


@pytest.fixture
def prefix() -> str:
    """A key prefix of its own for every test."""
    return f"t{next(_numbers)}"


Open = Callable[..., LineClient]


@pytest.fixture
def opened(driver: LineClient, redis_port: int, prefix: str) -> Open:
    """Open a handle on queue `q`; answers the driver, a process of this test alone."""
    return opener(driver, redis_port, prefix)


@pytest.fixture
def opened_on_kept(operating: LineClient, redis_port: int, prefix: str) -> Open:
    """The same on the process that tests share."""
    return opener(operating, redis_port, prefix)


def opener(driver: LineClient, redis_port: int, prefix: str) -> Open:
    def open_handle(role: str, handle: str, *, now_ms: int | None = None, **args: object) -> LineClient:
        address = {"mode": "standalone", "nodes": [f"127.0.0.1:{redis_port}"]}
        driver.ok("open", handle, now_ms=now_ms, role=role, queue="q", prefix=prefix, redis=address, **args)
        return driver

    return open_handle
