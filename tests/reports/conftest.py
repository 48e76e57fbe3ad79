from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.servers import Server, open_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with open_server(None, announce=lambda _: None) as opened:
        yield opened


@pytest.fixture
def prefix(server: Server) -> Iterator[str]:
    name = server.fresh_prefix()
    yield name
    server.remove_prefix(name)
