from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.servers import RedisInstance, open_server


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=lambda _: None) as opened:
        yield opened


@pytest.fixture
def prefix(server: RedisInstance) -> Iterator[str]:
    name = server.fresh_prefix()
    yield name
    server.remove_prefix(name)
