from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from conformance.servers import RedisInstance, open_server
from reports.session import SparkSettings, spark_session


@pytest.fixture(scope="session")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=lambda _: None) as opened:
        yield opened


@pytest.fixture
def prefix(server: RedisInstance) -> Iterator[str]:
    name = server.fresh_prefix()
    yield name
    server.remove_prefix(name)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One JVM for all tests that need one: they are marked with the xdist group `spark`."""
    settings = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    with spark_session(SparkSettings(master="local[2]", memory="1g", properties=settings)) as session:
        yield session
