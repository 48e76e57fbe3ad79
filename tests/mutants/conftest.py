"""One Redis and one oracle for all mutants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conformance.environment.clients import find_toolchain
from conformance.mutants.matrix import MutantRunner
from conformance.reference_impl.scripts.runner import ScriptTexts, official_scripts
from conformance.servers import RedisInstance, open_server


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=print) as found:
        yield found


@pytest.fixture(scope="session")
def scripts() -> ScriptTexts:
    return official_scripts()


@pytest.fixture(scope="session")
def runner(server: RedisInstance, scripts: ScriptTexts) -> Iterator[MutantRunner]:
    with _runner(server, scripts) as runner:
        yield runner


@pytest.fixture(scope="session")
def cluster_runner(scripts: ScriptTexts) -> Iterator[MutantRunner]:
    with open_server("cluster:3", announce=print) as cluster, _runner(cluster, scripts) as runner:
        yield runner


@contextmanager
def _runner(server: RedisInstance, scripts: ScriptTexts) -> Iterator[MutantRunner]:
    toolchain = find_toolchain("", print)
    runner = MutantRunner(server, toolchain.oracle, scripts)
    try:
        yield runner
    finally:
        runner.close()
