from __future__ import annotations

import itertools
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from conformance.servers.binary import any_binary
from conformance.upstream.node import Node, find_node
from conformance.upstream.package import Package, driver_command, ensure_package

from .line_client import LineClient

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A private Redis on a free port of the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    folder: Path = tmp_path_factory.mktemp("redis")
    command = [any_binary(print).path, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen([*command, "--dir", str(folder)], stdout=subprocess.DEVNULL) as server:
        try:
            _wait_until_it_answers(port)
            yield port
        finally:
            server.terminate()


def _wait_until_it_answers(port: int) -> None:
    deadline = time.monotonic() + 10
    with redis.Redis(port=port) as client:
        while True:
            try:
                client.ping()
            except redis.ConnectionError as error:
                if time.monotonic() > deadline:
                    pytest.fail(f"Redis on port {port} does not answer: {error}")
            else:
                return


@pytest.fixture
def store(redis_port: int) -> Iterator[redis.Redis]:
    """What the driver really left in Redis, as bytes."""
    with redis.Redis(port=redis_port) as client:
        yield client


@pytest.fixture(scope="session")
def node() -> Node:
    return find_node(None)


@pytest.fixture(scope="session")
def package(node: Node) -> Package:
    return ensure_package(node, announce=print)


@pytest.fixture
def start_driver(package: Package, node: Node) -> Iterator[Callable[..., LineClient]]:
    started: list[LineClient] = []

    def start(with_node: Node = node) -> LineClient:
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


@pytest.fixture
def prefix() -> str:
    """A key prefix of its own for every test."""
    return f"t{next(_numbers)}"


@pytest.fixture
def opened(driver: LineClient, redis_port: int, prefix: str) -> Callable[..., LineClient]:
    """Open a handle on queue `q`; answers the driver."""

    def open_handle(role: str, handle: str, *, now_ms: int | None = None, **args: object) -> LineClient:
        address = {"mode": "standalone", "nodes": [f"127.0.0.1:{redis_port}"]}
        driver.ok("open", handle, now_ms=now_ms, role=role, queue="q", prefix=prefix, redis=address, **args)
        return driver

    return open_handle
