"""A private Redis and the oracle's driver, for the tests that ask the oracle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.environment.clients import find_toolchain
from conformance.environment.drivers import RestartableDriver
from conformance.fuzz.setup import FuzzedDrivers
from conformance.fuzz.target import FuzzTarget
from conformance.servers import open_server

from .bench import Bench


@pytest.fixture(scope="session")
def target() -> Iterator[FuzzTarget]:
    oracle = RestartableDriver(find_toolchain("", print).oracle, 0)
    with open_server(None, announce=print) as server:
        found = FuzzTarget(FuzzedDrivers(server, oracle, None), "model")
        yield found
        found.close()


@pytest.fixture
def bench(target: FuzzTarget) -> Iterator[Bench]:
    bench = Bench(target)
    yield bench
    target.end(bench.runner)
