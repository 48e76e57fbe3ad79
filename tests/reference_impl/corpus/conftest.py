"""The two clients of the corpus, each behind a tap, on one private Redis that knows all scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.driver.connection import DriverConnection
from conformance.observe.tap.tap import Tap
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers import RedisInstance
from tests.reference_impl.corpus.client_runs import CaseResult, CaseRunner
from tests.reference_impl.corpus.comparison import compare
from tests.reference_impl.corpus.steps import CorpusCase
from tests.reference_impl.corpus.traffic import EVERY_BYTE, TrafficRecorder


@pytest.fixture(scope="session")
def script_names(server: RedisInstance, scripts: ScriptTexts) -> dict[str, str]:
    """Names of scripts by SHA-1 and text. All are loaded: whether a server knows a script is not part of a case."""
    client: Any = server.connect()
    for script in scripts.values():
        client.execute_command("SCRIPT", "LOAD", script.text)
    by_digest = {script.sha1: script.name for script in scripts.values()}
    return by_digest | {script.text: script.name for script in scripts.values()}


@pytest.fixture(scope="session")
def oracle_recorder(server: RedisInstance) -> Iterator[TrafficRecorder]:
    with Tap(server.nodes[0], kept_bytes=EVERY_BYTE) as tap:
        yield TrafficRecorder(tap)


@pytest.fixture(scope="session")
def reference_recorder(server: RedisInstance) -> Iterator[TrafficRecorder]:
    with Tap(server.nodes[0], kept_bytes=EVERY_BYTE) as tap:
        yield TrafficRecorder(tap)


@pytest.fixture(scope="session")
def oracle(
    server: RedisInstance,
    oracle_driver: DriverConnection,
    script_names: dict[str, str],
    oracle_recorder: TrafficRecorder,
) -> CaseRunner:
    return CaseRunner(oracle_driver, server, oracle_recorder, script_names)


@pytest.fixture(scope="session")
def reference(
    server: RedisInstance,
    reference_driver: DriverConnection,
    script_names: dict[str, str],
    reference_recorder: TrafficRecorder,
) -> CaseRunner:
    return CaseRunner(reference_driver, server, reference_recorder, script_names)


@pytest.fixture(scope="session")
def reference_on_cluster(reference_driver: DriverConnection, cluster: RedisInstance) -> CaseRunner:
    """The same reference on three primaries, where every prefix is a hash tag."""
    return CaseRunner(reference_driver, cluster)


@pytest.fixture
def both(oracle: CaseRunner, reference: CaseRunner) -> Callable[[CorpusCase], tuple[CaseResult, CaseResult]]:
    return lambda case: (oracle.run(case), reference.run(case))


@pytest.fixture
def differences(both: Callable[[CorpusCase], tuple[CaseResult, CaseResult]]) -> Callable[[CorpusCase], list[str]]:
    """All differences between the clients in a case."""
    return lambda case: compare(*both(case), case.context)
