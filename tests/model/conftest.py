"""A private Redis and the oracle's driver, for the tests that ask the oracle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.driver.transports import ChildProcess
from conformance.servers import RedisInstance, open_server
from conformance.upstream.node import find_node
from conformance.upstream.package import driver_command, ensure_package

from .bench import Bench


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=print) as opened:
        yield opened


@pytest.fixture(scope="session")
def oracle() -> Iterator[ChildProcess]:
    node = find_node(None)
    command, environment = driver_command(node, ensure_package(node, announce=print))
    driver = ChildProcess.start(command, seed=1, env=environment)
    yield driver
    driver.close()


@pytest.fixture
def bench(server: RedisInstance, oracle: ChildProcess) -> Iterator[Bench]:
    with server.connect() as redis:
        bench = Bench(oracle, server, redis)
        yield bench
        bench.leave()
