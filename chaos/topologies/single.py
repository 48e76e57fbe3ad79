"""One server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chaos.redis_process import Persistence, RedisProcess
from chaos.topologies.base import Topology
from conformance.servers.binary import Binary


@contextmanager
def single(binary: Binary, persistence: Persistence) -> Iterator[Topology]:
    """Run it for the duration of the block. Raises EnvironmentProblem."""
    server = RedisProcess(binary, persistence=persistence)
    try:
        server.start()
        yield Topology("single", [server], [server.node], lambda: server)
    finally:
        server.close()
