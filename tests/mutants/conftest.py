"""One Redis and one oracle for all mutants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conformance.environment.clients import find_toolchain
from conformance.mutants.matrix import Arena
from conformance.reference_impl.scripts.official import official_scripts
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers import Server, open_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with open_server(None, announce=print) as found:
        yield found


@pytest.fixture(scope="session")
def scripts() -> ScriptTexts:
    return official_scripts()


@pytest.fixture(scope="session")
def arena(server: Server, scripts: ScriptTexts) -> Iterator[Arena]:
    with _arena(server, scripts) as made:
        yield made


@pytest.fixture(scope="session")
def cluster_arena(scripts: ScriptTexts) -> Iterator[Arena]:
    with open_server("cluster:3", announce=print) as cluster, _arena(cluster, scripts) as made:
        yield made


@contextmanager
def _arena(server: Server, scripts: ScriptTexts) -> Iterator[Arena]:
    toolbox = find_toolchain("", print)
    made = Arena(server, toolbox.oracle, scripts)
    try:
        yield made
    finally:
        made.leave()
