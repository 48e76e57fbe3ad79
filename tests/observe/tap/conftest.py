"""A private Redis behind a tap, sockets that speak RESP, and Node's BullMQ as the client."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import msgspec
import pytest

from conformance.driver.ops import REGISTRY
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.transports import ChildProcess
from conformance.observe.tap.frames import ReplyParser
from conformance.observe.tap.resp import decode, encode_command, plain
from conformance.observe.tap.tap import Tap
from conformance.servers import RedisInstance, open_server
from conformance.upstream.manifest import script_names_by_sha1
from conformance.upstream.node import find_node
from conformance.upstream.package import driver_command, ensure_package

DEADLINE_MS = 10_000


def eventually(condition: Callable[[], Any], seen: Callable[[], object], within_s: float = 10.0) -> Any:
    """Wait for a condition; on expiry the failure shows what was seen instead."""
    ends = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < ends, f"waited {within_s} s in vain; seen: {seen()}"
        time.sleep(0.002)
    return found


class Wire:
    """A client of the simplest kind: bytes to and from one address."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=DEADLINE_MS / 1000)
        self._parser = ReplyParser()
        self._replies: list[bytes] = []

    def send(self, *words: bytes | str | int) -> None:
        self.socket.sendall(encode_command(words))

    def ask(self, *words: bytes | str | int) -> Any:
        self.send(*words)
        return self.reply()

    def quickest_s(self, *words: bytes | str | int) -> float:
        """The shortest of five round trips (s): a busy machine makes some of them late, and none early."""
        times = []
        for _ in range(5):
            started = time.monotonic()
            self.ask(*words)
            times.append(time.monotonic() - started)
        return min(times)

    def reply(self) -> Any:
        return plain(decode(self.raw_reply()))

    def raw_reply(self) -> bytes:
        while not self._replies:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError(f"closed after {self._parser.unread!r}")
            self._replies += self._parser.feed(data)
        return self._replies.pop(0)

    def rest(self) -> bytes:
        """Everything until the connection ends."""
        received = b"".join(self._replies) + self._parser.unread
        while True:
            data = self.socket.recv(65536)
            if not data:
                return received
            received += data

    def silent_for(self, seconds: float) -> bool:
        """Whether nothing arrives for this time. The only way to see that something does not happen."""
        self.socket.settimeout(seconds)
        try:
            return not self._replies and self.socket.recv(1, socket.MSG_PEEK) is None
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(DEADLINE_MS / 1000)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def in_background(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start something in a thread; calling the answer waits for its result, and raises what it raised."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((True, work()))
        except Exception as error:  # noqa: BLE001 - raised again where the result is wanted
            outcome.append((False, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(DEADLINE_MS / 1000)
        assert outcome, "it is still not done"
        done, value = outcome[0]
        if not done:
            raise value
        return value

    return result


@pytest.fixture(scope="session")
def names() -> dict[str, str]:
    """Names of the official scripts by SHA-1."""
    return script_names_by_sha1()


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=print) as opened:
        yield opened


@pytest.fixture
def redis(server: RedisInstance) -> Iterator[Any]:
    """Around the tap: what Redis really holds."""
    with server.connect() as client:
        client.flushall()
        yield client


@pytest.fixture
def tap(server: RedisInstance, redis: Any, names: dict[str, str]) -> Iterator[Tap]:
    del redis
    with Tap(server.nodes[0], scripts=names) as opened:
        yield opened


@pytest.fixture
def wire(tap: Tap) -> Iterator[Wire]:
    with Wire(tap.address) as connected:
        yield connected


@pytest.fixture(scope="session")
def node_driver() -> Iterator[ChildProcess]:
    node = find_node(None)
    command, env = driver_command(node, ensure_package(node, announce=print))
    driver = ChildProcess.start(command, seed=1, env=env)
    yield driver
    driver.close()


class Node:
    """BullMQ on Node, which knows Redis by the address of the tap."""

    def __init__(self, driver: ChildProcess, address: RedisAddress, prefix: str) -> None:
        self.driver = driver
        self.prefix = prefix
        self._redis = msgspec.to_builtins(address)

    def open(self, handle: str, role: str, queue: str = "q", **more: Any) -> None:
        self.do("open", handle, role=role, queue=queue, prefix=self.prefix, redis=self._redis, **more)

    def do(self, op: str, handle: str = "q", *, deadline_ms: int = 20_000, **args: Any) -> Any:
        request = msgspec.convert(args, REGISTRY[op])
        return msgspec.to_builtins(self.driver.call(request, handle=handle, deadline_ms=deadline_ms))

    def wait(self, handle: str, *event_names: str) -> dict[str, Any]:
        return self.driver.wait_event(handle, names=set(event_names), deadline_ms=DEADLINE_MS).args


@pytest.fixture
def node(node_driver: ChildProcess, tap: Tap, server: RedisInstance) -> Iterator[Node]:
    client = Node(node_driver, RedisAddress(mode="standalone", nodes=[tap.address]), server.fresh_prefix())
    yield client
    node_driver.call(REGISTRY["reset"](), deadline_ms=20_000)
    server.remove_prefix(client.prefix)
