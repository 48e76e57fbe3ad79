from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis
from redis.cluster import RedisCluster
from redis.exceptions import RedisError

from conformance.servers.binary import any_binary

DEADLINE_S = 20.0


def wait_for(condition: Callable[[], bool], describe: Callable[[], str]) -> None:
    """Wait until the condition holds; on expiry show what was seen."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s; last seen: {describe()}"
        time.sleep(0.01)


def free_port() -> int:
    """A port that is free, and whose cluster bus port exists too."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port < 55000:
            return port


@contextmanager
def redis_server(folder: str, *options: str) -> Iterator[int]:
    """A private server on loopback."""
    port = free_port()
    command = [
        any_binary(print).path,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        folder,
        "--save",
        "",
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with Redis(port=port) as client:
            wait_for(lambda: _answers(client), lambda: f"no PONG from port {port}, exit code {process.poll()}")
        yield port
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE_S)


def _answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_server(str(tmp_path_factory.mktemp("redis"))) as port:
        yield port


@pytest.fixture
def redis(redis_port: int) -> Iterator[Redis]:
    with Redis(port=redis_port) as client:
        client.flushall()
        yield client


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Two primaries with half of the slots record."""
    folders = [str(tmp_path_factory.mktemp(name)) for name in ("one", "two")]
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
    with redis_server(folders[0], *options) as first, redis_server(folders[1], *options) as second:
        nodes: list[Any] = [Redis(port=port, decode_responses=True) for port in (first, second)]
        nodes[0].execute_command("CLUSTER ADDSLOTS", *range(8192))
        nodes[1].execute_command("CLUSTER ADDSLOTS", *range(8192, 16384))
        nodes[0].execute_command(f"CLUSTER MEET 127.0.0.1 {second}")

        def state() -> str:
            return " / ".join(str(node.execute_command("CLUSTER INFO")) for node in nodes)

        wait_for(lambda: state().count("cluster_state': 'ok'") == 2 or state().count("cluster_state:ok") == 2, state)
        with RedisCluster(host="127.0.0.1", port=first) as client:
            yield client
        for node in nodes:
            node.close()
