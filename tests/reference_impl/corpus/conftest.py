"""The two clients of the corpus, each behind a tap, on one private Redis that knows all scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.driver.connection import DriverConnection
from conformance.observe.tap.tap import Tap
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers import Server

from .comparing import compare
from .ear import EVERY_BYTE, Ear
from .side import Seen, Side
from .steps import Case


@pytest.fixture(scope="session")
def script_names(server: Server, scripts: ScriptTexts) -> dict[str, str]:
    """Names of scripts by SHA-1 and text. All are loaded: whether a server knows a script is no part of a case."""
    client: Any = server.connect()
    for script in scripts.values():
        client.execute_command("SCRIPT", "LOAD", script.text)
    by_digest = {script.sha1: script.name for script in scripts.values()}
    return by_digest | {script.text: script.name for script in scripts.values()}


@pytest.fixture(scope="session")
def oracle_ear(server: Server) -> Iterator[Ear]:
    with Tap(server.nodes[0], kept_bytes=EVERY_BYTE) as tap:
        yield Ear(tap)


@pytest.fixture(scope="session")
def reference_ear(server: Server) -> Iterator[Ear]:
    with Tap(server.nodes[0], kept_bytes=EVERY_BYTE) as tap:
        yield Ear(tap)


@pytest.fixture(scope="session")
def oracle(server: Server, oracle_driver: DriverConnection, script_names: dict[str, str], oracle_ear: Ear) -> Side:
    return Side(oracle_driver, server, oracle_ear, script_names)


@pytest.fixture(scope="session")
def reference(
    server: Server, reference_driver: DriverConnection, script_names: dict[str, str], reference_ear: Ear
) -> Side:
    return Side(reference_driver, server, reference_ear, script_names)


@pytest.fixture(scope="session")
def reference_on_cluster(reference_driver: DriverConnection, cluster: Server) -> Side:
    """The same reference on three primaries, where every prefix is a hash tag."""
    return Side(reference_driver, cluster)


@pytest.fixture
def both(oracle: Side, reference: Side) -> Callable[[Case], tuple[Seen, Seen]]:
    """Take a case through both clients."""
    return lambda case: (oracle.run(case), reference.run(case))


@pytest.fixture
def differences(both: Callable[[Case], tuple[Seen, Seen]]) -> Callable[[Case], list[str]]:
    """All differences between the clients in a case."""
    return lambda case: compare(*both(case), case.context)
