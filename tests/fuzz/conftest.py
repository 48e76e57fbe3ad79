"""A Redis of the tests' own: what is fuzzed forgets scripts and loses connections on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.environment.clients import Launch
from conformance.servers import RedisInstance, open_server

from .hunting import oracle_of_this_machine


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=print) as found:
        yield found


@pytest.fixture(scope="session")
def oracle() -> Launch:
    return oracle_of_this_machine()
