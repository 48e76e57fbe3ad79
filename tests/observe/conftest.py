from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis
from redis.cluster import RedisCluster

from conformance.servers.binary import any_binary
from conformance.servers.local import local_cluster, local_process


@pytest.fixture(scope="session")
def redis_port() -> Iterator[int]:
    with local_process(any_binary(print)) as server:
        yield server.port


@pytest.fixture
def redis(redis_port: int) -> Iterator[Redis]:
    with Redis(port=redis_port) as client:
        client.flushall()
        yield client


@pytest.fixture(scope="session")
def cluster() -> Iterator[RedisCluster]:
    """Two primaries with half of the slots each."""
    with local_cluster(any_binary(print), masters=2) as address:
        host, _, port = address.nodes[0].partition(":")
        with RedisCluster(host=host, port=int(port)) as client:
            yield client
